"""A pipe under pressure: a peer that floods, one that asks without reading; and descriptors, each closed once."""

import asyncio
import io
import os
import sys
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.protocol.jsonrpc.envelope import Envelope, result_frame
from mcp_hub.wire import pipe as pipe_module
from mcp_hub.wire.pipe import Pipe
from tests.unit.wire.raw_lines import WAIT, OtherEnd, Told, connected, within

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, bool]]:
    """The loop that the hub runs on; it reads many times a pass where asyncio's reads once."""
    return "asyncio", {"use_uvloop": True}


class Answering(Told):
    """Answers every request with a kilobyte."""

    pipe: Pipe

    def on_request(self, message: Envelope, source: object = None) -> None:
        super().on_request(message)
        self.pipe.send(result_frame(bytes(message.id), b'"' + b"x" * 1000 + b'"'))


async def write_until_nobody_reads(end: OtherEnd, line: bytes) -> int:
    """Writes lines until the pipe stays full for a hundred passes of the loop; how many there were."""
    written, refused = 0, 0
    while refused < 100:
        try:
            written += os.write(end.write_fd, line)
            refused = 0
        except BlockingIOError:
            refused += 1
            await anyio.lowlevel.checkpoint()
    assert written % len(line) == 0
    return written // len(line)


async def test_nothing_is_read_from_a_peer_that_asks_without_reading_and_nothing_is_lost() -> None:
    told = Answering()
    async with connected(told, write_limit=10_000, couples=True) as (told.pipe, other, _):
        line = b'{"jsonrpc":"2.0","id":7,"method":"ping"}'.ljust(127) + b"\n"
        asked = await within(write_until_nobody_reads(other, line))
        assert told.pipe.is_congested
        assert len(told.requests) < asked  # the rest waits in the kernel, where it costs the peer and not the hub
        for _ in range(asked):
            assert (await other.line())["id"] == 7
        assert len(told.requests) == asked and not told.pipe.is_congested


async def test_others_get_their_turn_between_the_slices_of_a_flood() -> None:
    """What is taken in one turn is a few lines, however many one read brings."""
    async with connected() as (pipe, other, told):
        most, seen = 0, 0
        line = b'{"jsonrpc":"2.0","method":"n"}\n'

        def turn() -> None:
            nonlocal most, seen
            most, seen = max(most, len(told.notifications) - seen), len(told.notifications)
            if not pipe.is_closed:
                pipe.soon(turn)

        pipe.soon(turn)
        count = 900_000 // len(line)
        await other.write(line * count)
        assert len(await told.until("notifications", count)) == count
        assert most <= 2 * 128  # the end of one slice and the beginning of another may meet


REPORT = b'{"jsonrpc":"2.0","method":"n"}\n'


@pytest.mark.parametrize(("open_requests", "reports", "gather"), [(64, 64, True), (63, 64, False), (64, 63, False)])
async def test_reports_on_many_calls_gather_until_a_request_is_sent(
    monkeypatch: pytest.MonkeyPatch, open_requests: int, reports: int, gather: bool
) -> None:
    monkeypatch.setattr(pipe_module, "_GATHER", WAIT)
    async with connected() as (pipe, other, told):
        for _ in range(open_requests):
            pipe.request("m", b"{}")
        await other.write(REPORT * reports)
        await told.until("notifications", reports)
        assert bool(pipe._input.pace.pauses) == gather
        pending = pipe.request("m", b"{}")
        await other.send(id=pending.id, result={})
        assert (await within(pipe.answer(pending, None))).kind == "result"


@pytest.mark.parametrize("news", [{"id": 1, "result": {}}, {"id": 1, "method": "ping"}])
async def test_reports_count_anew_behind_an_answer_or_a_question(
    monkeypatch: pytest.MonkeyPatch, news: dict[str, object]
) -> None:
    monkeypatch.setattr(pipe_module, "_GATHER", WAIT)
    async with connected() as (pipe, other, told):
        for _ in range(65):
            pipe.request("m", b"{}")
        await other.write(REPORT * 63)
        await other.send(**news)
        await other.write(REPORT)
        await told.until("notifications", 64)
        assert not pipe._input.pace.pauses


async def test_gathered_reports_arrive_and_too_few_are_read_at_once_again() -> None:
    async with connected() as (pipe, other, told):
        for _ in range(64):
            pipe.request("m", b"{}")
        await other.write(REPORT * 64)
        for number in range(64, 80):
            await told.until("notifications", number)
            await other.write(REPORT)
        await told.until("notifications", 80)
        assert not pipe._input.pace.pauses and pipe._input.pace.reports < 64


@pytest.mark.parametrize("last", [b"", b'{"jsonrpc":"2.0","method":"last"}'])
async def test_what_was_read_is_taken_before_the_end_is_reported(last: bytes) -> None:
    async with connected() as (_, other, told):
        await other.write(b'{"jsonrpc":"2.0","method":"n"}\n' * 5000 + last)
        other.close("write")
        await told.until("reasons")
        assert len(told.notifications) == 5000 + bool(last)
        assert told.reasons == ["the peer closed its output"]


