"""URLs and errors (RFC 9457) of a hub's REST front. No I/O."""

import re
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import UNSET

from mcp_hub.errors import (
    Busy,
    ConfigError,
    ConfigFinding,
    EventsGone,
    HubError,
    InvalidParams,
    UnknownEntry,
    UnknownStream,
    UpstreamUnavailable,
)
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Envelope
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.protocol.rest.problems import RestProblem
from mcp_hub.protocol.shape.stream_events import error_of

_REASON: Final = 500
"""Characters of a foreign text that go into a message."""
_REFUSED: Final = (401, 403, 421)
_TOO_MANY: Final = 429
_CODE: Final = re.compile("[a-z][a-z_]{0,63}")


def rest_url(endpoint: str, *segments: str, **params: str) -> str:
    """A URL under `/v1`, beside the MCP endpoint; escapes segments."""
    parts = urlsplit(endpoint)
    folder = parts.path.rpartition("/")[0]
    path = "/".join([folder, "v1", *(quote(segment, safe="") for segment in segments)])
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *params.items()])
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def problem_of(body: bytes) -> RestProblem | None:
    try:
        return msgspec.json.decode(body, type=RestProblem)
    except (msgspec.DecodeError, RecursionError):
        return None


def error_for(url: str, status: int, content_type: str, body: bytes) -> HubError:
    """The meaning of a refusal: a `ConfigError`, or the hub's `RpcError`."""
    problem = problem_of(body)
    if problem is not None and problem.code == "code_off":
        return ConfigError(ConfigFinding(problem.code, problem.detail[:_REASON]))
    if status in _REFUSED:
        return _refusal(url, status, _rpc_message(body) if problem is None else problem.detail[:_REASON])
    if problem is None:
        if status >= 500 or status == _TOO_MANY:
            return UpstreamUnavailable(f"{url} answered with HTTP {status}.")
        got = content_type or "nothing" if status < 300 else f"HTTP {status}"
        return ConfigError(ConfigFinding("not_a_hub", f"{url} does not belong to a hub: it answered with {got}."))
    if problem.jsonrpc is not UNSET:
        try:
            return error_of(problem.code, problem.group, problem.jsonrpc)
        except (msgspec.DecodeError, RecursionError):
            pass
    return _error_named(problem, status)


def _refusal(url: str, status: int, reason: str) -> ConfigError:
    detail = f": {reason}" if reason else ""
    if status == 401:
        why = f"{url} refused the request{detail}. Give the token with --token or MCP_HUB_TOKEN."
        return ConfigError(ConfigFinding("unauthorized", why))
    return ConfigError(ConfigFinding("refused_by_hub", f"{url} refused the request with HTTP {status}{detail}"))


def _error_named(problem: RestProblem, status: int) -> HubError:
    match problem.code:
        case "unknown_stream":
            return UnknownStream()
        case "events_gone":
            return EventsGone(problem.earliest)
        case "unknown_tool" | "unknown_entry":
            return UnknownEntry(problem.detail, data={"upstream": problem.upstream} if problem.upstream else None)
        case "busy":
            return Busy(problem.detail)
    message = problem.detail or problem.code
    if status >= 500:
        return UpstreamUnavailable(message)
    return InvalidParams(message, symbol=problem.code if _CODE.fullmatch(problem.code) else None)


def _rpc_message(body: bytes) -> str:
    message = envelope.decode(body)
    if not isinstance(message, Envelope) or message.kind != "error":
        return ""
    return from_wire(message.error).message[:_REASON]
