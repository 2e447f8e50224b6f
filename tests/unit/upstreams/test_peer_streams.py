"""Partial content of a server that streams by itself (docs/specification/streams.md), as its caller's events."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_hub.conformance.vectors import read_all
from mcp_hub.errors import RpcError, UpstreamLost
from mcp_hub.events import Delta, Log, Progressed, Reset, ToolCall, ToolResult
from mcp_hub.types import CallId, Era, JsonObject
from mcp_hub.upstreams.peer import streams
from tests.unit.upstreams.function_calls import Recorder
from tests.unit.upstreams.scripted import Server, talking, together
from tests.unit.upstreams.task_calls import FORM
from tests.unit.upstreams.test_peer import Calls, call, in_flight, raws
from tests.unit.wire.raw_lines import group
from tests.upstreams.child import until

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


# -- the order of numbers: EV-37 to EV-40, EV-44, IM-4

READ = f"{STREAMS}.read"
VECTORS = {one.name: one for one in read_all(Path(__file__).parents[3] / "docs/specification/vectors/clients")}


class Follower:
    """A hub as the client of a server that streams: one call, played step by step from the server's end."""

    def __init__(self, server: Server, channel: Recorder, request: JsonObject, outcome: list[object]) -> None:
        self.server, self.channel, self.outcome = server, channel, outcome
        self.id = self.token = request["id"]

    async def play(self, step: JsonObject) -> None:
        match step:
            case {"notification": {"method": method, "params": params}}:
                await self.server.send(method=method, params={**params, "progressToken": self.token})
            case {"result": result}:
                await self.server.send(id=self.id, result=result)
            case {"error": error}:
                await self.server.send(id=self.id, error=error)
            case {"page": {"events": [], "closed": False}}:
                pass  # the hub reads no more than what is missing
            case {"page": page}:
                await self.server.answer(READ, page)
            case {"refused": {"error": error}}:
                request = await self.server.expect(READ)
                await self.server.send(id=request["id"], error=error)
            case {"read": _}:
                await self.server.expect(READ)
            case {"close": _}:
                self.server.close()
            case {"then": then}:
                await self.check(then)

    async def check(self, then: JsonObject) -> None:
        if "outcome" in then:
            await until(lambda: bool(self.outcome))
            (outcome,) = self.outcome
            assert outcome == then["outcome"].get("result", "broken")
        if "text" in then:
            await until(lambda: self.text() == then["text"].get("0", ""))

    def text(self) -> str:
        return "".join(event.text for event in self.channel.sent if isinstance(event, Delta))

    def notes(self) -> list[str]:
        return [each["data"] for each in logs(self.channel) if each.get("logger") == "mcp-hub"]


@asynccontextmanager
async def follower(era: Era = Era.HANDSHAKE, **more: Any) -> AsyncIterator[Follower]:
    async with talking(era, extensions={STREAMS: {}}) as (peer, server), group() as tasks:
        channel, outcome = Recorder(), []

        async def run() -> None:
            try:
                done = await peer.call(call(wants_progress=True, era=era, **more), channel)
                outcome.append(json.loads(bytes(done.result)))
            except UpstreamLost as error:
                assert error.is_outcome_unknown
                outcome.append("broken" if error.about_upstream["code"] == "unreadable_answer" else "lost")
            except RpcError as error:
                outcome.append({"error": json.loads(bytes(error.encoded()))})

        tasks.start_soon(run)
        yield Follower(server, channel, await server.expect("tools/call"), outcome)
        assert not (outcome and peer.messages.streams.followed)


def delta(seq: int, text: str) -> JsonObject:
    block = {"type": "text", "text": text}
    return {"seq": seq, "type": "delta", "data": {"channel": "content", "index": 0, "content": [block]}}


def notified(*events: JsonObject, stream: str = "st_1") -> JsonObject:
    meta = {STREAMS: {"stream": stream, "cursor": str(events[-1]["seq"]), "events": events}}
    return {"notification": {"method": "notifications/progress", "params": {"progress": 1, "_meta": meta}}}


def page(*events: JsonObject, **more: object) -> JsonObject:
    return {"page": {"events": events, "cursor": "9", "truncated": False, "closed": False, **more}}


def marked(cursor: int, status: str = "completed", stream: str = "st_1") -> JsonObject:
    return {"result": {"content": [], "_meta": {STREAMS: {"stream": stream, "cursor": str(cursor), "status": status}}}}


