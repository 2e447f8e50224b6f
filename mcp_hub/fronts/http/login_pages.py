"""The pages on which people log in to their own accounts at servers, without scripts.

    /login/SERVER            GET shows who will get an account, and changes nothing; POST (the click) uses the link up
    /login-callback/SERVER   where the authorization server sends the browser back to
    /login-form/SERVER       takes the values of an account without a login
    /login-cancel/SERVER     throws the login of this browser away

A browser is known by a cookie of its login alone. All text is of strangers, and escaped.
"""

import hashlib
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from html import escape
from typing import Final, Protocol
from urllib.parse import parse_qsl, quote, urlsplit

import anyio
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mcp_hub.errors import HubError, Rejected
from mcp_hub.fronts.http.admission import discard, media_type, read_body
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head, shown

log = get_logger(__name__)

_LARGEST: Final = 64 << 10
"""Bytes of a form."""
_MOST_FIELDS: Final = 64
_AT_ONCE: Final = 64
"""Requests that are answered at once, since anybody may send one; more get 503."""
_SECONDS: Final = 600
"""The life of a cookie: that of a step."""
_STYLE: Final = """
:root{color-scheme:light;--bg:#f6f7f8;--panel:#fff;--line:#c9cfd4;--text:#1b2127;--dim:#56616c;--accent:#0b6b63;
--on:#fff;--warn:#8a5300;--soft:#fbeed6;font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans",sans-serif}
@media(prefers-color-scheme:dark){:root{color-scheme:dark;--bg:#121517;--panel:#1a1e21;--line:#3d454c;--text:#e4e8eb;
--dim:#9ea8b1;--accent:#5cc8bd;--on:#06201d;--warn:#e8b45a;--soft:#3a2c10}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--text);overflow-wrap:anywhere}
main{max-width:33rem;margin:6vh auto 2rem;padding:0 1rem}
section{background:var(--panel);border:1px solid var(--line);border-radius:10px;padding:1.3rem 1.4rem 1.4rem}
.brand{color:var(--dim);font-weight:600;font-size:.9rem;margin:0 .2rem .7rem}
h1{font-size:1.35rem;line-height:1.25;margin:0 0 .8rem}p{margin:.6rem 0}
bdi,code{unicode-bidi:isolate}bdi{font-weight:600}
dl{display:grid;grid-template-columns:auto 1fr;gap:.3rem .9rem;margin:1rem 0}dt{color:var(--dim)}dd{margin:0}
code{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.code{display:block;font:700 2.3rem/1.2 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;letter-spacing:.16em;
text-align:center;margin:1.1rem 0;padding:.7rem .3rem .7rem .5rem;border:1px dashed var(--line);border-radius:8px}
.command{display:block;background:var(--bg);border:1px solid var(--line);border-radius:6px;padding:.5rem .7rem}
button,.go{display:block;width:100%;min-height:2.9rem;margin:1.2rem 0 0;border:1px solid var(--accent);
border-radius:8px;background:var(--accent);color:var(--on);font:inherit;font-weight:600;padding:.7rem 1rem;
text-align:center;text-decoration:none;cursor:pointer}
button.plain{background:none;color:var(--text);border-color:var(--dim);font-weight:500;margin-top:.7rem}
label,legend{display:block;margin:1rem 0 .3rem;font-weight:600;padding:0}
fieldset{border:0;margin:0;padding:0;min-width:0}
input[type=password]{width:100%;font:inherit;min-height:2.7rem;padding:.4rem .6rem;border:1px solid var(--dim);
border-radius:7px;background:var(--bg);color:var(--text)}
.choice{display:flex;gap:.6rem;align-items:baseline;font-weight:400;margin:0;padding:.55rem .2rem;
border-top:1px solid var(--line)}
.choice input{accent-color:var(--accent);width:1.05rem;height:1.05rem;flex:none}
.note{background:var(--soft);color:var(--warn);border-radius:7px;padding:.6rem .8rem;margin:1rem 0 0}
.dim{color:var(--dim);font-size:.9rem}:focus-visible{outline:3px solid var(--accent);outline-offset:2px}
"""
_HASH: Final = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # a form without a referrer would be sent with `Origin: null`; other origins get none
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "x-robots-tag": "noindex",
}
_STATUS: Final = {"login_unavailable": 503, "login_failed": 502, "link_expired": 410, "login_unknown": 403}
"""By the code of a `Rejected`; any other is 400."""


