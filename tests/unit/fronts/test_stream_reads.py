"""`dev.mcp-hub/streams.read`: which events it gives, from where, for how long it waits, and to whom."""

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from mcp_hub.errors import StoreError
from mcp_hub.events import Completed, Delta
from mcp_hub.types import CallId
from tests.unit.calls.virtual_time import sleep
from tests.unit.fronts.soft_hub import SoftHub, delta, in_virtual_time
from tests.unit.fronts.task_hub import Sent, TaskHub, on_each_front, text

READ = "dev.mcp-hub/streams.read"
DECLARED: Mapping[str, Any] = {"extensions": {"dev.mcp-hub/streams": {}}}


async def read(hub: TaskHub, stream: str, cursor: str | None = None, **more: Any) -> Sent:
    options = {"principal": more.pop("principal", "me"), "capabilities": more.pop("capabilities", DECLARED)}
    params = {"stream": stream, **({} if cursor is None else {"cursor": cursor}), **more}
    return await hub.send(READ, params, **options)


async def started(hub: TaskHub, *texts: str, principal: str = "me") -> str:
    """The stream of a call that has said these."""
    await hub.call("slow", capabilities=DECLARED, principal=principal)
    for n, words in enumerate(texts):
        await hub.running.happens(delta(words, n))
    await sleep(1)
    return hub.running.call.id


@on_each_front
async def test_it_gives_the_stored_events_in_order(hub: TaskHub) -> None:
    stream = await started(hub, "a", "b")
    result = (await read(hub, stream)).result
    assert {**result, "events": []} == {
        "resultType": "complete",
        "events": [],
        "cursor": "3",
        "truncated": False,
        "closed": False,
    }
    assert [event["type"] for event in result["events"]] == ["start", "delta", "delta"]
    assert [event["seq"] for event in result["events"]] == [1, 2, 3]
    assert all(event["stream"] == stream and event["v"] == 1 for event in result["events"])
    await hub.running.ends(text("done"))
    last = (await read(hub, stream, "3")).result
    assert [event["type"] for event in last["events"]] == ["end"] and last["closed"] and last["cursor"] == "4"
    nothing = (await read(hub, stream, "4", waitMs=60_000)).result
    assert nothing["events"] == [] and nothing["closed"] and nothing["cursor"] == "4"


@on_each_front
async def test_a_page_has_as_many_events_as_were_asked_for(hub: TaskHub) -> None:
    stream = await started(hub, *"abcdef")
    result = (await read(hub, stream, "2", maxEvents=3)).result
    assert [event["seq"] for event in result["events"]] == [3, 4, 5] and result["cursor"] == "5"
    await hub.running.ends()
    assert not (await read(hub, stream, "2", maxEvents=3)).result["closed"]


@on_each_front
async def test_it_never_gives_more_than_a_thousand_or_about_a_mebibyte(hub: TaskHub) -> None:
    stream = await started(hub)
    for start in range(0, 1200, 100):
        await hub.running.happens(*(delta(".", n) for n in range(start, start + 100)))
    result = (await read(hub, stream, maxEvents=10**9)).result
    assert len(result["events"]) == 1000
    await hub.running.happens(*(Delta(json.dumps(["z" * 100_000]).encode(), n) for n in range(2000, 2030)))
    large = (await read(hub, stream, "1201")).result
    assert 10 <= len(large["events"]) <= 20
    rest = (await read(hub, stream, large["cursor"])).result
    assert rest["events"][0]["seq"] == int(large["cursor"]) + 1


@on_each_front
async def test_without_news_it_waits_as_long_as_the_request_asks(hub: TaskHub) -> None:
    stream = await started(hub, "a")
    sent = await read(hub, stream, "2", waitMs=7000)
    await sleep(6.5)
    assert not sent.is_answered
    await sleep(1)
    assert sent.result["events"] == [] and sent.result["cursor"] == "2" and not sent.result["closed"]
    waiting = await read(hub, stream, "2", waitMs=7000)
    await hub.running.happens(delta("b", 5))
    await sleep(0.1)
    assert [event["seq"] for event in waiting.result["events"]] == [3]
    endless = await read(hub, stream, "3", waitMs=10**9)
    await sleep(59)
    assert not endless.is_answered
    await sleep(2)
    assert endless.result["events"] == [], "nobody waits for more than a minute"


