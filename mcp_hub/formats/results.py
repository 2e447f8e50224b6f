"""MCP results as the messages that answer a model's calls, and back."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from mcp_hub.errors import FormatRefused
from mcp_hub.formats.calls import NO_ID
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import McpResult, ModelCall, json_value
from mcp_hub.types import JsonObject


class _TextPart(NamedTuple):
    """Text for the model."""

    text: str


class _MediaPart(NamedTuple):
    """Base64 data; `name` is the file's, or derived from the type."""

    kind: Literal["image", "audio", "file"]
    media_type: str
    data: str
    name: str


ResultPart: TypeAlias = _TextPart | _MediaPart


def parts_of(result: McpResult) -> list[ResultPart]:
    """The content of a result in order; a structured result that the text lacks is last."""
    content = result.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    parts = [part for block in blocks if (part := _part(block)) is not None]
    structured = result.get("structuredContent")
    if structured is not None and not any(_says(part, structured) for part in parts):
        parts.append(_TextPart(msgspec.json.encode(structured).decode()))
    return parts


def _says(part: ResultPart, structured: object) -> bool:
    if not isinstance(part, _TextPart) or not part.text.lstrip().startswith(("{", "[")):
        return False
    try:
        return bool(msgspec.json.decode(part.text) == structured)
    except msgspec.DecodeError:
        return False


def _part(block: JsonObject) -> ResultPart | None:
    match block.get("type"):
        case "text":
            return _TextPart(str(block["text"])) if block.get("text") else None
        case "image" | "audio" as kind:
            media_type = str(block.get("mimeType", f"{kind}/unknown"))
            return _MediaPart("image" if kind == "image" else "audio", media_type, str(block.get("data", "")), kind)
        case "resource":
            return _resource(block.get("resource") or {})
        case "resource_link":
            label = block.get("description") or block.get("title")
            return _TextPart(f"{block.get('name', 'resource')}: {block.get('uri')}" + (f" ({label})" if label else ""))
        case _:
            return _TextPart(msgspec.json.encode(block).decode())


def _resource(resource: JsonObject) -> ResultPart:
    uri = str(resource.get("uri", ""))
    if "text" in resource:
        return _TextPart(f"{uri}\n{resource['text']}" if uri else str(resource["text"]))
    media_type = str(resource.get("mimeType", "application/octet-stream"))
    kind = media_type.partition("/")[0]
    name = uri.rstrip("/").rpartition("/")[2] or "file"
    data = str(resource.get("blob", ""))
    return _MediaPart("image" if kind == "image" else "audio" if kind == "audio" else "file", media_type, data, name)


def unsupported(part: _MediaPart) -> str:
    """Text in place of a part."""
    size = len(part.data) * 3 // 4
    return f"[{part.name}: {part.media_type}, about {size} bytes, which this format cannot carry]"


def text_of(parts: list[ResultPart]) -> str:
    return "\n".join(part.text if isinstance(part, _TextPart) else unsupported(part) for part in parts)


def block_of(media_type: str, data: str, uri: str | None = None) -> JsonObject:
    """An MCP block for base64 data."""
    kind = media_type.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "mimeType": media_type, "data": data}
    resource: dict[str, Any] = {"uri": f"file:///{uri or 'file'}", "mimeType": media_type, "blob": data}
    return {"type": "resource", "resource": resource}


_ANTHROPIC_IMAGES: Final = frozenset(("image/jpeg", "image/png", "image/gif", "image/webp"))
_STANDARD: Final = str.maketrans("-_", "+/")
_OPENAI_AUDIO: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


def error_result(message: str) -> McpResult:
    return {"content": [{"type": "text", "text": message}], "isError": True}


def write_results(calls: Sequence[ModelCall], results: Mapping[str, McpResult], into: Format) -> list[JsonObject]:
    """The messages (Responses API: items) that answer the calls, in order.

    `results` by call id; a fault answers its call. Media that a format cannot carry becomes text; OpenAI Chat gets
    images, audio and files in a user message.

    Raises: FormatRefused: `unknown_call`, `missing_result`.
    """
    stray = sorted(results.keys() - {call.id for call in calls})
    if stray:
        raise FormatRefused("unknown_call", f'there is no call with the id "{stray[0]}".')
    lacking = [call.id for call in calls if call.fault is None and call.id not in results]
    if lacking:
        raise FormatRefused("missing_result", f'the call "{lacking[0]}" has no result. An error is one, too.')
    answered = [(call, results[call.id] if call.fault is None else error_result(call.fault.message)) for call in calls]
    return _WRITE[into](answered)


_Answered = list[tuple[ModelCall, McpResult]]


