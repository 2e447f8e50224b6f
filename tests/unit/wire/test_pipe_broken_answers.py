"""Answers that cannot be read, while others are awaited too: each ends its own request at once, or is recovered."""

from functools import partial

import anyio
import pytest

from mcp_hub.protocol.jsonrpc.envelope import Envelope
from mcp_hub.protocol.jsonrpc.repair import Placeholder
from mcp_hub.wire.base import Pending, WireClosed
from mcp_hub.wire.pipe import Pipe
from mcp_hub.wire.server_pipe import ServerPipe
from tests.unit.wire.raw_lines import WAIT, connected

pytestmark = pytest.mark.anyio

NOTE = b'{"jsonrpc":"2.0","method":"notifications/x"}'
LONG = b"y" * 5000


async def answer(pipe: Pipe, pending: Pending) -> Envelope:
    with anyio.fail_after(WAIT):
        return await pipe.answer(pending, None)


@pytest.mark.parametrize(
    "line",
    [
        b'{"result":{"text":"%s","x":NaN},"jsonrpc":"2.0","id":2}' % LONG,
        b'{"result":{"text":"\\ud83d%s"},"jsonrpc":"2.0","id":2}' % (b"y" * (1 << 20)),
        b'{"result":{"x":%s%s},"jsonrpc":"2.0","id":2}' % (b"[" * 100_000, b"]" * 100_000),
        b'{"jsonrpc":"2.0","id":2,"result":{"rows":[{"id":1},{"id":3}],"x":NaN}}',
        NOTE + b'{"jsonrpc":"2.0","id":2,"result":{"x":NaN}}',
    ],
    ids=["number", "half a character", "deep", "other ids", "behind another message"],
)
async def test_an_unreadable_answer_in_whatever_order_ends_its_own_request(line: bytes) -> None:
    async with connected(line_limit=1 << 22, kind=ServerPipe) as (pipe, other, told):
        first, second = pipe.request("m", b"{}"), pipe.request("m", b"{}")
        await other.write(line + b"\n")
        found = await answer(pipe, second)
        assert isinstance(found, Placeholder) and b"-32700" in bytes(found.error)  # type: ignore[arg-type]  # set
        assert not first.future.done() and len(told.bad) == pipe.counts["bad"] == 1
        await other.send(id=first.id, result={})
        assert (await answer(pipe, first)).result


async def test_a_list_with_an_unreadable_definition_is_a_list_in_whatever_order() -> None:
    async with connected(kind=ServerPipe) as (pipe, other, _):
        pipe.request("m", b"{}")
        for id_, line in (
            (2, b'{"result":{"tools":[{"a":"%s"},{"b":1,}]},"jsonrpc":"2.0","id":2}' % LONG),
            (3, b'{"jsonrpc":"2.0","id":3,"result":{"tools":[{"a":{"id":"abc"}},{"b":NaN}]}}'),
        ):
            pending = pipe.request("tools/list", b"{}")
            assert pending.id == id_
            await other.write(line + b"\n")
            result = (await answer(pipe, pending)).result
            assert b"not-json" in bytes(result)  # type: ignore[arg-type]  # set


async def test_a_broken_request_of_the_peer_with_its_id_at_the_end_is_not_taken_for_our_answer() -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        line = b'{"method":"roots/list","params":{"result":"%s","x":NaN},"jsonrpc":"2.0","id":1}\n'
        await other.write(line % LONG)
        await told.until("bad")
        assert not pending.future.done()


ONE, TWO = b'{"jsonrpc":"2.0","id":1,"result":{"n":1}}', b'{"result":{"n":2},"jsonrpc":"2.0","id":2}'


@pytest.mark.parametrize("line", [b"INFO done " + NOTE + ONE + TWO + NOTE, b" [%b,%b, %b,%b]" % (NOTE, ONE, TWO, NOTE)])
async def test_messages_that_share_a_line_are_these_messages(line: bytes) -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        first, second = pipe.request("m", b"{}"), pipe.request("m", b"{}")
        await other.write(line + b"\n")
        assert bytes((await answer(pipe, first)).result) == b'{"n":1}'  # type: ignore[arg-type]  # set
        assert bytes((await answer(pipe, second)).result) == b'{"n":2}'  # type: ignore[arg-type]  # set
        assert len(told.notifications) == 2 and not told.bad


async def test_very_many_messages_on_a_line_are_no_trap() -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        await other.write(NOTE * 20_000 + b"\n" + NOTE + b"\n")
        await told.until("notifications", 64)
        assert len(told.bad) == 1 and not pipe.is_closed


@pytest.mark.parametrize("half", [b'{"jsonrpc":"2.0","id":1,"resu', b'{"jsonrpc":"2.0","result":{"x":NaN},"id":1}'])
async def test_half_an_answer_at_the_end_leaves_the_reason_to_the_end(half: bytes) -> None:
    ended = anyio.Event()
    async with connected(kind=partial(ServerPipe, on_end=ended.set)) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        await other.write(NOTE + half)
        other.close("write")
        with anyio.fail_after(WAIT):
            await ended.wait()
        pipe.close("exited with code 9")
        with pytest.raises(WireClosed, match="exited with code 9"):
            await answer(pipe, pending)
        assert len(told.notifications) == len(told.bad) == 1, "what is whole counts, and half of a message is told"


async def test_whole_messages_at_the_end_count_behind_all_that_came_before() -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        await other.write(NOTE + b"\n")
        await told.until("notifications")
        await other.write((NOTE + b"\n") * 1000 + NOTE + b'{"jsonrpc":"2.0","id":1,"result":{}}')
        other.close("write")
        await answer(pipe, pending)
        assert len(told.notifications) == 1002 and not told.bad


@pytest.mark.parametrize(
    "line",
    [b"[]", b"[[%s]]" % NOTE, b"[" * 100_000 + b"]" * 100_000, b"[" + b",".join([NOTE] * 129) + b"]", b"[" + NOTE],
    ids=["empty", "in another", "deep", "very many", "cut off"],
)
async def test_an_array_without_messages_is_reported_as_one_line(line: bytes) -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        await other.write(line + b"\n" + NOTE + b"\n")
        await told.until("notifications")
        assert len(told.bad) == len(told.notifications) == 1 and not pipe.is_closed
