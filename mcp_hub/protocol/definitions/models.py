"""Definitions as the strictest clients read them: one that decodes into these does not break a list.

Values are thrown away and unknown members never looked at: decoding gives the verdict and its reason in one pass.
Source: the schemas of the TypeScript SDKs 1 and 2 and of the Python SDKs 1 and 2, which `rigs.clients.definitions`
plays against these models.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mcp_hub.protocol.skills import SkillEntry
from mcp_hub.types import Kind, RawObject

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


class Icon(msgspec.Struct, rename="camel"):
    """An image for a definition."""

    src: str
    mime_type: str | UnsetType = UNSET
    sizes: list[str] | UnsetType = UNSET
    theme: Theme | UnsetType = UNSET


class ListedDefinition(msgspec.Struct, kw_only=True, rename="camel"):
    """The members that all kinds have."""

    name: str
    title: str | UnsetType = UNSET
    description: str | UnsetType = UNSET
    icons: list[Icon] | UnsetType = UNSET
    meta: RawObject | UnsetType = msgspec.field(name="_meta", default=UNSET)


class _Property(msgspec.Struct):
    """The schema of an argument: an object with whatever members."""


class _InputSchema(msgspec.Struct):
    type: Literal["object"]
    properties: dict[str, _Property] | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET
    dialect: str | UnsetType = msgspec.field(name="$schema", default=UNSET)


class _OutputSchema(msgspec.Struct):
    """Of any type: the modern era has others than objects."""

    properties: dict[str, _Property] | UnsetType = UNSET
    required: list[str] | UnsetType = UNSET
    dialect: str | UnsetType = msgspec.field(name="$schema", default=UNSET)


class ToolHints(msgspec.Struct, rename="camel"):
    """The annotations of a tool."""

    title: str | UnsetType = UNSET
    read_only_hint: bool | UnsetType = UNSET
    destructive_hint: bool | UnsetType = UNSET
    idempotent_hint: bool | UnsetType = UNSET
    open_world_hint: bool | UnsetType = UNSET


class ListedTool(ListedDefinition, kw_only=True, rename="camel"):
    """A tool."""

    input_schema: _InputSchema
    output_schema: _OutputSchema | UnsetType = UNSET
    annotations: ToolHints | UnsetType = UNSET
    execution: RawObject | UnsetType = UNSET


class _Annotations(msgspec.Struct, rename="camel"):
    audience: Audience | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    last_modified: Timestamp | UnsetType = UNSET


class _Resource(ListedDefinition, kw_only=True, rename="camel"):
    uri: str
    mime_type: str | UnsetType = UNSET
    size: Size | UnsetType = UNSET
    annotations: _Annotations | UnsetType = UNSET


class _Template(ListedDefinition, kw_only=True, rename="camel"):
    uri_template: str
    mime_type: str | UnsetType = UNSET
    annotations: _Annotations | UnsetType = UNSET


class _Argument(msgspec.Struct):
    name: str
    title: str | None | UnsetType = UNSET
    description: str | UnsetType = UNSET
    required: bool | UnsetType = UNSET


class _Prompt(ListedDefinition, kw_only=True, rename="camel"):
    arguments: list[_Argument] | UnsetType = UNSET


CHECKS: Final[Mapping[Kind, Callable[[bytes], ListedDefinition | SkillEntry]]] = {
    Kind.TOOL: msgspec.json.Decoder(ListedTool).decode,
    Kind.RESOURCE: msgspec.json.Decoder(_Resource).decode,
    Kind.TEMPLATE: msgspec.json.Decoder(_Template).decode,
    Kind.PROMPT: msgspec.json.Decoder(_Prompt).decode,
    Kind.SKILL: msgspec.json.Decoder(SkillEntry).decode,
}
"""Decode a definition of each kind. Raise: `msgspec.DecodeError` with the reason why a client would refuse it."""
