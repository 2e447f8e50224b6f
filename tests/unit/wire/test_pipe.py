"""The dispatcher over real pipes: what the other side writes, what the waiting side gets."""

import json
import os
import subprocess
import sys
import weakref
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import anyio
import pytest

from mcp_hub.protocol.jsonrpc.envelope import Envelope, response, result_frame, whole
from mcp_hub.protocol.jsonrpc.repair import Placeholder
from mcp_hub.wire import files
from mcp_hub.wire.base import Pending, WireClosed, watch
from mcp_hub.wire.pipe import Pipe
from mcp_hub.wire.server_pipe import ServerPipe
from tests.unit.wire.raw_lines import Told, cancellation, connected, within
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio


async def answer(pipe: Pipe, pending: Pending) -> Any:
    """The result, or the error, that the request got."""
    message = await within(pipe.answer(pending, cancellation))
    assert isinstance(message, Envelope)
    payload = message.result if message.kind == "result" else message.error
    return json.loads(bytes(payload))


@pytest.mark.parametrize("spelling", [int, str])
async def test_an_answer_finds_its_request_by_number_or_text(spelling: type) -> None:
    async with connected() as (pipe, other, _):
        first, second = pipe.request("one", b'{"a":1}'), pipe.request("two", b"{}")
        one, two = await other.line(), await other.line()
        assert (one["method"], one["params"], two["method"]) == ("one", {"a": 1}, "two")
        await other.send(id=spelling(two["id"]), result={"n": 2})
        await other.send(id=spelling(one["id"]), result={"n": 1})
        assert await answer(pipe, first) == {"n": 1}
        assert await answer(pipe, second) == {"n": 2}
        assert not pipe.requests.pending


async def test_a_waiter_that_is_cancelled_tells_the_peer_and_a_late_answer_is_counted() -> None:
    async with connected() as (pipe, other, told):
        pending = pipe.request("slow", b"{}")
        assert (await other.line())["method"] == "slow"
        with anyio.move_on_after(0):
            await pipe.answer(pending, cancellation)
        line = await other.line()
        assert (line["method"], line["params"]) == ("notifications/cancelled", {"requestId": pending.id})
        fresh = pipe.request("m", b"{}")
        await other.send(id=pending.id, result={})
        await other.send(id=pending.id, result={})
        await other.send(id=fresh.id, result={"fresh": True})
        assert await answer(pipe, fresh) == {"fresh": True}
        assert pipe.counts == {"bad": 0, "late": 1, "stray": 1} and told.late == [pending.id]
        assert not pipe.requests.abandon(fresh)


async def test_answers_that_nobody_waits_for_are_counted_and_harm_nobody() -> None:
    async with connected() as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        for id_ in (999, -1, "somebody", 10**30):
            await other.send(id=id_, result={})
        await other.send(id=pending.id, result={"mine": True})
        await other.send(id=pending.id, result={"twice": True})
        assert await answer(pipe, pending) == {"mine": True}
        fresh = pipe.request("m", b"{}")
        await other.send(id=fresh.id, result={})
        assert await answer(pipe, fresh) == {}
        assert pipe.counts["stray"] == 5 and not told.bad


async def test_requests_and_notifications_of_the_peer_arrive_in_order_with_their_ids() -> None:
    async with connected() as (_, other, told):
        await other.send(id="a", method="ping")
        await other.send(method="notifications/x", params={"y": 1})
        await other.send(id=7, method="roots/list", params={})
        first, second = await told.until("requests", 2)
        assert [bytes(first.id), bytes(second.id)] == [b'"a"', b"7"]
        assert [note.method for note in told.notifications] == ["notifications/x"]


UNREAD = b'{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":"no"}}'


@pytest.mark.parametrize("id_", [b"1.0", b"1e0", b'"1"'])
@pytest.mark.parametrize("member", [b"result", b"error"])
async def test_answer_counts_however_its_id_is_written(id_: bytes, member: bytes) -> None:
    async with connected() as (pipe, other, told):
        pending = pipe.request("m", b"{}", "a call")
        await other.write(b'{"jsonrpc":"2.0","id":%b,"%b":{}}\n' % (id_, member))
        message = await within(pipe.answer(pending, cancellation))
        assert not isinstance(message, Placeholder) and pipe.counts["bad"] == 0


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","result":{"content":[}',
        b'{"jsonrpc":"2.0","id":',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","result":"x"}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","id":1.5,"result":{}}',
        b'{"jsonrpc":"2.0","id":999,"result":{}}',
        b'{"jsonrpc":"2.0","id":"nobody","result":{"content":[}',
        b'[{"jsonrpc":"2.0","result":{}}]',
        b'["jsonrpc", 1]',
        *(UNREAD % -32601, UNREAD % -32600, UNREAD % -32700, UNREAD % 1),
        b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}',
        b'{"jsonrpc":"2.0","id":[],"error":{"code":-32700,"message":"no"}}',
    ],
)
@pytest.mark.parametrize("context", ["a call", None])
async def test_the_answer_behind_noise_that_may_have_been_it_is_the_answer(line: bytes, context: object) -> None:
    async with connected(kind=ServerPipe) as (pipe, other, told):
        pending = pipe.request("m", b"{}", context)
        await other.write(line + b"\n")
        await told.until("bad")
        await other.write(b'{"jsonrpc":"2.0","id":1,"result":{"ok":1}}\n')
        assert await answer(pipe, pending) == {"ok": 1} and told.bad


