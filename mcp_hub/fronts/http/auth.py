"""The checks of every HTTP request before anything reads it: Host, Origin, bearer token, profile.

DNS rebinding needs a name: a Host passes that is an address, `localhost` or a configured name. An Origin must be this
machine, the host that is asked, a configured name, or listed itself, and be nothing but scheme, host and port. A
`Verifier` checks access tokens.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol

import msgspec
from msgspec.structs import replace

from mcp_hub.masking import hide_head
from mcp_hub.sessions.session import LOCAL, Caller

_ONCE: Final = (b"host", b"origin", b"authorization")
"""Headers that decide who comes in: of two, somebody else may have looked at the other one (RFC 9112 §3.2)."""
_HOST: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s\[\]:@/\\?#]+))(?::[0-9]{1,5})?")
"""A name or an IPv4 address, or an IPv6 address in brackets; a port."""


_REQUIRED: Final = "a valid bearer token is required"


class Refusal(msgspec.Struct, frozen=True):
    """The status to answer with, its stable code, why, and headers that the status calls for."""

    status: int
    code: str
    reason: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


def challenged(challenge: bytes, code: str, reason: str, status: int = 401) -> Refusal:
    """A refusal that says with a `WWW-Authenticate` which token is needed."""
    return Refusal(status, code, reason, ((b"www-authenticate", challenge),))


@dataclass(frozen=True, slots=True)
class Unverified:
    """A token that the verifier has yet to check (`HttpAuth.verified`)."""

    token: bytes = field(repr=False)
    digest: bytes = field(repr=False)


class Verifier(Protocol):
    """Checks tokens that are not in the configuration: OAuth access tokens (`oauth`)."""

    def find(self, digest: bytes) -> Caller | None:
        """Whose token it is, if it was checked before and is still good."""

    def challenge(self, *, has_token: bool) -> bytes:
        """The `WWW-Authenticate` of a 401."""

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal:
        """Checks one for the first time."""


class HttpAuth:
    """Checks requests. With neither tokens nor a verifier everybody is `default`; else every request needs a token.

    A caller that is bound to none of the `profiles`, by a token or by `default`, may name one. Pages of the origins in
    `cors` are let in, and may read the answers. `operator` is a token that is always taken, and its caller.
    """

    def __init__(
        self,
        tokens: Mapping[str, Caller],
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        default: Caller = LOCAL,
        profiles: Collection[str] = (),
        verifier: Verifier | None = None,
        cors: Iterable[str] = (),
        operator: tuple[str, Caller] | None = None,
    ) -> None:
        self._verifier = verifier
        self._operator = None if operator is None else (_digest(operator[0].encode()), operator[1])
        self._profiles = frozenset(profiles)
        # looked up by digest, so that the time taken says nothing about the token
        self._callers = {_digest(token.encode()): caller for token, caller in tokens.items()}
        self._hosts = {host.lower() for host in hosts} | {"localhost"}
        self._readers = {origin.lower().rstrip("/") for origin in cors}
        self._origins = {origin.lower().rstrip("/") for origin in origins} | self._readers
        self._default = default
        self._passed_hosts: dict[bytes, bool] = {}

    def admit(self, headers: Mapping[bytes, bytes]) -> Refusal | None:
        """Why a request must not reach any route at all: Host against DNS rebinding, Origin against foreign pages."""
        host = headers.get(b"host", b"")
        if not self._host_passes(host):
            said = f"host {_shown(host)} is not served here. Allow it with hub.http.allowed_hosts."
            return Refusal(421, "host_not_served", said)
        origin = headers.get(b"origin")
        if origin is not None and not self._origin_passes(_text(origin), _host_name(_text(host))):
            said = f"origin {_shown(origin)} is not allowed. Allow it with hub.http.cors or hub.http.allowed_origins."
            return Refusal(403, "origin_not_allowed", said)
        return None

    @property
    def needs_token(self) -> bool:
        """Whether callers need a token at all."""
        return bool(self._callers) or self._verifier is not None

    def is_reader(self, origin: bytes) -> bool:
        """Whether pages of this origin may read answers."""
        return bool(self._readers) and _text(origin).lower() in self._readers

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller | Refusal | Unverified:
        """Whose request it is, of one that was admitted."""
        verifier = self._verifier
        if not self.needs_token:
            return (self.operator(headers) if b"authorization" in headers else None) or self._default
        token = _bearer(headers)
        digest = _digest(token)
        caller = (self._callers.get(digest) or self.operator(headers)) if token else None
        if caller is None and verifier is not None and token:
            caller = verifier.find(digest)
            if caller is None and token.count(b".") == 2:
                return Unverified(token, digest)
        if caller is None:
            challenge = b"Bearer" if verifier is None else verifier.challenge(has_token=bool(token))
            return challenged(challenge, "unauthorized", _REQUIRED)
        return caller

    def operator(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        """The operator of this start of the hub, if the request has its token."""
        # looked up by digest, as every token
        if self._operator is None or b"authorization" not in headers:
            return None
        digest, caller = self._operator
        return caller if _digest(_bearer(headers)) == digest else None

    async def verified(self, unverified: Unverified) -> Caller | Refusal:
        """Whose request it is, once its token is checked."""
        if self._verifier is None:
            return challenged(b"Bearer", "unauthorized", _REQUIRED)
        return await self._verifier.verify(unverified.token, unverified.digest)

    def narrowed(self, caller: Caller, profile: str) -> Caller | Refusal:
        """The caller with the profile that the URL names. For a caller bound to another one it does not exist."""
        if profile not in self._profiles or caller.profile not in (None, profile):
            return Refusal(
                404, "unknown_profile", f"There is no profile {json.dumps(hide_head(profile, 100))} for you."
            )
        return replace(caller, profile=profile)

    def _host_passes(self, host: bytes) -> bool:
        passes = self._passed_hosts.get(host)
        if passes is None:
            name = _host_name(_text(host))
            passes = name.lower() in self._hosts or _is_address(name)
            if len(self._passed_hosts) < 256:
                self._passed_hosts[host] = passes
        return passes

    def _origin_passes(self, origin: str, host: str) -> bool:
        """A page may come from this machine, from the host it asks, or from where the configuration says."""
        if origin.lower().rstrip("/") in self._origins:
            return True
        scheme, _, place = origin.lower().partition("://")
        name = _host_name(place)
        known = name in self._hosts or is_loopback(name) or name == host.lower()
        return scheme in ("http", "https") and bool(name) and known


def repeated(raw_headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
    """Why a request that gives a header twice is not taken, if it is one that decides who comes in."""
    names = [name for name, _ in raw_headers]
    for name in _ONCE:
        if names.count(name) > 1:
            return Refusal(400, "repeated_header", f"{name.decode()} is given more than once")
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket bound to `host`."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ip_address(host.strip("[]")).is_loopback


def _host_name(host: str) -> str:
    """A Host header without its port; empty for one that is malformed."""
    found = _HOST.fullmatch(host)
    if found is None or found["six"] is None:
        return "" if found is None else found["name"]
    try:
        IPv6Address(found["six"])
    except ValueError:
        return ""
    return found["six"]


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _bearer(headers: Mapping[bytes, bytes]) -> bytes:
    """The bearer token of a request; empty without one."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")[:200]


def _shown(raw: bytes) -> str:
    return hide_head(raw.decode("latin-1"), 200)
