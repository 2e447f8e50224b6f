"""Errors that end a durable stream: code, class, retry, and the original error."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from mcp_hub import errors
from mcp_hub.errors import RpcError
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.types import JsonObject, RawJson

_DETAIL: Final = 200
"""Characters of the message that are shown beside the code; `jsonrpc` has all of it."""
_TOOL: Final = "tool"
"""The class of an error that an upstream sent: `jsonrpc` has its bytes."""


class _Kind(NamedTuple):
    """`is_retryable` if the outcome is known."""

    group: str
    is_retryable: bool = False


_INTERNAL: Final = _Kind("internal")
_CLIENT: Final = _Kind("client")
_CRASH: Final = _Kind("upstream_crash", is_retryable=True)
_RESTART: Final = _Kind("hub_restart", is_retryable=True)
_KINDS: Final[Mapping[type[RpcError], _Kind]] = {
    RpcError: _INTERNAL,
    **dict.fromkeys(
        (errors.InvalidParams, errors.UnknownState, errors.UnknownEntry, errors.ToolRemoved, errors.UnknownStream),
        _CLIENT,
    ),
    errors.NotReadOnly: _CLIENT,
    **dict.fromkeys((errors.EventsGone, errors.MethodNotFound), _CLIENT),
    **dict.fromkeys((errors.UpstreamLost, errors.ExecutorLost), _CRASH),
    **dict.fromkeys((errors.HubStopping, errors.HubRestarted), _RESTART),
    errors.OwnerLost: _Kind("owner_lost", is_retryable=True),
    errors.NotApproved: _Kind("auth"),
    errors.UpstreamUnavailable: _Kind("upstream_transport", is_retryable=True),
    errors.SessionElsewhere: _Kind("upstream_transport"),
    errors.HttpRefused: _Kind("upstream_transport"),
    errors.DeadlineExceeded: _Kind("upstream_timeout"),
    errors.CallCancelled: _Kind("cancelled"),
    errors.Busy: _Kind("capacity", is_retryable=True),
    errors.StoreUnavailable: _Kind("capacity", is_retryable=True),
}
_CLASSES: Final = {class_.symbol: class_ for class_ in _KINDS}
_LIMITS: Final = {"max_duration": "deadline", "question_timeout": "client"}
"""Class of a `DeadlineExceeded` by its limit; for any other limit `upstream_timeout`."""
_REFUSALS: Final = {401: "auth", 403: "auth", 429: "rate_limit"}
_TOO_MANY: Final = 429


def is_retryable(error: RpcError) -> bool:
    """Whether a retry makes sense and cannot act twice."""
    return _kind(error).is_retryable and not error.is_outcome_unknown


def error_data(error: RpcError) -> tuple[RawJson, ...]:
    """Data of an `error` event, in parts to join."""
    kind = _kind(error)
    data: JsonObject = {"code": code_of(error), "class": kind.group, "retryable": is_retryable(error)}
    if error.is_outcome_unknown:
        data["outcome"] = "unknown"
    data["detail"] = hide_head(error.message, _DETAIL)
    return (object_bytes(data)[:-1], b',"jsonrpc":', error.encoded(), b"}")


def _kind(error: RpcError) -> _Kind:
    if error.raw is not None:
        return _Kind(_TOOL)
    kind = next(_KINDS[class_] for class_ in type(error).__mro__ if class_ in _KINDS)
    data = error.data or {}
    if kind is _INTERNAL and "upstream" in data:
        return _Kind("upstream_protocol")
    if isinstance(error, errors.DeadlineExceeded):
        return kind._replace(group=_LIMITS.get(str(data.get("limit")), kind.group))
    if isinstance(error, errors.HttpRefused):
        passes = error.status == _TOO_MANY or "retryAfter" in data
        return kind._replace(group=_REFUSALS.get(error.status, kind.group), is_retryable=passes)
    return kind


def code_of(error: RpcError) -> str:
    """The error's code; `tool_error` for a server's own."""
    if error.raw is None:
        return error.symbol
    return "tool_error" if type(error).symbol == RpcError.symbol else type(error).symbol


class _WireError(msgspec.Struct):
    code: int
    message: str
    data: dict[str, msgspec.Raw] | None = None


_decode = msgspec.json.Decoder(_WireError).decode


def error_of(code: str, group: str, jsonrpc: RawJson) -> RpcError:
    """The inverse of `error_data`. Raises `msgspec.DecodeError`, `RecursionError`."""
    class_ = _CLASSES.get(code, RpcError)
    if group == _TOOL:
        error = from_wire(jsonrpc)
        return error if class_ is RpcError else class_.restored(error.message, error.code, error.data, error.raw)
    wire = _decode(jsonrpc)
    data = None if wire.data is None else {name: _value(name, value) for name, value in wire.data.items()}
    return class_.restored(wire.message, wire.code, data)


def _value(name: str, raw: msgspec.Raw) -> object:
    """An error within `upstream` stays encoded."""
    if name == "upstream" and (members := raw_object(raw)) is not None:
        return {name: value if name == "error" else _value("", value) for name, value in members.items()}
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):  # a number that no float can hold, say
        return raw
