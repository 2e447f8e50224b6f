"""The content of a result as texts and as media that a provider takes; all other media become text.

What a provider refuses stays in the conversation, and so each later request fails, too.
"""

import json
import mimetypes
from binascii import Error, a2b_base64
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

import msgspec

from mcp_hub.formats.records import McpResult
from mcp_hub.types import JsonObject

PICTURES: Final = frozenset(("image/png", "image/jpeg", "image/webp", "image/gif"))
_PDF: Final = "application/pdf"
_OFFICE: Final = {
    "application/msword": ".doc",
    "application/rtf": ".rtf",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
}
_AUDIO: Final = tuple(f"audio/{kind}" for kind in "wav mpeg aiff aac ogg flac m4a opus webm".split())
_FILMS: Final = tuple(f"video/{kind}" for kind in "mp4 mpeg webm 3gpp".split())
_ENDINGS: Final = {_PDF: ".pdf", **_OFFICE}

TAKEN: Final[Mapping[str, frozenset[str]]] = {
    # platform.claude.com, "Handle tool calls" and "Vision", 2026-11-29; with is_error texts alone, none of them blank
    "anthropic": PICTURES | {_PDF},
    # developers.openai.com, "Images and vision", "File inputs"; openai 3.57.0, `InputAudio.format`, 2026-11-29. They
    # are in a message by the user: the content of a tool message is text
    "openai": PICTURES | {_PDF, "audio/wav", "audio/mpeg"},
    # developers.openai.com, "File inputs", "Accepted file types", 2026-11-29; an output has no audio
    "openai-responses": PICTURES | {_PDF, *_OFFICE},
    # google-genai 3.6.1, `FunctionResponseBlob` ("text should not be sent as raw bytes"), 2026-11-29; the API refuses
    # audio and video there (googleapis/java-genai#884, google-gemini/gemini-cli#16995)
    "gemini": PICTURES | {_PDF},
    # google-genai 3.6.1, `FunctionResultSubcontent` and the types of media there, 2026-11-29
    "gemini-interactions": PICTURES | {_PDF, *_OFFICE, *_AUDIO, *_FILMS} - {"application/rtf"},
    "mcp": frozenset(),  # the result itself
}
"""Types of media that a result can have, by format. Texts are taken everywhere."""

_MOST_PIXELS: Final = {"anthropic": 8000}
_MOST_BASE64: Final = {"anthropic": 5 << 20}
"""Width and height of a picture ("Vision", "General limits"), and characters of its data (the API's own words: "image
exceeds 5 MB maximum"), 2026-11-29. Elsewhere the whole request is bounded."""

_IN_CONTENT: Final = "[in the content of the result]"
SILENT: Final = "The tool failed and gave no reason."
"""The text of a failed result without text."""
_LONGEST_NAME: Final = 200
"""Characters of a file's name, its ending among them (a title of Anthropic has at most 500)."""
_MOST_TEXT: Final = 400_000
"""Characters of a decoded file."""
_ALIASES: Final = {
    "image/jpg": "image/jpeg",
    "image/pjpeg": "image/jpeg",
    "image/x-png": "image/png",
    "audio/mp3": "audio/mpeg",
    "audio/x-wav": "audio/wav",
    "audio/wave": "audio/wav",
    "audio/vnd.wave": "audio/wav",
    "application/x-pdf": _PDF,
    "text/rtf": "application/rtf",
}
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", _PDF),
)
_SIGNED: Final = PICTURES | {_PDF}
"""Types whose data a provider looks at: it refuses those of another one."""
_UNKNOWN: Final = frozenset(("", "application/octet-stream", "binary/octet-stream"))
_TEXTS: Final = frozenset(
    (
        *("application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml"),
        *("application/javascript", "application/x-javascript", "application/typescript", "application/sql"),
        *("application/x-sh", "application/x-ndjson", "application/graphql", "application/x-httpd-php"),
    )
)
_STANDARD: Final = str.maketrans("-_", "+/")
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Markers of a JPEG that say its size."""


class MediaPart(NamedTuple):
    """Base64 data; `name` is the file's, or derived from the type."""

    kind: Literal["image", "audio", "video", "file"]
    media_type: str
    data: str
    name: str


ResultPart: TypeAlias = str | MediaPart


def parts_of(result: McpResult, into: str) -> list[ResultPart]:
    """The content of a result in order, with media that the format takes; no text is blank.

    A structured result that the text lacks is last. A failed result has a text.
    """
    parts = [part for block in _blocks(result) if not _is_blank(part := _part(block, into))]
    structured = _structure(result)
    if structured is not None and not _is_repeated(structured, [part for part in parts if isinstance(part, str)]):
        parts.append(_json_text(structured))
    if result.get("isError") and not any(isinstance(part, str) for part in parts):
        parts.insert(0, SILENT)
    return [_sound(part) if isinstance(part, str) else part for part in parts]


def _blocks(result: McpResult) -> list[object]:
    """The content, also of servers that send one block, a text, or the member of MCP's first version."""
    content = result.get("content")
    if content is None and result.get("structuredContent") is None:
        content = result.get("toolResult")
    return content if isinstance(content, list) else [] if content is None else [content]


