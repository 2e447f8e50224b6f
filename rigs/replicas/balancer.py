"""A small load balancer: round robin over replicas, a request at a time, without a look at what is in it.

Each request gets a connection of its own, to the next replica that accepts one, and its response goes to the client
byte by byte as it comes. A request is never repeated once it was sent: the client does that, which knows if it may.
`python -m rigs.replicas.balancer --port 8080 URL URL …` is the same as a process.
"""

import argparse
import itertools
import re
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

import anyio
from anyio.abc import SocketAttribute, SocketStream

_GONE = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
_MOST_HEAD = 1 << 16
_PATIENCE = 2.0
"""Seconds for a replica to accept a connection, or to answer a health check."""
_BETWEEN_CHECKS = 0.5
_AT_A_TIME = 65536
_KEPT = 100
_CONNECTION = re.compile(rb"\r\n(?:connection|keep-alive):[^\r]*", re.IGNORECASE)
_NOBODY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
_LOST = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CHECK = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


class Balancer:
    """Where the requests go. `taken` has the latest: their method and the URL of the replica that took them.

    `flips` counts the connections that were broken on purpose.
    """

    def __init__(self, replicas: Sequence[str]) -> None:
        self.url = ""
        self.taken: deque[tuple[str, str]] = deque(maxlen=_KEPT)
        self.flips = 0
        self._replicas = [_address(url) for url in replicas]
        self._unhealthy: set[tuple[str, int]] = set()
        self._turn = itertools.count()
        self._open: set[anyio.CancelScope] = set()

    def flip(self) -> None:
        """Breaks every connection in the middle of what it carries: the client's next one goes to another replica."""
        self.flips += len(self._open)
        for scope in self._open:
            scope.cancel()

    def leave_out(self, url: str) -> None:
        """Sends no more requests to this replica."""
        self._unhealthy.add(_address(url))

    def take_back(self, url: str) -> None:
        self._unhealthy.discard(_address(url))

    async def check(self) -> None:
        """Leaves out the replicas that do not answer a health check, until they do."""
        async with anyio.create_task_group() as tasks:
            for replica in self._replicas:
                tasks.start_soon(self._check, replica)

    async def serve(self, near: SocketStream) -> None:
        """One connection of a client, for one request."""
        with suppress(*_GONE), anyio.CancelScope() as scope:
            self._open.add(scope)
            try:
                async with near:
                    await self._relay(near, await _head(near))
            finally:
                self._open.discard(scope)

    async def _relay(self, near: SocketStream, begun: bytes) -> None:
        connected = await self._connected()
        if connected is None:
            await near.send(_NOBODY)
            return
        far, place = connected
        head, end, rest = begun.partition(b"\r\n\r\n")
        self.taken.append((head.partition(b" ")[0].decode("ascii", "replace"), f"http://{place[0]}:{place[1]}"))
        request = _CONNECTION.sub(b"", head) + b"\r\nConnection: close" + end + rest
        count = None
        async with far:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_upload, near, far, request, tasks.cancel_scope)
                count = await _forward(far, near)
                tasks.cancel_scope.cancel()
            if count == 0:
                await near.send(_LOST)

    async def _connected(self) -> tuple[SocketStream, tuple[str, int]] | None:
        """A connection to the next replica that accepts one, and its address: one that was killed has none any more."""
        first = next(self._turn)
        for number in range(first, first + len(self._replicas)):
            replica = self._replicas[number % len(self._replicas)]
            if replica not in self._unhealthy:
                with suppress(OSError, TimeoutError), anyio.fail_after(_PATIENCE):
                    return await anyio.connect_tcp(*replica), replica
        return None

    async def _check(self, replica: tuple[str, int]) -> None:
        while True:
            answer = b""
            with suppress(*_GONE, TimeoutError), anyio.fail_after(_PATIENCE):
                async with await anyio.connect_tcp(*replica) as far:
                    await far.send(_CHECK)
                    answer = await far.receive()
            if answer.startswith(b"HTTP/1.1 200"):
                self._unhealthy.discard(replica)
            else:
                self._unhealthy.add(replica)
            await anyio.sleep(_BETWEEN_CHECKS)


@asynccontextmanager
async def balancer(replicas: Sequence[str], *, port: int = 0, checks: bool = True) -> AsyncIterator[Balancer]:
    """A balancer on 127.0.0.1 in front of these URLs."""
    found = Balancer(replicas)
    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=port) as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, found.serve)
        if checks:
            tasks.start_soon(found.check)
        found.url = f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        yield found
        tasks.cancel_scope.cancel()


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 80


async def _head(near: SocketStream) -> bytes:
    """The head of a request and what came with it. Raises: one of `_GONE`."""
    begun = bytearray()
    while b"\r\n\r\n" not in begun:
        if len(begun) > _MOST_HEAD:
            raise anyio.BrokenResourceError
        begun += await near.receive(_AT_A_TIME)
    return bytes(begun)


async def _upload(near: SocketStream, far: SocketStream, begun: bytes, both: anyio.CancelScope) -> None:
    """Sends the request; a client that goes away takes the connection to the replica along."""
    with suppress(*_GONE):
        await far.send(begun)
        while True:
            await far.send(await near.receive(_AT_A_TIME))
    both.cancel()


async def _forward(source: SocketStream, target: SocketStream) -> int:
    """The number of bytes until one side was gone."""
    count = 0
    with suppress(*_GONE):
        while True:
            part = await source.receive(_AT_A_TIME)
            count += len(part)
            await target.send(part)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(prog="rigs.replicas.balancer", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--checks", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("replicas", nargs="+", metavar="URL")
    given = parser.parse_args()

    async def run() -> None:
        async with balancer(given.replicas, port=given.port, checks=given.checks) as found:
            print(found.url, file=sys.stderr, flush=True)
            await anyio.sleep_forever()

    anyio.run(run, backend_options={"use_uvloop": True})
    return 0


if __name__ == "__main__":
    sys.exit(main())
