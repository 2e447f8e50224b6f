"""Logins of people that are not accounts yet, from the link to the confirmation. Pure.

    OFFERED   a link was given out; nobody has clicked
    BEGUN     a browser was sent to the authorization server, or shown the form; only its cookie continues
    PROVEN    tokens or values are there; the principal has to enter the code that this browser shows

All of one principal lie in one row, so its number is bounded. A ticket, `state`, cookie or code that does not fit
changes nothing, but a wrong code takes one of three tries.
"""

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from mcp_hub.errors import Rejected
from mcp_hub.upstreams.auth.grants import Grant
from mcp_hub.upstreams.auth.web_login import WebLogin

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


class Stage(StrEnum):
    """How far a pending login is."""

    OFFERED = "offered"
    BEGUN = "begun"
    PROVEN = "proven"


class PendingLogin(msgspec.Struct, frozen=True, kw_only=True):
    """One of them. `fields` names the values of a form, empty: a login in the web. Times are Unix seconds.

    `secret` is the ticket's while it is offered, `state` later also the proof of a form, `cookie` a digest. `label`
    is the account's name at the server, `generation` that of the account at the begin.
    """

    server: str
    principal: str
    secret: str = ""
    until: float = 0.0
    fields: tuple[str, ...] = ()
    stage: Stage = Stage.OFFERED
    state: str = ""
    cookie: bytes = b""
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


def current(pending: Pending, now: float) -> Pending:
    """Those that have not expired."""
    return tuple(one for one in pending if one.until > now)


def offered(pending: Pending, row: str, wanted: PendingLogin, now: float) -> tuple[Pending, PendingLogin]:
    """With a link for what is `wanted`, in this row: a young one is given out again."""
    pending = current(pending, now)
    for one in pending:
        is_same = (one.server, one.fields, one.generation) == (wanted.server, wanted.fields, wanted.generation)
        if is_same and one.stage is Stage.OFFERED and one.until > now + _FRESH:
            return pending, one
    secret = f"{row}.{secrets.token_urlsafe(24)}"
    fresh = msgspec.structs.replace(wanted, secret=secret, until=now + SECONDS)
    return (*pending, fresh)[-MOST:], fresh


def by_ticket(pending: Iterable[PendingLogin], server: str, ticket: str) -> PendingLogin:
    """The offered login of a link. Raises `Rejected`."""
    for one in pending:
        if one.stage is Stage.OFFERED and one.server == server and _equal(one.secret, ticket):
            return one
    raise Rejected("link_expired", "This link was used, has expired, or is not complete.")


def begun(one: PendingLogin, now: float) -> tuple[PendingLogin, str]:
    """The login after the click, and the cookie of its browser."""
    row = one.secret.partition(".")[0]
    cookie, state = (f"{row}.{secrets.token_urlsafe(24)}" for _ in range(2))
    changed = msgspec.structs.replace(
        one, stage=Stage.BEGUN, until=now + SECONDS, secret="", state=state, cookie=_digest(cookie)
    )
    return changed, cookie


def by_browser(
    pending: Iterable[PendingLogin], server: str, cookie: str, state: str, stages: Iterable[Stage]
) -> PendingLogin:
    """The login of this browser that `state` names. Raises `Rejected` for another browser's, or another login."""
    for one in pending:
        if one.stage in stages and one.server == server and _equal(one.state, state):
            if hmac.compare_digest(one.cookie, _digest(cookie)):
                return one
    raise Rejected("login_unknown", "This is not a login that this browser began here, or it has expired.")


def proven(
    pending: Pending, one: PendingLogin, now: float, *, grant: Grant | None = None,
    values: Mapping[str, str] | None = None, label: str = "",
) -> tuple[Pending, PendingLogin]:  # fmt: skip
    """With tokens or values that await their code. An older one of the server gives way: its code would be a second
    chance.
    """
    code = str(secrets.randbelow(10**_DIGITS)).zfill(_DIGITS)
    done = msgspec.structs.replace(
        one, stage=Stage.PROVEN, until=now + SECONDS, login=None, grant=grant, values=values or {}, label=label,
        code=code,
    )  # fmt: skip
    others = (each for each in pending if each != one and (each.server, each.stage) != (one.server, Stage.PROVEN))
    return (*others, done), done


def awaiting(pending: Iterable[PendingLogin], server: str) -> PendingLogin | None:
    """The login at this server that awaits its code."""
    return next((one for one in pending if one.server == server and one.stage is Stage.PROVEN), None)


def confirmed(pending: Pending, server: str, code: str) -> tuple[Pending, PendingLogin | Rejected]:
    """Without the login whose code this is, and that login; with a try less, and why not."""
    one = awaiting(pending, server)
    if one is None:
        return pending, Rejected("login_unknown", f'no login to server "{server}" awaits a code. Begin it again.')
    if _equal(one.code, "".join(code.split())):
        return replaced(pending, one), one
    left = one.tries - 1
    if left <= 0:
        reason = "This was the last try: the login is thrown away. Begin it again."
        return replaced(pending, one), Rejected("code_wrong", f"the code is wrong. {reason}", left=0)
    fewer = msgspec.structs.replace(one, tries=left)
    tries = f"{left} {'try is' if left == 1 else 'tries are'} left"
    return replaced(pending, one, fewer), Rejected("code_wrong", f"the code is wrong. {tries}.", left=left)


def replaced(pending: Pending, one: PendingLogin, *by: PendingLogin) -> Pending:
    """With another one in its place, or without it."""
    return tuple(new for each in pending for new in (by if each == one else (each,)))


def revoked(pending: Pending, server: str | None) -> Pending:
    """Without those of a server; None: of any."""
    return tuple(one for one in pending if server is not None and one.server != server)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _equal(one: str, other: str) -> bool:
    """Compares in constant time; an empty text equals nothing."""
    return bool(one) and hmac.compare_digest(_digest(one), _digest(other))
