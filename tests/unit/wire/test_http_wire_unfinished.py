"""Streamable HTTP as a wire: messages that are not whole are bounded for all requests of a server together."""

import pytest

from mcp_hub.errors import UpstreamLost
from mcp_hub.protocol.sse import EventParser
from mcp_hub.wire import bodies
from mcp_hub.wire.base import Pending
from tests.unit.wire.http_server import Reply, Request
from tests.unit.wire.http_wires import Talk, wired
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

LIMIT = 1 << 18
BIG = LIMIT - 100


class Halves:
    """Sends `BIG` bytes of an answer to what is `big`, and all of the answer, byte by byte, to anything else."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    async def __call__(self, request: Request, reply: Reply) -> None:
        is_stream = self.kind == "text/event-stream"
        start, end = (b"data: ", b"\n\n") if is_stream else (b"", b"")
        text = start + b'{"jsonrpc":"2.0","id":%d,"result":{}}' % request.message["id"] + end
        is_big = request.message["method"] == "big"
        size = LIMIT if is_big else len(text)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: {self.kind}\r\ncontent-length: {size}\r\n\r\n"
        reply._writer.write(head.encode())
        for piece in [start, b"x" * (BIG - len(start))] if is_big else [bytes([byte]) for byte in text]:
            reply._writer.write(piece)
            await reply._writer.drain()
        if is_big:
            await reply.gone()


async def held(talk: Talk, size: int) -> None:
    await until(lambda: talk.wire._intake._unfinished.held == size)


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
async def test_what_a_server_has_sent_of_unfinished_messages_is_bounded_for_all_together(kind: str) -> None:
    async with wired(Halves(kind), limit=LIMIT) as talk:
        kept: list[Pending] = [talk.wire.request("big", b"{}") for _ in range(4)]
        await held(talk, 4 * BIG)
        with pytest.raises(UpstreamLost, match=f"over {4 * LIMIT} bytes of unfinished messages at once") as caught:
            await talk.ask("big")
        assert caught.value.data == {"upstream": {"server": "far"}, "outcome": "unknown"}
        assert not any(pending.future.done() for pending in kept), "it is the one that wants more that fails"
        await held(talk, 4 * BIG)
        for _ in range(3):  # small ones find room
            assert bytes((await talk.ask()).result) == b"{}"
        for pending in kept[:2]:
            talk.wire._exchanges.stop(pending.id)
        await held(talk, 2 * BIG)
        assert (await talk.ask()).kind == "result"


async def test_a_message_that_is_whole_is_not_counted() -> None:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        for _ in range(12):
            await stream.event({"jsonrpc": "2.0", "method": "notifications/x", "params": {"x": "x" * (LIMIT - 1000)}})
        await stream.event({"jsonrpc": "2.0", "id": request.message["id"], "result": {}})

    async with wired(script, limit=LIMIT) as talk:
        assert (await talk.ask()).kind == "result"
        assert len(talk.told.notifications) == 12
        await held(talk, 0)


async def test_what_has_ended_is_let_go_of_whatever_ended_it() -> None:
    unfinished, parser = bodies._Unfinished(100), EventParser(LIMIT)
    with pytest.raises(UpstreamLost), unfinished.share(parser.end) as fits:
        assert parser.events(b"data: a\ndata: " + b"x" * BIG) == []
        assert parser.held > BIG and not fits(parser.held)
        raise UpstreamLost("it broke off")
    assert parser.held == unfinished.held == 0 and not parser._parts and not parser._data
