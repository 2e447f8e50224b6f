"""The proxy of sandboxed servers: CONNECT and plain HTTP to their hosts.

It listens nowhere and decrypts nothing. Each request is judged; a refusal names the entry that would allow it.
"""

import socket
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Final

import anyio
import msgspec
from anyio.abc import SocketStream

from mcp_hub.addresses import HostRule
from mcp_hub.aio import Bell
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide, visible
from mcp_hub.sandbox.network.dial import Denied, Dialer, End, Observe, Resolve, Via, system_resolver
from mcp_hub.sandbox.network.interface import Refusals
from mcp_hub.sandbox.network.requests import PlainExchange, ProxyRequest, parse_head, read_head

log = get_logger(__name__)

_LOOKUPS: Final = 4
"""Look-ups of one server at a time."""
_FAREWELL: Final = 2.0
_UNREAD: Final = 1 << 20
"""Seconds and bytes for a refused server to finish: closing at once would destroy the answer."""
_ESTABLISHED: Final = b"HTTP/1.1 200 Connection established\r\n\r\n"


_Arrival = tuple[str, Sequence[HostRule], Refusals]


class _ProxyLimits(msgspec.Struct, frozen=True):
    """One server's limits: connections at a time, seconds, and bytes of an HTTP `head`.

    `request`: for a head; `waiting`: between requests; `idle`: without a byte; `half_closed`: the same once one side
    has closed.
    """

    connections: int = 128
    request: float = 20.0
    waiting: float = 60.0
    idle: float = 1800.0
    half_closed: float = 60.0
    lookup: float = 10.0
    connect: float = 15.0
    head: int = 32 << 10


class HostProxy:
    """Relays connections of servers while `run` runs, and closes others.

    `via` gives the hub's own proxy for a URL.
    """

    def __init__(
        self, *, resolve: Resolve | None = None, via: Via = lambda url: None, limits: _ProxyLimits | None = None,
        observe: Observe | None = None,
    ) -> None:  # fmt: skip
        self._limits = limits = limits or _ProxyLimits()
        self._dialer = Dialer(
            resolve or system_resolver(), via, observe, lookup=limits.lookup, connect=limits.connect, head=limits.head
        )
        self._is_running = False
        self._arrived: deque[socket.socket] = deque()
        self._connections: dict[socket.socket, _Arrival] = {}
        self._bell = Bell()
        self._open = Counter[str]()
        self._lookups: dict[str, anyio.CapacityLimiter] = {}

    async def run(self) -> None:
        """Serves until cancelled, then closes every connection."""
        self._is_running = True
        try:
            async with anyio.create_task_group() as tasks:
                while True:
                    await self._bell.wait()
                    while self._arrived:
                        connection = self._arrived.popleft()
                        tasks.start_soon(self._serve, connection, *self._connections[connection])
        finally:
            self._is_running = False
            self._arrived.clear()
            for connection in list(self._connections):  # tasks that were cancelled before their first step
                self._end(connection)

    def serve(self, connection: socket.socket, server: str, hosts: Sequence[HostRule], refusals: Refusals) -> None:
        if not self._is_running:
            connection.close()
            return
        if self._open[server] >= self._limits.connections:
            refusals.note("rate", server, f"more than {self._limits.connections} connections at a time")
            connection.close()
            return
        self._open[server] += 1
        refusals.traffic.begin()
        self._connections[connection] = (server, tuple(hosts), refusals)
        self._arrived.append(connection)
        self._bell.ring()

    async def _serve(
        self, connection: socket.socket, server: str, hosts: Sequence[HostRule], refusals: Refusals
    ) -> None:
        lookups = self._lookups.setdefault(server, anyio.CapacityLimiter(_LOOKUPS))
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                near = End(await SocketStream.from_socket(connection))
            except ValueError:  # it is not connected any more
                return
            await _Session(
                near=near,
                server=server,
                hosts=hosts,
                refusals=refusals,
                dialer=self._dialer,
                lookups=lookups,
                limits=self._limits,
            ).run()
        except OSError as exc:
            log.debug("sandbox_connection_ended", upstream=server, reason=str(exc))
        except Exception:
            log.exception("sandbox_connection_failed", upstream=server)
        finally:
            self._end(connection)

    def _end(self, connection: socket.socket) -> None:
        server, _, refusals = self._connections.pop(connection)
        connection.close()
        refusals.traffic.end()
        self._open[server] -= 1
        if not self._open[server]:
            del self._open[server]
            self._lookups.pop(server, None)