def _write_mcp(answered: _Answered) -> list[JsonObject]:
    return [{**({} if NO_ID in call.extra else {"id": call.id}), "result": result} for call, result in answered]


def _write_anthropic(answered: _Answered) -> list[JsonObject]:
    blocks = []
    for call, result in answered:
        block: JsonObject = {"type": "tool_result", "tool_use_id": call.id}
        content = [_anthropic_block(part) for part in parts_of(result)]
        block |= {"content": content} if content else {}
        block |= {"is_error": True} if result.get("isError") else {}
        block |= {key: call.extra[key] for key in ("toolset_name",) if call.extra.get(key) is not None}
        blocks.append(block)
    return [{"role": "user", "content": blocks}] if blocks else []


def _anthropic_block(part: _TextPart | _MediaPart) -> JsonObject:
    if isinstance(part, _TextPart):
        return {"type": "text", "text": part.text}
    source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.media_type in _ANTHROPIC_IMAGES:
        return {"type": "image", "source": source}
    if part.media_type == "application/pdf":
        return {"type": "document", "source": source, "title": part.name}
    return {"type": "text", "text": unsupported(part)}


def _write_openai(answered: _Answered) -> list[JsonObject]:
    messages: list[JsonObject] = []
    attachments: list[JsonObject] = []
    for call, result in answered:
        parts = parts_of(result)
        media = [part for part in parts if isinstance(part, _MediaPart) and _chat_media(part) is not None]
        texts = [part.text if isinstance(part, _TextPart) else unsupported(part) for part in parts if part not in media]
        texts += [f"[{part.name}: {part.media_type}, in the next message]" for part in media]
        content = _with_mark(result, "\n".join(texts))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": content})
        if media:
            attachments.append({"type": "text", "text": f"From the result of the call {call.id} of {call.name}:"})
            attachments += (block for part in media if (block := _chat_media(part)) is not None)
    return [*messages, {"role": "user", "content": attachments}] if attachments else messages


def _chat_media(part: _MediaPart) -> JsonObject | None:
    if part.kind == "image":
        return {"type": "image_url", "image_url": {"url": _data_url(part)}}
    if part.media_type in _OPENAI_AUDIO:
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": _OPENAI_AUDIO[part.media_type]}}
    if part.media_type == "application/pdf":
        return {"type": "file", "file": {"filename": part.name, "file_data": _data_url(part)}}
    return None


def _data_url(part: _MediaPart) -> str:
    return f"data:{part.media_type};base64,{part.data}"


def _with_mark(result: McpResult, text: str) -> str:
    """OpenAI has no member for errors."""
    return f"Error: {text}" if result.get("isError") and not text.lower().startswith("error") else text


def _write_responses(answered: _Answered) -> list[JsonObject]:
    return [_responses_item(call, result) for call, result in answered]


def _responses_item(call: ModelCall, result: McpResult) -> JsonObject:
    parts = parts_of(result)
    structured = result.get("structuredContent")
    output: str | list[JsonObject]
    if any(isinstance(part, _MediaPart) for part in parts):
        output = [_responses_content(part) for part in parts]
        if result.get("isError"):
            output.insert(0, {"type": "input_text", "text": "Error:"})
    elif structured is not None and not result.get("isError"):
        output = msgspec.json.encode(structured).decode()  # the value that `output_schema` describes
    else:
        output = _with_mark(result, text_of(parts))
    echoed = {key: call.extra[key] for key in ("caller", "namespace") if call.extra.get(key) is not None}
    return {"type": "function_call_output", "call_id": call.id, "output": output, **echoed}


def _responses_content(part: _TextPart | _MediaPart) -> JsonObject:
    if isinstance(part, _TextPart):
        return {"type": "input_text", "text": part.text}
    if part.kind == "image":
        return {"type": "input_image", "image_url": _data_url(part), "detail": "auto"}
    if part.kind == "file":
        return {"type": "input_file", "filename": part.name, "file_data": _data_url(part)}
    return {"type": "input_text", "text": unsupported(part)}


def _write_gemini(answered: _Answered) -> list[JsonObject]:
    parts = [{"functionResponse": _gemini_response(call, result)} for call, result in answered]
    return [{"role": "user", "parts": parts}] if parts else []


def _gemini_response(call: ModelCall, result: McpResult) -> JsonObject:
    parts = parts_of(result)
    media = [part for part in parts if isinstance(part, _MediaPart)]
    text = text_of([part for part in parts if isinstance(part, _TextPart)])
    structured = result.get("structuredContent")
    if result.get("isError"):
        response: JsonObject = {"error": text}
    else:
        response = {"output": text if structured is None else structured}
    call_id: JsonObject = {} if NO_ID in call.extra else {"id": call.id}
    answer = {**call_id, "name": call.name, "response": response}
    if media:
        answer["parts"] = [{"inlineData": {"mimeType": part.media_type, "data": part.data}} for part in media]
    return answer


