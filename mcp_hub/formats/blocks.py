"""Content of MCP results as text, images and files."""

from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from mcp_hub.formats.records import McpResult
from mcp_hub.types import JsonObject


class TextPart(NamedTuple):
    """Text for the model."""

    text: str


class MediaPart(NamedTuple):
    """Base64 data; `name` is the file's, or derived from the type."""

    kind: Literal["image", "audio", "file"]
    media_type: str
    data: str
    name: str


ResultPart: TypeAlias = TextPart | MediaPart


def parts_of(result: McpResult) -> list[ResultPart]:
    """The content of a result in order; a structured result that the text lacks is last."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    parts = [part for block in blocks if (part := _part(block)) is not None]
    structured = result.get("structuredContent")
    if structured is not None and not any(_says(part, structured) for part in parts):
        parts.append(TextPart(msgspec.json.encode(structured).decode()))
    return parts


def _says(part: ResultPart, structured: object) -> bool:
    if not isinstance(part, TextPart) or not part.text.lstrip().startswith(("{", "[")):
        return False
    try:
        return bool(msgspec.json.decode(part.text) == structured)
    except msgspec.DecodeError:
        return False


def _part(block: JsonObject) -> ResultPart | None:
    match block.get("type"):
        case "text":
            return TextPart(str(block["text"])) if block.get("text") else None
        case "image" | "audio" as kind:
            media_type = str(block.get("mimeType", f"{kind}/unknown"))
            return MediaPart("image" if kind == "image" else "audio", media_type, str(block.get("data", "")), kind)
        case "resource":
            return _resource(block.get("resource") or {})
        case "resource_link":
            label = block.get("description") or block.get("title")
            return TextPart(f"{block.get('name', 'resource')}: {block.get('uri')}" + (f" ({label})" if label else ""))
        case _:
            return TextPart(msgspec.json.encode(block).decode())


def _resource(resource: JsonObject) -> ResultPart:
    uri = str(resource.get("uri", ""))
    if "text" in resource:
        return TextPart(f"{uri}\n{resource['text']}" if uri else str(resource["text"]))
    media_type = str(resource.get("mimeType", "application/octet-stream"))
    kind = media_type.partition("/")[0]
    name = uri.rstrip("/").rpartition("/")[2] or "file"
    data = str(resource.get("blob", ""))
    return MediaPart("image" if kind == "image" else "audio" if kind == "audio" else "file", media_type, data, name)


def unsupported(part: MediaPart) -> str:
    """Text in place of a part."""
    size = len(part.data) * 3 // 4
    return f"[{part.name}: {part.media_type}, about {size} bytes, which this format cannot carry]"


def text_of(parts: list[ResultPart]) -> str:
    return "\n".join(part.text if isinstance(part, TextPart) else unsupported(part) for part in parts)


def block_of(media_type: str, data: str, uri: str | None = None) -> JsonObject:
    """An MCP block for base64 data."""
    kind = media_type.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "mimeType": media_type, "data": data}
    resource: dict[str, Any] = {"uri": f"file:///{uri or 'file'}", "mimeType": media_type, "blob": data}
    return {"type": "resource", "resource": resource}
