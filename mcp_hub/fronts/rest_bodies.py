"""What goes over the REST front as JSON: bodies of requests and answers. The OpenAPI document is made of these.

Members that may be anything stay encoded and are spliced.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

__all__ = [
    "CallAnswer",
    "CallBody",
    "ErrorBody",
    "EventPage",
    "ExecutorBody",
    "ExecutorEpoch",
    "FlagInfo",
    "InputBody",
    "LastReload",
    "OfferPage",
    "PostAnswer",
    "PostBody",
    "ProblemBody",
    "QuestionInfo",
    "ReloadAnswer",
    "RestartAnswer",
    "ServerInfo",
    "ServerList",
    "StreamInfo",
    "StreamList",
    "ToolList",
    "UnapprovedInfo",
]

JsonObjectText = Annotated[Raw, Meta(extra_json_schema={"type": "object"})]
"""An encoded object; that it is one is for the reader to check."""

Status = Literal["working", "input_required", "completed", "failed", "cancelled"]


class ToolList(Struct):
    """Every tool that the caller may use, as MCP defines it, under the name to call it by."""

    tools: list[JsonObjectText]


class CallBody(Struct, forbid_unknown_fields=True):
    """A call. `tools` restricts it to a selection of tools: a call of any other one is refused as unknown."""

    arguments: JsonObjectText | UnsetType = UNSET
    meta: JsonObjectText | UnsetType = msgspec.field(name="_meta", default=UNSET)
    tools: list[str] | UnsetType = UNSET


class CallAnswer(Struct):
    """A call that has ended; a result with `isError` is the tool's own error."""

    stream: str
    status: Status
    result: JsonObjectText


class QuestionInfo(Struct):
    """What the tool wants to know before it goes on; the answer goes to `/v1/streams/{id}/input`."""

    key: str
    method: str
    params: JsonObjectText


class StreamInfo(Struct, omit_defaults=True):
    """A stream. `first` and `last` number the events that are kept; `message` is the last of its progress.

    `name` is what was called, `tool` what its server calls it. `questions` are those that are open; `result`, `error`
    (data of the `error` event) or `reason` say how it ended. `durable` is false while it is in memory only, or absent.
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


class StreamList(Struct):
    """The caller's streams, the newest first."""

    streams: list[StreamInfo]


class EventPage(Struct):
    """Events behind a cursor; to be asked for again from `cursor` on until it is `closed`.

    `durable` is false while the stream is in memory only, or absent.
    """

    events: list[JsonObjectText]
    cursor: int
    closed: bool
    durable: bool | UnsetType = UNSET


class ErrorBody(Struct):
    """A JSON-RPC error that stands for an answer."""

    code: int
    message: str


class InputBody(Struct, forbid_unknown_fields=True):
    """The answer to the question `key`: the `result`, an `error`, or for an elicitation `action` and `content`."""

    key: str
    action: Literal["accept", "decline", "cancel"] | UnsetType = UNSET
    content: JsonObjectText | UnsetType = UNSET
    result: JsonObjectText | UnsetType = UNSET
    error: ErrorBody | UnsetType = UNSET


class ExecutorBody(Struct, forbid_unknown_fields=True):
    """The tools that a worker executes, as MCP defines them; `lease` in seconds, or as `60s`."""

    tools: list[JsonObjectText]
    lease: Annotated[str, Meta(pattern=r"^[0-9]{1,6}s$")] | int | float = 60.0


class ExecutorEpoch(Struct):
    """The number of the registration, to be sent with whatever the worker does under it."""

    epoch: int


class OfferPage(Struct):
    """What a worker has to do: each has a `type` (call, cancel, input) and a `tool_call_id`. Given out once."""

    offers: list[JsonObjectText]


class PostBody(Struct, forbid_unknown_fields=True):
    """What a worker says of a call. `content` is short for one text delta; `result` and `error` go with `complete`."""

    tool_call_id: str
    events: list[JsonObjectText] = []
    content: str | None = None
    complete: bool = False
    result: JsonObjectText | UnsetType = UNSET
    error: JsonObjectText | UnsetType = UNSET


class PostAnswer(Struct):
    """At most `credit` more events may be posted before the next answer; 0: wait."""

    credit: int


class UnapprovedInfo(Struct):
    """A tool that is not what was approved: `kind` is changed, new or unreadable; nobody can call one that is `held`.

    `members` are those of its definition that differ. `mcp-hub approve` shows and approves it.
    """

    tool: str
    kind: str
    members: list[str]
    held: bool


class FlagInfo(Struct):
    """Something in a tool's definition that a person should look at; `where` is its path there."""

    tool: str
    kind: str
    where: str
    why: str


class ServerInfo(Struct, omit_defaults=True):
    """A server now. `reason` says why it is not ready, `rests` that it is stopped until it is needed.

    A server that is ready has a `reason` where processes of its own for single sessions have failed.
    `restarts` count since it was put up. `era` and `version` are of the protocol, `software` is what it calls itself.
    `listed` is when its lists were read last, `age` the seconds since, `entries` how many of each kind it listed.
    `warnings` say what is missing from them; `stderr` are its last lines there, the newest last.
    """

    server: str
    state: Literal["starting", "ready", "backing_off", "failed", "draining", "stopped", "disabled", "incompatible"]
    restarts: int
    reason: str | UnsetType = UNSET
    era: Literal["handshake", "modern"] | UnsetType = UNSET
    version: str | UnsetType = UNSET
    software: str | UnsetType = UNSET
    pid: int | UnsetType = UNSET
    rests: bool = False
    listed: str | UnsetType = UNSET
    age: float | UnsetType = UNSET
    entries: dict[str, int] = {}
    warnings: list[str] = []
    unapproved: list[UnapprovedInfo] = []
    flags: list[FlagInfo] = []
    stderr: list[str] = []


class ServerList(Struct):
    """The servers that the caller may use, in the order of the configuration."""

    servers: list[ServerInfo]


class LastReload(Struct):
    """What came of the last reload; `findings` are what is wrong with a file that was not `applied`."""

    trigger: str
    at: str
    applied: bool
    findings: list[str]


class RestartAnswer(Struct):
    """The server that is being started again; `GET /v1/tools` shows its tools meanwhile, and calls wait for it."""

    server: str


class ReloadAnswer(Struct):
    """What a reload did with the servers, by name, and keys of the file with dots: what holds from now on (`settings`)
    and what only from the next start of the hub on (`next_start`).

    `restarted` servers run otherwise now, of `adjusted` ones only rules and limits changed; `revived` ones had failed.
    """

    added: list[str]
    removed: list[str]
    restarted: list[str]
    adjusted: list[str]
    revived: list[str]
    kept: list[str]
    settings: list[str]
    next_start: list[str]


class ProblemBody(Struct):
    """An error (RFC 9457). `code` is for programs; further members depend on it."""

    title: str
    status: int
    code: str
    detail: str
