"""Streamable HTTP as a wire: what comes in place of an answer on a request's own stream concerns no other request."""

import anyio
import pytest

from mcp_hub.errors import UpstreamLost
from mcp_hub.protocol.jsonrpc.repair import Placeholder
from mcp_hub.protocol.sse import EventParser
from mcp_hub.wire import bodies
from mcp_hub.wire.base import Pending
from tests.unit.wire.http_server import Reply, Request
from tests.unit.wire.http_wires import Sourced, Talk, wired
from tests.unit.wire.raw_lines import within
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

BROKEN = {
    "cut off": '{"jsonrpc":"2.0","id":2,',
    "malformed": '{"jsonrpc":"2.0","id":2,"result":{"content":[}',
    "method that is a number": '{"jsonrpc":"2.0","id":2,"method":5,"result":{}}',
}
"""Answers that cannot be read, with the id of their request."""
DOUBTFUL = {
    "no id": '{"jsonrpc":"2.0","result":{"content":[]}}',
    "null id": '{"jsonrpc":"2.0","id":null,"result":{}}',
    "null id, null error": '{"jsonrpc":"2.0","id":null,"result":{},"error":null}',
    "id of no sort": '{"jsonrpc":"2.0","id":[1],"result":{}}',
    "id of another": '{"jsonrpc":"2.0","id":1,"result":{}}',
    "id of nobody": '{"jsonrpc":"2.0","id":999,"result":{}}',
    "error for nobody": '{"jsonrpc":"2.0","id":999,"error":{"code":1,"message":"m"}}',
    "nothing": '{"jsonrpc":"2.0"}',
    "malformed": '{"jsonrpc":"2.0","result":{"content":[}',
    "malformed, of another": '{"jsonrpc":"2.0","id":1,"result":{"content":[}',
    "array": '[{"jsonrpc":"2.0","result":{}}]',
    "behind a message": '{"jsonrpc":"2.0","method":"notifications/x"}{"jsonrpc":"2.0","result":{]}',
}
NO_ANSWERS = {
    "noise": "starting up",
    "broken notification": '{"jsonrpc":"2.0","method":"notifications/progress","params":{"result":[}}',
    "broken notification, params first": '{"jsonrpc":"2.0","params":{"result":[},"method":"notifications/progress"}',
    "broken request": '{"jsonrpc":"2.0","id":2,"method":"ping","params":{]}',
    "method that is null": '{"jsonrpc":"2.0","method":null}',
    "log": '{"level":"info","text":"up"}',
}


class OneBad:
    """Request 1 is kept waiting; the stream of request 2 brings `event`, then the answer (`answers`), or `ends`."""

    def __init__(self, event: str, *, answers: bool = False, ends: bool = False) -> None:
        self.event, self.answers, self.ends = event, answers, ends
        self.slow_may_end = anyio.Event()

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.message["id"] == 1:
            await self.slow_may_end.wait()
            await reply.result(request, {"slow": 1})
            return
        stream = await reply.stream()
        await stream.event(self.event)
        if self.answers:
            await stream.event('{"jsonrpc":"2.0","id":2,"result":{}}')
        await (stream.end() if self.ends else stream.gone())


def doubts(told: Sourced) -> list[bytes]:
    """The lines that could be the answer to any request."""
    return [line for (_, line), source in zip(told.bad, told.bad_sources, strict=True) if source is None]


@pytest.mark.parametrize("event", BROKEN.values(), ids=BROKEN.keys())
async def test_a_broken_answer_ends_the_request_of_its_stream_at_once_and_no_other(event: str) -> None:
    script = OneBad(event)
    async with wired(script) as talk:
        slow = talk.wire.request("tools/call", b"{}")
        assert isinstance(await talk.ask(), Placeholder)
        assert list(talk.wire.requests.pending.values()) == [slow] and doubts(talk.told) == []
        script.slow_may_end.set()
        assert bytes((await talk.answer(slow)).result) == b'{"slow": 1}'


@pytest.mark.slow
@pytest.mark.parametrize("event", DOUBTFUL.values(), ids=DOUBTFUL.keys())
async def test_if_a_stream_ends_without_an_answer_what_may_have_been_one_was_it(event: str) -> None:
    async with wired(OneBad(event, ends=True)) as talk:
        slow = talk.wire.request("tools/call", b"{}")
        assert isinstance(await talk.ask(), Placeholder)
        assert list(talk.wire.requests.pending.values()) == [slow] and doubts(talk.told) == []


@pytest.mark.slow
@pytest.mark.parametrize("event", [*NO_ANSWERS.values(), *DOUBTFUL.values()], ids=[*NO_ANSWERS, *DOUBTFUL])
async def test_the_answer_behind_noise_is_the_answer(event: str) -> None:
    async with wired(OneBad(event, answers=True)) as talk:
        slow: Pending = talk.wire.request("tools/call", b"{}")
        assert bytes((await talk.ask()).result) == b"{}"
        assert len(talk.told.bad) == talk.wire.counts["bad"] == 1
        assert doubts(talk.told) == [] and not slow.future.done()


@pytest.mark.parametrize("id_", ['"id":null,', ""])
async def test_an_error_that_names_no_request_answers_that_of_its_stream(id_: str) -> None:
    event = '{"jsonrpc":"2.0",' + id_ + '"error":{"code":-32603,"message":"inner"}}'
    async with wired(OneBad(event, ends=True)) as talk:
        talk.wire.request("tools/call", b"{}")
        assert b"inner" in bytes((await talk.ask()).error)


@pytest.mark.parametrize("code", [-32700, -32600, -32601, -32603, 1])
@pytest.mark.parametrize("id_", ['"id":null,', ""])
async def test_the_answer_behind_an_error_that_names_no_request_is_the_answer(id_: str, code: int) -> None:
    event = '{"jsonrpc":"2.0",' + id_ + f'"error":{{"code":{code},"message":"inner"}}}}'
    async with wired(OneBad(event, answers=True)) as talk:
        slow = talk.wire.request("tools/call", b"{}")
        assert bytes((await talk.ask()).result) == b"{}"
        assert doubts(talk.told) == [] and not slow.future.done()


async def test_on_a_stream_of_no_request_an_answer_without_an_id_may_be_that_to_any() -> None:
    async def script(request: Request, reply: Reply) -> None:
        if request.method == "GET":
            stream = await reply.stream()
            await stream.event('{"jsonrpc":"2.0","result":{"content":[]}}')
        await reply.gone()

    async with wired(script) as talk:
        waiting = talk.wire.request("tools/call", b"{}")
        await talk.wire.listen()
        await within(talk.told.until("bad"))
        assert len(doubts(talk.told)) == 1 and not waiting.future.done()


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
