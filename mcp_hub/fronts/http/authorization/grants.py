"""Grants: one client's access as one principal, with a family of codes and tokens.

A code or token is the family's secret and a random part, stored as a hash. A code that comes again, or a refresh token
after its successor, ends its family (RFC 9700 §4.14, RFC 6749 §4.1.2). Within 30 s a refresh token has the same answer
again: it may be lost, or requests met.
"""

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

import anyio
import msgspec

from mcp_hub.errors import Rejected, StoreError
from mcp_hub.fronts.http.authorization.clients import OAuthClient
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.sessions.session import Caller

log = get_logger(__name__)

PREFIX: Final = "mcphub_"
ACCESS_SECONDS: Final = 900
"""The life of an access token."""
_CODE_SECONDS: Final = 60.0
_AGAIN: Final = 30.0
"""Seconds in which a used refresh token has the same answer."""
_FAMILY: Final = 16
_RANDOM: Final = 32
"""Bytes of a family's secret, and of the random part."""
_FAMILY_CHARS: Final = 22
_LONGEST: Final = 200
"""Characters of a code or token."""
MOST_GRANTS: Final = 1000
EACH_GRANTS: Final = 50
"""Grants of all principals and of each; over the latter a principal's least recently used one goes."""
_MOST_TOKENS: Final = 4
"""Access tokens of a grant."""
_MOST_ENDED: Final = 4096
_LOOK: Final = 0.4
_NEWS: Final = 0.05
"""Seconds between two looks at the record, which others may have changed; if something is missing in it."""
_DAMAGED: Final = (
    "the record of grants (access/grants-… of the state folder or the shared store) is damaged. Remove it, and people "
    "let their clients in again"
)


class _Record(Protocol):
    """The record of `stores.documents`."""

    async def read(self) -> bytes | None: ...

    async def stamp(self) -> object: ...

    async def update(self, change: Callable[[bytes | None], bytes | None]) -> None: ...


class _Code(msgspec.Struct, omit_defaults=True):
    """The code of a grant as a hash, until when it is good (0: it was used), and the client's challenge."""

    hash: str
    challenge: str
    ends: float = 0.0


class _Renewal(msgspec.Struct, omit_defaults=True):
    """Hashes of refresh tokens: the next, the last with the time of its use; of access tokens with their ends."""

    refresh: str = ""
    previous: str = ""
    rotated: float = 0.0
    access: dict[str, float] = {}


