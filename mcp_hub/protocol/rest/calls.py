"""Tools and their calls over REST."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mcp_hub.types import JsonObject, Status

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


class ModelCallState(Struct, omit_defaults=True):
    """One call of a request in a provider's format. `refused`: it was not made, and has no stream.

    `problem` is the document that a call by its name would have been answered with.
    """

    id: str
    name: str
    status: Status | Literal["refused"]
    stream: str | UnsetType = UNSET
    problem: JsonObjectText | UnsetType = UNSET


class CallsAnswer(Struct):
    """The calls of a request in a provider's format, in their order.

    `messages` are what goes back to the model, for the calls that have ended: messages, items or contents.
    """

    messages: list[JsonObject]
    calls: list[ModelCallState]

    @property
    def is_done(self) -> bool:
        return all(call.status not in ("working", "input_required") for call in self.calls)


class PromptedSection(Struct):
    """The part of a prompt that describes tools to models whose calls are text in this format."""

    format: str
    section: str


class PromptedBody(Struct, forbid_unknown_fields=True):
    """The text that a model wrote, without anything that others wrote."""

    text: str


class PromptedAnswer(CallsAnswer):
    """The events of a model's text; `messages` have the text of each result for the model's next turn."""

    events: list[JsonObject]