def _json_text(value: object) -> str:
    """The value as JSON; a sentence for one that has too many levels."""
    try:
        return msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # half a character, which ASCII can say
        return json.dumps(value)
    except RecursionError:
        return "[a structure with too many levels]"


def sole_structure(result: McpResult, parts: Iterable[ResultPart]) -> object | None:
    """The structured result of a success, if it holds all texts among the parts: then it can stand for them.

    A text counts as held if it is the value, a member of it or one of theirs, as a text or as JSON.
    """
    structured = _structure(result)
    if structured is None or result.get("isError") or (whole := _canonical(structured)) is None:
        return None
    members = [inner for value in _inner(structured) for inner in (value, *_inner(value))]
    values = {whole, *map(_canonical, members)}
    texts = (part for part in parts if isinstance(part, str))
    return structured if all(_canonical(text) in values or _read_canonical(text) in values for text in texts) else None


def _structure(result: McpResult) -> object:
    """The structured result, without the data of media that the content has; they may be megabytes."""
    blocks = [block for block in _blocks(result) if isinstance(block, dict)]
    resources = [resource for block in blocks if isinstance(resource := block.get("resource"), dict)]
    data = [*(block.get("data") for block in blocks), *(resource.get("blob") for resource in resources)]
    structured: object = result.get("structuredContent")
    try:
        return _without(structured, {encoded for encoded in data if isinstance(encoded, str) and encoded})
    except RecursionError:
        return structured


def _without(value: object, data: Collection[str]) -> object:
    if isinstance(value, dict) and data:
        return {name: _without(member, data) for name, member in value.items()}
    if isinstance(value, list) and data:
        return [_without(item, data) for item in value]
    return _IN_CONTENT if isinstance(value, str) and value in data else value


def _inner(value: object) -> Iterable[object]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _canonical(value: object) -> bytes | None:
    """The value as JSON with its keys in order, a text without space around it; None if it cannot be sent.

    A value with half characters or too many levels cannot.
    """
    try:
        return msgspec.json.encode(value.strip() if isinstance(value, str) else value, order="sorted")
    except (UnicodeEncodeError, RecursionError):
        return None


def _read_canonical(text: str) -> bytes:
    try:
        return _canonical(msgspec.json.decode(text)) or b""
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return b""


def _sound(text: str) -> str:
    """Without half characters, which no request can have."""
    return text.encode("utf-8", "replace").decode()


def _is_blank(part: ResultPart) -> bool:
    return isinstance(part, str) and not part.strip()


def _is_repeated(structured: object, texts: Sequence[str]) -> bool:
    """Whether a text says all, or the only member is one of them or their list."""
    if any(_says(text, structured) for text in texts):
        return True
    if not isinstance(structured, dict) or len(structured) != 1:
        return False
    (member,) = structured.values()
    items = member if isinstance(member, list) else []
    return any(_says(text, member) for text in texts) or (
        0 < len(items) == len(texts) and all(map(_says, texts, items))
    )


def _says(text: str, structured: object) -> bool:
    """Whether the text is the value, or its JSON."""
    if isinstance(structured, str):
        return text.strip() == structured.strip()
    if isinstance(structured, dict | list) and not text.lstrip().startswith(("{", "[")):
        return False
    try:
        return bool(msgspec.json.decode(text) == structured)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def _part(block: object, into: str) -> ResultPart:
    if not isinstance(block, dict):
        return block if isinstance(block, str) else "" if block is None else _json_text(block)
    match block.get("type"):
        case "text":
            text = block.get("text")
            return text if isinstance(text, str) else "" if text is None else _json_text(text)
        case "image" | "audio" as kind:
            return _read_media(kind, block.get("mimeType"), block.get("data"), kind, "", into)
        case "resource":
            resource = block.get("resource")
            return _resource(resource if isinstance(resource, dict) else {}, into)
        case "resource_link":
            label = block.get("description") or block.get("title")
            return f"{block.get('name', 'resource')}: {block.get('uri')}" + (f" ({label})" if label else "")
        case _:
            return _json_text(block)


def _resource(resource: JsonObject, into: str) -> ResultPart:
    uri = str(resource.get("uri") or "")
    if isinstance(resource.get("text"), str):
        return f"{uri}\n{resource['text']}" if uri else str(resource["text"])
    name = unquote(uri.partition("?")[0].rstrip("/").rpartition("/")[2])
    name = "".join(filter(str.isprintable, name))[-_LONGEST_NAME:] or "file"
    return _read_media("file", resource.get("mimeType"), resource.get("blob"), name, uri, into)


