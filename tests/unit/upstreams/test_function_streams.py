"""Local tools that stream: deltas, readers that are behind, and what a cancellation does."""

import io
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec
import pytest

from mcp_hub import events
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.functions import upstream
from mcp_hub.upstreams.functions.registry import Context, Progress, Result
from tests.unit.upstreams.function_calls import Behind, Recorder, run, text
from tests.unit.wire.raw_lines import group, within

pytestmark = pytest.mark.anyio


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": request.param})


async def cancel_once(started: anyio.Event, function: Callable[..., object], channel: Recorder | None = None) -> None:
    """Call the function, wait until `started` is set, cancel the call, wait for its end: not with a result."""
    results: list[JsonObject] = []

    async def call() -> None:
        results.append(await run(function, {}, channel))

    async with group() as tasks:
        tasks.start_soon(call)
        await within(started.wait())
    assert not results


async def test_generator_streams_progress_and_text() -> None:
    async def work() -> AsyncIterator[Progress | str]:
        yield Progress(1, total=2, message="half")
        yield "a"
        yield Progress(2)
        yield "b"

    channel = Recorder()
    assert await run(work, channel=channel) == text("ab")
    half, a, full, b = channel.sent
    assert half == events.Progressed(1, 2, {"message": msgspec.Raw(b'"half"')})
    assert full == events.Progressed(2)
    assert (a, b) == (events.Delta(b'[{"type":"text","text":"a"}]'), events.Delta(b'[{"type":"text","text":"b"}]'))
    assert channel.drains == 4


@pytest.mark.parametrize("fails_at", [None, 0, 1])
async def test_long_text_that_leaves_memory_is_whole(monkeypatch: pytest.MonkeyPatch, fails_at: int | None) -> None:
    """A disk that is full for a while loses nothing."""
    monkeypatch.setattr(upstream, "_IN_MEMORY", 10)
    if fails_at is not None:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda: Full(fails_at))

    async def work() -> AsyncIterator[str]:
        for number in range(20):
            yield f"é{number} "

    assert await run(work) == text("".join(f"é{number} " for number in range(20)))


