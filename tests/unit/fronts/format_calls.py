"""Requests with calls in the formats of providers, and their answers read back."""

from typing import Any

from mcp_hub.formats.calls import write_calls
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import ModelCall
from tests.unit.formats import sdk_types
from tests.unit.formats.sdk_types import fits, sdk_type
from tests.unit.fronts.rest_peer import Response, RestPeer

Json = dict[str, Any]
ModelCalls = tuple[tuple[str, str, Json], ...]


def start(
    peer: RestPeer, *calls: tuple[str, str, Json], into: str = "anthropic", query: str = "", **options: Any
) -> Any:
    """A request with calls of (id, tool, arguments)."""
    body = write_calls([ModelCall(*call) for call in calls], Format(into))
    return peer.start("POST", f"/v1/tools/call?format={into}{query}", body, **options)


async def call(peer: RestPeer, *calls: tuple[str, str, Json], **options: Any) -> Response:
    response: Response = await start(peer, *calls, **options).ended()
    return response


def fits_sdk(into: Format, messages: list[Json]) -> None:
    """The answer is what the provider's SDK sends."""
    for message in messages:
        match into:
            case Format.ANTHROPIC:
                assert fits(sdk_types.ANTHROPIC, "MessageParam", message)
            case Format.OPENAI:
                assert fits(sdk_types.OPENAI, "ChatCompletionToolMessageParam", message)
            case Format.OPENAI_RESPONSES:
                assert fits(sdk_types.RESPONSE_INPUT, "FunctionCallOutput", message)
            case Format.GEMINI:
                parsed = sdk_type(sdk_types.GEMINI, "Content").model_validate(message)
                assert parsed.model_dump(mode="json", by_alias=True, exclude_none=True) == message
            case Format.GEMINI_INTERACTIONS:
                assert fits(sdk_types.INTERACTIONS, "FunctionResultStep", message, exclude_unset=True)
            case Format.MCP:
                assert message.keys() == {"id", "result"}


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
        case Format.GEMINI_INTERACTIONS:
            return [(m["call_id"], m["result"], m.get("is_error", False)) for m in messages]
        case Format.GEMINI:
            (message,) = messages
            parts = [part["functionResponse"] for part in message["parts"]]
            return [
                (p["id"], p["response"].get("output", p["response"].get("error")), "error" in p["response"])
                for p in parts
            ]
