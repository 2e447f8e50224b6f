"""Tools and their calls over REST."""

from typing import Annotated

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mcp_hub.types import Status

JsonObjectText = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""An encoded object; that it is one is for the reader to check."""


class ToolList(Struct):
    """Every tool that the caller may use, as MCP defines it, under the name to call it by."""

    tools: list[JsonObjectText]


class CallBody(Struct, forbid_unknown_fields=True):
    """A call. `tools` restricts it to a selection of tools: a call of any other one is refused as unknown."""

    arguments: JsonObjectText | UnsetType = UNSET
    meta: JsonObjectText | UnsetType = msgspec.field(name="_meta", default=UNSET)
    tools: list[str] | UnsetType = UNSET


class PromptBody(Struct, forbid_unknown_fields=True):
    """A prompt to be got."""

    arguments: JsonObjectText | UnsetType = UNSET
    meta: JsonObjectText | UnsetType = msgspec.field(name="_meta", default=UNSET)


class ReadBody(Struct, forbid_unknown_fields=True):
    """A resource to be read, by a URI that the list has or that a template admits."""

    uri: str
    meta: JsonObjectText | UnsetType = msgspec.field(name="_meta", default=UNSET)


class CallAnswer(Struct):
    """A call that has ended, of whatever method; a result with `isError` is the tool's own error."""

    stream: str
    status: Status
    result: JsonObjectText
