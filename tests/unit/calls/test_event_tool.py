"""`hub_events` over readers that a test fills: bounds, sessions, what an answer says."""

import json
from collections.abc import Callable
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.calls.feeds.reading import FeedReader, Topic
from mcp_hub.calls.hub_tools.events import Subscriptions, end, handler
from mcp_hub.errors import RpcError, StoreError
from mcp_hub.events import Completed, Progressed
from mcp_hub.protocol.shape.occurrences import EventParams, not_found
from mcp_hub.types import RawJson, RawObject
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.fakes import Channel
from tests.unit.upstreams.function_calls import request

PATIENCE = 20.0


async def no_stream(*_: object) -> None:
    return None


class Reader(FeedReader):
    """Reads what a test has put."""

    def __init__(self, cursor: str | None) -> None:
        super().__init__(Topic("git", "build", b"{}"), no_stream, no_stream)
        self.cursor = cursor or "st_A.0"
        self.items: list[tuple[RawObject, str] | None] = []
        self.is_closed = False

    def happens(self, *numbers: int, **data: object) -> None:
        for number in numbers:
            members = {"eventId": f"e{number}", "timestamp": "2026-11-30T10:00:00Z", "data": {"n": number, **data}}
            self.items.append(({key: msgspec.Raw(json.dumps(value).encode()) for key, value in members.items()},
                               f"st_A.{number}"))  # fmt: skip
        self.wake()

    def misses(self) -> None:
        self.items.append(None)
        self.wake()

    async def read(self, limit: int) -> tuple[list[tuple[RawObject, str]], bool]:
        self._news = anyio.Event()
        is_truncated = bool(self.items) and self.items[0] is None
        if is_truncated:
            self.items.pop(0)
        taken = [item for item in self.items[:limit] if item is not None]
        del self.items[:limit]
        self.cursor = taken[-1][1] if taken else self.cursor
        return taken, is_truncated

    def close(self) -> None:
        self.is_closed = True


class _Channel(Channel):
    """Keeps the state from which another hub continues."""

    state: RawJson | None = None

    def continuable(self, how: RawJson | None, *, is_firm: bool = False, is_quiet: bool = False) -> None:
        assert is_quiet, "a wait alone does not make a call durable"
        self.state = how


class Bench:
    """The tool for one session, and the readers that it has opened."""

    def __init__(self, session: str = "s", subscriptions: Subscriptions | None = None) -> None:
        self.session = session
        self.subscriptions = subscriptions
        self.readers: list[Reader] = []
        self.opened: list[EventParams] = []
        self.prepare: Callable[[Reader], None] = lambda reader: None
        self.refusal: Exception | None = None
        self.channel = _Channel()
        self.state: RawJson | None = None

    async def _open(self, params: EventParams) -> FeedReader:
        if self.refusal is not None:
            raise self.refusal
        self.opened.append(params)
        reader = Reader(params.cursor)
        self.readers.append(reader)
        self.prepare(reader)
        return reader

    async def _types(self, name: str | None) -> str:
        return f"types {name}"

    def _check(self, name: str, reader: FeedReader) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def ask(self, action: str | None = None, **arguments: Any) -> str:
        answered = handler(
            self.session,
            self.subscriptions,
            PATIENCE,
            types=self._types,
            check=self._check,
            open=self._open,
            public=lambda error: error,
            state=self.state,
        )
        members = arguments if action is None else {"action": action, **arguments}
        completed = await answered(request("hub_events", members), self.channel)
        assert isinstance(completed, Completed)
        result = json.loads(bytes(completed.result))
        (block,) = result["content"]
        return f"error: {block['text']}" if result["isError"] else str(block["text"])

    @property
    def reader(self) -> Reader:
        return self.readers[-1]


