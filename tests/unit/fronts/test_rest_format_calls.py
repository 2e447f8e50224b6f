"""Calls in the formats of providers: all of a model's answer at once, each with its own stream and its own outcome."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anthropic.types import MessageParam
from google.genai import types as genai
from openai.types.chat import ChatCompletionToolMessageParam
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import TypeAdapter

from mcp_hub.formats.calls import write_calls
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import ModelCall
from mcp_hub.fronts.rest import follow
from tests.unit.fronts.rest_peer import Response, RestPeer, rest_hub

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
FORMATS = list(Format)
SSE = {"accept": "text/event-stream"}
BOTH = {"accept": "application/json, text/event-stream"}


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[RestPeer]:
    async with rest_hub(tmp_path) as peer:
        yield peer


def start(
    peer: RestPeer, *calls: tuple[str, str, Json], into: str = "anthropic", query: str = "", **options: Any
) -> Any:
    """A request with calls of (id, tool, arguments)."""
    body = write_calls([ModelCall(*call) for call in calls], Format(into))
    return peer.start("POST", f"/v1/tools/call?format={into}{query}", body, **options)


async def call(peer: RestPeer, *calls: tuple[str, str, Json], **options: Any) -> Response:
    response: Response = await start(peer, *calls, **options).ended()
    return response


def fits(into: Format, messages: list[Json]) -> None:
    """The answer is what the provider's SDK sends."""
    for message in messages:
        match into:
            case Format.ANTHROPIC:
                kind: Any = MessageParam
            case Format.OPENAI:
                kind = ChatCompletionToolMessageParam
            case Format.OPENAI_RESPONSES:
                kind = FunctionCallOutput
            case Format.GEMINI:
                found = genai.Content.model_validate(message).model_dump(mode="json", by_alias=True, exclude_none=True)
                assert found == message
                continue
            case Format.MCP:
                assert message.keys() == {"id", "result"}
                continue
        adapter = TypeAdapter(kind)
        assert json.loads(adapter.dump_json(adapter.validate_python(message))) == message


def outcomes(into: Format, messages: list[Json]) -> list[tuple[str, str, bool]]:
    """Id, text and whether it is an error, of each result."""
    match into:
        case Format.MCP:
            return [(m["id"], m["result"]["content"][0]["text"], m["result"].get("isError", False)) for m in messages]
        case Format.ANTHROPIC:
            (message,) = messages
            blocks = message["content"]
            return [(b["tool_use_id"], b["content"][0]["text"], b.get("is_error", False)) for b in blocks]
        case Format.OPENAI:
            return [(m["tool_call_id"], m["content"], m["content"].startswith("Error: ")) for m in messages]
        case Format.OPENAI_RESPONSES:
            return [(m["call_id"], m["output"], m["output"].startswith("Error: ")) for m in messages]
        case Format.GEMINI:
            (message,) = messages
            parts = [part["functionResponse"] for part in message["parts"]]
            return [
                (p["id"], p["response"].get("output", p["response"].get("error")), "error" in p["response"])
                for p in parts
            ]


@pytest.mark.parametrize("into", FORMATS)
async def test_calls_are_answered_in_their_format_and_order_each_with_its_own_outcome(
    peer: RestPeer, into: Format
) -> None:
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
    fits(into, answer["messages"])
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


async def test_what_has_ended_is_in_the_answer_of_a_hub_that_stops(
    peer: RestPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_LAST_EVENTS", 0)
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