async def test_an_unreadable_answer_without_an_id_settles_none_of_several() -> None:
    async with connected() as (pipe, other, told):
        first, second = pipe.request("m", b"{}"), pipe.request("m", b"{}")
        await other.write(b'{"jsonrpc":"2.0","result":{"content":[}\n')
        await told.until("bad")
        for pending in (first, second):
            await other.send(id=pending.id, result={})
            assert await answer(pipe, pending) == {}


@pytest.mark.parametrize(
    "noise",
    [
        *(b"starting the engine", b"Listening on 8080 {ok", b"\xff\xfe\x00", b"   ", b"[1, 2]", b"null"),
        b'{"jsonrpc":"2.0","id":%b,"result":{}}' % (b"9" * 5000),  # more digits than int() takes
        *(b'{"level":"info","msg":"up"}', b'{"level":"info","msg":', b'{"id":1,"level":"info"}', b'{"id":1,"level":'),
    ],
)
async def test_stray_text_settles_nothing(noise: bytes) -> None:
    async with connected() as (pipe, other, _):
        pending = pipe.request("m", b"{}")
        await other.write(noise + b"\n\n\r\n")
        await other.send(id=pending.id, result={"ok": 1})
        assert await answer(pipe, pending) == {"ok": 1}


@pytest.mark.parametrize("with_id", [True, False])
async def test_a_line_over_the_limit_is_a_typed_error_and_the_next_one_works(with_id: bool) -> None:
    async with connected(line_limit=1000) as (pipe, other, told):
        pending = pipe.request("m", b"{}")
        id_ = b'"id":%d,' % pending.id if with_id else b""
        await other.write(b'{"jsonrpc":"2.0",%b"result":{"x":"' % id_ + b"x" * 100_000)
        error = await answer(pipe, pending)
        assert error["code"] == -32700 and "over the limit of 1000 bytes" in error["message"]
        fresh = pipe.request("m", b"{}")
        await other.write(b'"}}\n')
        await other.send(id=fresh.id, result={"ok": 1})
        assert await answer(pipe, fresh) == {"ok": 1}
        assert len(told.bad) == 1


async def test_closing_fails_all_that_is_pending_at_once_and_permanently() -> None:
    async with connected() as (pipe, other, told):
        pendings = [pipe.request("m", b"{}") for _ in range(3)]
        pipe.close("enough")
        pipe.close("again")
        assert not pipe.requests.pending and told.reasons == ["enough"]
        for pending in pendings:
            with pytest.raises(WireClosed, match="enough"):
                await answer(pipe, pending)
        with pytest.raises(WireClosed):
            pipe.request("m", b"{}")
        assert [(await other.line())["method"] for _ in pendings] == ["m"] * 3, "what was queued still leaves"
        assert await other.chunk() == b""


@pytest.mark.parametrize("side", ["its output", "its input"])
async def test_a_peer_that_closes_a_side_is_gone(side: str) -> None:
    async with connected() as (pipe, other, told):
        other.close("write" if side == "its output" else "read")
        assert await told.until("reasons") == [f"the peer closed {side}"]
        with pytest.raises(WireClosed):
            pipe.request("m", b"{}")
        pipe.send(b"{}\n")  # harmless


async def test_a_peer_that_reads_no_more_may_still_answer_what_it_has_read() -> None:
    async with connected() as (pipe, other, told):
        pending, other_pending = pipe.request("m", b"{}"), pipe.request("m", b"{}")
        await other.line()
        other.close("read")
        await other.send(id=pending.id, result={"ok": 1})
        assert await answer(pipe, pending) == {"ok": 1}
        other.close("write")
        with pytest.raises(WireClosed):
            await answer(pipe, other_pending)


async def test_the_last_line_counts_without_its_newline() -> None:
    async with connected() as (pipe, other, _):
        pending = pipe.request("m", b"{}")
        await other.write(b'{"jsonrpc":"2.0","id":%d,"result":{"last":1}}' % pending.id)
        other.close("write")
        assert await answer(pipe, pending) == {"last": 1}


async def test_what_is_sent_in_one_pass_leaves_as_one_write() -> None:
    async with connected() as (pipe, other, _):
        for number in range(3):
            pipe.send(b'{"n":%d}\n' % number)
        assert await other.chunk() == b'{"n":0}\n{"n":1}\n{"n":2}\n'
        pipe.send(b"{}\n")
        pipe.flush()
        pipe.send(b"[]\n")
        assert os.read(other.read_fd, 100) == b"{}\n", "what is flushed does not wait for the rest"
        assert await other.chunk() == b"[]\n"


