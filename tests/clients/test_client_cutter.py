"""The proxy that breaks a connection, on its own: where it cuts, and that it cuts once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketStream

from tests.clients.cutter import Cutter
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio


async def answer(stream: SocketStream) -> None:
    """Nine events to every line, in portions that part the text that is looked for."""
    with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
        async with stream:
            while await stream.receive():
                for _ in range(9):
                    await stream.send(b"ev")
                    await stream.send(b"ent;")


@asynccontextmanager
async def proxied() -> AsyncIterator[Cutter]:
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, answer)
        async with Cutter(port, marker=b"cut me", sign=b"event;", count=3) as cutter:
            yield cutter
        tasks.cancel_scope.cancel()


async def said(cutter: Cutter, line: bytes) -> bytes:
    """What comes back, up to the whole answer or the end of the connection."""
    received = b""
    with anyio.fail_after(WAIT):
        async with await anyio.connect_tcp("127.0.0.1", cutter.port) as stream:
            await stream.send(line)
            while received.count(b"event;") < 9:
                try:
                    received += await stream.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    break
    return received


async def test_only_the_marked_connection_is_cut_and_only_once() -> None:
    async with proxied() as cutter:
        assert (await said(cutter, b"hello")).count(b"event;") == 9
        was_cut = cutter.has_cut
        assert 3 <= (await said(cutter, b"please cut me")).count(b"event;") < 9
        assert (was_cut, cutter.has_cut) == (False, True)
        assert (await said(cutter, b"please cut me")).count(b"event;") == 9
