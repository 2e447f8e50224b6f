"""People who let clients in, their pages, and callers that come by a grant.

A grant lasts as long as the token by which a person consented, and while that may use the profile. On pages names of
clients and principals, addresses and profiles are texts of others: escaped, and set apart.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from html import escape
from typing import Final, Protocol

import msgspec
from starlette.responses import HTMLResponse

from mcp_hub.errors import StoreError
from mcp_hub.fronts.http.auth import Refusal, challenged
from mcp_hub.fronts.http.authorization.clients import OAuthClient, place_of
from mcp_hub.fronts.http.authorization.grants import PREFIX, AccessGrants
from mcp_hub.fronts.http.login_pages import page, text
from mcp_hub.logs import get_logger
from mcp_hub.sessions.session import Caller

log = get_logger(__name__)

_UNKNOWN: Final = "the token is not known, has expired, or its grant has ended"


class _Person(msgspec.Struct, frozen=True):
    """A person who has logged in. `mark` stands for the token; `choices`: profiles, "" for none."""

    principal: str
    choices: tuple[str, ...]
    mark: str


class _Verifier(Protocol):
    def can_verify(self, token: bytes) -> bool: ...

    def find(self, digest: bytes) -> Caller | None: ...

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal: ...


class Principals:
    """The principals of the configuration: callers by token. Checks access tokens of grants, and leaves those of
    issuers to `issuers`.
    """

    def __init__(
        self, grants: AccessGrants, tokens: Mapping[str, Caller], profiles: Collection[str], *,
        challenge: Callable[[str, str], bytes], issuers: _Verifier | None = None,
    ) -> None:  # fmt: skip
        self._grants = grants
        self._tokens = tokens
        self._profiles = tuple(profiles)
        self._challenge = challenge
        self._issuers = issuers
        self._people: dict[str, _Person] | None = None

    def log_in(self, token: str) -> _Person | None:
        """The person of a token. Raises `StoreError`."""
        # looked up by its mark, so that the time taken says nothing about the token
        return self.of_mark(self._mark(token))

    def of_mark(self, mark: str) -> _Person | None:
        """Raises `StoreError`."""
        if self._people is None:
            people = (self._person(self._mark(token), caller) for token, caller in self._tokens.items())
            self._people = {person.mark: person for person in people}
        return self._people.get(mark)

    def can_verify(self, token: bytes) -> bool:
        if token.startswith(PREFIX.encode()):
            return self._grants.may_know(token.decode("latin-1"))
        return self._issuers is not None and self._issuers.can_verify(token)

    def find(self, digest: bytes) -> Caller | None:
        grant = self._grants.of_access(digest)
        if grant is None:
            return None if self._issuers is None else self._issuers.find(digest)
        caller, mark = grant
        person = self.of_mark(mark)
        may_be = (
            person is not None and person.principal == caller.principal and (caller.profile or "") in person.choices
        )
        return caller if may_be else None

    def challenge(self, *, has_token: bool) -> bytes:
        return self._challenge("invalid_token" if has_token else "", "")

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal:
        if not token.startswith(PREFIX.encode()) and self._issuers is not None:
            return await self._issuers.verify(token, digest)
        try:
            await self._grants.look_for_news()
        except StoreError as problem:
            log.warning("grants_unreadable", reason=str(problem))
            reason = "the hub cannot read its grants. Try again later."
            return Refusal(503, "store_unavailable", reason, ((b"retry-after", b"10"),))
        return self.find(digest) or challenged(self._challenge("invalid_token", _UNKNOWN), "invalid_token", _UNKNOWN)

    def _mark(self, token: str) -> str:
        return self._grants.sealed("token", token)[:22]

    def _person(self, mark: str, caller: Caller) -> _Person:
        choices = ("", *self._profiles) if caller.profile is None else (caller.profile,)
        return _Person(caller.principal, choices, mark)


def refusal_page(title: str, reason: str, status: int = 400) -> HTMLResponse:
    return page(title, f"<h1>{text(title)}</h1><p>{text(reason)}</p>", status)


def login_page(action: str, asker: str, problem: str = "", *, status: int = 200) -> HTMLResponse:
    """Asks for a token. `asker`: who wants in."""
    wants = f"<bdi>{text(asker)}</bdi> wants to use this hub." if asker else "A client wants to use this hub."
    alert = f'<p class="note" role="alert">{text(problem)}</p>' if problem else ""
    return page(
        "Log in",
        f"<h1>Log in to the hub</h1><p>{wants} Show first who you are; the next page asks whether you allow it.</p>"
        f'{alert}<form method="post" action="{escape(action)}">'
        '<label for="token">Your token</label><input id="token" name="token" type="password" '
        'autocomplete="current-password" required maxlength="1024" autofocus>'
        '<button name="step" value="login">Continue</button></form>'
        '<p class="dim">It is one of <code>hub.tokens</code>. The client does not get to see it.</p>',
        status,
    )


def consent_page(
    action: str, client: OAuthClient, redirect: str, source: str, principal: str, choices: Sequence[str], proof: str
) -> HTMLResponse:
    """Asks whether a client may act as a principal, and with which profile."""
    name, target = text(client.name), text(place_of(redirect))
    voucher = f"<dt>Vouched by</dt><dd><code>{text(client.host)}</code></dd>" if client.host else ""
    warning = (
        "Did you start this yourself, in the client? If somebody sent you here, refuse: "
        "whoever is behind it would use the hub as you."
    )
    return page(
        f"Allow {client.name}?",
        f"<h1>Let <bdi>{name}</bdi> use this hub?</h1>"
        f"<dl><dt>Client</dt><dd><bdi>{name}</bdi> <span class=dim>(its own word)</span></dd>{voucher}"
        f"<dt>Answer goes to</dt><dd><code>{target}</code></dd>"
        f"<dt>It acts as</dt><dd><bdi>{text(principal)}</bdi></dd></dl>"
        f'<form method="post" action="{escape(action)}"><input type="hidden" name="proof" value="{escape(proof)}">'
        f"{_profiles(choices)}"
        f'<p class="note">{warning}</p>'
        '<button name="step" value="allow">Allow</button>'
        '<button name="step" value="refuse" class="plain" formnovalidate>Refuse</button></form>'
        '<p class="dim">It can list and call the tools of its part of the hub until you end it with '
        "<code>mcp-hub access remove</code>. It can never operate the hub.</p>",
        leads_to=source,
    )


def _profiles(choices: Sequence[str]) -> str:
    if len(choices) == 1:
        part = f"the profile <bdi>{text(choices[0])}</bdi>" if choices[0] else "everything that you can use"
        return f'<p>It gets {part}.</p><input type="hidden" name="profile" value="{escape(choices[0])}">'
    rows = "".join(
        f'<label class="choice"><input type="radio" name="profile" value="{escape(name)}" required>'
        f"<span>{f'profile <bdi>{text(name)}</bdi>' if name else 'everything that you can use'}</span></label>"
        for name in choices
    )
    return f"<fieldset><legend>Its part of the hub</legend>{rows}</fieldset>"