async def test_an_answer_that_was_read_counts_though_the_connection_is_closed_before_its_turn() -> None:
    async with connected() as (pipe, other, told):
        pending = pipe.request("tools/call", b"{}")
        await other.write(b'{"jsonrpc":"2.0","method":"n"}\n' * 1000 + b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
        await told.until("notifications")
        assert len(told.notifications) < 1000
        pipe.close("the process has ended")
        assert (await pipe.answer(pending, None)).kind == "result"
        assert len(told.notifications) == 1000 and told.reasons == ["the process has ended"]


async def test_a_peer_that_reads_nothing_is_given_up_after_a_while() -> None:
    async with connected(write_limit=10_000, patience=0.05) as (pipe, _, told):
        for _ in range(40):
            pipe.send(b"x" * 100_000 + b"\n")
        (reason,) = await told.until("reasons")
        assert "has not read its input for 0.05 s" in reason


async def test_a_peer_that_reads_slowly_is_not_given_up() -> None:
    async with connected(write_limit=10_000, patience=0.3) as (pipe, other, told):
        for _ in range(40):
            pipe.send(b"x" * 100_000 + b"\n")
        read = 0
        while read < 40 * 100_001:
            read += len(await other.chunk())
            await anyio.sleep(0.03)
        assert told.reasons == [] and not pipe.is_congested


class _Later:
    """A loop's clock that goes on by hand, with what is to run then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: tuple[float, Callable[[], object]] | None = None

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        callback(*args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> None:
        self.due = self.now + delay, lambda: callback(*args)

    def go_on(self) -> None:
        assert self.due is not None
        self.now, callback = self.due
        callback()


@pytest.mark.parametrize(("lines", "closed_at"), [(0, 1.0), (2, 3.0), (100, 5.0)])
async def test_a_peer_that_closed_its_input_is_read_as_long_as_it_writes(lines: int, closed_at: float) -> None:
    async with connected() as (pipe, _, told):
        pipe.request("m", b"{}")
        pipe.flush()
        later = _Later()
        pipe._loop, loop = later, pipe._loop  # type: ignore[assignment]  # a double
        pipe._stop_sending()
        for count in range(20):
            if pipe.is_closed:
                break
            if count < lines:
                pipe._input.data_received(b'{"jsonrpc":"2.0","method":"notifications/x"}\n')
            later.go_on()
        assert (later.now, told.reasons) == (closed_at, ["the peer closed its input"])
        pipe._loop = loop


async def test_flood_leaves_the_loop_a_pass_before_the_next_read() -> None:
    async with connected() as (pipe, _, told):
        transport = pipe._input._transport
        assert transport is not None and transport.is_reading()
        pipe._input.data_received(b'{"jsonrpc":"2.0","method":"%s"}\n' % (b"n" * (1 << 16)))
        assert len(told.notifications) == 1 and not transport.is_reading()
        await anyio.lowlevel.checkpoint()
        assert not transport.is_reading()
        with anyio.fail_after(WAIT):
            while not transport.is_reading():
                await anyio.lowlevel.checkpoint()


class Seen(io.FileIO):
    """A file that notes whether its descriptor was still its own when it was closed."""

    was_open: bool | None = None

    def close(self) -> None:
        if not self.closed:
            self.was_open = os.path.exists(f"/proc/self/fd/{self.fileno()}")
        super().close()


class Ends:
    """A pipe over files that note their closing; until `close` both must have been open."""

    def __init__(self) -> None:
        its_read, our_write = os.pipe()
        our_read, its_write = os.pipe()
        self.files = Seen(our_read, "rb"), Seen(our_write, "wb")
        self.pipe = Pipe(Told(), line_limit=1 << 20)
        self._others = its_read, its_write

    async def close(self) -> None:
        self.pipe.close()
        for _ in range(5):
            await asyncio.sleep(0)
        for descriptor in self._others:
            os.close(descriptor)
        assert [file.was_open for file in self.files] == [True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_descriptor_is_not_closed_by_its_number_once_it_may_be_another_files() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def check() -> None:
        counts = []
        for _ in range(2):  # with the first pipe the loop opens descriptors of its own
            ends = Ends()
            await ends.pipe.open(*ends.files)
            await ends.close()
            counts.append(len(os.listdir("/proc/self/fd")))
        assert counts[0] == counts[1], "nothing is left open"

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(check())


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("passes", [1, 2, 3])
def test_pipe_that_is_cancelled_while_it_opens_leaves_nothing_open(passes: int) -> None:
    async def check() -> None:
        ends = Ends()
        opening = asyncio.ensure_future(ends.pipe.open(*ends.files))
        for _ in range(passes):
            await asyncio.sleep(0)
        opening.cancel()
        await asyncio.wait([opening])
        await ends.close()

    asyncio.run(check())
