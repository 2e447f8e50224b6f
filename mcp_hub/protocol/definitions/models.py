"""Definitions and results as the strictest clients read them; decoding gives the verdict.

Source: schemas of the TypeScript and Python SDKs 1 and 2.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from mcp_hub.protocol.skills import SkillEntry
from mcp_hub.types import MODERN, Era, Kind, RawJson, RawObject

_DAY: Final = (
    r"(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-"
    r"(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8])))"
)
_TIME: Final = r"(?:[01]\d|2[0-3]):[0-5]\d"
Audience = list[Literal["user", "assistant"]]
Priority = Annotated[float, Meta(ge=0, le=1)]
Timestamp = Annotated[str, Meta(pattern=rf"\A{_DAY}T{_TIME}(?::[0-5]\d(?:\.\d+)?)?(?:Z|[+-]{_TIME})\Z")]
"""With its time zone: the TypeScript SDKs refuse others, though ISO 8601 has them."""
Size = Annotated[float, Meta(multiple_of=1, ge=-(2**63), le=2**63)]
Theme = Literal["light", "dark"]
SHORT: Final = 4096
"""Bytes from which a result is long."""
_PORTION: Final = 1 << 16
_DATA: Final = b"data:"
_LONGEST: Final = 8 << 20
"""Bytes of a result that is looked at."""
MOST_COMPLETIONS: Final = 100
"""Values of one completion (specification 2025-11-25, server/utilities/completion)."""


class Icon(msgspec.Struct, rename="camel"):
    """An icon."""

    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: Theme | UnsetType = UNSET


class _ListedDefinition(msgspec.Struct, kw_only=True, rename="camel"):
    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: RawObject | UnsetType = msgspec.field(name="_meta", default=UNSET)


class _Property(msgspec.Struct):
    """The schema of an argument."""


class _InputSchema(msgspec.Struct):
    type: Literal["object"]
    properties: dict[str, _Property] | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET
    dialect: str | UnsetType = msgspec.field(name="$schema", default=UNSET)


class _OutputSchema(msgspec.Struct):
    """Any type: modern schemas need not be objects."""

    properties: dict[str, _Property] | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET
    dialect: str | UnsetType = msgspec.field(name="$schema", default=UNSET)


OUTPUT_SCHEMA: Final = _OutputSchema


class _ToolHints(msgspec.Struct, rename="camel"):
    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


class ListedTool(_ListedDefinition, kw_only=True, rename="camel"):
    """A tool."""

    input_schema: _InputSchema
    output_schema: _OutputSchema | UnsetType = UNSET
    annotations: _ToolHints | UnsetType = UNSET
    execution: RawObject | UnsetType = UNSET


class _Annotations(msgspec.Struct, rename="camel"):
    audience: Audience | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    last_modified: Timestamp | UnsetType = UNSET


class _Resource(_ListedDefinition, kw_only=True, rename="camel"):
    uri: str
    mime_type: str | UnsetType = UNSET
    size: Size | UnsetType = UNSET
    annotations: _Annotations | UnsetType = UNSET


class _Template(_ListedDefinition, kw_only=True, rename="camel"):
    uri_template: str
    mime_type: str | UnsetType = UNSET
    annotations: _Annotations | UnsetType = UNSET


class _Argument(msgspec.Struct):
    name: str
    title: str | None | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class _Prompt(_ListedDefinition, kw_only=True, rename="camel"):
    arguments: list[_Argument] | UnsetType = UNSET


class _Event(_ListedDefinition, kw_only=True, rename="camel"):
    delivery: Annotated[list[Literal["poll", "push", "webhook"]], Meta(min_length=1)]
    input_schema: RawObject | bool
    payload_schema: RawObject | bool


Listed = _ListedDefinition | SkillEntry
CHECKS: Final[Mapping[Kind, Callable[[bytes], Listed]]] = {
    Kind.TOOL: msgspec.json.Decoder(ListedTool).decode,
    Kind.RESOURCE: msgspec.json.Decoder(_Resource).decode,
    Kind.TEMPLATE: msgspec.json.Decoder(_Template).decode,
    Kind.PROMPT: msgspec.json.Decoder(_Prompt).decode,
    Kind.SKILL: msgspec.json.Decoder(SkillEntry).decode,
    Kind.EVENT: msgspec.json.Decoder(_Event).decode,
}
"""Decode a definition of each kind. Raise: `msgspec.DecodeError` with the reason why a client would refuse it."""


class _Contents(msgspec.Struct, rename="camel"):
    uri: str
    text: Raw | UnsetType = UNSET
    blob: Raw | UnsetType = UNSET
    mime_type: str | UnsetType = UNSET
    meta: _Property | UnsetType = msgspec.field(name="_meta", default=UNSET)

    @property
    def is_readable(self) -> bool:
        return _is_text(self.text) or is_base64(self.blob)


class _Text(msgspec.Struct, kw_only=True, tag_field="type", tag="text"):
    text: Raw
    annotations: _Annotations | UnsetType = UNSET
    meta: _Property | UnsetType = msgspec.field(name="_meta", default=UNSET)

    @property
    def is_readable(self) -> bool:
        return _is_text(self.text)


class _Media(msgspec.Struct, kw_only=True, rename="camel", tag_field="type", tag="image"):
    data: Raw
    mime_type: str
    annotations: _Annotations | UnsetType = UNSET
    meta: _Property | UnsetType = msgspec.field(name="_meta", default=UNSET)

    @property
    def is_readable(self) -> bool:
        return is_base64(self.data)


class _Audio(_Media, tag="audio"):
    pass


class _Link(_Resource, kw_only=True, tag_field="type", tag="resource_link"):
    is_readable = True


class _Embedded(msgspec.Struct, kw_only=True, tag_field="type", tag="resource"):
    resource: _Contents
    annotations: _Annotations | UnsetType = UNSET
    meta: _Property | UnsetType = msgspec.field(name="_meta", default=UNSET)

    @property
    def is_readable(self) -> bool:
        return self.resource.is_readable


_Block = _Text | _Media | _Audio | _Link | _Embedded


class _Result(msgspec.Struct, kw_only=True, rename="camel"):
    result_type: str | UnsetType = UNSET
    meta: _Property | UnsetType = msgspec.field(name="_meta", default=UNSET)

    @property
    def parts(self) -> "Sequence[_Block | _Contents]":
        return ()


class _ModernToolResult(_Result, kw_only=True):
    content: list[_Block]
    is_error: bool | UnsetType = UNSET

    @property
    def parts(self) -> list[_Block]:
        return self.content


class _ToolResult(_ModernToolResult, kw_only=True):
    structured_content: _Property | UnsetType = UNSET


class _ShortText(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["text"]  # as a tag it could be missing
    text: str


class _ShortTexts(msgspec.Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    content: list[_ShortText]
    is_error: bool | UnsetType = UNSET
    result_type: str | UnsetType = UNSET
    structured_content: _Property | UnsetType = UNSET


short_texts: Final = msgspec.json.Decoder(_ShortTexts).decode
"""Decodes a usual tool result without `_meta` in one step."""


class _LongText(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    type: Literal["text"]
    text: Raw  # not made a string, which is a copy


class _LongTexts(msgspec.Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    content: list[_LongText]
    is_error: bool | UnsetType = UNSET
    result_type: Literal["complete"] | UnsetType = UNSET


_decode_long_texts: Final = msgspec.json.Decoder(_LongTexts).decode


def are_long_texts(result: RawJson, era: Era) -> bool:
    """Whether a tool's result is only texts without an error: most long ones, which are then not searched."""
    try:
        texts = _decode_long_texts(result)
    except (msgspec.DecodeError, RecursionError):
        return False
    is_of_era = texts.result_type is UNSET or era is MODERN
    return is_of_era and texts.is_error is not True and all(_is_text(block.text) for block in texts.content)


