"""Pages for people: login, consent, refusals. HTML and a style; nothing to run or to load.

Names of clients and principals, addresses and profiles are texts of others: escaped, and set apart.
"""

import hashlib
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import Final

from starlette.responses import HTMLResponse

from mcp_hub.fronts.http.authorization.clients import OAuthClient, place_of
from mcp_hub.masking import shown

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


def text(words: str) -> str:
    """A stranger's text: secrets masked, control characters visible, nothing of it markup."""
    return escape(shown(words))


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