@pytest.mark.parametrize("is_tapped", [False, True])
async def test_a_long_response_leaves_whole_and_in_order_with_short_ones(is_tapped: bool) -> None:
    async with connected() as (pipe, other, _):
        result, seen = b'{"text":"%b"}' % (b"x" * 3_000_000), list[bytes]()
        if is_tapped:
            watch(pipe, lambda came, message: seen.append(message))
        frames = [b'{"n":0}\n', response(b"1", result), b'{"n":1}\n', response(b'"two"', b"{", memoryview(result)[1:])]
        assert [type(frame) for frame in frames] == [bytes, tuple, bytes, tuple]
        for frame in frames:
            pipe.send(frame)
        lines = [whole(frame) for frame in frames]
        assert lines[1::2] == [result_frame(id_, result) for id_ in (b"1", b'"two"')]
        received = b""
        while len(received) < sum(map(len, lines)):
            received += await other.chunk()
        assert received == b"".join(lines)
        assert seen == (lines if is_tapped else [])


async def test_a_peer_that_does_not_read_is_seen_and_so_is_its_coming_back() -> None:
    async with connected(write_limit=10_000) as (pipe, other, told):
        big = b'"' + b"x" * 3_000_000 + b'"\n'
        pipe.send(big)
        assert not pipe.is_congested
        pipe.flush()
        assert pipe.is_congested and told.writable == 0
        received = b""
        while len(received) < len(big):
            received += await other.chunk()
        await told.until("writable")
        assert received == big and not pipe.is_congested


async def test_a_peer_that_leaves_while_much_is_unwritten_closes_the_pipe() -> None:
    async with connected(write_limit=10_000) as (pipe, other, told):
        pipe.send(b"x" * 3_000_000 + b"\n")
        pipe.flush()
        other.close()
        assert len(await told.until("reasons")) == 1
        assert told.writable == 0


async def test_regular_files_work_as_input_and_output(tmp_path: Path) -> None:
    source, target, told = tmp_path / "in", tmp_path / "out", Told()
    lines = [b'{"jsonrpc":"2.0","method":"n","params":{"n":%d}}\n' % number for number in range(5000)]
    source.write_bytes(b"".join(lines) + b'{"jsonrpc":"2.0","id":"z","method":"last"}')
    with source.open("rb", buffering=0) as read, target.open("wb", buffering=0) as write:
        pipe = Pipe(told, line_limit=1 << 20)
        await pipe.open(read, write)
        pipe.send(b"hello\n")
        assert await told.until("reasons") == ["the peer closed its output"]
        assert len(told.notifications) == 5000 and told.requests[0].method == "last"
        assert target.read_bytes() == b"hello\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a program set the size")
def test_a_hub_takes_half_of_what_a_user_may_have_in_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    def size(file: IO[bytes]) -> int:
        return fcntl.fcntl(file.fileno(), fcntl.F_GETPIPE_SZ)

    monkeypatch.setattr(files, "_WIDE", weakref.WeakSet())
    with ExitStack() as pipes:
        ends = [[pipes.enter_context(os.fdopen(end, mode)) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True)]
                for _ in range(40)]  # fmt: skip
        usual = size(ends[0][0])
        for reader, _ in ends:
            files.widen(reader)
        assert [size(reader) for reader, _ in ends] == [1 << 20] * 32 + [usual] * 8
        ends[0][0].close()
        for reader, _ in ends[32:]:
            files.widen(reader)
        assert [size(reader) for reader, _ in ends[32:]] == [1 << 20] + [usual] * 7


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a program set the size")
def test_the_pipes_of_a_client_are_wide_before_a_server_is_started() -> None:
    import fcntl

    code = "from mcp_hub.fronts.stdio import take_stdio; take_stdio()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.wait(WAIT)
        assert process.stdin is not None and process.stdout is not None
        assert [fcntl.fcntl(file, fcntl.F_GETPIPE_SZ) for file in (process.stdin, process.stdout)] == [1 << 20] * 2


@pytest.mark.parametrize("method", ["subscriptions/listen", "logging/setLevel"])
async def test_an_error_without_an_id_is_that_of_the_only_call_that_somebody_awaits(method: str) -> None:
    async with connected() as (pipe, other, told):
        listen = pipe.request(method, b"{}")
        call = pipe.request("tools/call", b"{}")
        await other.write(UNREAD % -32700 + b"\n")
        assert isinstance(await within(pipe.answer(call, None)), Placeholder)
        await other.write(UNREAD % -32700 + b"\n")
        await told.until("bad", 2)
        assert not listen.future.done() and list(pipe.requests.pending) == [listen.id]
        calls = [pipe.request("tools/call", b"{}") for _ in range(2)]
        await other.write(UNREAD % -32700 + b"\n")
        await told.until("bad", 3)
        assert not any(one.future.done() for one in calls)
