"""Calls over REST."""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from mcp_hub.types import JsonObject, Status

JsonObjectText = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""An encoded object; that it is one is for the reader to check."""


class ToolList(Struct):
    """The caller's tools as MCP defines them, named as to be called."""

    tools: list[JsonObjectText]


class CallBody(Struct, forbid_unknown_fields=True):
    """A call. With `tools`, any other tool is refused as unknown."""

    arguments: JsonObjectText | UnsetType = UNSET
    meta: JsonObjectText | UnsetType = msgspec.field(name="_meta", default=UNSET)
    tools: list[str] | UnsetType = UNSET


class PromptBody(Struct, forbid_unknown_fields=True):
    """Gets a prompt."""

    arguments: JsonObjectText | UnsetType = UNSET
    meta: JsonObjectText | UnsetType = msgspec.field(name="_meta", default=UNSET)


class ReadBody(Struct, forbid_unknown_fields=True):
    """Reads a resource by a listed URI, or one of a template."""

    uri: str
    meta: JsonObjectText | UnsetType = msgspec.field(name="_meta", default=UNSET)


class CallAnswer(Struct):
    """An ended call; a result with `isError` is the tool's error."""

    stream: str
    status: Status
    result: JsonObjectText


class ModelCallState(Struct, omit_defaults=True):
    """A call in a provider's format. A `refused` one was not made and has no stream.

    `problem` is the error of a single call.
    """

    id: str
    name: str
    status: Status | Literal["refused"]
    stream: str | UnsetType = UNSET
    problem: JsonObjectText | UnsetType = UNSET


class CallsAnswer(Struct):
    """Calls of a request in a provider's format, in order.

    `messages` return the ended calls to the model, as messages, items or contents.
    """

    messages: list[JsonObject]
    calls: list[ModelCallState]

    @property
    def is_done(self) -> bool:
        return all(call.status not in ("working", "input_required") for call in self.calls)


class PromptedSection(Struct):
    """The part of a prompt that describes tools to models that call by text."""

    format: str
    section: str


class PromptedBody(Struct, forbid_unknown_fields=True):
    """Text written by a model, and nothing else."""

    text: str


class PromptedAnswer(CallsAnswer):
    """Events in a model's text; `messages` are result texts."""

    events: list[JsonObject]
