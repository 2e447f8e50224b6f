"""What the REST front of a hub is told and says: calls, answers, what is known of a stream, problems. No I/O.

Source: streams.md §2, "REST"; RFC 9457 for problems.
"""

from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec
from msgspec import UNSET, Raw

from mcp_hub.client.messages import refusal
from mcp_hub.errors import (
    Busy,
    ConfigError,
    ConfigFinding,
    EventsGone,
    HubError,
    InvalidParams,
    UnknownEntry,
    UnknownStream,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Envelope, Unset, object_bytes
from mcp_hub.protocol.rest.problems import RestProblem
from mcp_hub.protocol.rest.servers import ReloadAnswer, ServerInfo, ServerList
from mcp_hub.protocol.rest.streams import StreamList, StreamStatus
from mcp_hub.protocol.rest.tokens import TokenAccount
from mcp_hub.protocol.rpc_errors import from_wire
from mcp_hub.protocol.shape.stream_errors import error_of
from mcp_hub.types import RawJson

__all__ = [
    "answer_body",
    "call_body",
    "error_for",
    "owners_of",
    "problem_of",
    "reload_of",
    "rest_url",
    "servers_of",
    "status_of",
    "stream_of",
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


class _Named(msgspec.Struct):
    stream: str


def stream_of(url: str, body: bytes) -> str:
    """The stream of a call, whether it has ended (`CallAnswer`) or not (`StreamStatus`). Raises `UpstreamLost`."""
    return _read(url, body, _Named).stream


def status_of(url: str, body: bytes) -> StreamStatus:
    """Raises `UpstreamLost`."""
    return _read(url, body, StreamStatus)


def statuses_of(url: str, body: bytes) -> list[StreamStatus]:
    """Raises `UpstreamLost`."""
    return _read(url, body, StreamList).streams


def servers_of(url: str, body: bytes) -> list[ServerInfo]:
    """Raises `UpstreamLost`."""
    return _read(url, body, ServerList).servers


def reload_of(url: str, body: bytes) -> ReloadAnswer:
    """Raises `UpstreamLost`."""
    return _read(url, body, ReloadAnswer)


def owners_of(url: str, body: bytes) -> dict[str, str]:
    """The server of each tool, of what the tools cost. Raises `UpstreamLost`."""
    return {tool.name: tool.server for tool in _read(url, body, TokenAccount).tools}


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


def problem_of(body: bytes) -> RestProblem | None:
    """The problem that a body tells of, None if it is none."""
    try:
        return msgspec.json.decode(body, type=RestProblem)
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
        said = f"{url} is not of the REST front of a hub: it answered with {got}"
        return ConfigError(ConfigFinding("not_a_hub", said))
    if problem.jsonrpc is not UNSET:
        try:
            return error_of(problem.code, problem.group, problem.jsonrpc)
        except (msgspec.DecodeError, RecursionError):
            pass
    return _error_named(problem, status)


def _error_named(problem: RestProblem, status: int) -> HubError:
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
