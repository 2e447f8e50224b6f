"""Durable streams over REST."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from mcp_hub.protocol.rest.calls import JsonObjectText
from mcp_hub.types import Status


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