@on_each_front
async def test_a_request_that_waits_gathers_for_a_moment(hub: TaskHub) -> None:
    stream = await started(hub, "a")
    waiting = await read(hub, stream, "2", waitMs=7000)
    hub.running.channel.send(delta("b", 5))
    await sleep(0.15)
    hub.running.channel.send(delta("c", 6))
    assert not waiting.is_answered
    await sleep(0.15)
    assert [event["seq"] for event in waiting.result["events"]] == [3, 4]
    present = await read(hub, stream, "2", waitMs=100)
    assert not present.is_answered, "more may come"
    await sleep(0.11)
    assert [event["seq"] for event in present.result["events"]] == [3, 4], "but not after its time"
    assert (await read(hub, stream, "2")).is_answered


@on_each_front
async def test_events_that_were_gathered_are_given_though_no_more_can_be_read(hub: TaskHub) -> None:
    stream = await started(hub, "a")
    waiting = await read(hub, stream, "2", waitMs=7000)
    hub.running.channel.send(delta("b", 5))
    await sleep(0.1)
    (await hub.streams.open("me", stream)).fail(StoreError("gone"))
    await sleep(0.01)
    assert [event["seq"] for event in waiting.result["events"]] == [3] and not waiting.result["closed"]


@on_each_front
async def test_it_is_answered_with_as_many_events_as_it_needs_or_the_ending(hub: TaskHub) -> None:
    stream = await started(hub, "a")
    for least in (1, 2):
        assert (await read(hub, stream, "0", minEvents=least, waitMs=7000)).is_answered
    sent = await read(hub, stream, "0", minEvents=4, maxEvents=4, waitMs=7000)
    hub.running.channel.send(delta("b", 5))
    await sleep(0.1)
    assert not sent.is_answered
    hub.running.channel.send(delta("c", 6))
    await sleep(0.05)
    assert len(sent.result["events"]) == 4
    last = await read(hub, stream, "4", minEvents=100, waitMs=7000)
    hub.running.outcome.set_result(Completed(text("done")))
    await sleep(0.05)
    assert last.result["closed"] and len(last.result["events"]) == 1
    assert (await read(hub, stream, "4", minEvents=5000, maxEvents=10**9, waitMs=7000)).is_answered


@on_each_front
async def test_a_busy_stream_takes_five_requests_a_second(hub: TaskHub) -> None:
    stream = await started(hub)

    async def work() -> None:
        for number in range(1800):
            hub.running.channel.send(delta(".", number))
            await sleep(11 / 1800)
        hub.running.outcome.set_result(Completed(text("done")))

    requests, numbers, cursor = 0, list[int](), "0"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)
        is_closed = False
        while not is_closed:
            sent = await read(hub, stream, cursor, waitMs=10_000)
            while not sent.is_answered:
                await sleep(0.001)
            requests += 1
            numbers += (event["seq"] for event in sent.result["events"])
            cursor, is_closed = sent.result["cursor"], sent.result["closed"]
    assert numbers == list(range(1, 1803))
    assert requests <= 60


@on_each_front
async def test_what_is_no_longer_kept_is_left_out_and_said_so(hub: TaskHub) -> None:
    stream = await started(hub)
    for start in range(0, 10_500, 100):
        await hub.running.happens(*(delta(".", n) for n in range(start, start + 100)))
    result = (await read(hub, stream, "5", maxEvents=2)).result
    first = result["events"][0]["seq"]
    row = await hub.streams.store.log.find(CallId(stream))
    assert result["truncated"] and result["cursor"] == str(first + 1)
    assert row is not None and first == row.first > 100
    kept = (await read(hub, stream, str(first - 1), maxEvents=1)).result
    assert kept["events"][0]["seq"] == first and not kept["truncated"]


