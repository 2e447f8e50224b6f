"""What providers take in the messages that answer calls, checked without the code that makes them.

Pages, read 2026-11-29: [A] platform.claude.com, "Handle tool calls", "Vision", "PDF support"; the API's own words: "all
content must be type `text` if `is_error` is true", "text content blocks must contain non-whitespace text". [O]
developers.openai.com, "Function calling", "Images and vision", "File inputs"; openai 3.57.0, types of messages. [G]
google-genai 3.6.1, `FunctionResponse`, `FunctionResponseBlob`, and for interactions `FunctionResultStep`; the API's own
words: "Unsupported MIME type: image/svg+xml".
"""

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Any

from mcp_hub.formats.providers import Format

Json = dict[str, Any]

PICTURES = {"image/png", "image/jpeg", "image/gif", "image/webp"}
PDF = "application/pdf"
OFFICE = {"msword", "rtf", "vnd.ms-excel", "vnd.ms-powerpoint", "vnd.oasis.opendocument.text"}
OFFICE |= {f"vnd.openxmlformats-officedocument.{kind}" for kind in ("presentationml.presentation",)}
OFFICE |= {f"vnd.openxmlformats-officedocument.{kind}" for kind in ("spreadsheetml.sheet", "wordprocessingml.document")}
FILES = {PDF, *(f"application/{kind}" for kind in OFFICE)}  # [O] "Accepted file types"
URL_ALPHABET = str.maketrans("-_", "+/")
SIGNATURES = {"image/png": b"\x89PNG", "image/jpeg": b"\xff\xd8\xff", "image/gif": b"GIF8", "image/webp": b"RIFF"}


def broken_result(into: Format, messages: Sequence[Json]) -> list[str]:
    """The rules that the messages break, in words."""
    match into:
        case Format.ANTHROPIC:
            return [fault for message in messages for fault in _anthropic(message)]
        case Format.OPENAI:
            return list(_openai(messages))
        case Format.OPENAI_RESPONSES:
            return [fault for item in messages for fault in _responses(item)]
        case Format.GEMINI:
            return [fault for message in messages for fault in _gemini(message)]
        case Format.GEMINI_INTERACTIONS:
            return [fault for step in messages for fault in _interactions(step)]
        case _:
            return []


def _data(media_type: object, data: object, types: set[str]) -> Iterator[str]:
    if media_type not in types:
        yield f"media of the type {media_type}"
    try:
        raw = base64.b64decode(str(data).translate(URL_ALPHABET), validate=True)  # the SDK of Gemini writes that one
    except binascii.Error:
        yield "data that are not base64"
        return
    if not raw:
        yield "no data"
    for kind, signature in SIGNATURES.items():
        if raw.startswith(signature) and media_type in PICTURES and media_type != kind:
            yield f"{kind} as {media_type}"  # [A] "the image appears to be …": the API compares them


def _data_url(url: object, types: set[str]) -> Iterator[str]:
    head, _, data = str(url).removeprefix("data:").partition(";base64,")
    yield from _data(head, data, types)


def _text(text: object) -> Iterator[str]:
    if not isinstance(text, str) or not text.strip():
        yield "a blank text"


def _anthropic(message: Json) -> Iterator[str]:
    kinds = [block["type"] for block in message["content"]]
    if message["role"] != "user" or not kinds:
        yield "not a message by the user"
    if "tool_result" in kinds[kinds.count("tool_result") :]:
        yield "a result behind other blocks"  # [A] "tool_result blocks come first in the content array"
    for block in message["content"]:
        content = block.get("content", []) if block["type"] == "tool_result" else [block]
        if block.get("is_error") and not content:
            yield "an error without content"
        if block.get("is_error") and any(part["type"] != "text" for part in content):
            yield "media in an error"
        for part in content:
            yield from _anthropic_part(part)


