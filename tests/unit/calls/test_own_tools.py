"""What `hub_calls` and `hub_cancel` say of a call that was answered before it ended."""

import json
from typing import Any

import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.calls.hub_tools.own_tools import CALLS
from mcp_hub.errors import EventsGone, StoreError, UpstreamLost
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.stores.base import Chunk
from mcp_hub.types import CallId
from tests.unit.calls.virtual_time import sleep
from tests.unit.fronts.soft_hub import DEADLINE, SoftHub, delta, in_virtual_time, said, soft
from tests.unit.fronts.task_hub import Sent, text

WINDOW = DEADLINE * 0.9
UNKNOWN = "hub_calls: Unknown stream: it has expired, does not belong to you, or never existed."
VERBATIM = (
    b'{"structuredContent":{"n":1.0e3,"big":12345678901234567890123}, "isError":true,'
    b'"content":[{"type":"text","text":"\\u0041"}],"_meta":{"its":"own"},"more":[ ]}'
)


async def wait(hub: SoftHub, stream: str, **more: Any) -> Sent:
    return await hub.tool("hub_calls", {"id": stream, **more})


async def waited_for(hub: SoftHub, **capabilities: Any) -> tuple[str, Sent]:
    """The stream of a call that was answered though it runs, and a call that waits for it."""
    stream = await hub.softly(**capabilities)
    return stream, await wait(hub, stream)


@in_virtual_time
async def test_it_waits_as_long_as_its_client_may_and_tells_what_is_new(hub: SoftHub) -> None:
    await hub.hello()
    first = await hub.tool("slow")
    await hub.running.happens(delta("old\n"))
    await sleep(DEADLINE)
    mark = soft(first)
    sent = await wait(hub, mark["stream"], after=int(mark["cursor"]))
    await hub.running.happens(delta("new\n"))
    await sleep(WINDOW - 1)
    assert not sent.is_answered
    await sleep(1)
    assert said(sent).endswith("New output:\nnew\n")
    again = await wait(hub, mark["stream"], after=soft(sent)["cursor"])  # as text, as some models write it
    await sleep(WINDOW)
    assert said(again).endswith("New output: none")
    assert int(soft(again)["cursor"]) > int(soft(sent)["cursor"]), "the hub's own heartbeats are no output"
    whole = await wait(hub, mark["stream"])
    await sleep(WINDOW)
    assert said(whole).endswith("New output:\nold\nnew\n")


@in_virtual_time
async def test_it_returns_the_result_as_soon_as_that_is_there(hub: SoftHub) -> None:
    stream, sent = await waited_for(hub)
    await hub.running.ends(VERBATIM)
    again = await wait(hub, stream, after=99)
    for answer in (sent, again):
        assert answer.is_answered
        frame = b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (answer.answer["id"], VERBATIM)
        assert frame in [raw.rstrip(b"\n") for raw in hub.raw]


@in_virtual_time
async def test_an_error_answer_is_that_of_the_call(hub: SoftHub) -> None:
    await hub.hello()
    raw = b'{"code":-32050,"message":"no luck","data":{"x":1.0}}'
    for error, expected in (
        (from_wire(raw), json.loads(raw)),
        (
            UpstreamLost("gone"),
            {"code": 1002, "message": "gone", "data": {"code": "upstream_crashed", "upstream": {"server": "git"}}},
        ),
    ):
        stream = await hub.softly()
        sent = await wait(hub, stream)
        await hub.running.fails(error)
        assert sent.error == expected
        assert (await wait(hub, stream)).error == expected


@in_virtual_time
async def test_a_cancelled_call_ends_and_says_so(hub: SoftHub) -> None:
    stream = await hub.softly()
    waiting = await wait(hub, stream)
    cancelled = await hub.tool("hub_cancel", {"stream": stream})
    assert said(cancelled) == "The call of slow is being cancelled." and not cancelled.result["isError"]
    await sleep(1)
    assert hub.running.is_cancelled
    assert waiting.result["isError"] and "was cancelled: cancelled by the client (hub_cancel)" in said(waiting)
    assert said(await hub.tool("hub_cancel", {"stream": stream})).startswith("The call of slow has ended already")


