"""Requests with calls in the formats of providers, and their answers read back."""

import json
from typing import Any

from anthropic.types import MessageParam
from google.genai import types as genai
from openai.types.chat import ChatCompletionToolMessageParam
from openai.types.responses.response_input_param import FunctionCallOutput
from pydantic import TypeAdapter

from mcp_hub.formats.calls import write_calls
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import ModelCall
from tests.unit.fronts.rest_peer import Response, RestPeer

Json = dict[str, Any]
ModelCalls = tuple[tuple[str, str, Json], ...]
SSE = {"accept": "text/event-stream"}
BOTH = {"accept": "application/json, text/event-stream"}


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