class _Grant(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`mark`: the token of the hub by which a person consented. Times are Unix seconds. `client` and `name` are the
    client's.
    """

    principal: str
    profile: str | None = None
    mark: str
    client: str
    name: str
    redirect: str
    created: float
    used: float
    code: _Code
    tokens: _Renewal = msgspec.field(default_factory=_Renewal)


class _Book(msgspec.Struct):
    """All grants by the hash of their family. `key` seals texts that are not stored."""

    key: str
    grants: dict[str, _Grant] = {}


class _TokenPair(msgspec.Struct, frozen=True):
    """`seconds`: until `access` ends."""

    access: str
    refresh: str
    seconds: int

    def answer(self, scope: str) -> dict[str, object]:
        """The answer to a client (RFC 6749 §5.1)."""
        return {
            "access_token": self.access,
            "token_type": "Bearer",
            "expires_in": self.seconds,
            "refresh_token": self.refresh,
            "scope": scope,
        }


def hashed(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def shown_id(family: str) -> str:
    """A grant's name for people."""
    return f"g_{family[:10]}"


class AccessGrants:
    """The grants of one issuer. `clock` returns Unix seconds; `idle`: seconds after which an unused grant ends.

    What is awaited raises `StoreError`. Lookups are of the record as it was last read.
    """

    def __init__(self, record: _Record, clock: Callable[[], float], idle: float) -> None:
        self._record = record
        self._clock = clock
        self._idle = idle
        self._book = _Book("")
        self._stamp: object = None
        self._by_token: dict[bytes, str] = {}
        self._ended: dict[str, None] = {}
        self._looked = float("-inf")
        self._turn = anyio.Lock()

    @property
    def families(self) -> Mapping[str, _Grant]:
        return self._book.grants

    def sealed(self, *parts: str) -> str:
        """A digest that only hubs with this record make. Raises `StoreError` before it was read."""
        if not self._book.key:
            raise StoreError("store: the record of grants was not read yet")
        text = msgspec.json.encode(parts)
        return _text(hmac.new(bytes.fromhex(self._book.key), text, hashlib.sha256).digest())

    def of_access(self, digest: bytes) -> tuple[Caller, str] | None:
        """The caller and the mark of a valid access token, by the SHA-256 of the token."""
        family = self._by_token.get(digest)
        grant = None if family is None else self._book.grants.get(family)
        if grant is None or grant.tokens.access.get(digest.hex(), 0.0) <= self._clock():
            return None
        return Caller(grant.principal, grant.profile), grant.mark

    def may_know(self, token: str) -> bool:
        """Whether a token can be of a grant that has not ended."""
        family = _family(token)
        return family is not None and family not in self._ended

    async def _open(self) -> bool:
        """Reads the record, which is made if there is none; whether a grant has ended."""
        await self._record.update(lambda text: None if text else msgspec.json.encode(_Book(secrets.token_hex(32))))
        return await self._read()

    async def look(self, *, at_once: bool = False) -> bool:
        """Reads the record if others have changed it; whether a grant has ended. At most each 0.4 s, or `at_once`."""
        if not self._book.key:
            return await self._open()
        time = self._clock()
        if not at_once and abs(time - self._looked) < _LOOK:
            return False
        self._looked = time
        if await self._record.stamp() == self._stamp:
            return False
        if not await self._record.read():  # somebody has removed it: all grants have ended
            return await self._open()
        return await self._read()

    async def look_for_news(self) -> None:
        """Reads the record at most each 50 ms for all who wait: another hub may just have given a token."""
        began = self._clock()
        async with self._turn:
            if began < self._looked <= self._clock():
                return
            await anyio.sleep(max(0.0, min(_NEWS, self._looked + _NEWS - began)))
            await self.look(at_once=True)

    async def consent(self, person: Caller, mark: str, client: OAuthClient, redirect: str, challenge: str) -> str:
        """Adds a grant; its code. Raises `Rejected` over the limit."""
        family, time = _text(secrets.token_bytes(_FAMILY)), self._clock()
        code = family + _text(secrets.token_bytes(_RANDOM))
        grant = _Grant(
            principal=person.principal, profile=person.profile, mark=mark, client=client.id, name=client.name,
            redirect=redirect, created=time, used=time, code=_Code(hashed(code), challenge, time + _CODE_SECONDS),
        )  # fmt: skip

        def change(book: _Book) -> None:
            oldest = sorted((each.used, key) for key, each in book.grants.items() if each.principal == grant.principal)
            for _, key in oldest[: max(len(oldest) + 1 - EACH_GRANTS, 0)]:
                del book.grants[key]
            if len(book.grants) >= MOST_GRANTS:
                raise Rejected("temporarily_unavailable", f"the hub has {MOST_GRANTS} grants. Remove some.")
            book.grants[hashed(family)] = grant

        await self._change(change)
        return code

    async def redeem(self, code: str, client: str, verifier: str, redirect: str | None) -> _TokenPair:
        """The first tokens of a code. Raises `Rejected`; one that came before ends the grant."""
        family = await self._known(code)
        tokens = self._fresh(code)
        problem: list[Rejected] = []

        def change(book: _Book) -> None:
            grant = book.grants.get(family)
            if grant is None or grant.code.hash != hashed(code):
                raise _invalid("the code is not known")
            wrong = self._wrong_with_code(grant, client, verifier, redirect)
            if wrong is not None:
                problem.append(wrong)
                del book.grants[family]
                return
            grant.code.ends = 0.0
            self._give(grant, tokens)

        await self._change(change)
        if problem:
            log.warning("code_refused", grant=shown_id(family), reason=str(problem[0]))
            raise problem[0]
        grant = self._book.grants.get(family)
        if grant is not None:  # else somebody has removed it since
            log.info("grant_begun", grant=shown_id(family), principal=grant.principal, client=grant.name)
        return tokens

    def _wrong_with_code(self, grant: _Grant, client: str, verifier: str, redirect: str | None) -> Rejected | None:
        if not grant.code.ends:
            return _invalid("the code was used before, so its grant has ended")
        if grant.code.ends <= self._clock():
            return _invalid("the code has expired")
        if grant.client != client:
            return _invalid("the code is another client's")
        if redirect not in (None, grant.redirect):
            return _invalid("redirect_uri is not that of the authorization")
        proof = _text(hashlib.sha256(verifier.encode("ascii", "replace")).digest())
        if not hmac.compare_digest(proof, grant.code.challenge):
            return _invalid("code_verifier does not fit")
        return None

    async def refresh(self, token: str, client: str) -> _TokenPair:
        """The next tokens. Raises `Rejected`; one that was used before ends the grant."""
        family = await self._known(token)
        presented, time = hashed(token), self._clock()
        # the same for each request with this token, on any replica
        head = token[: len(PREFIX) + _FAMILY_CHARS]
        tokens = _TokenPair(head + self.sealed("access", token), head + self.sealed("refresh", token), ACCESS_SECONDS)
        problem: list[Rejected] = []
        answers: list[_TokenPair] = []

        def change(book: _Book) -> None:
            problem.clear()
            answers.clear()
            grant = book.grants.get(family)
            if grant is None or not grant.tokens.refresh:
                raise _invalid("the refresh token is not known")
            if grant.client != client:
                raise _invalid("the refresh token is another client's")
            renewal = grant.tokens
            if presented == renewal.previous and abs(time - renewal.rotated) <= _AGAIN:
                answers.append(msgspec.structs.replace(tokens, seconds=int(renewal.rotated + ACCESS_SECONDS - time)))
            elif presented == renewal.refresh:
                renewal.previous, renewal.rotated = presented, time
                self._give(grant, tokens)
                answers.append(tokens)
            else:
                problem.append(_invalid("the refresh token was used before, so its grant has ended"))
                del book.grants[family]

        await self._change(change)
        if problem:
            log.warning("refresh_token_used_again", grant=shown_id(family), client=hide_head(client, 100))
            raise problem[0]
        return answers[0]

    async def revoke(self, token: str, client: str) -> None:
        """Ends this client's grant; nothing for others (RFC 7009)."""
        family = _family(token)
        await self.look(at_once=True)
        grant = None if family is None else self._book.grants.get(family)
        if family is not None and grant is not None and grant.client == client:
            await self.remove([family])

    async def remove(self, families: Iterable[str]) -> None:
        """Ends grants."""
        gone = list(families)

        def change(book: _Book) -> None:
            for family in gone:
                book.grants.pop(family, None)

        await self._change(change)
        for family in gone:
            log.info("grant_removed", grant=shown_id(family))

    async def _known(self, token: str) -> str:
        """The family of a code or refresh token. Raises `Rejected`."""
        family = _family(token)
        if family is not None and family not in self._book.grants:
            await self.look_for_news()
        if family is None or family not in self._book.grants:
            raise _invalid("the code or token is not known, or its grant has ended")
        return family

    def _fresh(self, code: str) -> _TokenPair:
        head = PREFIX + code[:_FAMILY_CHARS]
        access, refresh = (head + _text(secrets.token_bytes(_RANDOM)) for _ in range(2))
        return _TokenPair(access, refresh, ACCESS_SECONDS)

    def _give(self, grant: _Grant, tokens: _TokenPair) -> None:
        time, renewal = self._clock(), grant.tokens
        grant.used, renewal.refresh = time, hashed(tokens.refresh)
        latest = list(renewal.access.items())[-(_MOST_TOKENS - 1) :]
        renewal.access = {**dict(latest), hashed(tokens.access): time + tokens.seconds}

    async def _change(self, change: Callable[[_Book], None]) -> None:
        def changed(text: bytes | None) -> bytes | None:
            book = _decoded(text)
            if book is None:
                raise StoreError(_DAMAGED)
            self._sweep(book)
            change(book)
            after = msgspec.json.encode(book)
            return None if after == text else after

        await self._record.update(changed)
        await self._read()

    def _sweep(self, book: _Book) -> None:
        time, idle = self._clock(), self._idle
        for family, grant in list(book.grants.items()):
            is_unused = grant.code.ends and grant.code.ends <= time
            if is_unused or grant.used + idle <= time:
                del book.grants[family]

    async def _read(self) -> bool:
        """Whether a grant has gone."""
        stamp = await self._record.stamp()
        book = _decoded(await self._record.read())
        if book is None:
            raise StoreError(_DAMAGED)
        gone = self._book.grants.keys() - book.grants.keys()
        self._book, self._stamp = book, stamp
        self._by_token = {
            bytes.fromhex(token): family for family, grant in book.grants.items() for token in grant.tokens.access
        }
        for family in gone:
            self._ended[family] = None
        while len(self._ended) > _MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        return bool(gone)


def _decoded(text: bytes | None) -> _Book | None:
    try:
        book = msgspec.json.decode(text or b"", type=_Book)
        for token in (token for grant in book.grants.values() for token in grant.tokens.access):
            bytes.fromhex(token)
        return book if len(bytes.fromhex(book.key)) >= _RANDOM else None
    except (ValueError, RecursionError):
        return None


def _family(token: str) -> str | None:
    """The hash of the family's secret."""
    secret = token.removeprefix(PREFIX)[:_FAMILY_CHARS]
    return hashed(secret) if len(secret) == _FAMILY_CHARS and len(token) <= _LONGEST else None


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _invalid(reason: str) -> Rejected:
    return Rejected("invalid_grant", reason)