@in_virtual_time
async def test_a_foreign_call_is_as_unknown_as_none(hub: SoftHub) -> None:
    await hub.hello()
    await hub.send("tools/call", {"name": "slow", "arguments": {}}, principal="you")
    await sleep(1)
    theirs = hub.running.call.id
    for stream in (theirs, "st_0"):
        sent = await wait(hub, stream)
        assert said(sent) == UNKNOWN and sent.result["isError"]
        other = await hub.tool("hub_cancel", {"stream": stream})
        assert said(other) == UNKNOWN.replace("calls", "cancel") and other.result["isError"]
    assert not hub.running.is_cancelled


@in_virtual_time
async def test_what_is_no_call_of_a_tool_is_unknown(hub: SoftHub) -> None:
    await hub.hello()
    row = StreamInfo(CallId("st_r"), "me", "other", "git", "resources/read", "x:y", 0, 0, last=1)
    kept: list[StoreError | None] = []
    hub.streams.store.log.create(row, Chunk(1, (b'{"v":1,"seq":1,"type":"start","data":{}}',)), kept.append)
    assert kept == [None]
    assert said(await wait(hub, "st_r")) == UNKNOWN


@pytest.mark.parametrize("after", [0, 1, "1", 1.0, None, ""])
@in_virtual_time
async def test_a_number_may_be_written_in_any_way(hub: SoftHub, after: object) -> None:
    stream = await hub.softly()
    sent = await hub.tool("hub_calls", {"id": stream, "after": after})
    await hub.running.ends(text("whole"))
    assert said(sent) == "whole"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"id": 1}, "wrong arguments: Expected `str | null`"),
        ({"id": "{}", "after": -1}, "wrong arguments: `after` is the number of an event, not '-1'"),
        ({"id": "{}", "after": "9" * 16}, "wrong arguments: `after` is the number of an event"),
        ({"id": "{}", "after": 1.5}, "wrong arguments: Expected `int | str | null`"),
        ({"id": "{}", "after": 500}, "cursor 500 is beyond the stream's last event"),
    ],
)
@in_virtual_time
async def test_wrong_arguments_are_explained(hub: SoftHub, arguments: dict[str, Any], problem: str) -> None:
    stream = await hub.softly()
    given = {key: stream if value == "{}" else value for key, value in arguments.items()}
    sent = await hub.tool("hub_calls", given)
    assert sent.result["isError"] and said(sent).startswith(f"hub_calls: {problem}")


@in_virtual_time
async def test_events_that_are_gone_are_skipped(hub: SoftHub) -> None:
    stream = await hub.softly()
    for start in range(0, 10_500, 100):
        await hub.running.happens(*(delta(f"<{n}>", n) for n in range(start, start + 100)))
    sent = await wait(hub, stream, after=3)
    await sleep(WINDOW)
    shown = said(sent).partition("New output (the end of it):\n")[2]
    assert shown.endswith("<10499>") and len(shown) <= 16 << 10


@in_virtual_time
async def test_events_that_go_while_it_waits_are_skipped(hub: SoftHub) -> None:
    stream, sent = await waited_for(hub)
    writer = hub.streams.owned(hub.running.call.id)
    assert writer is not None
    (reader,) = writer.stream.readers
    await hub.running.happens(delta("one\n"))
    reader.failed = EventsGone(writer.stream.row.last)  # as a slow store would say it
    reader.wake()
    await hub.running.happens(delta("two\n"))
    await sleep(WINDOW)
    assert said(sent).endswith("New output (the end of it):\none\none\ntwo\n")


@in_virtual_time
async def test_a_call_whose_client_is_there_is_not_taken_for_one_without(hub: SoftHub) -> None:
    await hub.hello()
    await hub.tool("slow")
    await hub.running.happens(delta("x"))
    sent = await wait(hub, hub.running.call.id)
    await sleep(WINDOW)
    writer = hub.streams.owned(hub.running.call.id)
    assert soft(sent) and writer is not None and writer.absence.until is None


@in_virtual_time
async def test_it_shows_the_end_of_much_output(hub: SoftHub) -> None:
    stream, sent = await waited_for(hub)
    for _ in range(8):
        await hub.running.happens(delta("y" * 8000))
    await hub.running.happens(delta("end"))
    await sleep(WINDOW)
    assert said(sent).partition("(the end of it):\n")[2] == "y" * ((16 << 10) - 3) + "end"


