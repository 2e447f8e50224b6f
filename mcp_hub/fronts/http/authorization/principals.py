"""Who may let clients in, and as whom a client comes.

A grant lasts as long as the token, or the login, by which a person consented: one that is replaced ends what came of
it. A profile that the token may no longer use ends it, too.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol

import msgspec

from mcp_hub.errors import StoreError
from mcp_hub.fronts.http.auth import Refusal, challenged
from mcp_hub.fronts.http.authorization.grants import PREFIX, Grant, Grants
from mcp_hub.logs import get_logger
from mcp_hub.sessions.session import Caller

log = get_logger(__name__)

_UNKNOWN: Final = "the token is not known, has expired, or its grant has ended"


class Person(msgspec.Struct, frozen=True):
    """A person who has logged in. `mark` stands for the token, or the login; `choices`: "" and profiles."""

    principal: str
    choices: tuple[str, ...]
    mark: str


class _Verifier(Protocol):
    """Checks the tokens of others, as `HttpAuth` has it."""

    def can_verify(self, token: bytes) -> bool: ...

    def find(self, digest: bytes) -> Caller | None: ...

    def challenge(self, *, has_token: bool) -> bytes: ...

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal: ...


class Principals:
    """The principals of the configuration: callers by token. `profile` is the default."""

    def __init__(
        self, grants: Grants, tokens: Mapping[str, Caller], profiles: Collection[str], logins: Sequence[str] = ()
    ) -> None:
        self._grants = grants
        self._tokens = tokens
        self._profiles = tuple(profiles)
        self._logins = frozenset(logins)
        self._people: dict[str, Person] | None = None

    def log_in(self, token: str) -> Person | None:
        """The person of a token. Raises `StoreError`."""
        # found by its mark, so that the time taken says nothing about the token
        return self.of_mark(self._mark(token))

    def of_mark(self, mark: str) -> Person | None:
        """Raises `StoreError`."""
        if self._people is None:
            people = (self._person(self._mark(token), caller) for token, caller in self._tokens.items())
            self._people = {person.mark: person for person in people}
        return self._people.get(mark)

    def of_login(self, issuer: str, principal: str) -> Person:
        """A person who has logged in at an OpenID provider."""
        return self._person(f"login {issuer}", Caller(principal))

    def caller(self, grant: Grant) -> Caller | None:
        """As whom its client comes; None if nobody may let it in so."""
        if grant.mark.startswith("login "):
            issuer = grant.mark.removeprefix("login ")
            is_there = issuer in self._logins and grant.principal.startswith(f"{issuer}#")
            person = self.of_login(issuer, grant.principal) if is_there else None
        else:
            person = self.of_mark(grant.mark)
        if person is None or person.principal != grant.principal or (grant.profile or "") not in person.choices:
            return None
        return Caller(grant.principal, grant.profile)

    def _mark(self, token: str) -> str:
        return self._grants.sealed("token", token)[:22]

    def _person(self, mark: str, caller: Caller) -> Person:
        choices = ("", *self._profiles) if caller.profile is None else (caller.profile,)
        return Person(caller.principal, choices, mark)


class GrantVerifier:
    """Checks access tokens of grants, and leaves others to `other`."""

    def __init__(
        self, grants: Grants, principals: Principals, challenge: Callable[[str, str], bytes], other: _Verifier | None
    ) -> None:
        self._grants = grants
        self._principals = principals
        self._challenge = challenge
        self._other = other

    def can_verify(self, token: bytes) -> bool:
        if token.startswith(PREFIX.encode()):
            return self._grants.may_know(token.decode("latin-1"))
        return self._other is not None and self._other.can_verify(token)

    def find(self, digest: bytes) -> Caller | None:
        grant = self._grants.of_access(digest)
        if grant is not None:
            return self._principals.caller(grant)
        return None if self._other is None else self._other.find(digest)

    def challenge(self, *, has_token: bool) -> bytes:
        return self._challenge("invalid_token" if has_token else "", "")

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal:
        if not token.startswith(PREFIX.encode()):
            if self._other is not None and self._other.can_verify(token):
                return await self._other.verify(token, digest)
            return self._refused()
        try:
            await self._grants.look()  # another replica may have given it a moment ago
        except StoreError as problem:
            log.warning("grants_unreadable", reason=str(problem))
            reason = "the hub cannot read its grants. Try again later."
            return Refusal(503, "store_unavailable", reason, ((b"retry-after", b"10"),))
        return self.find(digest) or self._refused()

    def _refused(self) -> Refusal:
        return challenged(self._challenge("invalid_token", _UNKNOWN), "invalid_token", _UNKNOWN)
