"""Results of calls as text for a model's next turn."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from mcp_hub.formats.prompted.escapes import escaped_text
from mcp_hub.formats.prompted.table import PromptFormat


def result_text(format: PromptFormat, name: str, result: Mapping[str, Any], index: int = 0) -> str:
    """An MCP result in the format; it cannot look like a call or a result's end.

    `index`: the call's position in its turn. Images and audio are only named.
    """
    return format.result(escaped_text(" ".join(name.split())), content_text(result), bool(result.get("isError")), index)


def error_text(format: PromptFormat, name: str, message: str, index: int = 0) -> str:
    return result_text(format, name, {"content": [{"type": "text", "text": message}], "isError": True}, index)


def content_text(result: Mapping[str, Any]) -> str:
    """The text of a result, else its structured content as JSON."""
    text = "\n".join(_texts(result.get("content") or ()))
    structured = result.get("structuredContent")
    return text if text or structured is None else json.dumps(structured, ensure_ascii=False)


def _texts(content: Any) -> Iterator[str]:
    for block in content:
        match block:
            case {"type": "text", "text": str(text)}:
                yield text
            case {"type": "image" | "audio" as kind, "mimeType": str(mime)}:
                yield f"({kind} of type {mime}, which cannot be shown as text)"
            case {"type": "resource", "resource": {"text": str(text)}}:
                yield text
            case {"type": "resource", "resource": {"uri": str(uri)}}:
                yield f"(resource {uri}, which cannot be shown as text)"
            case {"type": "resource_link", "uri": str(uri)}:
                yield f"(resource {uri})"
            case _:
                yield json.dumps(block, ensure_ascii=False)
