"""One durable call over connections that break: every event once, in order, one ending."""

import math
from collections.abc import Sequence

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_hub.client import HubClient, HubStream, StreamInterrupted
from mcp_hub.client.stream_reader import Patience
from mcp_hub.client.streams import OnPause, Start, ignore
from mcp_hub.errors import (
    Busy,
    ConfigError,
    EventsGone,
    HubError,
    UnknownEntry,
    UnknownStream,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.events import CallEvent, Completed, Delta, Progressed, Started
from tests.examples import examples
from tests.unit.client.scripted_peer import (
    CLOSED,
    SECONDS,
    STREAM,
    Asked,
    Peer,
    connect,
    connected,
    each_way,
    events_answer,
    json_answer,
    lines,
    problem,
    sse,
)

__all__ = ["each_way"]
pytestmark = pytest.mark.anyio

EVENTS: list[CallEvent] = [
    Started(),
    Progressed(1, 3),
    Delta(msgspec.Raw(b'[{"type":"text","text":"one\\n"}]')),
    Progressed(2, 3),
    Delta(msgspec.Raw(b'[{"type":"text","text":"two"}]')),
    Completed(msgspec.Raw(b'{"content":[{"type":"text","text":"one\\ntwo"}]}')),
]
STORED = lines(EVENTS)
WHOLE = sse(STORED) + CLOSED
SILENCE = b""
UNREADABLE = STORED[5].replace(b'"type":"end"', b'"type":"finish"')


class Waits(Patience):
    """No pauses, for `seconds` in a row; `wanted` has the ones that were asked for, `heard` what it was told."""

    def __init__(self, seconds: float = SECONDS) -> None:
        super().__init__(seconds, lambda: 0.0)
        self.wanted: list[float] = []
        self.heard: list[str] = []

    def worked(self) -> None:
        if self.heard[-1:] != ["worked"]:  # an answer may come in several portions
            self.heard.append("worked")
        super().worked()

    def pause(self, now: float, wanted: float = 0.0) -> float | None:
        self.wanted.append(wanted)
        self.heard.append("pause")
        return super().pause(now)


def called(client: HubClient, patience: Patience | None = None, on_pause: OnPause = ignore) -> HubStream:
    rest = client._api
    start = Start(rest.url("tools", "job", "call"), b'{"arguments":{}}', "key-1")
    return HubStream(rest, patience or Waits(), start, on_pause=on_pause)


def resumed(client: HubClient, after: int = 0, patience: Patience | None = None) -> HubStream:
    return HubStream(client._api, patience or Waits(), None, STREAM, after)


async def taken(stream: HubStream) -> list[tuple[int, CallEvent]]:
    async with stream:
        return [(stream.cursor, event) async for event in stream]


ALL = list(enumerate(EVENTS, 1))


@pytest.mark.slow
def test_events_come_once_and_in_order_wherever_connections_are_cut() -> None:
    @settings(max_examples=examples(60), deadline=None)
    @given(st.lists(st.integers(0, len(WHOLE)), max_size=6))
    def cut(cuts: list[int]) -> None:
        anyio.run(through, cuts)

    async def through(cuts: Sequence[int]) -> None:
        left = iter(cuts)

        def answer(asked: Asked) -> bytes:
            after = int(asked.query.get("after", 0))
            return events_answer((sse(STORED[after:]) + CLOSED)[: next(left, None)])

        async with connected(answer) as (hub, client):
            assert await taken(called(client)) == ALL
        seen = 0
        for asked in hub.asked:
            place = int(asked.query.get("after", 0))
            assert (asked.method, place >= seen) == ("POST" if place == 0 else "GET", True)
            seen = place

    cut()


async def answered(
    answers: Sequence[bytes], stream: str = "called", after: int = 0
) -> tuple[Peer, Waits, list[object]]:
    """What the script brings: the events, and behind them the error that ended them, if one did."""
    patience, found = Waits(), list[object]()
    async with connected(answers) as (hub, client):
        events = called(client, patience) if stream == "called" else resumed(client, after, patience)
        async with events:
            try:
                async for event in events:
                    found.append(event)
            except HubError as error:
                found.append(error)
    return hub, patience, found


async def test_call_whose_answer_was_lost_is_asked_for_again_under_the_same_key() -> None:
    hub, _, found = await answered([SILENCE, SILENCE, events_answer(WHOLE)])
    assert found == EVENTS
    assert hub.whats == ["POST call"] * 3
    assert {(asked.headers["idempotency-key"], asked.body) for asked in hub.asked} == {("key-1", b'{"arguments":{}}')}
    assert {asked.headers["accept"] for asked in hub.asked} == {"text/event-stream"}


async def test_stream_continues_by_its_id_behind_the_last_event() -> None:
    half = events_answer(sse(STORED[:3]))
    more = [events_answer(sse(STORED[3:4])), events_answer(sse(STORED[4:]))]
    hub, patience, found = await answered([half, SILENCE, *more])
    assert found == EVENTS
    assert patience.heard == ["worked", "pause", "pause", "worked", "pause", "worked"]
    assert hub.whats == ["POST call", "GET events?after=3", "GET events?after=3", "GET events?after=4"]
    assert {asked.path for asked in hub.asked[1:]} == {f"/v1/streams/{STREAM}/events"}


async def test_gap_is_never_given_out_and_an_unknown_ending_is_an_error() -> None:
    torn = events_answer(sse([*STORED[:2], *STORED[3:]]) + CLOSED)
    hub, _, found = await answered([torn, events_answer(sse(STORED[2:]))])
    assert found == EVENTS
    assert hub.whats == ["POST call", "GET events?after=2"]
    hub, _, found = await answered([events_answer(sse([*STORED[:5], UNREADABLE]) + CLOSED)])
    assert found[:-1] == EVENTS[:5]
    assert isinstance(found[-1], UpstreamLost)
    assert f"ended {STREAM} in a way that this version does not know" in str(found[-1])
    assert len(hub.asked) == 1


@pytest.mark.parametrize("passing", [(502, b""), (503, b""), (504, b"<html>"), (429, b"")])
async def test_overload_on_the_way_is_waited_out_from_the_start(passing: tuple[int, bytes]) -> None:
    status, body = passing
    refused = b"HTTP/1.1 %d X\r\ncontent-length: %d\r\nretry-after: 7\r\n\r\n%b" % (status, len(body), body)
    hub, patience, found = await answered([refused, events_answer(WHOLE)])
    assert found == EVENTS
    assert patience.wanted == [7.0]
    assert hub.whats == ["POST call"] * 2


async def test_a_busy_hub_refuses_a_new_call_but_only_for_a_while_a_running_one() -> None:
    busy = problem(503, "busy", "retry-after: 5\r\n")
    hub, patience, found = await answered([busy])
    assert [type(error) for error in found] == [Busy]
    assert (len(hub.asked), patience.wanted) == (1, [])
    hub, patience, found = await answered([events_answer(sse(STORED[:1])), busy, events_answer(sse(STORED[1:]))])
    assert found == EVENTS
    assert patience.wanted == [0.0, 5.0]
    later = problem(503, "busy", "retry-after: 90\r\n")
    hub, patience, found = await answered([later, events_answer(sse(STORED[2:]) + CLOSED)], "resumed", 2)
    assert (found, patience.wanted) == (EVENTS[2:], [90.0]), "as many seconds as it says"


REFUSED: list[tuple[bytes, type[HubError], str]] = [
    (problem(404, "unknown_tool"), UnknownEntry, "said unknown_tool"),
    (problem(401, "unauthorized"), ConfigError, "Give the token with --token"),
    (problem(500, "internal_error"), UpstreamUnavailable, "said internal_error"),
    (b"HTTP/1.1 404 X\r\ncontent-length: 0\r\n\r\n", ConfigError, "does not belong to a hub"),
    (b"HTTP/1.1 200 X\r\ncontent-type: text/html\r\ncontent-length: 0\r\n\r\n", ConfigError, "text/html"),
    (events_answer(b"data: {}\n\n"), UpstreamLost, "not an event of a stream"),
]


@pytest.mark.parametrize(("answer", "kind", "said"), REFUSED)
async def test_refusal_ends_it_at_once(answer: bytes, kind: type[HubError], said: str) -> None:
    hub, _, [error] = await answered([answer])
    assert type(error) is kind
    assert said in str(error)
    assert len(hub.asked) == 1


@pytest.mark.parametrize(
    ("answer", "kind"), [(problem(404, "unknown_stream"), UnknownStream), (problem(410, "events_gone"), EventsGone)]
)
async def test_stream_that_is_gone_is_not_asked_for_again(answer: bytes, kind: type[HubError]) -> None:
    hub, _, found = await answered([events_answer(sse(STORED[:2])), answer])
    assert found[:-1] == EVENTS[:2]
    assert type(found[-1]) is kind
    assert len(hub.asked) == 2


async def test_problem_on_the_way_comes_behind_the_events_before_it() -> None:
    gone = b'event: problem\ndata: {"status":404,"code":"unknown_stream"}\n\n'
    _, _, found = await answered([events_answer(sse(STORED[:2]) + gone)])
    assert found[:-1] == EVENTS[:2]
    assert type(found[-1]) is UnknownStream
    for status in (503, 429):
        away = b'event: problem\ndata: {"status":%d,"code":"store_unavailable"}\n\n' % status
        hub, _, found = await answered([events_answer(sse(STORED[:2]) + away), events_answer(sse(STORED[2:]))])
        assert found == EVENTS
        assert hub.whats[1:] == ["GET events?after=2"]


async def test_resuming_at_the_end_brings_nothing_and_an_absent_stream_is_not_waited_for() -> None:
    hub, _, found = await answered([events_answer(CLOSED)], "resumed", 6)
    assert (found, hub.whats) == ([], ["GET events?after=6"])
    hub, _, [error] = await answered([SILENCE], "resumed")
    assert type(error) is UpstreamLost
    assert len(hub.asked) == 1


async def test_hub_that_is_not_there_is_not_waited_for(free_tcp_port: int) -> None:
    with anyio.fail_after(SECONDS):
        async with connect(f"http://127.0.0.1:{free_tcp_port}") as client:
            for stream in (called(client, Waits(math.inf)), resumed(client, 0, Waits(math.inf))):
                with pytest.raises(UpstreamUnavailable, match="No hub answers at .*mcp-hub serve --http"):
                    await taken(stream)


async def test_lost_stream_names_the_place_to_go_on_from() -> None:
    async with connected([events_answer(sse(STORED[:4]))]) as (hub, client):
        stream = called(client, Waits(0))
        with pytest.raises(StreamInterrupted, match=f"resume {STREAM} after event 4") as lost:
            await taken(stream)
    assert (lost.value.stream, lost.value.cursor) == (STREAM, 4)
    assert lost.value.data == {"outcome": "unknown", "stream": STREAM, "cursor": 4}


async def test_connections_that_bring_nothing_are_not_tried_for_ever() -> None:
    """Each opens, says that it lives, and ends; time that goes by counts from the first of them."""

    def answer(asked: Asked) -> bytes:
        return events_answer(sse(STORED[:2]) if asked.method == "POST" else b": keep-alive\n\n")

    async with connected(answer) as (hub, client):
        with pytest.raises(StreamInterrupted):
            await taken(called(client, Waits(0.05)))
    assert {*hub.whats[1:]} == {"GET events?after=2"}


# -- leaving and cancelling


OK = json_answer(202, {"stream": STREAM, "status": "working"})


async def test_leaving_is_a_disconnect_and_cancel_names_the_stream_of_the_call() -> None:
    async with connected([events_answer(sse(STORED[:2]))]) as (hub, client):
        async with called(client) as stream:
            assert await anext(stream) == EVENTS[0]
        assert (stream.stream, stream.cursor) == (STREAM, 1)
    assert hub.whats == ["POST call"]
    async with connected([events_answer(sse(STORED[:2])), OK]) as (hub, client):
        async with called(client) as stream:
            await anext(stream)
            await stream.cancel()
    assert hub.whats == ["POST call", f"DELETE {STREAM}"]


async def test_cancel_of_a_call_that_nothing_was_heard_of_finds_out_which_it_is() -> None:
    reached, hold = anyio.Event(), anyio.Event()
    scope = anyio.CancelScope()

    def answer(asked: Asked) -> bytes:
        if asked.method == "DELETE":
            return OK
        if not reached.is_set():
            reached.set()
            scope.cancel()
            return SILENCE
        return events_answer(sse(STORED[:1]))

    async with connected(answer) as (hub, client), called(client) as stream:
        with scope:
            await anext(stream)
            hold.set()
        assert not hold.is_set()
        await stream.cancel()
    assert hub.whats == ["POST call", "POST call", f"DELETE {STREAM}"]
    assert hub.asked[0].headers["idempotency-key"] == hub.asked[1].headers["idempotency-key"]


async def test_cancel_of_a_call_that_was_never_made_or_has_ended_asks_nothing() -> None:
    async with connected([events_answer(WHOLE)]) as (hub, client):
        async with called(client) as never:
            await never.cancel()
        assert hub.asked == []
        async with called(client) as stream:
            assert [event async for event in stream] == EVENTS
            await stream.cancel()
    assert hub.whats == ["POST call"]
