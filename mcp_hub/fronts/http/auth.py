"""Checks of every HTTP request: Host, Origin, bearer token, profile.

Against DNS rebinding, a Host must be an address, `localhost` or configured; an Origin this machine, the Host or
configured.
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Mapping
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from mcp_hub.masking import hide_head
from mcp_hub.sessions.session import LOCAL, Caller

_ONCE: Final = (b"host", b"origin", b"authorization")
"""Headers that decide about access; a proxy may have read the other one of two (RFC 9112 §3.2)."""
_HOST: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[^\s\[\]:@/\\?#]+))(?::[0-9]{1,5})?")
"""A name or an IPv4 address, or an IPv6 address in brackets; a port."""


_REQUIRED: Final = "a valid bearer token is required"


class Refusal(msgspec.Struct, frozen=True):
    """A refused request; `code` is stable."""

    status: int
    code: str
    reason: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


def challenged(challenge: bytes, code: str, reason: str, status: int = 401) -> Refusal:
    """A refusal with a `WWW-Authenticate`."""
    return Refusal(status, code, reason, ((b"www-authenticate", challenge),))


class _Verifier(Protocol):
    """Checks tokens outside the configuration."""

    def can_verify(self, token: bytes) -> bool:
        """Whether `verify` may accept a token that `find` does not know yet."""

    def find(self, digest: bytes) -> Caller | None:
        """The caller of a checked token that is still valid."""

    def challenge(self, *, has_token: bool) -> bytes:
        """The `WWW-Authenticate` of a 401."""

    async def verify(self, token: bytes, digest: bytes) -> Caller | Refusal:
        """Checks a token for the first time."""


class HttpAuth:
    """Checks requests. Without tokens and verifier everybody is `default`, else each request needs a token.

    A caller without a profile may name one of `profiles`. Pages of `cors` origins may read responses. The `operator`
    token is always valid.
    """

    def __init__(
        self,
        tokens: Mapping[str, Caller],
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        default: Caller = LOCAL,
        profiles: Collection[str] = (),
        verifier: _Verifier | None = None,
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
        """The refusal of a wrong Host or Origin."""
        host = headers.get(b"host", b"")
        if not self._host_passes(host):
            reason = f"host {_quoted(host)} is not served here. Allow it with hub.http.allowed_hosts."
            return Refusal(421, "host_not_served", reason)
        origin = headers.get(b"origin")
        if origin is not None and not self._origin_passes(_text(origin), _host_name(_text(host))):
            reason = (
                f"origin {_quoted(origin)} is not allowed. Allow it with hub.http.cors or hub.http.allowed_origins."
            )
            return Refusal(403, "origin_not_allowed", reason)
        return None

    @property
    def needs_token(self) -> bool:
        return bool(self._callers) or self._verifier is not None

    def is_reader(self, origin: bytes) -> bool:
        """Whether pages of this origin may read responses."""
        return bool(self._readers) and _text(origin).lower() in self._readers

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller | Refusal | None:
        """The caller of an admitted request; None if `verified` has to check its token."""
        verifier = self._verifier
        if not self.needs_token:
            return (self.operator(headers) if b"authorization" in headers else None) or self._default
        token = _bearer(headers)
        digest = _digest(token)
        caller = (self._callers.get(digest) or self.operator(headers)) if token else None
        if caller is None and verifier is not None and token:
            caller = verifier.find(digest)
            if caller is None and verifier.can_verify(token):
                return None
        if caller is None:
            challenge = b"Bearer" if verifier is None else verifier.challenge(has_token=bool(token))
            return challenged(challenge, "unauthorized", _REQUIRED)
        return caller

    def operator(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        """The operator, if the request has its token."""
        # looked up by digest, as every token
        if self._operator is None or b"authorization" not in headers:
            return None
        digest, caller = self._operator
        return caller if _digest(_bearer(headers)) == digest else None

    async def verified(self, headers: Mapping[bytes, bytes]) -> Caller | Refusal:
        """The caller, once its token is checked."""
        if self._verifier is None:
            return challenged(b"Bearer", "unauthorized", _REQUIRED)
        token = _bearer(headers)
        return await self._verifier.verify(token, _digest(token))

    def narrowed(self, caller: Caller, profile: str) -> Caller | Refusal:
        """The caller with this profile, unless bound to another."""
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
        if origin.lower().rstrip("/") in self._origins:
            return True
        scheme, _, authority = origin.lower().partition("://")
        name = _host_name(authority)
        is_allowed = name in self._hosts or is_loopback(name) or name == host.lower()
        return scheme in ("http", "https") and bool(name) and is_allowed


def is_own_page(headers: Mapping[bytes, bytes], public_url: str | None) -> bool:
    """Whether a page of the hub asks, or a program: only browsers send these headers."""
    if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    url = urlsplit(origin.decode("latin-1").lower())
    hosts = {headers.get(b"host", b"").decode("latin-1").lower()}
    if public_url is not None:
        hosts.add(urlsplit(public_url).netloc.lower())
    return url.scheme in ("http", "https") and url.netloc in hosts


def repeated(raw_headers: Iterable[tuple[bytes, bytes]]) -> Refusal | None:
    """Refuses a repeated header that decides about access."""
    names = [name for name, _ in raw_headers]
    for name in _ONCE:
        if names.count(name) > 1:
            return Refusal(400, "repeated_header", f"{name.decode()} is given more than once")
    return None


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a socket bound to `host`."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ip_address(host.strip("[]")).is_loopback


def _host_name(host: str) -> str:
    """A Host header without its port; empty if malformed."""
    match = _HOST.fullmatch(host)
    if match is None or match["six"] is None:
        return "" if match is None else match["name"]
    try:
        IPv6Address(match["six"])
    except ValueError:
        return ""
    return match["six"]


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _bearer(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")[:200]


def _quoted(raw: bytes) -> str:
    return hide_head(raw.decode("latin-1"), 200)