class _Message(msgspec.Struct):
    role: Literal["user", "assistant"]
    content: _Block


class _PromptResult(_Result, kw_only=True):
    messages: list[_Message]
    description: str | UnsetType = UNSET

    @property
    def parts(self) -> list[_Block]:
        return [message.content for message in self.messages]


class _ResourceResult(_Result, kw_only=True):
    contents: list[_Contents]

    @property
    def parts(self) -> list[_Contents]:
        return self.contents


class _Completion(msgspec.Struct, rename="camel"):
    values: Annotated[list[str], Meta(max_length=MOST_COMPLETIONS)]
    total: Size | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET


class _CompletionResult(_Result, kw_only=True):
    completion: _Completion


def _is_text(raw: Raw | UnsetType) -> bool:
    return raw is not UNSET and bytes(memoryview(raw)[:1]) == b'"'


def is_base64(raw: Raw | UnsetType) -> bool:
    """Whether the text uses the standard base64 alphabet and is not a data URI."""
    if raw is UNSET or not _is_text(raw):
        return False
    text = memoryview(raw)
    for start in range(0, len(text), _PORTION):  # an image has megabytes, which are not copied as a whole
        portion = bytes(text[start : start + _PORTION + len(_DATA) - 1])
        if b"-" in portion or b"_" in portion or _DATA in portion:
            return False
    return True


_RESULTS: Final = {
    "tools/call": msgspec.json.Decoder(_ToolResult).decode,
    "prompts/get": msgspec.json.Decoder(_PromptResult).decode,
    "resources/read": msgspec.json.Decoder(_ResourceResult).decode,
    "completion/complete": msgspec.json.Decoder(_CompletionResult).decode,
}
_MODERN_RESULTS: Final = {**_RESULTS, "tools/call": msgspec.json.Decoder(_ModernToolResult).decode}


def is_readable(method: str, result: RawJson, era: Era) -> bool:
    """Whether every client reads this result; other methods and very long results pass."""
    decode = (_MODERN_RESULTS if era is MODERN else _RESULTS).get(method)
    if decode is None or len(result) > _LONGEST:
        return True
    try:
        for part in decode(result).parts:
            if not part.is_readable:
                return False
    except (msgspec.DecodeError, RecursionError):
        return False
    return True
