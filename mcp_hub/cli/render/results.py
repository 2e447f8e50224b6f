"""Events and results of a call, as text, JSON lines and files, whose names no server chooses."""

import binascii
import os
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from mimetypes import MimeTypes
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.errors import RpcError
from mcp_hub.events import (
    Attempt,
    CallEvent,
    Delta,
    InputReceived,
    InputRequired,
    Log,
    Progressed,
    Reset,
    ToolCall,
    ToolResult,
)
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.jsonrpc.rpc_errors import URL_ELICITATION_REQUIRED
from mcp_hub.types import JsonObject, RawJson, RawObject, plural

_HEAD: Final = ("type", "seq")
"""Members of a line that are not the server's."""
_LISTINGS: Final = {"Unknown tool: ": "mcp-hub tools", "Unknown stream: ": "mcp-hub streams"}
_TYPES: Final = {
    **{"audio/wav": ".wav", "audio/ogg": ".ogg", "audio/webm": ".webm", "audio/mp4": ".m4a", "audio/flac": ".flac"},
    **{"image/webp": ".webp", "image/avif": ".avif", "application/gzip": ".gz"},
}
"""MIME types that the table of Python may lack."""


class ShownResult(msgspec.Struct, frozen=True):
    """A result: `raw`, and parts for people."""

    raw: RawJson
    is_error: bool = False
    text: str = ""
    joined: str = ""
    """The text blocks put together, to be compared with the text that was streamed."""
    other_text: str = ""
    """A line for each block that is not text."""
    blocks: Sequence[object] = ()
    data: bytes | None = None
    """The bytes of a resource that is not text."""

    @classmethod
    def of(cls, raw: RawJson, method: str = "tools/call", *, is_saved: bool = False) -> "ShownResult":
        """The result of `method`; `is_saved`: its data go to files."""
        try:
            result = msgspec.json.decode(raw, type=JsonObject)
        except (msgspec.DecodeError, RecursionError):
            text = bytes(raw).decode("utf-8", "replace")
            return cls(raw, text=text)
        if method == "prompts/get":
            messages = _listed(result, "messages")
            return cls(raw, text="\n".join(map(_message_text, messages)), blocks=[*map(_content, messages)])
        if method == "resources/read":
            contents = _listed(result, "contents")
            data = None if is_saved else _only_data(contents)
            parts: list[object] = [{"type": "resource", "resource": content} for content in contents]
            return cls(raw, text=_only_text(contents) or "\n".join(map(_block_text, parts)), blocks=parts, data=data)
        blocks = _listed(result, "content")
        other_text = "\n".join(_block_text(block) for block in blocks if not _is_text(block))
        joined = "".join(_block_text(block) for block in blocks if _is_text(block))
        return cls(
            raw=raw,
            is_error=result.get("isError") is True,
            text=_readable(blocks, result),
            joined=joined,
            other_text=other_text,
            blocks=blocks,
        )


def _listed(result: JsonObject, key: str) -> list[object]:
    listed = result.get(key)
    return listed if isinstance(listed, list) else []


def _content(message: object) -> object:
    return message.get("content") if isinstance(message, dict) else None


def _message_text(message: object) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    return f"{role}: {_block_text(_content(message))}"


def _only_text(contents: list[object]) -> str:
    text = contents[0].get("text") if len(contents) == 1 and isinstance(contents[0], dict) else None
    return text if isinstance(text, str) else ""


def _only_data(contents: list[object]) -> bytes | None:
    blob = contents[0].get("blob") if len(contents) == 1 and isinstance(contents[0], dict) else None
    try:
        return b64decode(blob, validate=True) if isinstance(blob, str) else None
    except ValueError:
        return None


def _readable(blocks: list[object], result: JsonObject) -> str:
    parts = [_block_text(block) for block in blocks]
    structured = result.get("structuredContent")
    if structured is not None and not any(map(_is_text, blocks)):
        parts.append(msgspec.json.format(msgspec.json.encode(structured), indent=2).decode())
    return "\n".join(parts)


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def content_text(content: RawJson) -> str:
    """The text of encoded content blocks; others as `[type …]`."""
    try:
        blocks = msgspec.json.decode(content, type=list[object])
    except (msgspec.DecodeError, RecursionError):
        return bytes(content).decode("utf-8", "replace")
    return "".join(map(_block_text, blocks))