class _Login(Protocol):
    """A pending login, as far as pages show it."""

    @property
    def server(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def fields(self) -> tuple[str, ...]: ...
    @property
    def state(self) -> str: ...
    @property
    def label(self) -> str: ...
    @property
    def code(self) -> str: ...


class LoginCounter(Protocol):
    """The desk where people log in. All that is awaited raises `Rejected` for the person to read, and `StoreError`.

    `base` is the public address, to which a browser must have come.
    """

    @property
    def base(self) -> str | None: ...

    async def offer(self, server: str, principal: str, fields: tuple[str, ...] = ()) -> tuple[_Login, str]:
        """A link for the principal."""

    async def confirm(self, server: str, principal: str, code: str) -> _Login:
        """Makes the login whose code this is the principal's account."""

    async def look(self, server: str, ticket: str) -> _Login:
        """The login of a link."""

    async def click(self, server: str, ticket: str) -> tuple[_Login, str, str]:
        """Uses a link up: its login, a cookie, and the next page; "": a form."""

    async def came_back(self, server: str, cookie: str, returned: Mapping[str, str]) -> _Login:
        """The login that awaits its code."""

    async def submit(self, server: str, cookie: str, proof: str, values: Mapping[str, str]) -> _Login:
        """The login whose values a form has, which awaits its code."""

    async def cancel(self, server: str, cookie: str, proof: str) -> None: ...


class _Pages:
    """The pages of one server."""

    def __init__(self, desk: LoginCounter, server: str, slots: anyio.Semaphore) -> None:
        self._desk = desk
        self._server = server
        self._slots = slots

    def routes(self) -> Mapping[str, Route]:
        """By path. Endpoints look a path up whole: `Route` matches nothing."""
        each: tuple[tuple[str, list[str], Callable[[Request], Awaitable[Response]]], ...] = (
            ("login", ["GET", "POST"], self._login),
            ("login-callback", ["GET"], self._came_back),
            ("login-form", ["POST"], self._submit),
            ("login-cancel", ["POST"], self._cancel),
        )
        return {
            f"/{path}/{self._server}": Route(f"/{path}", self._guarded(answer), methods=methods)
            for path, methods, answer in each
        }

    def _guarded(self, answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        async def guarded(request: Request) -> Response:
            try:
                self._slots.acquire_nowait()
            except anyio.WouldBlock:
                return _refused("The hub is busy", "Load this page again in a moment.", 503)
            try:
                return await answer(request)
            except Rejected as refused:
                return _refused(
                    _TITLES.get(refused.code, "This did not work"), str(refused), _STATUS.get(refused.code, 400)
                )
            except HubError as problem:
                log.warning("login_page_failed", upstream=self._server, reason=str(problem))
                return _refused("The hub cannot do this now", "Its log has the reason. Try again later.", 503)
            finally:
                self._slots.release()

        return guarded

    async def _login(self, request: Request) -> Response:
        if request.method == "POST":
            return await self._clicked(request)
        ticket = request.query_params.get("t", "")
        return page(
            f"Connect {self._server}", _asked(await self._desk.look(self._server, ticket), self._action, ticket)
        )

    async def _clicked(self, request: Request) -> Response:
        form = await self._form(request)
        login, cookie, target = await self._desk.click(self._server, form.get("t", ""))
        response = page(
            f"Connect {self._server}", _form(login, self._action) if not target else _leaving(login, target)
        )
        is_safe = self._is_safe
        response.set_cookie(
            self._cookie, cookie, max_age=_SECONDS, path="/", secure=is_safe, httponly=True, samesite="lax"
        )
        return response

    async def _came_back(self, request: Request) -> Response:
        returned: dict[str, str] = {}
        for name, value in request.query_params.multi_items():
            if returned.setdefault(name, value) != value:  # nobody knows which of the two is meant
                raise Rejected("login_unknown", f"The address has {hide_head(name, 40)!r} twice.")
        login = await self._desk.came_back(self._server, self._cookie_of(request), returned)
        return page("One more step", _coded(login, self._action, self._desk.base or ""))

    async def _submit(self, request: Request) -> Response:
        form = await self._form(request)
        values = {name[2:]: value for name, value in form.items() if name.startswith("v:")}
        login = await self._desk.submit(self._server, self._cookie_of(request), form.get("proof", ""), values)
        return page("One more step", _coded(login, self._action, self._desk.base or ""))

    async def _cancel(self, request: Request) -> Response:
        form = await self._form(request)
        await self._desk.cancel(self._server, self._cookie_of(request), form.get("proof", ""))
        text = "<h1>Thrown away</h1><p>Nothing was connected. You can close this page.</p>"
        response = page("Thrown away", text)
        response.delete_cookie(self._cookie, path="/", secure=self._is_safe, httponly=True, samesite="lax")
        return response

    def _action(self, path: str) -> str:
        return f"{urlsplit(self._desk.base or '').path}/{path}/{quote(self._server, safe='')}"

    @property
    def _is_safe(self) -> bool:
        return (self._desk.base or "").startswith("https:")

    @property
    def _cookie(self) -> str:
        """One per server: two logins at once do not meet."""
        name = f"login-{hashlib.sha256(self._server.encode()).hexdigest()[:8]}"
        return f"__Host-{name}" if self._is_safe else name

    def _cookie_of(self, request: Request) -> str:
        return request.cookies.get(self._cookie, "")

    async def _form(self, request: Request) -> dict[str, str]:
        """The fields of a form that a page of the hub has sent, the first of each name."""
        headers = {name.lower(): value for name, value in request.scope["headers"]}
        origin = headers.get(b"origin")
        base = urlsplit(self._desk.base or "")
        is_own = origin is None or origin.decode("latin-1").lower() == f"{base.scheme}://{base.netloc}".lower()
        if not is_own or headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
            raise Rejected("login_unknown", "Another site has sent this form.")
        if media_type(headers) != b"application/x-www-form-urlencoded":
            raise Rejected("invalid_body", "This is not a form.")
        body = await read_body(request.receive, _LARGEST)
        if body is None:
            await discard(request.receive)
            raise Rejected("body_too_large", f"The form has more than {_LARGEST} bytes.")
        try:
            fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise Rejected("invalid_body", "The form cannot be read.") from None
        return dict(reversed(fields))


def login_pages(desk: LoginCounter) -> Callable[[Iterable[str]], dict[str, Route]]:
    """A function that gives the pages of servers by path."""
    slots = anyio.Semaphore(_AT_ONCE)
    return lambda servers: {
        path: route for server in servers for path, route in _Pages(desk, server, slots).routes().items()
    }


_TITLES: Final = {
    "link_expired": "This link does not work any more",
    "login_unknown": "This login is not known here",
    "login_failed": "The login failed",
    "login_unavailable": "There is no login here now",
}
_AGAIN: Final = "Go back to where you began, and call the tool again: it gives you a new link."
_Action = Callable[[str], str]


def page(title: str, content: str, status: int = 200, *, leads_to: str = "") -> HTMLResponse:
    """A whole page. `leads_to`: a source to which its form may lead in the end."""
    policy = (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'self' {leads_to}".rstrip()
        + "; frame-ancestors 'none'"
    )
    body = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{text(title)} · mcp-hub</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>'
        f'<body><main><p class="brand">mcp-hub</p><section>{content}</section></main></body></html>'
    )
    return HTMLResponse(body, status, headers={**_HEADERS, "content-security-policy": policy})


def _refused(title: str, reason: str, status: int) -> Response:
    return page(title, f"<h1>{text(title)}</h1><p>{text(reason)}</p><p>{_AGAIN}</p>", status)


def text(words: str) -> str:
    """A stranger's text: secrets masked, control characters visible, nothing of it markup."""
    return escape(shown(words))


def _who(login: _Login) -> str:
    account = f"<dt>Account</dt><dd><bdi>{text(login.label)}</bdi></dd>" if login.label else ""
    return (
        f"<dl><dt>Server</dt><dd><bdi>{text(login.server)}</bdi></dd>{account}"
        f"<dt>For</dt><dd><bdi>{text(login.principal)}</bdi></dd></dl>"
    )


def _hidden(name: str, value: str) -> str:
    return f'<input type="hidden" name="{name}" value="{escape(value)}">'


def _asked(login: _Login, action: _Action, ticket: str) -> str:
    server, step = f"<bdi>{text(login.server)}</bdi>", "enter your keys for" if login.fields else "log in to"
    return (
        f"<h1>Connect {server}</h1>"
        f"<p>You are about to {step} {server}. Whoever uses this hub as the person below works with that account "
        f"from then on.</p>{_who(login)}"
        f'<form method="post" action="{escape(action("login"))}">{_hidden("t", ticket)}'
        f"<button>Go on to {server}</button></form>"
        '<p class="note">Did somebody send you this link? Then close the page: the account would be theirs to use.</p>'
        '<p class="dim">The link works once, for ten minutes.</p>'
    )


def _leaving(login: _Login, page: str) -> str:
    """A policy for forms would stop a redirect in some browsers, so the page itself continues."""
    url = urlsplit(page)
    return (
        f'<meta http-equiv="refresh" content="0;url={escape(page)}">'
        f"<h1>Going to <bdi>{text(url.netloc)}</bdi></h1>{_who(login)}"
        f'<a class="go" href="{escape(page)}" rel="noreferrer">Go on</a>'
    )


def _form(login: _Login, action: _Action) -> str:
    inputs = "".join(
        f'<label for="v{n}">{text(name)}</label>'
        f'<input id="v{n}" name="v:{escape(name)}" type="password" autocomplete="off" required maxlength="16384">'
        for n, name in enumerate(login.fields)
    )
    return (
        f"<h1>Your account at <bdi>{text(login.server)}</bdi></h1>{_who(login)}"
        f'<form method="post" action="{escape(action("login-form"))}">{_hidden("proof", login.state)}{inputs}'
        "<button>Store</button></form>"
        '<p class="dim">What you enter is stored encrypted, and is never shown again.</p>'
        f"{_throw_away(login, action)}"
    )


def _coded(login: _Login, action: _Action, base: str) -> str:
    command = f"mcp-hub account confirm {_argument(login.server)} {login.code} --url {_argument(base)}"
    return (
        f"<h1>One more step</h1><p>This account will belong to the person below. Enter the code where you began:</p>"
        f'<output class="code">{escape(login.code)}</output>{_who(login)}'
        f"<p>Your client asks for it. If it cannot ask, run this with your token of the hub in MCP_HUB_TOKEN:</p>"
        f'<code class="command">{text(command)}</code>'
        '<p class="note">Give the code to nobody, whoever asks. It is good for ten minutes and three tries.</p>'
        f"{_throw_away(login, action)}"
    )


def _argument(text: str) -> str:
    is_plain = text.isascii() and all(char.isalnum() or char in "-_./:" for char in text)
    return text if is_plain and not text.startswith("-") else "'" + text.replace("'", "'\\''") + "'"


def _throw_away(login: _Login, action: _Action) -> str:
    return (
        f'<form method="post" action="{escape(action("login-cancel"))}">{_hidden("proof", login.state)}'
        '<button class="plain">This was not me: throw the login away</button></form>'
    )
