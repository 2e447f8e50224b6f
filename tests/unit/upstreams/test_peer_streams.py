"""Partial content of a server that streams by itself (docs/specification/streams.md), as its caller's events."""

import json

import pytest

from mcp_hub.events import Delta, Log, Progressed, Reset, ToolCall, ToolResult
from mcp_hub.types import CallId, JsonObject
from tests.unit.upstreams.function_calls import Recorder
from tests.unit.upstreams.scripted import talking
from tests.unit.upstreams.test_peer import Calls, call, in_flight, raws
from tests.unit.wire.raw_lines import group

pytestmark = pytest.mark.anyio

STREAMS = "dev.mcp-hub/streams"
BLOCKS = [{"type": "text", "text": "a\n"}]


def part(*events: tuple[str, JsonObject], **more: object) -> JsonObject:
    numbered = [{"seq": seq, "type": type_, "data": data} for seq, (type_, data) in enumerate(events, 2)]
    return {"stream": CallId("st_x"), "cursor": "2", "events": numbered, **more}


async def sent(meta: JsonObject) -> list[object]:
    """The events of a call whose server has sent one notification with this `_meta`."""
    async with in_flight(wants_progress=True) as (server, channel, id_):
        params = {"progressToken": id_, "progress": 4, "message": "a", "_meta": meta}
        await server.send(method="notifications/progress", params=params)
        await server.flush()
        return list(channel.sent)


async def test_events_are_those_of_the_server_and_the_notification_is_not_progress_besides() -> None:
    events = part(
        ("delta", {"channel": "content", "index": 1, "content": BLOCKS}),
        ("tool-call", {"call": "c", "name": "n", "arguments": {"k": 1}}),
        ("tool-result", {"call": "c", "isError": True, "content": BLOCKS}),
        ("progress", {"progress": 2, "total": 3, "message": "m"}),
    )
    found = await sent({STREAMS: events})
    assert found == [
        Delta(json.dumps(BLOCKS).encode(), 1, origin=2),
        ToolCall("c", "n", b'{"k": 1}'),
        ToolResult("c", json.dumps(BLOCKS).encode(), True),
        Progressed(2, 3, raws({"message": "m"})),
    ]


@pytest.mark.parametrize("type_", ["start", "input-required", "input-received", "attempt", "end", "x"])
async def test_events_that_come_by_other_ways_or_are_the_hubs_own_are_left_out(type_: str) -> None:
    data = {"level": "info", "data": 1, "key": "k", "method": "roots/list", "params": {}, "outcome": "ok", "result": {}}
    delta = {"channel": "content", "index": 0, "content": BLOCKS}
    assert await sent({STREAMS: part((type_, data), ("delta", delta))}) == [
        Delta(json.dumps(BLOCKS).encode(), origin=3)
    ]


async def test_a_reset_of_the_server_has_its_number_there() -> None:
    data: JsonObject = {"attempt": 3, "reason": "their own word", "discard_from": 2}
    assert await sent({STREAMS: part(("reset", data))}) == [Reset(0, "taken_back", origin=2)]


@pytest.mark.parametrize(
    "data",
    [{}, {"content": "x"}, {"content": [1]}, {"content": BLOCKS, "index": -1}, {"content": BLOCKS, "channel": "other"}],
)
async def test_an_event_that_cannot_be_read_is_left_out_alone(data: JsonObject) -> None:
    assert await sent({STREAMS: part(("delta", data), ("progress", {"progress": 1}))}) == [Progressed(1)]


@pytest.mark.parametrize("data", [{}, {"discard_from": "2"}, {"discard_from": 0}, {"discard_from": -1}])
async def test_a_reset_without_a_number_is_left_out(data: JsonObject) -> None:
    assert await sent({STREAMS: part(("reset", data), ("progress", {"progress": 1}))}) == [Progressed(1)]


@pytest.mark.parametrize("value", [None, 1, "x", [], {}, {"events": "x"}, {"events": [{"type": 1}]}])
async def test_a_notification_without_events_is_progress(value: object) -> None:
    assert await sent({STREAMS: value}) == [Progressed(4, None, raws({"message": "a", "_meta": {STREAMS: value}}))]


LOG = {"level": "info", "logger": "l", "data": {"text": "x"}}
OTHER = {"level": "info", "data": "y"}


def logs(channel: Recorder) -> list[JsonObject]:
    return [json.loads(bytes(event.params)) for event in channel.sent if isinstance(event, Log)]


@pytest.mark.parametrize("messages", [[], [LOG], [OTHER], [LOG, LOG], [OTHER, LOG]])
async def test_a_log_message_that_came_as_an_event_is_not_passed_on_again(messages: list[JsonObject]) -> None:
    async with in_flight(wants_progress=True) as (server, channel, id_):
        params = {"progressToken": id_, "progress": 4, "_meta": {STREAMS: part(("log", LOG))}}
        await server.send(method="notifications/progress", params=params)
        for message in messages:
            await server.send(method="notifications/message", params=dict(reversed(message.items())))
        await server.flush()
    more = messages.copy()
    if LOG in more:
        more.remove(LOG)
    assert logs(channel) == [LOG, *more]


async def test_the_same_message_of_another_call_is_its_own() -> None:
    async with talking() as (peer, server), group() as tasks:
        calls = Calls(peer, tasks)
        first = calls.start(call(wants_progress=True))
        id_ = (await server.expect("tools/call"))["id"]
        params = {"progressToken": id_, "progress": 4, "_meta": {STREAMS: part(("log", LOG))}}
        await server.send(method="notifications/progress", params=params)
        await server.send(id=id_, result={})
        await server.flush()
        second = calls.start(call(wants_progress=True))
        await server.expect("tools/call")
        await server.send(method="notifications/message", params=LOG)
        await server.flush()
    assert logs(first) == logs(second) == [LOG]
