"""A sandboxed server's way into the network.

Under `net: [hosts]` the process never executes `connect`: the supervisor makes a loopback connection within the hub
(`loopback_pair`), gives one end to the server and the other, with the server's hosts, to the proxy. Nothing listens,
and `PROXY_URL` is never reached.
"""

import re
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, Literal, Protocol

from msgspec import UNSET

from mcp_hub.addresses import HostRule as HostRule
from mcp_hub.addresses import normal_host
from mcp_hub.clock import wall_time
from mcp_hub.config.findings import on_one_line, quoted
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.rest.servers import RefusedInfo, TrafficInfo
from mcp_hub.protocol.shape.stream_events import timestamp

log = get_logger(__name__)

PROXY_URL: Final = "http://127.0.0.1:9"
"""The discard port: nothing answers without the supervisor."""
PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_KEPT: Final = 64
_TRIES: Final = 8
"""Foreign connections closed before a pair is given up."""
_LONGEST: Final = 256
_NO_NAME: Final = re.compile(
    r"EAI_AGAIN|ENOTFOUND|in name resolution|[Nn]ame or service not known|[Cc]ould not resolve host|no such host"
    r"|failed to lookup address|[Ff]ailed to resolve|lookup [\w.-]+(?: on \S+)?: "
)
"""Resolvers' messages: Node.js, Python, curl, Rust, Go."""
_LOOKED_UP: Final = re.compile(
    r"(?:ENOTFOUND |EAI_AGAIN |hostname: '|host=['\"]|[Rr]esolve(?: host:?)? ['\"]?|connect to host |lookup (?!address)|://)"
    r"([\w-][\w.-]{0,252})"
)
"""A host in or near such a message."""
_MOST_LINES: Final = 200
_LOGGED: Final = 64
"""Refusals logged; then each power of two."""
RefusedKind = Literal["host", "address", "socket", "read", "write", "rate"]
"""`address`: an allowed host with a refused address. `rate`: too many at a time."""
_KEYS: Final[Mapping[RefusedKind, str]] = {
    "host": "net", "address": "net", "socket": "sockets", "read": "read", "write": "write", "rate": "",
}  # fmt: skip


class Refusals:
    """A server's latest 64 refusals with counts; `total` counts all.

    The first 64 are logged, then each power of two. `note` and `latest` are thread-safe.
    """

    def __init__(self, server: str = "") -> None:
        self.total = 0
        self._server = server
        self._lock = Lock()
        self._before = 0
        self.traffic = TrafficInfo(0, 0, 0, 0)
        self._latest: deque[RefusedInfo] = deque(maxlen=_KEPT)

    @property
    def has_new(self) -> bool:
        """Whether the present start met one."""
        return self.total > self._before

    def begin(self) -> None:
        self._before = self.total

    def note(self, kind: RefusedKind, target: str, reason: str, entry: str = "") -> None:
        """Counts a refusal, maybe logs it."""
        text, because = _escaped(target), _escaped(reason)
        has_entry = bool(entry) and is_literal(entry) and _escaped(entry) == entry
        with self._lock:
            self.total = total = self.total + 1
            count = 1
            for earlier in self._latest:
                if (earlier.kind, earlier.target) == (kind, text):
                    count += earlier.count
                    self._latest.remove(earlier)
                    break
            key, line = (_KEYS[kind], entry) if has_entry else (UNSET, UNSET)
            refused = RefusedInfo(
                kind=kind, target=text, reason=because, at=timestamp(wall_time()), count=count, key=key, entry=line
            )
            self._latest.append(refused)
        if total <= _LOGGED or total & (total - 1) == 0:
            log.info("sandbox_refused", upstream=self._server, target=text, reason=because, total=total)

    def latest(self) -> list[RefusedInfo]:
        """Newest first."""
        with self._lock:
            return list(reversed(self._latest))


def refused_name(text: str, net: str, hosts: Sequence[HostRule], entries: Sequence[str] = ()) -> str | None:
    """Advice about a host that a server's output could not look up, or None.

    Under `net: none` or `[hosts]` only the proxy resolves names. `entries` are those of `net`.
    """
    lines = text.splitlines()[-_MOST_LINES:]
    if net == "any" or not any(map(_NO_NAME.search, lines)):
        return None
    lines.sort(key=lambda line: _NO_NAME.search(line) is None)  # the names in the same line first
    names = (normal_host(match[1]) for line in lines for match in _LOOKED_UP.finditer(line))
    host = next((name for name in names if name is not None and not name.isdecimal()), None)
    if host is None:
        return "The sandbox refuses to look up names. If the server may, add the hosts that it needs to net."
    if any(rule.matches(host, port) for rule in hosts for port in rule.ports):
        reason = "its sandbox allows that host by the proxy of HTTPS_PROXY alone, which the server ignores"
        return f"The server looked up {host} itself, and {reason}. Does it have an option for a proxy?"
    line = ", ".join(map(quoted, (*entries, host)))
    return f"The sandbox refuses to look up {host}. If the server may, set net: [{line}] in its sandbox."


def is_literal(entry: str) -> bool:
    """Whether a configuration takes it literally, without `${…}`."""
    return "${" not in entry


def _escaped(text: str) -> str:
    return hide_head(on_one_line(hide_head(text, _LONGEST)), _LONGEST)


class Proxy(Protocol):
    """Relays connections of servers with limited hosts."""

    async def run(self) -> None:
        """Serves until cancelled; earlier connections are closed."""
        ...

    def serve(self, connection: socket.socket, server: str, hosts: Sequence[HostRule], refusals: Refusals) -> None:
        """Takes over the hub's end of a server's connection, non-blocking, and returns at once; on the event loop."""
        ...


def loopback_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection, non-blocking: the server's, the proxy's. Raises `OSError`."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(_TRIES)
        listener.setblocking(False)
        near = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            near.setblocking(False)
            with suppress(BlockingIOError):
                near.connect(listener.getsockname())
            for _ in range(_TRIES):
                far, peer = listener.accept()  # a BlockingIOError is an OSError
                if peer == near.getsockname():
                    far.setblocking(False)
                    return near, far
                far.close()
            raise ConnectionAbortedError("strangers connect to the loopback address of the hub")
        except BaseException:
            near.close()
            raise