@in_virtual_time
async def test_too_many_waiting_calls_are_refused_with_that_reason(hub: SoftHub) -> None:
    stream = await hub.softly()
    waiting = [await wait(hub, stream) for _ in range(17)]
    assert [sent.is_answered for sent in waiting] == [False] * 16 + [True]
    assert "Busy: 16 followers" in said(waiting[-1]) and waiting[-1].result["isError"]


@in_virtual_time
async def test_a_wait_is_no_stream_itself(hub: SoftHub) -> None:
    stream = await hub.softly(elicitation={})
    await hub.tool("hub_calls", {"id": stream}, token="t")
    await sleep(WINDOW - 1)
    assert [row.id for row in await hub.streams.store.log.rows("me", 9)] == [stream]
    assert "notifications/progress" in [
        message["method"] for message in hub.sent_to_client[-20:] if "method" in message
    ]


@in_virtual_time
async def test_questions_of_the_call_go_to_the_caller_that_waits_for_it(hub: SoftHub) -> None:
    stream = await hub.softly(elicitation={})
    await hub.running.asks("while nobody waits?")
    sent = await wait(hub, stream)
    first = hub.sent_to_client[-1]
    assert first["params"]["message"] == "while nobody waits?"
    hub.answered(first, {"action": "accept", "content": {"a": 1}})
    await sleep(1)
    await hub.running.asks("while one waits?")
    second = hub.sent_to_client[-1]
    hub.answered(second, {"action": "decline"})
    await sleep(1)
    answers = [json.loads(bytes(answer)) for answer in hub.running.answers if not isinstance(answer, Exception)]
    assert answers == [{"action": "accept", "content": {"a": 1}}, {"action": "decline"}]
    await sleep(WINDOW)
    assert soft(sent)
    await wait(hub, stream, after=0)
    asked = [message for message in hub.sent_to_client if message.get("method") == "elicitation/create"]
    assert len(asked) == 2, "what was answered is not asked again"


@in_virtual_time
async def test_a_question_outlives_those_who_wait(hub: SoftHub) -> None:
    stream, sent = await waited_for(hub, elicitation={})
    await hub.running.asks("sure?")
    question = hub.sent_to_client[-1]
    sent.leave()
    await sleep(1)
    assert hub.sent_to_client[-1]["method"] == "notifications/cancelled"
    assert hub.sent_to_client[-1]["params"]["requestId"] == question["id"]
    assert hub.running.answers == [] and not hub.running.is_cancelled
    again = await wait(hub, stream)
    hub.answered(hub.sent_to_client[-1], {"action": "accept"})
    await hub.running.ends(text("done"))
    assert said(again) == "done" and len(hub.running.answers) == 1


@in_virtual_time
async def test_a_question_that_is_withdrawn_is_withdrawn_from_the_waiting_caller(hub: SoftHub) -> None:
    stream, sent = await waited_for(hub, elicitation={})
    key = await hub.running.asks("sure?")
    hub.running.channel.questions.withdraw(key)
    await sleep(1)
    assert hub.sent_to_client[-1]["method"] == "notifications/cancelled"
    await sleep(WINDOW)
    assert soft(sent)


@in_virtual_time
async def test_a_modern_client_is_asked_by_the_answer_of_its_wait(hub: SoftHub) -> None:
    capabilities: dict[str, Any] = {"elicitation": {}}
    first = await hub.call("slow", capabilities=capabilities)
    await sleep(DEADLINE)
    params: dict[str, Any] = {"name": CALLS, "arguments": {"id": soft(first)["stream"]}}
    sent = await hub.send("tools/call", params, capabilities=capabilities)
    await hub.running.asks("sure?")
    assert sent.result["resultType"] == "input_required"
    ((key, asked),) = sent.result["inputRequests"].items()
    assert asked["params"]["message"] == "sure?"
    more = {"inputResponses": {key: {"action": "accept"}}, "requestState": sent.result["requestState"]}
    await sleep(DEADLINE)
    again = await hub.send("tools/call", {**params, **more}, capabilities=capabilities)
    await sleep(WINDOW - 1)
    assert len(hub.running.answers) == 1 and not again.is_answered, "its time began with the retry"
    await hub.running.ends(text("done"))
    assert said(again) == "done" and again.result["resultType"] == "complete"
