"""The way of a sandboxed server into the network: its hosts, the interface of the proxy, and what was refused.

Under `net: [hosts]` the server's process never executes a `connect`. The supervisor makes a TCP connection over
loopback with both ends in the hub (`loopback_pair`), puts one end over the descriptor of the server, and hands the
other to the proxy together with the name and the hosts of that server. Nothing listens meanwhile, so nobody else can
use the proxy, and no server can use the hosts of another one. The process gets `PROXY_URL` as its proxy: the address
is never used, since each `connect` of the process reaches the proxy, whatever it names.
"""

import re
import socket
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Final, Literal, Protocol

import msgspec

from mcp_hub.addresses import HostRule as HostRule
from mcp_hub.addresses import normal_host
from mcp_hub.clock import wall_time
from mcp_hub.config.findings import on_one_line, quoted
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head

log = get_logger(__name__)

PROXY_URL: Final = "http://127.0.0.1:9"
"""The proxy that the variables of a server name: the discard port, where nothing answers without the supervisor."""
PROXY_VARIABLES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
_KEPT: Final = 64
_TRIES: Final = 8
"""Connections of strangers to the listening end of a pair that are closed before the pair is given up."""
_LONGEST: Final = 256
_NO_NAME: Final = re.compile(
    r"EAI_AGAIN|ENOTFOUND|in name resolution|[Nn]ame or service not known|[Cc]ould not resolve host|no such host"
    r"|failed to lookup address|[Ff]ailed to resolve|lookup [\w.-]+(?: on \S+)?: "
)
"""The words of resolvers: those of Node.js, Python, curl, Rust and Go."""
_LOOKED_UP: Final = re.compile(
    r"(?:ENOTFOUND |EAI_AGAIN |hostname: '|host=['\"]|[Rr]esolve(?: host:?)? ['\"]?|connect to host |lookup (?!address)|://)"
    r"([\w-][\w.-]{0,252})"
)
"""A host in such a message, or near it."""
_MOST_LINES: Final = 200
_LOGGED: Final = 64
"""Refusals of a server that are logged; of later ones the 128th, the 256th and so on."""
RefusedKind = Literal["host", "address", "socket", "read", "write", "rate"]
"""`address`: the host is allowed, and its name leads to an address that is not. `rate`: too much at a time."""
_KEYS: Final[Mapping[RefusedKind, str]] = {
    "host": "net", "address": "net", "socket": "sockets", "read": "read", "write": "write", "rate": "",
}  # fmt: skip


class RefusedTarget(msgspec.Struct, frozen=True):
    """Something that the sandbox refused `count` times, the last time `at` these Unix seconds.

    The texts may come from the server: they are escaped, masked and cut. `entry` under `key` of the rule allows it;
    empty where no line does, or where it would not be the same text.
    """

    kind: RefusedKind
    target: str
    reason: str
    at: float
    count: int = 1
    entry: str = ""

    @property
    def key(self) -> str:
        """The key of the rule that is about it: `net`, `sockets`, `read` or `write`; empty for a limit."""
        return _KEYS[self.kind]


class Traffic(msgspec.Struct):
    """The use of the network by one server: connections so far and open, bytes to its hosts and from them."""

    connections: int = 0
    open: int = 0
    sent: int = 0
    received: int = 0

    def begin(self) -> None:
        """Counts a connection that was opened."""
        self.connections += 1
        self.open += 1

    def end(self) -> None:
        """Counts a connection that was closed."""
        self.open -= 1

    def count(self, *, sent: int = 0, received: int = 0) -> None:
        """Adds bytes of either direction."""
        self.sent += sent
        self.received += received


class Refusals:
    """The latest refusals of one server, at most 64 different ones, each with its count; the sum counts all.

    The first 64 are logged, then the 128th, the 256th and so on. `traffic` is the part that was not refused. `note` and
    `latest` may be called from any thread.
    """

    def __init__(self, server: str = "") -> None:
        self.total = 0
        self._server = server
        self._lock = Lock()
        self._before = 0
        self.traffic = Traffic()
        self._latest: deque[RefusedTarget] = deque(maxlen=_KEPT)

    @property
    def has_new(self) -> bool:
        """Whether the present start has met one."""
        return self.total > self._before

    def begin(self) -> None:
        """The server is started."""
        self._before = self.total

    def note(self, kind: RefusedKind, target: str, reason: str, entry: str = "") -> None:
        """Counts a refusal, and logs it if it is not one of many; the texts may come from the server."""
        text, because = _escaped(target), _escaped(reason)
        line = entry if is_literal(entry) and _escaped(entry) == entry else ""
        with self._lock:
            self.total = total = self.total + 1
            count = 1
            for earlier in self._latest:
                if (earlier.kind, earlier.target) == (kind, text):
                    count += earlier.count
                    self._latest.remove(earlier)
                    break
            self._latest.append(
                RefusedTarget(kind=kind, target=text, reason=because, at=wall_time(), count=count, entry=line)
            )
        if total <= _LOGGED or total & (total - 1) == 0:
            log.info("sandbox_refused", upstream=self._server, target=text, reason=because, total=total)

    def latest(self) -> list[RefusedTarget]:
        """The newest first."""
        with self._lock:
            return list(reversed(self._latest))


def refused_name(text: str, net: str, hosts: Sequence[HostRule], entries: Sequence[str] = ()) -> str | None:
    """A sentence about a name that a server could not look up, by its output, with the line to write. None without one.

    Under `net: none` or `net: [hosts]` no process resolves names: the proxy does, for those that use it. The server
    has written the name. `entries` are those of `net`, which the line repeats.
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
    """Whether a configuration takes a text of the server as it is: no `${…}` leads it elsewhere."""
    return "${" not in entry


def _escaped(text: str) -> str:
    return hide_head(on_one_line(hide_head(text, _LONGEST)), _LONGEST)


class Proxy(Protocol):
    """Relays the connections of servers whose hosts are limited."""

    async def run(self) -> None:
        """Serves until it is cancelled; connections that come before are closed."""
        ...

    def serve(self, connection: socket.socket, server: str, hosts: Sequence[HostRule], refusals: Refusals) -> None:
        """Takes over the hub's end of a connection of `server`, non-blocking and connected, and returns at once.

        Runs on the event loop. The proxy closes the connection at the end, or at once beyond its limit; what the
        rule does not allow is noted in `refusals`.
        """
        ...


def loopback_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends of a fresh TCP connection over 127.0.0.1, non-blocking: the server's, then the proxy's.

    Raises `OSError`; never waits.
    """
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
