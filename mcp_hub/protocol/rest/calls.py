"""Calls with their durable streams, lists, tool search, tools executed by clients, and errors (RFC 9457), over REST."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from mcp_hub.types import JsonObject, Status

JsonObjectText = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "object"})]
"""An encoded object; that it is one is for the reader to check."""


class ToolList(Struct):
    """The caller's tools as MCP defines them, named as to be called. `starting`: servers whose tools come later."""

    tools: list[JsonObjectText]
    starting: list[str] = []


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


class CodeBody(Struct, forbid_unknown_fields=True):
    """A script over the tools. `again` runs it although the same one runs, or has just ended."""

    code: str
    again: bool = False


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

    `messages` return the ended calls to the model, as messages, items, contents or result texts. `events` are those in
    the text of a model that calls by text.
    """

    messages: list[JsonObject]
    calls: list[ModelCallState]
    events: list[JsonObject] | UnsetType = UNSET

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


class ResourceList(Struct, rename="camel", omit_defaults=True):
    """The caller's resources and templates as MCP defines them."""

    resources: list[JsonObjectText]
    resource_templates: list[JsonObjectText]
    starting: list[str] = []


class PromptList(Struct, omit_defaults=True):
    """The caller's prompts as MCP defines them."""

    prompts: list[JsonObjectText]
    starting: list[str] = []


class SearchBody(Struct, forbid_unknown_fields=True):
    """A search for tools by `query`, or by a model's `call` in the request's format.

    `tools` and `server` restrict it; `limit` is at most 50.
    """

    query: str | None = None
    call: JsonObject | None = None
    tools: list[str] | None = None
    server: str | None = None
    limit: Annotated[int, Meta(ge=1)] = 8
    detail: str = "brief"


class FoundTool(Struct, omit_defaults=True):
    """A match: `name` to call, first line of the `description`, near-duplicates in `also`.

    `parts` add up to `score`; `definition` on request.
    """

    name: str
    server: str
    description: str
    score: float
    parts: Mapping[str, float]
    also: list[str] = []
    definition: JsonObjectText | UnsetType = UNSET


class FoundTools(Struct):
    """Matches, best first. `weak`: none fits well. `starting` servers are missing."""

    query: str
    weak: bool
    hits: list[FoundTool]
    starting: list[str]


class LossInfo(Struct):
    """A part of a schema that a format lacks: its path, its fate, and its text."""

    path: str
    kind: str
    """`described`: a constraint became text. `dropped`: an annotation. `widened`: more is valid. `renamed`: a
    parameter. `not_strict`: the tool is not enforced.
    """
    what: str


class ToolLosses(Struct):
    """Losses of an export by tool; tools without any are omitted."""

    format: str
    losses: Mapping[str, Sequence[LossInfo]]


class ExecutorBody(Struct, forbid_unknown_fields=True):
    """A worker's tools as MCP defines them; `lease` in seconds, or as `60s`."""

    tools: list[JsonObjectText]
    lease: Annotated[str, Meta(pattern=r"^[0-9]{1,6}s$")] | int | float = 60.0


class ExecutorEpoch(Struct):
    """The registration's number, required in the worker's requests."""

    epoch: int


class OfferPage(Struct):
    """Work, each with `type` (call, cancel, input) and `tool_call_id`. Given out once."""

    offers: list[JsonObjectText]


class PostBody(Struct, forbid_unknown_fields=True):
    """A worker's post about a call: `content` for text deltas, `result` or `error` with `complete`."""

    tool_call_id: str
    events: list[JsonObjectText] = []
    content: str | None = None
    complete: bool = False
    result: JsonObjectText | UnsetType = UNSET
    error: JsonObjectText | UnsetType = UNSET


class PostAnswer(Struct):
    """Events allowed before the next answer; 0: wait."""

    credit: int


class ProblemBody(Struct):
    """An error (RFC 9457). `code` is for programs and decides on further members."""

    title: str
    status: int
    code: str
    detail: str


class FailedCall(Struct, omit_defaults=True, rename={"group": "class"}):
    """Data of an `error` event, part of a failed call's problem."""

    code: str
    group: str
    retryable: bool
    detail: str
    jsonrpc: Raw
    outcome: str | None = None


class QuestionInfo(Struct):
    """An open question; answer it at `/v1/streams/{id}/input`."""

    key: str
    method: str
    params: JsonObjectText


class StreamStatus(Struct, frozen=True, omit_defaults=True):
    """A stream. Events `first` to `last` are stored; `message` is the last progress.

    `name` is as called, `tool` the server's name. `questions` are open; `result`, `error` or `reason` is the outcome.
    `durable` is false in memory only, else absent. `waits_for` is set while waiting.
    `script` is that of a run, with secrets masked.
    """

    stream: str
    status: Status
    method: str
    name: str
    server: str
    created: str
    updated: str
    first: int
    last: int
    tool: str | UnsetType = UNSET
    expires: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    questions: list[QuestionInfo] | UnsetType = UNSET
    result: JsonObjectText | UnsetType = UNSET
    error: JsonObjectText | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    durable: bool | UnsetType = UNSET
    waits_for: str | UnsetType = UNSET
    waits_since: str | UnsetType = UNSET
    script: str | UnsetType = UNSET

    @property
    def has_ended(self) -> bool:
        return self.status not in ("working", "input_required")


class RunningCall(Struct, frozen=True):
    """A running call, by its stream's present or future id; `waits_since` in Unix seconds."""

    id: str
    has_stream: bool
    waits_for: str = ""
    waits_since: float = 0.0


class StreamList(Struct, omit_defaults=True):
    """The caller's streams, newest first, and the number of `unstored` calls without one; `waiting` of these wait."""

    streams: list[StreamStatus]
    unstored: int = 0
    waiting: int = 0


class EventList(Struct, omit_defaults=True):
    """Event types as MCP defines them; with a name, events behind a cursor. Ask again from `cursor`.

    `truncated`: some may be missing before these. `starting`: servers whose types come later.
    """

    events: list[JsonObjectText]
    cursor: str | UnsetType = UNSET
    truncated: bool = False
    starting: list[str] = []


class StreamPage(Struct):
    """Events after a cursor. Ask again from `cursor` until `closed`.

    `durable` is false in memory only, else absent.
    """

    events: list[JsonObjectText]
    cursor: int
    closed: bool
    durable: bool | UnsetType = UNSET


class ErrorBody(Struct):
    """A JSON-RPC error as an answer."""

    code: int
    message: str


class InputBody(Struct, forbid_unknown_fields=True):
    """The answer to question `key`: `result`, `error`, or an elicitation's `action` and `content`."""

    key: str
    action: Literal["accept", "decline", "cancel"] | UnsetType = UNSET
    content: JsonObjectText | UnsetType = UNSET
    result: JsonObjectText | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET
