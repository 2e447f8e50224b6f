"""What every HTTP request must pass before anything reads it: Host, Origin, bearer token (reliability.md §4), profile.

Pure decisions over headers. DNS rebinding needs a name: a Host that is an address, `localhost` or a configured name is
let through. An Origin must be this machine, the host that is asked, a configured name, or listed itself.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from ipaddress import ip_address
from urllib.parse import urlsplit

from mcp_hub.sessions.session import LOCAL, Caller

__all__ = ["Guard", "Refusal", "is_loopback"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The status to answer with, why, and headers that the status calls for."""

    status: int
    reason: str
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Guard:
    """Checks requests. Without tokens everybody is `local`; with tokens, one is required on every request.

    Who is bound to none of the `profiles`, by a token or by `default`, may name one.
    """

    def __init__(
        self,
        tokens: Mapping[str, Caller],
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        default: Caller = LOCAL,
        profiles: Collection[str] = (),
    ) -> None:
        self._profiles = frozenset(profiles)
        # looked up by digest, so that the time taken says nothing about the token
        self._callers = {_digest(token.encode()): caller for token, caller in tokens.items()}
        self._hosts = {host.lower() for host in hosts} | {"localhost"}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._default = default
        self._passed_hosts: dict[bytes, bool] = {}

    def check(self, headers: Mapping[bytes, bytes]) -> Caller | Refusal:
        """Who is asking, or why not."""
        host = headers.get(b"host", b"")
        if not self._host_passes(host):
            return Refusal(421, f"host {_text(host)} is not served here; allow it with hub.http.allowed_hosts")
        origin = headers.get(b"origin")
        if origin is not None and not self._origin_passes(_text(origin), _host_name(_text(host))):
            return Refusal(403, f"origin {_text(origin)} is not allowed; allow it with hub.http.allowed_origins")
        if not self._callers:
            return self._default
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        caller = self._callers.get(_digest(token.strip())) if scheme.lower() == b"bearer" else None
        if caller is None:
            return Refusal(401, "a valid bearer token is required", ((b"www-authenticate", b"Bearer"),))
        return caller

    def narrowed(self, caller: Caller, profile: str) -> Caller | Refusal:
        """The caller with the profile that the URL names; one that is bound to another hears that there is none."""
        if profile not in self._profiles or caller.profile not in (None, profile):
            return Refusal(404, f"no profile {json.dumps(profile[:100])} that you may use")
        return replace(caller, profile=profile)

    def _host_passes(self, host: bytes) -> bool:
        passes = self._passed_hosts.get(host)
        if passes is None:
            passes = self._is_known(_host_name(_text(host)))
            if len(self._passed_hosts) < 256:
                self._passed_hosts[host] = passes
        return passes

    def _origin_passes(self, origin: str, host: str) -> bool:
        """A page may come from this machine, from the host it asks, or from where the configuration says."""
        if origin.lower().rstrip("/") in self._origins:
            return True
        try:
            parts = urlsplit(origin)
            name = (parts.hostname or "").lower()
        except ValueError:
            return False
        known = name in self._hosts or is_loopback(name) or name == host.lower()
        return parts.scheme in ("http", "https") and bool(name) and known

    def _is_known(self, name: str) -> bool:
        return name.lower() in self._hosts or _is_address(name)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a socket bound to `host`."""
    if host.lower() == "localhost":
        return True
    return _is_address(host) and ip_address(host.strip("[]")).is_loopback


def _host_name(host: str) -> str:
    """A Host header without its port; empty for one that is malformed."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return name if not rest or rest.startswith(":") else ""
    return host.partition(":")[0]


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _text(raw: bytes) -> str:
    return raw.decode("latin-1")[:200]