_WRITE: Final[Mapping[Format, Callable[[_Answered], list[JsonObject]]]] = {
    Format.MCP: _write_mcp,
    Format.ANTHROPIC: _write_anthropic,
    Format.OPENAI: _write_openai,
    Format.OPENAI_RESPONSES: _write_responses,
    Format.GEMINI: _write_gemini,
}


def read_results(messages: Sequence[object], out_of: Format) -> list[tuple[str, McpResult]]:
    """The results in messages or items, with call ids (Gemini: or names); SDK objects are accepted.

    Raises: FormatRefused: `invalid_results`.
    """
    try:
        return [(str(call_id), result) for call_id, result in _READ[out_of](json_value(messages))]
    except (KeyError, TypeError, AttributeError) as error:
        raise FormatRefused("invalid_results", f"these are not results of the format {out_of}: {error!r}") from error


_Read = list[tuple[Any, McpResult]]


def _read_mcp(messages: Sequence[JsonObject]) -> _Read:
    return [(message.get("id", ""), message["result"]) for message in messages]


def _read_anthropic(messages: Sequence[JsonObject]) -> _Read:
    blocks = [block for message in messages for block in message["content"] if block["type"] == "tool_result"]
    return [(block["tool_use_id"], _result(_anthropic_content(block), block.get("is_error"))) for block in blocks]


def _anthropic_content(block: JsonObject) -> list[JsonObject]:
    content = block.get("content", [])
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [
        block_of(part["source"]["media_type"], part["source"]["data"], part.get("title"))
        if part.get("source", {}).get("type") == "base64"
        else {"type": "text", "text": part["text"] if part["type"] == "text" else msgspec.json.encode(part).decode()}
        for part in content
    ]


def _result(content: list[JsonObject], is_error: object) -> McpResult:
    return {"content": content, **({"isError": True} if is_error else {})}


def _read_openai(messages: Sequence[JsonObject]) -> _Read:
    return [
        (message["tool_call_id"], _openai_result(message["content"]))
        for message in messages
        if message["role"] == "tool"
    ]


def _openai_result(output: str | list[JsonObject]) -> McpResult:
    parts = [{"type": "text", "text": output}] if isinstance(output, str) else output
    content = [_openai_content(part) for part in parts]
    text = str(content[0].get("text", "")) if content else ""
    if not text.startswith("Error:"):
        return _result(content, False)
    text = text.removeprefix("Error:").lstrip()
    return _result([{"type": "text", "text": text}, *content[1:]] if text else content[1:], True)


def _openai_content(part: JsonObject) -> JsonObject:
    url = part.get("image_url") or part.get("file_data")
    if isinstance(url, str) and url.startswith("data:"):
        media_type, _, data = url.removeprefix("data:").partition(";base64,")
        return block_of(media_type, data, part.get("filename"))
    return {"type": "text", "text": part.get("text", "")}


def _read_responses(messages: Sequence[JsonObject]) -> _Read:
    items = [item for item in messages if item["type"] == "function_call_output"]
    return [(item["call_id"], _openai_result(item["output"])) for item in items]


def _read_gemini(messages: Sequence[JsonObject]) -> _Read:
    parts = [
        part["functionResponse"] for message in messages for part in message["parts"] if "functionResponse" in part
    ]
    return [(part.get("id", part["name"]), _gemini_result(part)) for part in parts]


def _gemini_result(part: JsonObject) -> McpResult:
    response = part["response"]
    is_error = "error" in response
    output = response["error"] if is_error else response.get("output", response)
    text = output if isinstance(output, str) else msgspec.json.encode(output).decode()
    content: list[JsonObject] = [{"type": "text", "text": text}] if text else []
    media = [part_media["inlineData"] for part_media in part.get("parts", ()) if "inlineData" in part_media]
    # objects of the SDK write bytes in the alphabet for URLs, which MCP does not have
    content += [block_of(part_media["mimeType"], part_media["data"].translate(_STANDARD)) for part_media in media]
    result = _result(content, is_error)
    return {**result, "structuredContent": output} if isinstance(output, dict) and not is_error else result


_READ: Final[Mapping[Format, Callable[[Sequence[JsonObject]], _Read]]] = {
    Format.MCP: _read_mcp,
    Format.ANTHROPIC: _read_anthropic,
    Format.OPENAI: _read_openai,
    Format.OPENAI_RESPONSES: _read_responses,
    Format.GEMINI: _read_gemini,
}