@virtual
async def test_wait_ends_when_its_time_is_over_and_tells_of_its_wait() -> None:
    bench = Bench()
    answers: list[str] = []

    async def wait() -> None:
        answers.append(await bench.ask("wait", name="build", arguments={"branch": "main"}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await sleep(PATIENCE - 1)
        assert not answers
        (progress,) = bench.channel.sent
        assert isinstance(progress, Progressed) and progress.message == "waiting for build"
    assert answers == [
        'No event yet, after 20 s.\nTo wait for what comes next: hub_events with {"action":"wait","name":"build",'
        '"arguments":{"branch": "main"},"after":"st_A.0"}'
    ]
    assert bench.reader.is_closed


@virtual
async def test_another_hub_waits_behind_the_cursor_where_the_first_has_begun() -> None:
    first, second = Bench(), Bench()
    with anyio.move_on_after(PATIENCE - 5):
        await first.ask("wait", name="build")
    second.state = first.channel.state
    answers: list[str] = []

    async def wait() -> None:
        answers.append(await second.ask("wait", name="build"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await sleep(4)
        assert [params.cursor for params in second.opened] == ["st_A.0"] and not answers
    assert answers[0].startswith("No event yet, after 20 s.")


@virtual
async def test_event_is_answered_with_the_cursor_behind_it() -> None:
    bench = Bench()
    bench.prepare = lambda reader: reader.happens(1, 2)
    lines = (await bench.ask(name="build", after="st_A.0")).splitlines()
    assert lines[0] == "2 events."
    assert lines[1].endswith('"after":"st_A.2"}')
    assert json.loads(lines[-1]) == {
        "eventId": "e2", "name": "build", "timestamp": "2026-11-30T10:00:00Z", "data": {"n": 2}
    }  # fmt: skip


@virtual
async def test_missed_events_are_said_where_they_are_missing() -> None:
    bench = Bench()

    def prepare(reader: Reader) -> None:
        reader.happens(1)
        reader.misses()
        reader.happens(2)

    bench.prepare = prepare
    lines = (await bench.ask("wait", name="build")).splitlines()[-3:]
    assert lines[1] == "(build: events may be missing here.)"
    assert [json.loads(line)["data"]["n"] for line in (lines[0], lines[2])] == [1, 2]


@pytest.mark.parametrize(("size", "fit"), [(10, 50), (9000, 8), (100_000, 1)])
@virtual
async def test_answer_is_bounded_and_its_cursor_is_behind_what_it_holds(size: int, fit: int) -> None:
    bench = Bench()
    bench.prepare = lambda reader: reader.happens(*range(1, 61), text="x" * size)
    lines = (await bench.ask("wait", name="build")).splitlines()
    assert lines[0] == ("1 event." if fit == 1 else f"{fit} events.")
    assert lines[1].endswith(f'"after":"st_A.{fit}"}}')


@virtual
async def test_subscriptions_of_a_session_are_bounded_and_end_with_it() -> None:
    subscriptions: Subscriptions = {}
    bench, other = Bench("s", subscriptions), Bench("t", subscriptions)
    for number in range(16):
        assert not (await bench.ask("subscribe", name="build", arguments={"n": number})).startswith("error")
    assert "has 16 subscriptions" in await bench.ask("subscribe", name="build", arguments={"n": 16})
    assert bench.readers[16].is_closed
    again = await bench.ask("subscribe", name="build", arguments={"n": 3})
    assert again.startswith("Subscribed to build.") and bench.readers[3].is_closed
    await other.ask("subscribe", name="build")
    end("s", subscriptions)
    assert all(reader.is_closed for reader in bench.readers)
    assert not other.reader.is_closed
    assert "there is no subscription of this session" in await bench.ask("wait")


@virtual
async def test_session_continues_behind_its_last_answer() -> None:
    bench = Bench(subscriptions={})
    await bench.ask("subscribe", name="build", arguments={"b": 1, "a": 2})
    bench.prepare = lambda reader: reader.happens(7)
    await bench.ask("wait", name="build", arguments={"a": 2, "b": 1})
    await bench.ask("wait")
    assert [params.cursor for params in bench.opened] == [None, "st_A.0", "st_A.7"]


@virtual
async def test_request_without_a_session_holds_nothing() -> None:
    bench = Bench()
    assert '"after":"st_A.0"' in await bench.ask("subscribe", name="build")
    assert bench.reader.is_closed
    assert "there is no subscription" in await bench.ask("wait")


@virtual
async def test_end_of_the_subscription_is_an_error_once_all_is_read() -> None:
    bench = Bench()

    def prepare(reader: Reader) -> None:
        reader.happens(1)
        reader.end(not_found("event", "the type is gone"))

    bench.prepare = prepare
    assert "1 event." in await bench.ask("wait", name="build")
    bench.prepare = lambda reader: reader.end(not_found("event", "the type is gone"))
    assert await bench.ask("wait", name="build") == "error: hub_events: the type is gone"


@virtual
async def test_type_that_is_withdrawn_ends_a_wait() -> None:
    bench = Bench()
    answers: list[str] = []

    async def wait() -> None:
        answers.append(await bench.ask("wait", name="build"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await sleep(1)
        bench.refusal = not_found("event", "there is no event type build.")
        bench.reader.happens(1)
    assert answers == ["error: hub_events: there is no event type build."]


@virtual
async def test_trouble_of_the_server_is_told_with_an_empty_answer() -> None:
    bench = Bench()
    bench.prepare = lambda reader: reader.tell(RpcError("connection refused"))
    lines = (await bench.ask("wait", name="build")).splitlines()
    assert lines[0].startswith("No event yet") and lines[-1].endswith("at present: connection refused")


@pytest.mark.parametrize(
    ("refusal", "text"),
    [
        (StoreError("store /secret/path: it is full"), "store: it is full"),
        (RpcError("x" * 1000), "x" * 300),
    ],
)
@virtual
async def test_refusal_is_a_result(refusal: Exception, text: str) -> None:
    bench = Bench()
    bench.refusal = refusal
    answer = await bench.ask("wait", name="build")
    assert answer.startswith(f"error: hub_events: {text}") and len(answer) < 400 and "/secret" not in answer


@virtual
async def test_without_an_action_a_name_decides() -> None:
    bench = Bench()
    assert await bench.ask() == "types None"
    assert await bench.ask("list", name="build") == "types build"
    assert (await bench.ask(name="build")).startswith("No event yet")