RESULT: JsonObject = {"result": {"content": []}}
DONE: JsonObject = {"then": {"outcome": RESULT}}
BROKEN: JsonObject = {"then": {"outcome": {"broken": True}}}
REFUSED: JsonObject = {"refused": {"error": {"code": -32602, "message": "gone", "data": {"code": "unknown_stream"}}}}
A_C = (notified(delta(2, "a")), notified(delta(4, "c")))


@pytest.mark.parametrize(
    "name",
    ["gap", "gap and a repeat", "behind the mark", "beside the mark", "nothing came", "hole in a page", "given up",
     "relayed", "first ending"],
)  # fmt: skip
async def test_hub_passes_the_vectors_of_clients(name: str) -> None:
    client, *steps = VECTORS[name].steps
    async with follower(Era(client["client"]["era"])) as played:
        for step in steps:
            await played.play(step)
        if "gap" in name:
            await played.play({"result": {"content": []}})
            await played.play(DONE)


@pytest.mark.parametrize(
    ("steps", "text", "notes"),
    [
        ((notified(delta(2, "a")), notified(delta(2, "a"), delta(3, "b")), RESULT), "ab", []),
        ((*A_C, notified(delta(3, "b")), page(delta(3, "b")), RESULT), "abc", []),
        ((*A_C, page(delta(2, "a"), delta(3, "b")), RESULT), "abc", []),
        ((*A_C, RESULT, page(delta(3, "b"))), "abc", []),
        ((*A_C, {"error": {"code": 1, "message": "x"}}, page(delta(3, "b"))), "abc", []),
        ((notified(delta(2, "a")), marked(4), page(delta(3, "b"))), "ab", []),
        ((notified(delta(2, "a")), marked(9, "working")), "a", []),
        ((notified(delta(2, "a")), marked(9, stream="other")), "a", []),
        ((*A_C, REFUSED, notified(delta(6, "e")), marked(9)), "ace", ["event 3", "3 more events"]),
        ((*A_C, page(), RESULT), "ac", ["event 3"]),
        ((notified(delta(6, "e")), page(delta(4, "c"), delta(5, "d"), truncated=True), RESULT), "cde", ["2 to 3"]),
        ((notified(delta(2, "a")), notified(delta(10**15, "b"), delta(3, "c")), REFUSED, RESULT), "ab", ["3 to 9999"]),
        ((*A_C, {"read": 1}, notified(delta(2, "x"), stream="st_2"), RESULT), "acx", ["event 3"]),
        ((notified(delta(0, "a")), notified(delta(0, "b")), RESULT), "ab", []),
    ],
)
async def test_events_are_taken_in_the_order_of_their_numbers(
    steps: Sequence[JsonObject], text: str, notes: list[str]
) -> None:
    async with follower() as played:
        for step in steps:
            await played.play(step)
        await until(lambda: bool(played.outcome))
        assert played.text() == text
        found = played.notes()
        assert len(found) == len(notes) and all(note in each for note, each in zip(notes, found, strict=True)), found


UNREADABLE: JsonObject = {"page": {"events": [{"seq": 3, "type": "delta", "data": {"content": "x"}}], "cursor": "3"}}
BUSY: JsonObject = {"refused": {"error": {"code": -32000, "message": "later", "data": {"retryAfter": 0.01}}}}
SILENT: JsonObject = {"read": 1}


