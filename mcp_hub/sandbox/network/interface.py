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
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from mcp_hub.addresses import HostRule as HostRule
from mcp_hub.addresses import normal_host
from mcp_hub.clock import wall_time
from mcp_hub.masking import hide_head

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


class RefusedTarget(msgspec.Struct, frozen=True):
    """Something that the sandbox refused: `kind` is `host`, `address`, `socket` or `rate`, `target` is escaped text."""

    kind: str
    target: str
    reason: str
    at: float
    count: int = 1


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

    `traffic` is the part that was not refused.
    """

    def __init__(self) -> None:
        self.total = 0
        self.traffic = Traffic()
        self._latest: deque[RefusedTarget] = deque(maxlen=_KEPT)

    def note(self, kind: str, target: str, reason: str) -> None:
        """Counts a refusal; the texts may come from the server."""
        self.total += 1
        text = hide_head(target, _LONGEST).encode("unicode_escape").decode()
        count = 1
        for entry in self._latest:
            if (entry.kind, entry.target) == (kind, text):
                count += entry.count
                self._latest.remove(entry)
                break
        self._latest.append(RefusedTarget(kind, text, reason, wall_time(), count))

    def latest(self) -> list[RefusedTarget]:
        """The newest first."""
        return list(reversed(self._latest))


def refused_name(text: str, net: str, hosts: Sequence[HostRule]) -> str | None:
    """A sentence about a name that a server could not look up, by its output, with the line to add. None without one.

    Under `net: none` or `net: [hosts]` no process resolves names: the proxy does, for those that use it. The server
    has written the name.
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
    return f'The sandbox refuses to look up {host}. If the server may, add "{host}" to net of its sandbox.'


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