@on_each_front
async def test_a_foreign_stream_is_as_unknown_as_none(hub: TaskHub) -> None:
    theirs = await started(hub, "a", principal="you")
    mine = await started(hub, "a")
    answers = [(await read(hub, stream)).error for stream in (theirs, "st_0", "")]
    assert answers[0] == answers[1] == answers[2] and answers[0]["code"] == -32602
    assert (await read(hub, mine, principal="you")).error == answers[0]


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, "Object missing required field `stream`"),
        ({"stream": 7}, "Expected `str`, got `int`"),
        ({"stream": "{}", "cursor": 2}, "Expected `str | null`"),
        ({"stream": "{}", "cursor": ""}, "params.cursor: '' is not a cursor of this stream"),
        ({"stream": "{}", "cursor": "-1"}, "params.cursor: '-1' is not a cursor"),
        ({"stream": "{}", "cursor": "02"}, "params.cursor: '02' is not a cursor"),
        ({"stream": "{}", "cursor": "٣"}, "is not a cursor of this stream"),
        ({"stream": "{}", "cursor": "9" * 16}, "is not a cursor of this stream"),
        ({"stream": "{}", "cursor": "3"}, "cursor 3 is beyond the stream's last event, 2"),
        ({"stream": "{}", "maxEvents": 0}, "params.maxEvents must be at least 1"),
        ({"stream": "{}", "minEvents": 0}, "params.minEvents must be at least 1"),
        ({"stream": "{}", "minEvents": 3, "maxEvents": 2}, "at most params.maxEvents"),
        ({"stream": "{}", "waitMs": -1}, "params.waitMs must not be negative"),
        ({"stream": "{}", "waitMs": "1"}, "Expected `int`, got `str`"),
        ({"stream": "{}", "after": 1}, "`after`"),
    ],
)
@in_virtual_time
async def test_bad_params_are_refused_with_the_reason(hub: SoftHub, params: dict[str, Any], reason: str) -> None:
    stream = await started(hub, "a")
    given = {key: stream if value == "{}" else value for key, value in params.items()}
    error = (await hub.send(READ, given, capabilities=DECLARED)).error
    assert error["code"] == -32602 and reason in error["message"]


@on_each_front
async def test_it_is_for_clients_that_declared_the_extension(hub: TaskHub) -> None:
    stream = await started(hub, "a")
    others: list[dict[str, Any]] = [{}, {"experimental": {"dev.mcp-hub/streams": {}}}]
    for capabilities in others:
        sent = await read(hub, stream, capabilities=capabilities)
        assert (sent.error["code"], sent.error["data"]) == (-32601, {"code": "method_not_found"})
        assert sent.status == (404 if hub.front == "http" else None)


@pytest.mark.parametrize("place", ["extensions", "experimental", None])
@in_virtual_time
async def test_handshake_clients_read_too(hub: SoftHub, place: str | None) -> None:
    await hub.hello(**({} if place is None else {place: {"dev.mcp-hub/streams": {}}}))
    await hub.tool("slow")
    await hub.running.happens(delta("a"))
    sent = await hub.ask(READ, {"stream": hub.running.call.id, "cursor": "1"})
    if place is None:
        assert sent.error["code"] == -32601
        return
    assert "resultType" not in sent.result and sent.result["cursor"] == "2"
    assert sent.result["events"][0]["data"]["content"] == [{"type": "text", "text": "a"}]


@in_virtual_time
async def test_reading_keeps_a_call_without_a_client_going_and_no_other(hub: SoftHub) -> None:
    await hub.hello(experimental={"dev.mcp-hub/streams": {}})
    stream = await hub.softly()
    writer = hub.streams.owned(hub.running.call.id)
    assert writer is not None and writer.absence.until is not None
    before = writer.absence.until
    await sleep(100)
    await hub.ask(READ, {"stream": stream})
    assert writer.absence.until > before + 99
    await hub.tool("kept")
    await hub.running.happens(delta("a"))
    attended = hub.streams.owned(hub.running.call.id)
    await hub.ask(READ, {"stream": hub.running.call.id})
    assert attended is not None and attended.absence.until is None, "its client waits for it"
