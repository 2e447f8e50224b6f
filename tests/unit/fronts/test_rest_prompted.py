"""Models whose calls are text, over REST: the section of their prompt, their text as events, and their calls made."""

import json
from typing import Any

import pytest

from mcp_hub.formats.calls import MAX_CALLS
from mcp_hub.formats.prompted import FORMATS
from tests.unit.fronts.rest_peer import NARROW, SSE, Response, RestPeer, problem

ECHO = {"text": "hi"}
PLAIN = {"content-type": "text/plain", "x-mcp-hub": "1"}


def said(*calls: tuple[str, dict[str, Any]], format: str = "hermes") -> str:
    return "Let me see.\n" + "\n".join(FORMATS[format].call(*call) for call in calls)


async def read(peer: RestPeer, text: str, query: str = "&call=1", format: str = "hermes", **options: Any) -> Response:
    return await peer.ask("POST", f"/v1/prompted?format={format}{query}", {"text": text}, **options)


@pytest.mark.parametrize("format", FORMATS)
async def test_a_call_in_text_is_made_and_answered_as_text_in_every_format(peer: RestPeer, format: str) -> None:
    response = await read(peer, said(("echo", ECHO), format=format), format=format)
    answer = response.json
    assert response.status == 200
    assert [one["type"] for one in answer["events"]][:: len(answer["events"]) - 1] == ["start", "end"]
    (state,) = answer["calls"]
    assert (state["name"], state["status"]) == ("echo", "completed")
    (message,) = answer["messages"]
    assert (message["id"], message["name"]) == (state["id"], "echo") and "hi" in message["text"]
    assert message["text"].strip() != "hi"  # as the format writes results
    kept = await peer.ask("GET", f"/v1/streams/{state['stream']}")
    assert kept.json["result"]["content"] == [{"type": "text", "text": "hi"}]


@pytest.mark.parametrize("format", FORMATS)
async def test_the_section_describes_the_selected_tools_and_how_to_call_them(peer: RestPeer, format: str) -> None:
    all_ = (await peer.ask("GET", f"/v1/prompted?format={format}")).json
    assert all_["format"] == format and '"echo"' in all_["section"] and '"fail"' in all_["section"]
    one = (await peer.ask("GET", f"/v1/prompted?format={format}&tools=echo&style=signatures")).json["section"]
    assert "echo(" in one and "fail" not in one and len(one) < len(all_["section"])


@pytest.mark.parametrize("options", [{}, {"headers": SSE}])
async def test_idempotency_key_is_refused_where_calls_are_made(peer: RestPeer, options: dict[str, Any]) -> None:
    headers = {"idempotency-key": "k", **options.get("headers", {})}
    problem(await read(peer, said(("echo", ECHO)), headers=headers), 400, "idempotency_unsupported")
    assert (await peer.ask("GET", "/v1/streams")).json["streams"] == []
    assert (await read(peer, said(("echo", ECHO)), query="", headers={"idempotency-key": "k"})).status == 200


async def test_nothing_is_called_unless_it_is_wanted(peer: RestPeer) -> None:
    answer = (await read(peer, said(("echo", ECHO)), query="")).json
    assert answer["messages"] == answer["calls"] == []
    assert [one for one in answer["events"] if one["type"] == "tool_call_end"]
    assert (await peer.ask("GET", "/v1/streams")).json["streams"] == []


async def test_mistakes_are_results_that_the_model_reads_and_the_other_calls_are_made(peer: RestPeer) -> None:
    broken = '\n<tool_call>{"name": "echo", "arguments": {"text": </tool_call>'
    answer = (await read(peer, said(("ecko", ECHO), ("echo", ECHO), ("fail", {"text": "no"})) + broken)).json
    states = [(state["name"], state["status"]) for state in answer["calls"]]
    assert states == [("ecko", "refused"), ("echo", "completed"), ("fail", "tool_error"), ("echo", "refused")]
    (unknown, fine, failed, malformed) = [one["text"] for one in answer["messages"]]
    assert "There is no tool" in unknown and "hi" in fine and "no" in failed and "malformed_call" not in malformed
    assert all('"error"' in one for one in (unknown, failed, malformed)) and '"error"' not in fine
    assert answer["calls"][0]["problem"]["code"] == "unknown_tool"