def _anthropic_part(part: Json) -> Iterator[str]:
    match part["type"]:
        case "text":
            yield from _text(part["text"])
        case "image" | "document" as kind:
            types = PICTURES if kind == "image" else {PDF}
            yield from _data(part["source"]["media_type"], part["source"]["data"], types)
            if kind == "image" and len(part["source"]["data"]) > 5_242_880:
                yield "a picture of more than 5 MB"  # [A] "image exceeds 5 MB maximum"
            raw = base64.b64decode(part["source"]["data"] + "==")
            sides = [int.from_bytes(raw[at : at + 4], "big") for at in (16, 20)] if raw.startswith(b"\x89PNG") else []
            if any(side > 8000 for side in sides):
                yield "a picture of more than 8000 pixels"  # [A] "maximal dimensions per image"
        case "tool_reference" | "search_result":
            pass
        case kind:
            yield f"a block {kind}"


def _openai(messages: Sequence[Json]) -> Iterator[str]:
    roles = [message["role"] for message in messages]
    if roles != sorted(roles, key="user".__eq__):
        yield "a message between results"  # [O] each call is answered before another message
    for message in messages:
        if message["role"] == "tool" and not isinstance(message["content"], str):
            yield "a result that is not text"
        for part in message["content"] if message["role"] == "user" else ():
            yield from _openai_part(part)


def _openai_part(part: Json) -> Iterator[str]:
    match part["type"]:
        case "text":
            yield from _text(part["text"])
        case "image_url":
            yield from _data_url(part["image_url"]["url"], PICTURES)
        case "input_audio":
            yield from _data(part["input_audio"]["format"], part["input_audio"]["data"], {"wav", "mp3"})
        case "file":  # [O] "Chat Completions accepts only PDF files"
            yield from _data_url(part["file"]["file_data"], {PDF})
            if not part["file"]["filename"].endswith(".pdf"):
                yield "a file without its ending"
        case kind:
            yield f"a part {kind}"


def _responses(item: Json) -> Iterator[str]:
    output = item["output"]
    if item["type"] != "function_call_output" or not isinstance(output, str | list):
        yield "not an output"
    if isinstance(output, list):
        if not output:
            yield "an empty list"
        for part in output:
            if part["type"] == "input_text":
                yield from _text(part["text"])
            elif part["type"] == "input_image":
                yield from _data_url(part["image_url"], PICTURES)
            elif part["type"] == "input_file":
                yield from _data_url(part["file_data"], FILES)
                if "." not in part["filename"]:
                    yield "a file without its ending"
            else:
                yield f"a part {part['type']}"


def _gemini(message: Json) -> Iterator[str]:
    if message["role"] != "user" or not message["parts"]:
        yield "not a message by the user"
    for part in message["parts"]:
        if part.keys() != {"functionResponse"}:
            yield "a part beside the responses"
            continue
        answer = part["functionResponse"]
        if answer["response"].keys() not in ({"output"}, {"error"}):
            yield "a response without output or error"
        if "error" in answer["response"]:
            yield from _text(answer["response"]["error"])
        for blob in answer.get("parts", ()):
            yield from _data(blob["inlineData"]["mimeType"], blob["inlineData"]["data"], PICTURES | {PDF})


AUDIO = {f"audio/{kind}" for kind in "wav mp3 aiff aac ogg flac mpeg m4a l16 opus alaw mulaw webm".split()}
FILMS = {f"video/{kind}" for kind in "mp4 mpeg mpg mov avi x-flv webm wmv 3gpp".split()}
DOCUMENTS = FILES - {"application/rtf"}  # [G] `DocumentContentMimeType`; besides some that no result here has


def _interactions(step: Json) -> Iterator[str]:
    """[G] `FunctionResultSubcontent`."""
    if step["type"] != "function_result" or not isinstance(step["result"], str | list):
        yield "not a result"
    for part in step["result"] if isinstance(step["result"], list) else ():
        match part["type"]:
            case "text":
                yield from _text(part["text"])
            case "image":
                yield from _data(part["mime_type"], part["data"], PICTURES)
            case "document":
                yield from _data(part["mime_type"], part["data"], DOCUMENTS)
            case "audio" | "video":
                yield from _data(part["mime_type"], part["data"], AUDIO | FILMS)
            case kind:
                yield f"a part {kind}"
