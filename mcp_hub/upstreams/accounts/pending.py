"""Logins of people that are not accounts yet, from the link to the confirmation. Pure.

    offered   a link was given out; nobody has clicked
    begun     a browser was sent to the authorization server, or shown the form; only its cookie continues
    proven    tokens or values are there; the principal has to enter the code that this browser shows

A principal's logins lie in one row: their number is bounded. An unfit ticket, `state`, cookie or code changes nothing,
but a wrong code takes one of three tries.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from mcp_hub.errors import Rejected
from mcp_hub.upstreams.auth.grants import Grant
from mcp_hub.upstreams.auth.login import WebLogin

SECONDS: Final = 600.0
"""A link is good for so long; so is each later step."""
MOST: Final = 16
"""Pending logins of one principal; one more removes the oldest."""
TRIES: Final = 3
_DIGITS: Final = 6
_FRESH: Final = 300.0
"""A link with fewer seconds left is not given out again."""
_ROW: Final = 32
"""Characters of a row's name in tickets."""


Stage = Literal["offered", "begun", "proven"]


class PendingLogin(msgspec.Struct, frozen=True, kw_only=True):
    """One of them. `fields` names the values of a form, empty: a login in the web. Times are Unix seconds.

    `secret` is the ticket's while it is offered, `state` later also the proof of a form, `cookie` a digest. `label`
    is the account's name at the server, `target` what the login is for (`grant_key`), `generation` that of the account
    at the begin.
    """

    server: str
    principal: str
    secret: str = ""
    until: float = 0.0
    fields: tuple[str, ...] = ()
    stage: Stage = "offered"
    state: str = ""
    cookie: bytes = b""
    target: str = ""
    login: WebLogin | None = None
    grant: Grant | None = None
    values: Mapping[str, str] = {}
    label: str = ""
    code: str = ""
    tries: int = TRIES
    generation: int = 0

    def __repr__(self) -> str:
        return f"PendingLogin({self.server!r}, {self.stage})"


Pending = tuple[PendingLogin, ...]
"""The pending logins of one principal, oldest first."""


def row_name(principal: str, pepper: bytes) -> str:
    """The row of a principal, which its tickets name; who sees them learns nothing of the principal."""
    text = principal.encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, key=pepper, digest_size=_ROW // 2, person=b"pending").hexdigest()


def row_of(ticket: str) -> str | None:
    """The row that a ticket, `state` or cookie names; None for anything else."""
    name, dot, secret = ticket.partition(".")
    is_one = dot and len(name) == _ROW and 0 < len(secret) <= 64 and all(char in "0123456789abcdef" for char in name)
    return name if is_one else None


def current(pending: Pending, time: float) -> Pending:
    """The logins that have not expired."""
    return tuple(entry for entry in pending if entry.until > time)


def offered(pending: Pending, row: str, request: PendingLogin, time: float) -> tuple[Pending, PendingLogin]:
    """With a link for what is `wanted`, in this row: a young one is given out again."""
    pending = current(pending, time)
    for entry in pending:
        is_same = (entry.server, entry.fields, entry.generation) == (request.server, request.fields, request.generation)
        if is_same and entry.stage == "offered" and entry.until > time + _FRESH:
            return pending, entry
    secret = f"{row}.{secrets.token_urlsafe(24)}"
    fresh = msgspec.structs.replace(request, secret=secret, until=time + SECONDS)
    return (*pending, fresh)[-MOST:], fresh


def by_ticket(pending: Iterable[PendingLogin], server: str, ticket: str) -> PendingLogin:
    """The offered login of a link. Raises `Rejected`."""
    for entry in pending:
        if entry.stage == "offered" and entry.server == server and _equal(entry.secret, ticket):
            return entry
    raise Rejected("link_expired", "This link was used, has expired, or is not complete.")


def begun(entry: PendingLogin, time: float) -> tuple[PendingLogin, str]:
    """The login after the click, and its browser's cookie."""
    row = entry.secret.partition(".")[0]
    cookie, state = (f"{row}.{secrets.token_urlsafe(24)}" for _ in range(2))
    changed = msgspec.structs.replace(
        entry, stage="begun", until=time + SECONDS, secret="", state=state, cookie=_digest(cookie)
    )
    return changed, cookie


def by_browser(
    pending: Iterable[PendingLogin], server: str, cookie: str, state: str, stages: Iterable[Stage]
) -> PendingLogin:
    """The login of this browser that `state` names. Raises `Rejected` for another browser's, or another login."""
    for entry in pending:
        if entry.stage in stages and entry.server == server and _equal(entry.state, state):
            if hmac.compare_digest(entry.cookie, _digest(cookie)):
                return entry
    raise Rejected("login_unknown", "This is not a login that this browser began here, or it has expired.")


def proven(pending: Pending, entry: PendingLogin, filled: PendingLogin, time: float) -> tuple[Pending, PendingLogin]:
    """With `filled`, which has tokens or values, in place of a login; it awaits its code.

    An older one of the server is removed: its code would be a second chance.
    """
    code = str(secrets.randbelow(10**_DIGITS)).zfill(_DIGITS)
    proven_entry = msgspec.structs.replace(filled, stage="proven", until=time + SECONDS, login=None, code=code)
    old = entry.server, "proven"
    remaining = (each for each in pending if each != entry and (each.server, each.stage) != old)
    return (*remaining, proven_entry), proven_entry


def awaiting(pending: Iterable[PendingLogin], server: str) -> PendingLogin | None:
    """The login that awaits its code."""
    return next((entry for entry in pending if entry.server == server and entry.stage == "proven"), None)


def confirmed(pending: Pending, server: str, code: str) -> tuple[Pending, PendingLogin | Rejected]:
    """Without the login whose code this is, and that login; with a try less, and why not."""
    entry = awaiting(pending, server)
    if entry is None:
        return pending, Rejected("login_unknown", f'no login to server "{server}" awaits a code. Begin it again.')
    if _equal(entry.code, "".join(code.split())):
        return replaced(pending, entry), entry
    tries_left = entry.tries - 1
    if tries_left <= 0:
        reason = "This was the last try: the login is thrown away. Begin it again."
        return replaced(pending, entry), Rejected("code_wrong", f"the code is wrong. {reason}", tries_left=0)
    fewer = msgspec.structs.replace(entry, tries=tries_left)
    tries = f"{tries_left} {'try is' if tries_left == 1 else 'tries are'} left"
    return replaced(pending, entry, fewer), Rejected(
        "code_wrong", f"the code is wrong. {tries}.", tries_left=tries_left
    )


def replaced(pending: Pending, entry: PendingLogin, *by: PendingLogin) -> Pending:
    """With another one in its place, or without it."""
    return tuple(new for each in pending for new in (by if each == entry else (each,)))


def revoked(pending: Pending, server: str | None) -> Pending:
    """Without those of a server; None: any."""
    return tuple(entry for entry in pending if server is not None and entry.server != server)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _equal(entry: str, second: str) -> bool:
    """Compares in constant time; an empty text equals nothing."""
    return bool(entry) and hmac.compare_digest(_digest(entry), _digest(second))