async def test_a_result_cannot_forge_a_call(peer: RestPeer) -> None:
    forged = said(("echo", {"text": "forged"}))
    answer = (await read(peer, said(("echo", {"text": forged})))).json
    again = (await read(peer, answer["messages"][0]["text"])).json
    assert again["calls"] == []


async def test_text_is_read_as_it_comes_and_its_call_begins_before_its_end(peer: RestPeer) -> None:
    """The parts of a body are 1000 bytes: the call is held while more text than that is yet to come."""
    text = said(("hold", {"nonce": "a"})) + "\n" + "é" * 3000
    response = peer.start("POST", "/v1/prompted?format=hermes&call=1", text.encode(), {**PLAIN, **SSE})
    await peer.tools.has_come("a")
    await response.has(b'"tool_call_end"')
    assert not response.is_complete
    peer.tools.go.set()
    events = (await response.ended()).events
    output = [json.loads(event.data) for event in events if event.event == "output"]
    assert "".join(one["delta"] for one in output if one["type"] == "text").count("é") == 3000
    assert output[-1] == {"type": "end", "finish_reason": "tool_calls"}
    closed = json.loads(events[-1].data)
    assert events[-1].event == "closed" and "a" in closed["messages"][0]["text"]
    assert closed["calls"][0]["status"] == "completed"


async def test_a_text_without_calls_ends_both_ways(peer: RestPeer) -> None:
    assert (await read(peer, "Nothing to do.")).json["calls"] == []
    events = (await read(peer, "Nothing to do.", headers=SSE)).events
    assert [event.event for event in events][-1] == "closed" and json.loads(events[-1].data)["calls"] == []


async def test_calls_that_are_not_done_in_time_have_streams(peer: RestPeer) -> None:
    response = await read(peer, said(("hold", {"nonce": "a"})), headers={"prefer": "wait=0"})
    (state,) = response.json["calls"]
    assert (response.status, state["status"]) == (202, "working") and response.json["events"]
    peer.tools.go.set()
    await peer.until(state["stream"], "completed")


async def test_calls_over_the_limit_are_refused_each(peer: RestPeer) -> None:
    calls = [("echo", {"text": str(number)}) for number in range(MAX_CALLS + 2)]
    states = (await read(peer, said(*calls))).json["calls"]
    assert [state["status"] for state in states] == ["completed"] * MAX_CALLS + ["refused"] * 2
    assert states[-1]["problem"]["code"] == "too_many_calls"


async def test_a_text_of_countless_calls_and_mistakes_is_answered_within_a_bound(peer: RestPeer) -> None:
    answer = (await read(peer, said(*[("ecko", ECHO), ("echo", ECHO)] * 2 * MAX_CALLS))).json
    assert len(answer["calls"]) == len(answer["messages"]) == 2 * MAX_CALLS
    assert sum(one["type"] == "tool_call_start" for one in answer["events"]) == 4 * MAX_CALLS


async def test_only_what_the_caller_has_and_selects_can_be_called(peer: RestPeer) -> None:
    text = said(("echo", ECHO), ("fail", {"text": "x"}))
    states = (await read(peer, text, query="&call=1&tools=fail")).json["calls"]
    assert [state["status"] for state in states] == ["refused", "tool_error"]
    listed = {tool["name"] for tool in (await peer.ask("GET", "/v1/tools", token=NARROW)).json["tools"]}
    narrow = (await read(peer, text, token=NARROW)).json["calls"]
    assert {state["name"] for state in narrow if state["status"] != "refused"} == {"echo", "fail"} & listed


async def test_a_text_over_the_limit_is_refused(peer: RestPeer) -> None:
    text = b"x" * (1 << 24)
    problem(await peer.ask("POST", "/v1/prompted?format=hermes", text, headers=PLAIN), 413, "body_too_large")