class _Session:
    """One connection: requests, then perhaps a tunnel."""

    def __init__(
        self, near: End, server: str, hosts: Sequence[HostRule], refusals: Refusals, dialer: Dialer,
        lookups: anyio.CapacityLimiter, limits: _ProxyLimits,
    ) -> None:  # fmt: skip
        self._near = near
        self._server = server
        self._hosts = hosts
        self._refusals = refusals
        self._dialer = dialer
        self._lookups = lookups
        self._limits = limits
        self._buffer = bytearray()
        self._is_head = False

    async def run(self) -> None:
        """Serves and closes the connection. Raises `OSError` if it breaks."""
        is_whole = True
        try:
            while (head := await self._next()) is not None:
                self._is_head = head.request.method == b"HEAD"
                if not await (self._tunnel if head.is_tunnel else self._exchange)(head):
                    return
        except Denied as denied:
            await self._refuse(denied)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return
        except BaseException:
            is_whole = False
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._near.aclose(is_whole=is_whole)

    async def _next(self) -> ProxyRequest | None:
        if not self._buffer:
            with anyio.move_on_after(self._limits.waiting):
                self._buffer += await self._near.receive()
            if not self._buffer:
                return None
        try:
            with anyio.fail_after(self._limits.request):
                raw = await read_head(self._near, self._buffer, self._limits.head)
        except TimeoutError:
            reason = f"the head of a request did not arrive within {self._limits.request:g} s"
            raise Denied(408, "connection_read_timeout", reason) from None
        return None if raw is None else parse_head(raw)

    async def _open(self, head: ProxyRequest) -> End:
        return await self._dialer.open(head.target, self._hosts, self._refusals.traffic, self._lookups)

    async def _tunnel(self, head: ProxyRequest) -> bool:
        far = await self._open(head)
        watch = _Watch(self._near, far, self._limits)
        is_whole = False
        try:
            await self._near.send(_ESTABLISHED)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(watch.run, tasks.cancel_scope)
                async with anyio.create_task_group() as pumps:
                    pumps.start_soon(_pump, far, self._near, watch, tasks.cancel_scope)
                    pumps.start_soon(_pump, self._near, far, watch, tasks.cancel_scope, bytes(self._buffer))
                watch.stop()
            is_whole = not tasks.cancel_scope.cancel_called
        finally:
            with anyio.CancelScope(shield=True):
                await far.aclose(is_whole=is_whole)
        if not is_whole:
            raise ConnectionResetError("a tunnel broke off")
        return False

    async def _exchange(self, head: ProxyRequest) -> bool:
        far = await self._open(head)
        exchange = PlainExchange(self._near, head, bytes(self._buffer), self._limits.head)
        self._buffer.clear()
        failure: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                watch = _Watch(self._near, far, self._limits)
                tasks.start_soon(watch.run, tasks.cancel_scope)
                failure = Denied(504, "connection_read_timeout", f"{head.target.text} did not answer in time.")
                failure = await exchange.relay(far)
                watch.stop()
        finally:
            with anyio.CancelScope(shield=True):
                await far.aclose()
        if failure is not None:
            raise ConnectionResetError("an answer broke off") if exchange.is_answered else failure
        self._buffer += exchange.behind or b""
        return exchange.behind is not None

    async def _refuse(self, denied: Denied) -> None:
        """Notes and answers a refusal; waits, so that the answer arrives."""
        if denied.kind is not None:
            self._refusals.note(denied.kind, denied.target, denied.reason, denied.entry)
        with suppress(OSError, anyio.BrokenResourceError), anyio.move_on_after(_FAREWELL):
            await self._near.send(answer_to(denied, self._server, is_head=self._is_head))
            await self._near.send_eof()
            while self._near.moved < _UNREAD and await self._near.receive():
                continue


class _Watch:
    """Ends idle connections, sooner if half closed."""

    def __init__(self, near: End, far: End, limits: _ProxyLimits) -> None:
        self._near = near
        self._far = far
        self._limits = limits
        self._scope = anyio.CancelScope()
        self._is_half_closed = False

    async def run(self, watched: anyio.CancelScope) -> None:
        tick = min(self._limits.half_closed, self._limits.idle)
        with self._scope:
            moved, idle = -1, 0.0
            while idle < self._limits.idle:
                await anyio.sleep(tick)
                if self._far.moved != moved:
                    moved, idle = self._far.moved, 0.0
                elif self._is_half_closed or self._near.is_closed():
                    break
                else:
                    idle += tick
            watched.cancel()

    def stop(self) -> None:
        self._scope.cancel()

    def half_close(self) -> None:
        self._is_half_closed = True


async def _pump(source: End, sink: End, watch: _Watch, tunnel: anyio.CancelScope, early: bytes = b"") -> None:
    """Relays one direction; an error ends both."""
    try:
        data = early or await source.receive()
        while data:
            await sink.send(data)
            data = await source.receive()
        await sink.send_eof()
        watch.half_close()
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        tunnel.cancel()


def answer_to(denied: Denied, server: str, *, is_head: bool = False) -> bytes:
    """The response to a denied request; the status line names the entry: clients show little else."""
    phrase = HTTPStatus(denied.status).phrase
    text = f'The sandbox of server "{server}" refuses {denied.target}: {denied.reason}.\n'
    if denied.kind is None:
        text = f"{denied.reason}\n"
    if denied.entry:
        phrase = f'{phrase} (mcp-hub sandbox: add "{denied.entry}" to net)'
        text += f'To allow it, add this line to servers.{server}.sandbox.net in servers.yaml:\n  - "{denied.entry}"\n'
    body = visible(hide(text)).encode()
    head = (
        f"HTTP/1.1 {denied.status} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nProxy-Status: mcp-hub; error={denied.error}\r\nConnection: close\r\n\r\n"
    )
    return head.encode("ascii", "replace") + (b"" if is_head else body)
