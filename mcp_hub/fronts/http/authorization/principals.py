"""People who may let clients in, and callers that come by a grant.

A grant lasts as long as the token by which a person consented: one that is replaced ends all that came of it. A profile
that the token may no longer use ends it, too.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

import msgspec

from mcp_hub.errors import StoreError
from mcp_hub.fronts.http.auth import Refusal, challenged
from mcp_hub.fronts.http.authorization.grants import PREFIX, Grants
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
    """Checks access tokens of issuers, as `HttpAuth` has it."""

    def can_verify(self, token: bytes) -> bool: ...

    def find(self, digest: bytes) -> Caller | None: ...

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal: ...


class Principals:
    """The principals of the configuration: callers by token. Checks access tokens of grants, and leaves those of
    issuers to `issuers`.
    """

    def __init__(
        self, grants: Grants, tokens: Mapping[str, Caller], profiles: Collection[str], *,
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
