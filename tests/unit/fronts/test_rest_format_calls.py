"""Calls in the formats of providers: all of a model's answer at once, each with its own stream and its own outcome."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.formats.providers import Format
from mcp_hub.fronts.rest import streams
from tests.unit.fronts.format_calls import ModelCalls, call, fits_sdk, outcomes, start
from tests.unit.fronts.rest_peer import BOTH, NARROW, SSE, RestPeer, rest_hub
from tests.upstreams.child import WAIT

FORMATS = list(Format)


@pytest.mark.parametrize("into", FORMATS)
async def test_calls_are_answered_in_their_format_and_order_by_their_outcome(peer: RestPeer, into: Format) -> None:
    response = await call(
        peer,
        ("c1", "echo", {"text": "one"}),
        ("c2", "fail", {"text": "broken"}),
        ("c3", "ecko", {"text": "lost"}),
        ("c4", "echo", {"text": "four"}),
        into=into,
    )
    answer = response.json
    assert response.status == 200 and response.headers["content-type"] == "application/json"
    fits_sdk(into, answer["messages"])
    (one, two, three, four) = outcomes(into, answer["messages"])
    assert (one, four) == (("c1", "one", False), ("c4", "four", False))
    assert two[0] == "c2" and "broken" in two[1] and two[2]
    assert three[0] == "c3" and "Unknown tool: ecko" in three[1] and three[2]
    states = answer["calls"]
    assert [(state["id"], state["name"], state["status"]) for state in states] == [
        ("c1", "echo", "completed"),
        ("c2", "fail", "tool_error"),
        ("c3", "ecko", "refused"),
        ("c4", "echo", "completed"),
    ]
    assert len({state.get("stream") for state in states}) == 4 and "stream" not in states[2]
    assert (states[2]["problem"]["code"], states[2]["problem"]["nearest"]) == ("unknown_tool", ["echo"])
    kept = await peer.ask("GET", f"/v1/streams/{states[0]['stream']}")
    assert kept.json["result"]["content"] == [{"type": "text", "text": "one"}]


async def test_a_whole_answer_of_a_model_is_taken_with_all_that_is_not_a_call(peer: RestPeer) -> None:
    content = [
        {"type": "thinking", "thinking": "…", "signature": "s"},
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "t1", "name": "echo", "input": {"text": "hi"}, "caller": {"type": "direct"}},
    ]
    body = {"role": "assistant", "content": content, "stop_reason": "tool_use"}
    response = await peer.ask("POST", "/v1/tools/call?format=anthropic", body)
    assert outcomes(Format.ANTHROPIC, response.json["messages"]) == [("t1", "hi", False)]


async def test_calls_that_are_not_done_in_time_are_answered_by_their_streams(peer: RestPeer) -> None:
    calls = ("c1", "hold", {"nonce": "a"}), ("c2", "echo", {"text": "x"}), ("c3", "fail", {"text": "no"})
    response = await call(peer, *calls, headers={"prefer": "wait=0"})
    assert response.status == 202
    held = response.json["calls"][0]
    assert (held["id"], held["status"]) == ("c1", "working")
    for state in response.json["calls"][1:]:
        await peer.until(state["stream"], "completed", "tool_error")
    peer.tools.go.set()
    known = await peer.until(held["stream"], "completed")
    assert known["result"]["content"] == [{"type": "text", "text": "a"}]


async def test_ended_calls_are_answered_by_a_hub_that_stops(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_LAST_EVENTS", 0)
    waiting = start(peer, ("c1", "hold", {"nonce": "a"}), ("c2", "echo", {"text": "x"}))
    await peer.tools.has_come("a")
    rows = (await peer.ask("GET", "/v1/streams")).json["streams"]
    await peer.until(next(row["stream"] for row in rows if row["name"] == "echo"), "completed")
    await anyio.wait_all_tasks_blocked()
    peer.rest.close()
    answer = (await waiting.ended()).json
    assert waiting.status == 202 and "retry-after" not in waiting.headers and peer.tools.cancelled == []
    assert outcomes(Format.ANTHROPIC, answer["messages"]) == [("c2", "x", False)]
    assert [state["status"] for state in answer["calls"]] == ["working", "completed"]


async def test_events_of_all_calls_have_the_id_of_their_call_and_resume_by_their_stream(peer: RestPeer) -> None:
    response = start(
        peer, ("c1", "steps", {"n": 2}), ("c2", "ecko", {"text": "x"}), ("c3", "echo", {"text": "y"}), headers=SSE
    )
    await response.has(b"part 1")
    await response.has(b'"c3","v":1')
    assert response.headers["content-type"] == "text/event-stream"
    peer.tools.go.set()
    *events, closed = (await response.ended()).events
    by_call: dict[str, list[Any]] = {}
    for event in events:
        by_call.setdefault(event.message["call"], []).append(event)
    assert [event.event for event in by_call["c1"]] == ["start", *["progress", "delta"] * 2, "end"]
    assert [event.event for event in by_call["c3"]] == ["start", "end"]
    (refused,) = by_call["c2"]
    assert (refused.event, refused.id, refused.message["code"]) == ("problem", None, "unknown_tool")
    for event in by_call["c1"] + by_call["c3"]:
        assert event.id == f"{event.message['stream']}:{event.message['seq']}"
    stream, _, seq = by_call["c1"][2].id.partition(":")
    page = (await peer.ask("GET", f"/v1/streams/{stream}/events?after={seq}")).json
    assert [{"call": "c1", **line} for line in page["events"]] == [event.message for event in by_call["c1"][3:]]
    assert (closed.event, closed.id) == ("closed", None)
    assert [state["status"] for state in closed.message["calls"]] == ["completed", "refused", "completed"]
    first, _, last = outcomes(Format.ANTHROPIC, closed.message["messages"])
    assert (first, last) == (("c1", "2 steps", False), ("c3", "y", False))


async def test_caller_of_both_forms_gets_json_only_if_all_calls_are_quick_and_quiet(peer: RestPeer) -> None:
    quiet = await call(peer, ("c1", "echo", {"text": "x"}), ("c2", "ecko", {}), headers=BOTH)
    assert quiet.headers["content-type"] == "application/json" and quiet.status == 200
    loud = await call(peer, ("c1", "echo", {"text": "x"}), ("c2", "hurry", {"n": 1}), headers=BOTH)
    kinds = [(event.message.get("call"), event.event) for event in loud.events]
    assert [kind for id_, kind in kinds if id_ == "c1"] == ["start", "end"]
    assert [kind for id_, kind in kinds if id_ == "c2"] == ["start", "progress", "end"]
    assert [kind for id_, kind in kinds if id_ is None] == ["closed"] and kinds[-1][1] == "closed"
    slow = start(peer, ("c1", "echo", {"text": "x"}), ("c2", "hold", {"nonce": "a"}), headers=BOTH)
    await slow.has(b'data: {"call":"c2"')
    assert slow.headers["content-type"] == "text/event-stream"
    peer.tools.go.set()
    assert len((await slow.ended()).events) == 5


@pytest.mark.parametrize("headers", [{}, SSE])
async def test_connection_that_closes_ends_no_call(peer: RestPeer, headers: dict[str, str]) -> None:
    response = start(peer, ("c1", "hold", {"nonce": "a"}), ("c2", "hold", {"nonce": "b"}), headers=headers)
    await peer.tools.has_come("b")
    await peer.tools.has_come("a")
    response.leave()
    await response.done.wait()
    rows = (await peer.ask("GET", "/v1/streams")).json["streams"]
    assert [row["status"] for row in rows] == ["working"] * 2
    peer.tools.go.set()
    for row in rows:
        await peer.until(row["stream"], "completed")


async def test_streams_without_a_client_end_by_the_rule_of_their_tool(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, per_tool={"hold": {"orphan": 0.2}}) as peer:
        response = start(peer, ("c1", "hold", {"nonce": "a"}), ("c2", "hold", {"nonce": "b"}))
        await peer.tools.has_come("a")
        await peer.tools.has_come("b")
        response.leave()
        await response.done.wait()
        with anyio.fail_after(WAIT):
            while len(peer.tools.cancelled) < 2:
                await peer.ask("GET", "/v1/tools")


async def test_most_calls_of_a_request_are_made_in_any_number_up_to_64(peer: RestPeer) -> None:
    response = await call(peer, *((f"c{at}", "echo", {"text": f"t{at}"}) for at in range(64)))
    assert outcomes(Format.ANTHROPIC, response.json["messages"]) == [(f"c{at}", f"t{at}", False) for at in range(64)]
    assert len({state["stream"] for state in response.json["calls"]}) == 64


@pytest.mark.parametrize(
    "arguments,code",
    [
        ('{"text": "x', "invalid_arguments"),
        ("[]", "invalid_arguments"),
        ('{"text":' + "[" * 60 + "]" * 60 + "}", "arguments_too_deep"),
        ('{"text": "' + "x" * (1 << 20) + '"}', "arguments_too_large"),
    ],
)
async def test_arguments_that_cannot_be_used_are_an_error_for_the_model_and_nothing_else_is_lost(
    tmp_path: Path, arguments: str, code: str
) -> None:
    async with rest_hub(tmp_path, max_body=4_000_000) as peer:
        good = {"type": "function", "id": "c1", "function": {"name": "echo", "arguments": '{"text":"good"}'}}
        bad = {"type": "function", "id": "c2", "function": {"name": "echo", "arguments": arguments}}
        response = await peer.ask("POST", "/v1/tools/call?format=openai", {"tool_calls": [good, bad]})
        first, second = outcomes(Format.OPENAI, response.json["messages"])
        assert first == ("c1", "good", False) and second[0] == "c2" and second[2]
        state = response.json["calls"][1]
        assert (state["status"], state["problem"]["code"]) == ("refused", code)
        assert state["problem"]["status"] == (413 if code == "arguments_too_large" else 400)


async def test_calls_of_tools_that_are_not_selected_are_refused_also_through_run_tool(peer: RestPeer) -> None:
    calls: ModelCalls = (
        ("c1", "echo", {"text": "x"}),
        ("c2", "fail", {"text": "x"}),
        ("c3", "run_tool", {"name": "echo", "arguments": {"text": "y"}}),
        ("c4", "run_tool", {"name": "fail", "arguments": {"text": "y"}}),
        ("c5", "run_tool", {}),
        ("c6", "find_tools", {"query": "echo"}),
        ("c7", "read_tool", {"name": "fail", "arguments": {"text": "y"}}),
    )
    expected = {
        "&tools=echo": ["completed", *["refused"] * 6],
        "&tools=echo,run_tool,read_tool": ["completed", "refused", "completed", *["refused"] * 4],
        "&server=local": ["completed", "tool_error", "completed", "tool_error", "refused", "refused", "tool_error"],
    }
    for query, statuses in expected.items():
        response = await call(peer, *calls, query=query)
        assert [state["status"] for state in response.json["calls"]] == statuses, query
        assert len(outcomes(Format.ANTHROPIC, response.json["messages"])) == len(calls)
        problems = [state["problem"] for state in response.json["calls"] if state["status"] == "refused"]
        assert {one["code"] for one in problems} <= {"unknown_tool", "invalid_params"}
    response = await call(peer, calls[1], calls[0], token=NARROW)  # whose profile lacks the first
    assert [state["status"] for state in response.json["calls"]] == ["refused", "completed"]


async def test_call_for_which_there_is_no_room_is_answered_as_an_error_of_its_own(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, limits={"detached_calls": 1}) as peer:
        response = await call(
            peer, ("c1", "hold", {"nonce": "a"}), ("c2", "hold", {"nonce": "b"}), headers={"prefer": "wait=0"}
        )
        one, two = response.json["calls"]
        assert (one["status"], two["status"], two["problem"]["code"]) == ("working", "refused", "busy")


async def test_ids_that_a_model_left_out_are_not_made_up_for_it(peer: RestPeer) -> None:
    body = {"parts": [{"functionCall": {"name": "echo", "args": {"text": t}}, "thoughtSignature": "s"} for t in "ab"]}
    response = await peer.ask("POST", "/v1/tools/call?format=gemini", body)
    fits_sdk(Format.GEMINI, response.json["messages"])
    parts = [part["functionResponse"] for part in response.json["messages"][0]["parts"]]
    assert [(part["name"], part["response"]) for part in parts] == [
        ("echo", {"output": "a"}),
        ("echo", {"output": "b"}),
    ]
    assert all("id" not in part for part in parts)


async def test_parameters_that_a_provider_renamed_have_their_own_names_at_the_tool(peer: RestPeer) -> None:
    properties = {"x-id": {"type": "string"}, "note": {"type": "string"}}
    tool = {"name": "build", "inputSchema": {"type": "object", "properties": properties, "required": ["x-id"]}}
    await peer.ask("PUT", "/v1/executors/w1", {"tools": [tool]})
    for into, given in (("gemini", {"x_id": "7"}), ("openai", {"x-id": "7", "note": None}), ("mcp", {"x-id": "7"})):
        await call(peer, ("c1", "build", given), into=into, headers={"prefer": "wait=0"})
        (offer,) = (await peer.ask("GET", "/v1/executors/w1/calls?epoch=1")).json["offers"]
        assert offer["arguments"] == {"x-id": "7"}, into


async def test_meta_of_a_call_in_the_shape_of_mcp_reaches_the_tool(peer: RestPeer) -> None:
    await peer.ask("PUT", "/v1/executors/w1", {"tools": [{"name": "build", "inputSchema": {"type": "object"}}]})
    body = [
        {"id": "c1", "name": "build", "arguments": {}, "_meta": {"x/y": 2}},
        {"id": "c2", "name": "echo", "_meta": 3},
    ]
    response = await peer.ask("POST", "/v1/tools/call?format=mcp", body, headers={"prefer": "wait=0"})
    assert [state["status"] for state in response.json["calls"]] == ["working", "refused"]
    (offer,) = (await peer.ask("GET", "/v1/executors/w1/calls?epoch=1")).json["offers"]
    assert offer["_meta"] == {"x/y": 2}