def _block_text(block: object) -> str:
    if not isinstance(block, dict):
        return f"[{block!r}]"
    kind, resource = str(block.get("type")), block.get("resource")
    if _is_text(block):
        return str(block["text"])
    if kind == "resource" and isinstance(resource, dict):
        if isinstance(resource.get("text"), str):
            return f"[resource {resource.get('uri')}]\n{resource['text']}"
        return _summary(kind, resource, resource.get("blob"))
    return _summary(kind, block, block.get("data"))


def _summary(kind: str, named: JsonObject, data: object) -> str:
    message = [str(named[key]) for key in ("name", "uri", "mimeType") if isinstance(named.get(key), str)]
    if isinstance(data, str):  # base64: four characters for three bytes
        message.append(plural(len(data) * 3 // 4 - data[-2:].count("="), "byte"))
    return f"[{' '.join([kind, *message])}]"


def with_code(error: RpcError, message: str | None = None) -> str:
    """The message, with the hub's code and with the command that lists unknown names."""
    text = error.message if message is None else message
    is_own = error.raw is None or type(error).symbol != RpcError.symbol
    listing = next((command for begin, command in _LISTINGS.items() if error.message.startswith(begin)), None)
    if is_own and listing is not None and "Did you mean" not in text and "state" not in error.about_upstream:
        text = f"{text.rstrip('.')}. List them with: {listing}"
    return f"{text} [{error.symbol}]" if is_own else text


class _Elicitation(msgspec.Struct):
    url: str = ""


class _Required(msgspec.Struct):
    elicitations: list[_Elicitation] = []


class _Refusal(msgspec.Struct):
    data: _Required = msgspec.field(default_factory=_Required)


def urls_of(error: RpcError) -> list[str]:
    """The pages that the error asks to visit."""
    if error.code != URL_ELICITATION_REQUIRED:
        return []
    try:
        return [
            elicitation.url
            for elicitation in msgspec.json.decode(error.encoded(), type=_Refusal).data.elicitations
            if elicitation.url
        ]
    except (msgspec.DecodeError, RecursionError):
        return []


def message_of(event: Progressed) -> str:
    """The message of progress, or ""."""
    raw = (event.members or {}).get("message")
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else ""
    except (msgspec.DecodeError, RecursionError):
        return ""


def log_text(event: Log) -> str:
    """`level logger: data`, with JSON data; of another notification its method and params."""
    if event.method is not None:
        return f"{event.method}: {bytes(event.params).decode('utf-8', 'replace')}"
    members = raw_object(event.params) or {}
    data = members.get("data", msgspec.Raw(b"null"))
    logger = _string(members.get("logger"))
    text = _string(data)
    line = bytes(data).decode("utf-8", "replace") if text is None else text
    return f"{event.level}{f' {logger}' if logger else ''}: {line}"


def _log_line(event: Log, seq: int) -> bytes:
    if event.method is not None:
        return _line("notification", seq, {"method": event.method, "params": msgspec.Raw(bytes(event.params))})
    members: RawObject = raw_object(event.params) or {}
    log_members = {key: members[key] for key in members if key not in _HEAD}
    return _line("log", seq, {"level": event.level, **log_members})


def attempt_text(event: Attempt) -> str:
    return f"{event.detail or event.reason} (attempt {event.number} in {event.after:g} s)"


def _string(raw: msgspec.Raw | None) -> str | None:
    try:
        return msgspec.json.decode(raw, type=str) if raw is not None else None
    except (msgspec.DecodeError, RecursionError):
        return None


def event_line(event: CallEvent, seq: int = 0) -> bytes | None:
    """The JSON line of an event, named as in REST, or None; `seq` 0: unnumbered."""
    match event:
        case Progressed(is_hubs=False):
            members_left = {key: value for key, value in (event.members or {}).items() if key not in _HEAD}
            total = {} if event.total is None else {"total": event.total}
            skipped = {"skipped": event.skipped} if event.skipped else {}
            return _line("progress", seq, {"progress": event.sent, **total, **members_left, **skipped})
        case Delta():
            channel = {} if event.channel == "content" else {"channel": event.channel}
            content = {"index": event.index, "content": msgspec.Raw(bytes(event.content))}
            return _line("delta", seq, {**channel, **content})
        case Log():
            return _log_line(event, seq)
        case ToolCall():
            line = {"line": event.line} if event.line else {}
            arguments = msgspec.Raw(bytes(event.arguments))
            tool_call = {"call": event.call, "name": event.name, **line, "arguments": arguments}
            return _line("tool-call", seq, tool_call)
        case ToolResult():
            message = {"call": event.call, "isError": event.is_error, "content": msgspec.Raw(bytes(event.content))}
            return _line("tool-result", seq, message)
        case InputRequired():
            question = {"key": event.key, "method": event.method, "params": msgspec.Raw(bytes(event.params))}
            return _line("input-required", seq, question)
        case InputReceived():
            action = {} if event.action is None else {"action": event.action}
            return _line("input-received", seq, {"key": event.key, **action})
        case Attempt():
            detail = {"detail": event.detail} if event.detail else {}
            attempt = {"attempt": event.number, "reason": event.reason, "after": event.after}
            return _line("attempt", seq, {**attempt, **detail})
        case Reset():
            failed = {"attempt": event.number, "reason": event.reason, "discard_from": event.discard_from}
            return _line("reset", seq, failed)
        case _:
            return None


def cancelled_line(reason: str | None, seq: int = 0) -> bytes:
    return _line("end", seq, {"outcome": "cancelled", **({} if reason is None else {"reason": reason})})


def result_line(outcome: ShownResult, seq: int = 0) -> bytes:
    """The JSON line of a result."""
    message = "tool_error" if outcome.is_error else "ok"
    return _line("end", seq, {"outcome": message, "result": msgspec.Raw(bytes(outcome.raw))})


def error_line(error: RpcError, seq: int = 0) -> bytes:
    """The JSON line of an error."""
    members: RawObject = raw_object(error.encoded()) or {}
    return _line("error", seq, {key: members[key] for key in members if key not in _HEAD})


def _line(kind: str, seq: int, members: Mapping[str, object]) -> bytes:
    number = {"seq": seq} if seq else {}
    return object_bytes({"type": kind, **number, **members}) + b"\n"


def make_media_folder(folder: Path) -> None:
    """Makes a private folder, unless it exists. Raises `OSError`."""
    make_folder(folder)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(13, "Permission denied", str(folder))


def saved(blocks: Sequence[object], folder: Path) -> Iterator[str]:
    """Saves each binary block; yields a sentence about it. Raises `OSError`."""
    for number, block in enumerate(blocks, 1):
        if (binary := _binary(block)) is None:
            continue
        kind, text = binary
        try:
            data = b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError):
            yield f"block {number} ({kind}) is not saved: its data are not Base64"
            continue
        path = _written(folder, str(number), _extension(kind), data)
        yield f"saved {path} ({kind}, {plural(len(data), 'byte')})"


def _binary(block: object) -> tuple[str, str] | None:
    if not isinstance(block, dict):
        return None
    resource = block.get("resource")
    holder, data = (resource, resource.get("blob")) if isinstance(resource, dict) else (block, block.get("data"))
    kind = holder.get("mimeType")
    if not isinstance(data, str):
        return None
    return (kind if isinstance(kind, str) else "unknown type"), data


def _extension(kind: str) -> str:
    kind = kind.partition(";")[0].strip().lower()
    return _TYPES.get(kind) or MimeTypes().guess_extension(kind) or ".bin"


def _written(folder: Path, stem: str, extension: str, data: bytes) -> Path:
    for attempt in count(1):
        path = folder / f"{stem}{'' if attempt == 1 else f'-{attempt}'}{extension}"
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            continue
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
        return path
    raise AssertionError