class Full(io.BytesIO):
    """A file that takes only half of the piece behind so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._left = most

    def write(self, content: Any) -> int:
        self._left -= 1
        if self._left == -1:
            super().write(content[: len(content) // 2])
            raise OSError(28, "No space left on device")
        return super().write(content)


async def test_deltas_put_together_by_index_are_the_content() -> None:
    link = {"type": "resource_link", "uri": "x:y", "name": "n"}

    async def work() -> AsyncIterator[object]:
        yield "a"
        yield "b"
        yield link
        yield link
        yield "c"

    channel = Recorder()
    result = await run(work, channel=channel)
    texts = [block.get("text", block["type"]) for block in result["content"]]
    assert texts == ["ab", "resource_link", "resource_link", "c"]
    assert [index for index, _ in channel.deltas] == [0, 0, 1, 2, 3]


async def test_last_result_of_a_generator_wins_over_its_deltas() -> None:
    async def work() -> AsyncIterator[str | Result]:
        yield "partial"
        yield Result("first")
        yield Result({"n": 2})

    channel = Recorder()
    assert await run(work, channel=channel) == {**text('{"n":2}'), "structuredContent": {"n": 2}}
    assert len(channel.sent) == 1


async def test_calls_of_other_tools_are_shown_to_readers_and_are_not_in_the_result() -> None:
    async def work() -> AsyncIterator[object]:
        yield "a"
        yield events.ToolCall.of("c1", "search", {"q": "é"})
        yield events.ToolResult.of("c1", "found", is_error=True)
        yield "b"
        yield events.ToolCall("c2", "search", b'{\n"q": 1}')

    channel = Recorder()
    assert await run(work, channel=channel) == text("ab")
    assert [event for event in channel.sent if not isinstance(event, events.Delta)] == [
        events.ToolCall("c1", "search", '{"q":"é"}'.encode()),
        events.ToolResult("c1", b'[{"type":"text","text":"found"}]', True),
        events.ToolCall("c2", "search", b'{ "q": 1}'),
    ]
    assert channel.drains == 5


NONSENSE: list[object] = [
    events.ToolCall("c1", "search", {"q": 1}),  # type: ignore[arg-type]  # wrong on purpose, as are the next ones
    events.ToolCall("c1", 7, b"{}"),  # type: ignore[arg-type]
    events.ToolCall("c1", "search", b"[]"),
    events.ToolCall("c1", "search", b'{"a":"\xff"}'),
    events.ToolCall("c1", "search", b'{"a":' * 100_000),
    events.ToolResult("c1", b'[{"text": "no type"}]'),
    events.ToolResult("c1", b'[{"type":"text","text":"\xff"}]'),
]


@pytest.mark.parametrize("step", NONSENSE, ids=range(len(NONSENSE)))
async def test_calls_of_other_tools_that_do_not_hold_their_json_are_tool_errors(step: object) -> None:
    async def work() -> AsyncIterator[object]:
        yield step

    channel = Recorder()
    result = await run(work, channel=channel)
    assert result["isError"] is True and channel.sent == []
    assert f"{type(step).__name__}.of(…)" in result["content"][0]["text"]


async def test_generators_and_threads_wait_while_readers_are_behind() -> None:
    async def generator() -> AsyncIterator[str]:
        while True:
            yield "x"

    def thread(context: Context) -> None:
        for step in range(100):
            context.progress(step)

    for work in (generator, thread):
        channel = Behind()
        await cancel_once(channel.waiting, work, channel)
        assert len(channel.sent) == 1


@pytest.mark.slow
@pytest.mark.parametrize("item", [7, {"text": "no type"}, Progress("x"), Progress(1, message=2)])  # type: ignore[arg-type]  # wrong on purpose
async def test_generator_that_yields_nonsense_is_a_tool_error(item: object) -> None:
    async def work() -> AsyncIterator[object]:
        yield item

    result = await run(work)
    assert result["isError"] is True
    assert "not " in result["content"][0]["text"]


async def test_cancelled_generator_runs_its_cleanup_to_the_end() -> None:
    channel = Behind()
    log: list[str] = []

    async def work() -> AsyncIterator[str]:
        try:
            yield "x"
        finally:
            await anyio.lowlevel.checkpoint()
            log.append("cleaned up")

    await cancel_once(channel.waiting, work, channel)
    assert log == ["cleaned up"]


async def test_generator_that_never_waits_can_be_cancelled() -> None:
    started = anyio.Event()

    async def work() -> AsyncIterator[str]:
        started.set()
        while True:
            yield ""

    await cancel_once(started, work)


@pytest.mark.slow
async def test_generator_that_refuses_to_close_holds_up_no_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.functions.events.CLEANUP_GRACE", 0.05)

    async def hangs() -> AsyncGenerator[str, None]:
        try:
            yield "x"
        finally:
            await anyio.sleep_forever()

    async def yields_again() -> AsyncGenerator[str, None]:
        try:
            yield "x"
        finally:
            yield "y"

    for function in (hangs, yields_again):
        channel = Behind()
        await within(cancel_once(channel.waiting, function, channel))


async def test_cancelled_sync_function_is_abandoned_and_learns_of_it() -> None:
    started, learned, release = anyio.Event(), threading.Event(), threading.Event()

    def work(context: Context) -> None:
        context.progress(1)
        release.wait(5)
        if context.cancelled:
            context.progress(2)
            learned.set()

    class Started(Recorder):
        def send(self, event: events.CallEvent) -> None:
            super().send(event)
            started.set()

    channel = Started()
    await cancel_once(started, work, channel)
    release.set()
    assert await within(anyio.to_thread.run_sync(learned.wait, 5))
    assert channel.sent == [events.Progressed(1)]
