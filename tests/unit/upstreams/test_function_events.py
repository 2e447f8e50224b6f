"""Python functions as sources of events: definitions, occurrences, cursors and failures."""

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime

import anyio
import anyio.lowlevel
import msgspec
import pytest

from mcp_hub.call import Heard
from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.types import JsonObject, Kind, RawObject
from mcp_hub.upstreams.functions import events
from mcp_hub.upstreams.functions.registry import Event, Registry, default_registry
from mcp_hub.upstreams.functions.registry import event as plain_event
from mcp_hub.upstreams.functions.upstream import function_upstream
from tests.unit.upstreams.function_calls import request
from tests.unit.wire.raw_lines import within

pytestmark = pytest.mark.anyio


class Told:
    """Keeps what a subscription reports."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, JsonObject]] = []
        self.news = anyio.Event()

    def __call__(self, method: str, params: RawObject) -> None:
        members = {name: json.loads(bytes(value)) for name, value in params.items()}
        self.messages.append((method.removeprefix("notifications/events/"), members))
        self.news.set()

    @property
    def occurrences(self) -> list[JsonObject]:
        return [params for kind, params in self.messages if kind == "event"]


async def subscribe(
    function: Callable[..., AsyncIterator[object]], heard: Heard, arguments: Mapping[str, object] | None = None,
    cursor: str | None = None, name: str = "build",
) -> JsonObject:  # fmt: skip
    registry = Registry()
    registry.event(name="build")(function)
    upstream = function_upstream("ci", registry)
    call = request(name, dict(arguments or {}), "events/stream")
    params = {**call.params, "cursor": msgspec.Raw(json.dumps(cursor).encode())}
    answer = await within(upstream.ask(msgspec.structs.replace(call, params=params), heard))
    result: JsonObject = json.loads(bytes(answer))
    return result


async def builds(repo: str, cursor: str | None = None) -> AsyncIterator[Event]:
    """A build of a repository has ended.

    Args:
        repo: name of the repository
    """
    first = int(cursor or 0)
    for number in range(first + 1, first + 3):
        yield Event({"repo": repo, "number": number}, f"b{number}", datetime(2026, 1, number, tzinfo=UTC), str(number))


def test_definition_comes_from_the_signature() -> None:
    registry = Registry()
    registry.event(payload_schema={"type": "object", "required": ["repo"]})(builds)
    snapshot = function_upstream("ci", registry).snapshot()
    assert snapshot is not None
    (definition,) = map(json.loads, snapshot.lists[Kind.EVENT])
    assert definition == {
        "name": "builds",
        "description": "A build of a repository has ended.",
        "delivery": ["push"],
        "inputSchema": {
            "type": "object",
            "properties": {"repo": {"type": "string", "description": "name of the repository"}},
            "required": ["repo"],
            "additionalProperties": False,
        },
        "payloadSchema": {"type": "object", "required": ["repo"]},
    }
    assert "events" in snapshot.capabilities


def test_server_without_events_does_not_declare_them() -> None:
    snapshot = function_upstream("ci", Registry()).snapshot()
    assert snapshot is not None
    assert "events" not in snapshot.capabilities and Kind.EVENT not in snapshot.lists


async def test_occurrences_are_reported_in_order_with_cursors() -> None:
    heard = Told()
    assert await subscribe(builds, heard, {"repo": "hub"}, cursor="4") == {"resultType": "complete", "_meta": {}}
    assert heard.messages[0] == ("active", {"truncated": False, "cursor": "4"})
    assert heard.occurrences == [
        {
            "eventId": f"b{number}",
            "name": "build",
            "timestamp": f"2026-01-0{number}T00:00:00+00:00",
            "data": {"repo": "hub", "number": number},
            "cursor": str(number),
        }
        for number in (5, 6)
    ]


async def test_active_is_reported_once_the_function_waits_for_events() -> None:
    steps: list[str] = []

    async def looking() -> AsyncIterator[Event]:
        steps.append("looks")
        await anyio.lowlevel.checkpoint()
        yield Event({}, "1", cursor="behind")

    class Looked(Told):
        def __call__(self, method: str, params: RawObject) -> None:
            steps.append(method.rpartition("/")[2])
            super().__call__(method, params)

    heard = Looked()
    await subscribe(looking, heard, cursor="before")
    assert steps == ["looks", "active", "event"]
    assert heard.messages[0][1]["cursor"] == "before"


async def test_event_without_id_gets_one_of_its_own() -> None:
    async def ticks() -> AsyncIterator[Event]:
        yield Event({})
        yield Event({})

    heard = Told()
    await subscribe(ticks, heard)
    first, second = heard.occurrences
    assert first["eventId"].startswith("ev_") and first["eventId"] != second["eventId"]
    assert first["cursor"] is None


async def test_wrong_arguments_are_refused_before_anything_is_reported() -> None:
    heard = Told()
    with pytest.raises(InvalidParams, match="repo: required"):
        await subscribe(builds, heard)
    with pytest.raises(InvalidParams, match="cursor: unknown argument"):
        await subscribe(builds, heard, {"repo": "hub", "cursor": "1"})
    assert heard.messages == []


async def test_unknown_event_is_not_found() -> None:
    with pytest.raises(RpcError) as caught:
        await subscribe(builds, Told(), name="deploy")
    assert caught.value.code == -32023


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        ("text", "has to be an Event"),
        (Event("text"), "has to be an object"),
        (Event({"a": float("nan")}), "JSON cannot carry"),
        (Event({}, cursor="c" * 5000), "at most 4096 characters"),
        (Event({}, id=7), "the id of an Event has to be text"),  # type: ignore[arg-type]
        (Event({}, id="i" * 513), "at most 512 characters"),
    ],
)
async def test_unfit_item_ends_the_subscription_with_the_reason(item: object, reason: str) -> None:
    async def source() -> AsyncIterator[object]:
        yield Event({"n": 1})
        yield item

    heard = Told()
    with pytest.raises(RpcError, match=reason):
        await subscribe(source, heard)
    assert [each["data"] for each in heard.occurrences] == [{"n": 1}]


async def test_error_of_the_function_is_the_answer() -> None:
    async def source() -> AsyncIterator[Event]:
        for number in range(2):
            if number == 1:
                raise RpcError("no such repository", code=-32023)
            yield Event({})

    with pytest.raises(RpcError, match="no such repository") as caught:
        await subscribe(source, Told())
    assert caught.value.code == -32023


async def test_silent_function_is_known_to_be_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT", 0.01)
    beats = anyio.Event()

    async def source() -> AsyncIterator[Event]:
        yield Event({}, cursor="7")
        await beats.wait()

    def heard(method: str, params: RawObject) -> None:
        if method.endswith("heartbeat") and bytes(params["cursor"]) == b'"7"':
            beats.set()

    await subscribe(source, heard)


async def test_cancelled_subscription_closes_the_function() -> None:
    ended, heard = anyio.Event(), Told()

    async def source() -> AsyncIterator[Event]:
        try:
            yield Event({})
            await anyio.sleep_forever()
        finally:
            ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(subscribe, source, heard)
        with anyio.fail_after(5):
            while not heard.occurrences:
                heard.news = anyio.Event()
                await heard.news.wait()
        tasks.cancel_scope.cancel()
    assert ended.is_set()


async def test_only_streams_of_events_are_served() -> None:
    registry = Registry()
    registry.event(builds)
    upstream = function_upstream("ci", registry)
    for method, heard in (("events/poll", Told()), ("events/stream", None)):
        with pytest.raises(RpcError, check=lambda error: error.code == -32601):
            await upstream.ask(request("builds", {"repo": "hub"}, method), heard)


def test_function_that_yields_nothing_is_no_source() -> None:
    async def once() -> Event:
        return Event({})

    with pytest.raises(TypeError, match="async def"):
        Registry().event(once)


def test_name_is_taken_once() -> None:
    registry = Registry()
    registry.event(builds)
    with pytest.raises(ValueError, match="defined twice"):
        registry.event(builds)


def test_plain_decorator_registers_for_the_module() -> None:
    plain_event(name="of_module")(builds)
    assert "of_module" in default_registry(__name__).events


@pytest.mark.parametrize("is_cleanup", [False, True], ids=["raised", "raised by its cleanup"])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (GeneratorExit("early"), "early"),
        (SystemExit(3), "3"),
        (BaseExceptionGroup("two", [SystemExit(3), KeyError()]), "two (2 sub-exceptions)"),
    ],
)
async def test_no_exception_of_a_function_ends_the_hub(error: BaseException, message: str, is_cleanup: bool) -> None:
    async def fails() -> AsyncIterator[Event]:
        try:
            yield Event({}, "1")
            if is_cleanup:
                raise RuntimeError(message)
            raise error
        finally:
            if is_cleanup:
                raise error

    heard = Told()
    with pytest.raises(RpcError, match=re.escape(message)):
        await subscribe(fails, heard)
    assert [occurrence["eventId"] for occurrence in heard.occurrences] == ["1"]