@pytest.mark.parametrize(
    ("steps", "outcome", "text", "notes"),
    [
        ((*A_C, UNREADABLE, RESULT), "broken", "a", []),
        ((*A_C, page(delta(0, "x")), RESULT), "broken", "a", []),
        ((*A_C, page(delta(3, "b"), delta(5, "d")), notified(delta(6, "e")), RESULT), "broken", "ab", []),
        ((*A_C, page(delta(3, "b"), delta(5, "d"), truncated=True), RESULT), "broken", "ab", []),
        ((*A_C, BUSY, BUSY, page(delta(3, "b")), RESULT), RESULT["result"], "abc", []),
        ((*A_C, SILENT, RESULT), RESULT["result"], "ac", ["event 3 of server \"git\", since reading took too long"]),
        ((*A_C, SILENT, notified(delta(6, "e")), RESULT), RESULT["result"], "ace", ["event 3", "1 more event of"]),
        ((*A_C, SILENT, *(notified(delta(n, "x")) for n in range(5, 9)), RESULT),
         RESULT["result"], "acxxxx", ["too many"]),
        ((notified(delta(2, "a")), notified(delta(9, "c")), *(page(delta(n, "b")) for n in range(3, 6)), RESULT),
         RESULT["result"], "abbbc", ["events 6 to 8 of server \"git\", since there are too many"]),
        ((*A_C, SILENT, {"close": True}), "lost", "ac", ["event 3"]),
    ],
)  # fmt: skip
async def test_what_is_missing_holds_nothing_up_for_ever(
    steps: Sequence[JsonObject], outcome: object, text: str, notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_REST": 0.05, "_PAUSE": (0.01, 0.01), "_MOST_WAITING": 4, "_PAGES": 3}.items():
        monkeypatch.setattr(streams, name, value)
    async with follower() as played:
        for step in steps:
            await played.play(step)
        await until(lambda: bool(played.outcome))
        assert played.outcome == [outcome] and played.text() == text
        found = played.notes()
        assert len(found) == len(notes) and all(note in each for note, each in zip(notes, found, strict=True)), found


async def test_gap_that_is_read_too_slowly_ends_while_the_call_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_GAP", 0.05)
    async with follower() as played:
        for step in (*A_C, SILENT):
            await played.play(step)
        await until(lambda: played.text() == "ac")
        assert not played.outcome and len(played.notes()) == 1 and played.channel.times.signs


async def test_nothing_is_read_of_a_server_without_the_extension_or_for_a_call_without_a_token() -> None:
    async with talking() as (peer, server), group() as tasks:
        channel = Calls(peer, tasks).start(call(wants_progress=True))
        played = Follower(server, channel, await server.expect("tools/call"), [])
        for step in (*A_C, notified(delta(2, "a"))):
            await played.play(step)
        await server.flush()
        assert played.text() == "aca"
    async with talking(extensions={STREAMS: {}}) as (peer, server):
        channel = Recorder()

        async def script() -> None:
            played = Follower(server, channel, await server.expect("tools/call"), [])
            for step in (*A_C, notified(delta(2, "a")), marked(9)):
                await played.play(step)

        done = await together(script(), peer.call(call(), channel))
        assert bytes(done.result) == b'{"content":[]}' and len(channel.sent) == 3
        assert not peer.messages.streams.followed


async def test_log_message_of_an_event_that_waits_is_not_passed_on_again() -> None:
    async with follower() as played:
        await played.play(notified({"seq": 3, "type": "log", "data": LOG}))
        await played.server.send(method="notifications/message", params=LOG)
        await played.play(page(delta(2, "a"), {"seq": 3, "type": "log", "data": LOG}))
        await played.play(RESULT)
        await until(lambda: bool(played.outcome))
        assert logs(played.channel) == [LOG]


QUESTION: JsonObject = {"method": "elicitation/create", "params": FORM}
ASKS: JsonObject = {"resultType": "input_required", "inputRequests": {"k": QUESTION}, "requestState": "s"}


@pytest.mark.parametrize(
    ("mark", "steps", "text"),
    [
        ({}, (notified(delta(4, "b")), page(delta(3, "-"))), "a-b"),
        (marked(9)["result"], (notified(delta(3, "b"), stream="st_2"), page(delta(2, "-"))), "a-b"),
    ],
)
async def test_repeated_request_continues_the_numbers_of_its_stream(
    mark: JsonObject, steps: Sequence[JsonObject], text: str
) -> None:
    channel = Recorder()
    async with talking(Era.MODERN, extensions={STREAMS: {}}) as (peer, server):

        async def script() -> None:
            played = Follower(server, channel, await server.expect("tools/call"), [])
            await played.play(notified(delta(2, "a")))
            await played.play({"result": {**mark, **ASKS}})
            await until(lambda: bool(channel.asked))
            channel.asked[0].answered(b'{"action":"decline"}')
            again = Follower(server, channel, await server.expect("tools/call"), [])
            for step in steps:
                await again.play(step)
            await again.play({"result": {"resultType": "complete", "content": []}})

        made = msgspec.structs.replace(
            call(wants_progress=True), capabilities={"elicitation": {}}, version="2025-11-25"
        )
        await together(script(), peer.call(made, channel))
    sent = [event.text for event in channel.sent if isinstance(event, Delta)]
    assert "".join(sent) == text
    resets = [event for event in channel.sent if isinstance(event, Reset)]
    assert resets == ([Reset(0, "taken_back", origin=1)] if mark else [])


async def test_repeated_request_of_another_connection_is_taken_from_its_first_event_on() -> None:
    async with follower(Era.MODERN, request_state="s", input_responses={}) as played:
        for step in (notified(delta(7, "a")), notified(delta(9, "c")), page(delta(8, "b"))):
            await played.play(step)
        await played.play({"result": {**marked(10)["result"], "resultType": "complete"}})
        await until(lambda: bool(played.outcome))
        assert played.text() == "abc" and not played.notes()
