"""What the REST front of a hub is told and says: calls, answers, what is known of a stream, problems. No I/O.

Source: streams.md §2, "REST"; RFC 9457 for problems.
"""

from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from mcp_hub.client.messages import refusal
from mcp_hub.errors import (
    Busy,
    ConfigError,
    EventsGone,
    HubError,
    InvalidParams,
    UnknownEntry,
    UnknownStream,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.protocol import envelope
from mcp_hub.protocol.envelope import Envelope, Unset, object_bytes
from mcp_hub.protocol.rpc_errors import from_wire
from mcp_hub.protocol.stream_errors import error_of
from mcp_hub.types import Era, JsonObject, RawJson, UpstreamState

__all__ = [
    "Problem",
    "Question",
    "ServerStatus",
    "StreamStatus",
    "answer_body",
    "call_body",
    "error_for",
    "owners_of",
    "problem_of",
    "rest_url",
    "servers_of",
    "status_of",
    "statuses_of",
]

_REASON: Final = 500
"""Characters of a foreign text that go into a message."""
_REFUSED: Final = (401, 403, 421)
_TOO_MANY: Final = 429

_T = TypeVar("_T")


def rest_url(endpoint: str, *segments: str) -> str:
    """An address under `/v1`, which lies beside the MCP endpoint; each segment may hold anything."""
    parts = urlsplit(endpoint)
    folder = parts.path.rpartition("/")[0]
    path = "/".join([folder, "v1", *(quote(segment, safe="") for segment in segments)])
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


class Question(Struct):
    """What a tool wants to know before it goes on."""

    key: str
    method: str
    params: Raw


class StreamStatus(Struct):
    """What is known of a stream. Times are ISO 8601; `first` and `last` number the events that are kept.

    `name` is what was called, `tool` what its server calls it, `message` the last of its progress. `result`, `error`
    (data of the `error` event) or `reason` say how it ended, where they are asked for (`HubClient.status`).
    """

    stream: str
    status: str
    name: str = ""
    server: str = ""
    created: str = ""
    updated: str = ""
    first: int = 1
    last: int = 0
    tool: str | UnsetType = UNSET
    expires: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    questions: list[Question] | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET
    reason: str | UnsetType = UNSET

    @property
    def has_ended(self) -> bool:
        return self.status not in ("working", "input_required")


class ServerStatus(Struct):
    """How a server of a running hub is: `ServerInfo` of its OpenAPI document, as far as people look at it.

    `entries` are how many of each kind it listed, `listed` (ISO 8601) when. `software` is what it calls itself.
    """

    server: str
    state: UpstreamState
    restarts: int = 0
    reason: str | None = None
    era: Era | None = None
    version: str | None = None
    software: str | None = None
    pid: int | None = None
    rests: bool = False
    listed: str | None = None
    entries: dict[str, int] = {}
    warnings: tuple[str, ...] = ()
    unapproved: list[JsonObject] = []
    flags: list[JsonObject] = []
    stderr: tuple[str, ...] = ()


class _List(Struct):
    streams: list[StreamStatus]


class _Servers(Struct):
    servers: list[ServerStatus]


class _Owned(Struct):
    name: str
    server: str


class _Account(Struct):
    tools: list[_Owned]


def status_of(url: str, body: bytes) -> StreamStatus:
    """Raises `UpstreamLost`."""
    return _read(url, body, StreamStatus)


def statuses_of(url: str, body: bytes) -> list[StreamStatus]:
    """Raises `UpstreamLost`."""
    return _read(url, body, _List).streams


def servers_of(url: str, body: bytes) -> list[ServerStatus]:
    """Raises `UpstreamLost`."""
    return _read(url, body, _Servers).servers


def owners_of(url: str, body: bytes) -> dict[str, str]:
    """The server of each tool, of what the tools cost. Raises `UpstreamLost`."""
    return {tool.name: tool.server for tool in _read(url, body, _Account).tools}


def _read(url: str, body: bytes, shape: type[_T]) -> _T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UpstreamLost(f"{url} answered with something that cannot be read: {exc}") from None


def call_body(arguments: RawJson) -> bytes:
    return object_bytes({"arguments": Raw(bytes(arguments))})


def answer_body(key: str, given: Mapping[str, object]) -> bytes:
    """The answer to a question, of what was given of action, content, result and error."""
    return object_bytes({"key": key, **{name: value for name, value in given.items() if value is not None}})


# -- problems -------------------------------------------------------------------------------------------------------


class Problem(Struct, rename={"group": "class"}):
    """The members that a client looks at; `code` is for programs."""

    code: str
    status: int = 500
    detail: str = ""
    group: str = ""
    earliest: int = 1
    upstream: JsonObject = {}
    stream: str | None = None
    jsonrpc: Raw | UnsetType = UNSET


def problem_of(body: bytes) -> Problem | None:
    """The problem that a body tells of, None if it is none."""
    try:
        return msgspec.json.decode(body, type=Problem)
    except (msgspec.DecodeError, RecursionError):
        return None


def error_for(url: str, status: int, content_type: str, body: bytes) -> HubError:
    """What an answer means that is none to the request: a `ConfigError`, or the `RpcError` that the hub tells of."""
    problem = problem_of(body)
    if status in _REFUSED:
        reason = _rpc_message(body) if problem is None else problem.detail[:_REASON]
        return refusal(url, status, content_type, reason)
    if problem is None:
        if status >= 500 or status == _TOO_MANY:
            return UpstreamUnavailable(f"{url} answered with HTTP {status}")
        got = content_type or "nothing" if status < 300 else f"HTTP {status}"
        return ConfigError(f"{url} is not of the REST front of a hub: it answered with {got}")
    if problem.jsonrpc is not UNSET:
        try:
            return error_of(problem.code, problem.group, problem.jsonrpc)
        except (msgspec.DecodeError, RecursionError):
            pass
    return _error_named(problem, status)


def _error_named(problem: Problem, status: int) -> HubError:
    match problem.code:
        case "unknown_stream":
            return UnknownStream()
        case "events_gone":
            return EventsGone(problem.earliest)
        case "unknown_tool":
            return UnknownEntry(problem.detail, data={"upstream": problem.upstream} if problem.upstream else None)
        case "busy":
            return Busy(problem.detail)
    said = problem.detail or problem.code
    return UpstreamUnavailable(said) if status >= 500 else InvalidParams(said)


def _rpc_message(body: bytes) -> str:
    """The message of a JSON-RPC error, as the hub's doorkeeper answers; empty if there is none."""
    message = envelope.decode(body)
    if not isinstance(message, Envelope) or message.error is Unset:
        return ""
    return from_wire(message.error).message[:_REASON]