def _read_media(kind: str, declared: object, encoded: object, name: str, uri: str, into: str) -> ResultPart:
    declared = declared if isinstance(declared, str) else ""
    main, _, options = declared.partition(";")
    media_type = _ALIASES.get(main.strip().lower(), main.strip().lower())
    encoded, data = _decoded(encoded if isinstance(encoded, str) else "")
    if not data:
        reason = "without data" if data is not None else "whose data are not base64"
        return f"[{name}: {media_type or kind}, {reason}]"
    media_type = _type_of(data, media_type, kind, name)
    if media_type in _SIGNED and not _is_signed(data, media_type):
        return _text(data, "", options) or f"[{name}: {media_type}, whose data are something else]"
    if media_type not in TAKEN[into]:
        text = _text(data, media_type, options)
        if text is not None:
            return f"{uri}\n{text}" if uri else text
        return f"[{name}: {media_type}, about {len(data)} bytes, which this format cannot carry]"
    main = media_type.partition("/")[0]
    width, height = _pixels(data) if main == "image" and into in _MOST_PIXELS else (0, 0)
    if max(width, height) > _MOST_PIXELS.get(into, width + height):
        return f"[{name}: {media_type}, {width} × {height} pixels, and the most are {_MOST_PIXELS[into]}]"
    if main == "image" and len(encoded) > _MOST_BASE64.get(into, len(encoded)):
        return f"[{name}: {media_type}, about {len(data)} bytes, which are too many]"
    return MediaPart(
        kind="image" if main == "image" else "audio" if main == "audio" else "video" if main == "video" else "file",
        media_type=media_type,
        data=encoded,
        name=name,
    )


def _decoded(encoded: str) -> tuple[str, bytes | None]:
    """Base64 in the standard alphabet without spaces, and its bytes; None: it is something else."""
    if encoded.startswith("data:"):
        encoded = encoded.partition(",")[2]
    encoded = "".join(encoded.split()).translate(_STANDARD)
    encoded += "=" * (-len(encoded) % 4)
    try:
        return encoded, a2b_base64(encoded, strict_mode=True)
    except (Error, ValueError):
        return encoded, None


def _type_of(data: bytes, media_type: str, kind: str, name: str) -> str:
    """The type by the data where they tell, because a provider compares the two; else as declared."""
    if media_type in _UNKNOWN or media_type in PICTURES or media_type.endswith("/unknown"):
        for signature, actual in _SIGNATURES:
            if data.startswith(signature):
                return actual
        if data.startswith(b"RIFF") and data[8:12] in (b"WEBP", b"WAVE"):
            return "image/webp" if data[8:12] == b"WEBP" else "audio/wav"
    if media_type not in _UNKNOWN:
        return media_type
    guessed = mimetypes.guess_type(name)[0]
    return guessed or (f"{kind}/unknown" if kind != "file" else "application/octet-stream")


def _is_signed(data: bytes, media_type: str) -> bool:
    if media_type == "image/webp":
        return data.startswith(b"RIFF") and data[8:12] == b"WEBP"
    if media_type == _PDF:
        return b"%PDF-" in data[:1024]
    return any(data.startswith(signature) for signature, actual in _SIGNATURES if actual == media_type)


def _pixels(data: bytes) -> tuple[int, int]:
    """Width and height of a picture; zeros where its head does not say."""
    if data.startswith(b"\x89PNG"):
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if data.startswith(b"GIF8"):
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    if data[12:16] == b"VP8X":
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if data[12:16] == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if data[12:16] == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return _jpeg_pixels(data) if data.startswith(b"\xff\xd8") else (0, 0)


def _jpeg_pixels(data: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 < len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker in _FRAMES:
            return int.from_bytes(data[at + 7 : at + 9], "big"), int.from_bytes(data[at + 5 : at + 7], "big")
        at += 1 if marker == 0xFF else 2 + max(int.from_bytes(data[at + 2 : at + 4], "big"), 2)
    return 0, 0


def _text(data: bytes, media_type: str, options: str) -> str | None:
    """The text, if type or data say that it is one."""
    is_text = media_type.startswith("text/") or media_type.endswith(("+json", "+xml")) or media_type in _TEXTS
    if not is_text and media_type not in _UNKNOWN:
        return None
    charset = next(
        (option.partition("=")[2] for option in options.split(";") if option.strip().startswith("charset=")), ""
    )
    try:
        text = data.decode(charset.strip().strip("\"'") or "utf-8-sig")
    except (LookupError, ValueError):
        return None
    is_long = len(text) > _MOST_TEXT
    return None if is_long or "\0" in text or not text.strip() else text


def text_of(parts: Iterable[ResultPart]) -> str:
    """The texts, one a line."""
    return "\n".join(part for part in parts if isinstance(part, str))


def block_of(media_type: str, data: str, uri: str | None = None) -> JsonObject:
    """An MCP block for base64 data."""
    kind = media_type.partition("/")[0]
    if kind in ("image", "audio"):
        return {"type": kind, "mimeType": media_type, "data": data}
    resource: JsonObject = {"uri": f"file:///{uri or 'file'}", "mimeType": media_type, "blob": data}
    return {"type": "resource", "resource": resource}


def data_url(part: MediaPart) -> str:
    return f"data:{part.media_type};base64,{part.data}"


def file_name(part: MediaPart) -> str:
    """The name with the ending of its type, by which a provider may judge."""
    ending = _ENDINGS.get(part.media_type, "")
    return part.name if part.name.lower().endswith(ending) else part.name + ending


def read_result(content: list[JsonObject], is_error: object) -> McpResult:
    return {"content": content, **({"isError": True} if is_error else {})}
