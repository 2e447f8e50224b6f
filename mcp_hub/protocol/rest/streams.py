"""Durable streams over REST: what is known of one, its events, its questions and their answers."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from mcp_hub.protocol.rest.calls import JsonObjectText
from mcp_hub.types import Status


class QuestionInfo(Struct):
    """A question that the tool waits for; the answer goes to `/v1/streams/{id}/input`."""

    key: str
    method: str
    params: JsonObjectText


class StreamStatus(Struct, frozen=True, omit_defaults=True):
    """A stream. `first` and `last` number the events that are kept; `message` is the last of its progress.

    `name` is what was called, `tool` what its server calls it. `questions` are those that are open; `result`, `error`
    (data of the `error` event) or `reason` say how it ended. `durable` is false while it is in memory only, or absent.
    A call that waits here has `waits_for`, such as `slow_tool of Cursor`, and `waits_since`.
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

    @property
    def has_ended(self) -> bool:
        return self.status not in ("working", "input_required")


class RunningCall(Struct, frozen=True):
    """A call that runs here, under the id that its stream has or will have; `waits_since` in Unix seconds."""

    id: str
    has_stream: bool
    waits_for: str = ""
    waits_since: float = 0.0


class StreamList(Struct, omit_defaults=True):
    """The caller's streams, the newest first. `unstored` calls run and are not in the list: they have no stream yet.

    `waiting` of them wait for their turn.
    """

    streams: list[StreamStatus]
    unstored: int = 0
    waiting: int = 0


class StreamPage(Struct):
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
