"""Stored events of a durable stream, one JSON object a line, and the errors that end it.

Payloads keep their bytes except line breaks. An error has a code, a class, a retry, and the original error.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from mcp_hub import errors, events
from mcp_hub.errors import RpcError
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, one_line, raw_object, read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.protocol.shape.results import COALESCED, progress_members
from mcp_hub.types import CallId, Era, JsonObject, RawJson, RawObject

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
    **dict.fromkeys((errors.InvalidParams, errors.UnknownEntry, errors.UnknownStream), _CLIENT),
    errors.EventsGone: _CLIENT,
    errors.UpstreamLost: _CRASH,
    **dict.fromkeys((errors.HubStopping, errors.HubRestarted), _RESTART),
    errors.AccountNeeded: _Kind("auth"),
    errors.UpstreamUnavailable: _Kind("upstream_transport", is_retryable=True),
    errors.HttpRefused: _Kind("upstream_transport"),
    errors.DeadlineExceeded: _Kind("upstream_timeout"),
    errors.CallCancelled: _Kind("cancelled"),
    errors.Busy: _Kind("capacity", is_retryable=True),
    errors.StoreUnavailable: _Kind("capacity", is_retryable=True),
}
_BY_SYMBOL: Final = {
    "method_not_found": _CLIENT,
    "not_approved": _Kind("auth"),
    "executor_lost": _CRASH,
    "owner_lost": _Kind("owner_lost", is_retryable=True),
}
"""Errors of another kind than others of their class."""
_ELSEWHERE: Final = "session_elsewhere"
"""Another replica runs the session's process: a retry here cannot help."""
_CLASSES: Final[Mapping[str, type[RpcError]]] = {
    **{class_.symbol: class_ for class_ in _KINDS},
    **dict.fromkeys(("unknown_state", "not_approved", "not_read_only"), errors.InvalidParams),
    "tool_removed": errors.UnknownEntry,
    "owner_lost": errors.HubRestarted,
    _ELSEWHERE: errors.UpstreamUnavailable,
}
_CODE: Final = re.compile("[a-z][a-z_]{0,63}")
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
    kind = _BY_SYMBOL.get(error.symbol) or next(_KINDS[class_] for class_ in type(error).__mro__ if class_ in _KINDS)
    if error.symbol == _ELSEWHERE:
        return kind._replace(is_retryable=False)
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
    return class_.restored(wire.message, wire.code, data, symbol=code if _CODE.fullmatch(code) else None)


def _value(name: str, raw: msgspec.Raw) -> object:
    """An error within `upstream` stays encoded."""
    if name == "upstream" and (members := raw_object(raw)) is not None:
        return {name: value if name == "error" else _value("", value) for name, value in members.items()}
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):  # a number that no float can hold, say
        return raw


_Data = tuple[bytes, tuple[RawJson, ...]]
"""The type of an event and its data, in parts that are to be joined: a large payload is copied once only."""

_OWN: Final = "dev.mcp-hub/progress"
"""`_meta` key of stored progress that is not as the server sent it: the server's last value, null if there is none."""
_IS_ERROR: Final = re.compile(rb'"isError"')
_COUNT: Final = re.compile(rb"[1-9][0-9]{0,8}")
"""A count of merged progress; anything else under its key was not written here and stays where it is."""

LAST_MOMENT: Final = 253_402_300_799.0
"""Unix seconds: the end of the year 9999. What is later has no date."""


def timestamp(seconds: float) -> str:
    """ISO 8601 in UTC with milliseconds and `Z`, at most the end of year 9999."""
    return _timestamp(round(min(seconds, LAST_MOMENT) * 1e6) // 1000)


@lru_cache(maxsize=8)
def _timestamp(milliseconds: int) -> str:
    whole, thousandths = divmod(milliseconds, 1000)
    return f"{_date(whole)}.{thousandths:03d}Z"


@lru_cache(maxsize=8)
def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]


def start_data(server: str, tool: str, name: str, arguments: RawJson, attempt: int, deadline: float | None) -> bytes:
    """Data of the `start` event, with a hash of the arguments; `deadline` in Unix seconds."""
    digest = sha256(arguments).hexdigest()
    data: JsonObject = {"server": server, "tool": tool, "name": name, "args_sha256": digest, "attempt": attempt}
    if deadline is not None:
        data["deadline"] = timestamp(deadline)
    return object_bytes(data)


def encoded(stream: CallId, seq: int, ts: str, event: events.CallEvent, start: RawJson | None = None) -> bytes:
    """An event's line without a line break; `start` is the data of `Started`."""
    kind, data = _data(event)
    if start is not None and type(event) is events.Started:
        data = (start,)
    head = b'{"v":1,"stream":"%b","seq":%d,"ts":"%b","type":"%b","data":' % (stream.encode(), seq, ts.encode(), kind)
    return one_line(b"".join((head, *data, b"}")))


def decoded(line: bytes) -> tuple[int, events.CallEvent]:
    """Number and event of a line; payloads are views of it. Raises `ValueError`."""
    try:
        head = _decode_head(line)
        data = _members(head.data)
        if head.type == "log":  # which keeps its data as a whole
            return head.seq, events.Log(_text(data["level"]), head.data)
        return head.seq, _READERS[head.type](data)
    except KeyError as exc:
        raise ValueError(f"not an event of a stream: {exc.args[0]!r} is missing or unknown") from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as exc:
        raise ValueError(f"not an event of a stream: {exc}") from None


# -- to a line


def _data(event: events.CallEvent) -> _Data:
    match event:
        case events.Progressed():
            return b"progress", (object_bytes(_progress_data(event)),)
        case events.Delta():
            head = b'{"channel":%b,"index":%d,"content":' % (object_bytes(event.channel), event.index)
            return b"delta", (head, event.content, b"}")
        case events.Log():
            return _notice_data(event)
        case events.ToolCall():
            line = b'"line":%d,' % event.line if event.line else b""
            head = b'{"call":%b,"name":%b,%b"arguments":' % (object_bytes(event.call), object_bytes(event.name), line)
            return b"tool-call", (head, event.arguments, b"}")
        case events.ToolResult():
            head = b'{"call":%b,"isError":%b,"content":' % (object_bytes(event.call), object_bytes(event.is_error))
            return b"tool-result", (head, event.content, b"}")
        case events.InputRequired():
            head = b'{"key":%b,"method":%b,"params":' % (object_bytes(event.key), object_bytes(event.method))
            return b"input-required", (head, event.params, b"}")
        case events.InputReceived():
            return b"input-received", (_received_data(event),)
        case events.Attempt() | events.Reset():
            return _retry_data(event)
        case events.Started():
            return b"start", (b"{}",)
        case _:
            return _ending_data(event)


def _notice_data(event: events.Log) -> _Data:
    if event.method is None:
        return b"log", (event.params,)
    return b"notification", (b'{"method":%b,"params":' % object_bytes(event.method), event.params, b"}")


def _progress_data(event: events.Progressed) -> JsonObject:
    members = progress_members(event)
    if event.server_value is not msgspec.UNSET:
        meta = raw_object(object_bytes(members.get("_meta", {}))) or {}
        members["_meta"] = {**meta, _OWN: _Own(event.server_value, "hub" if event.is_hubs else None)}
    return members


def _received_data(event: events.InputReceived) -> bytes:
    data: JsonObject = {"key": event.key}
    if event.remaining:
        data["remaining"] = event.remaining
    if event.action is not None:
        data["action"] = event.action
    return object_bytes(data)


def _retry_data(event: events.Attempt | events.Reset) -> _Data:
    data: JsonObject = {"attempt": event.number, "reason": event.reason}
    if isinstance(event, events.Reset):
        return b"reset", (object_bytes({**data, "discard_from": event.discard_from}),)
    detail = {"detail": event.detail} if event.detail else {}
    return b"attempt", (object_bytes({**data, "after": event.after, **detail}),)


def _ending_data(event: events.Ending) -> _Data:
    match event:
        case events.Completed():
            head = b'{"outcome":"%b","result":' % (b"tool_error" if _says_error(event.result) else b"ok")
            return b"end", (head, event.result, b',"era":"modern"}' if event.era is Era.MODERN else b"}")
        case events.Cancelled():
            data = {"outcome": "cancelled", **({} if event.reason is None else {"reason": event.reason})}
            return b"end", (object_bytes(data),)
        case events.Failed():
            return b"error", error_data(event.error)


class _Flag(msgspec.Struct):
    isError: msgspec.Raw = msgspec.Raw(b"false")


_decode_flag = msgspec.json.Decoder(_Flag).decode


def _says_error(result: RawJson) -> bool:
    if _IS_ERROR.search(result) is None:
        return False
    try:
        return _decode_flag(result).isError == msgspec.Raw(b"true")
    except (msgspec.DecodeError, RecursionError):
        return False


class _Own(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A note on changed progress."""

    server: int | float | None | msgspec.UnsetType = msgspec.UNSET
    by: Literal["hub"] | None = None


_NOT_NOTED: Final = _Own()


# -- from a line


class _Head(msgspec.Struct):
    v: Literal[1]
    seq: Annotated[int, msgspec.Meta(ge=1)]
    type: str
    data: msgspec.Raw


_decode_head = msgspec.json.Decoder(_Head).decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_number = msgspec.json.Decoder(int | float).decode
_integer = msgspec.json.Decoder(int).decode
_text = msgspec.json.Decoder(str).decode
_flag = msgspec.json.Decoder(bool).decode
_era = msgspec.json.Decoder(Era).decode


def _progress(members: RawObject) -> events.Progressed:
    value = _number(members.pop("progress"))
    total = _number(members.pop("total")) if "total" in members else None
    skipped, noted = _taken_notes(members) if "_meta" in members else (0, _NOT_NOTED)
    return events.Progressed(
        progress=value,
        total=total,
        members=members or None,
        skipped=skipped,
        server_value=noted.server,
        is_hubs=noted.by is not None,
    )


def _taken_notes(members: RawObject) -> "tuple[int, _Own]":
    meta = raw_object(members["_meta"]) or {}
    count, raw = meta.get(COALESCED), meta.get(_OWN)
    skipped = int(bytes(count)) if count is not None and _COUNT.fullmatch(count) else 0
    noted = read_as(raw, _Own) if raw is not None else None
    if skipped:
        del meta[COALESCED]
    if noted is not None:
        del meta[_OWN]
    if skipped or noted is not None:
        del members["_meta"]
        if meta:
            members["_meta"] = msgspec.Raw(object_bytes(meta))
    return skipped, noted or _NOT_NOTED


def _attempt(data: RawObject) -> events.Attempt:
    detail = _text(data["detail"]) if "detail" in data else ""
    return events.Attempt(_integer(data["attempt"]), _text(data["reason"]), _number(data["after"]), detail)


def _reset(data: RawObject) -> events.Reset:
    return events.Reset(_integer(data["attempt"]), _text(data["reason"]), _integer(data["discard_from"]))


def _input_received(data: RawObject) -> events.InputReceived:
    remaining = _integer(data["remaining"]) if "remaining" in data else 0
    return events.InputReceived(_text(data["key"]), remaining, _text(data["action"]) if "action" in data else None)


def _end(data: RawObject) -> events.Completed | events.Cancelled:
    outcome = _text(data["outcome"])
    if outcome == "cancelled":
        return events.Cancelled(_text(data["reason"]) if "reason" in data else None)
    if outcome not in ("ok", "tool_error"):
        raise ValueError(f"outcome {outcome!r}")
    return events.Completed(data["result"], _era(data["era"]) if "era" in data else Era.HANDSHAKE)


_READERS: Final[Mapping[str, Callable[[RawObject], events.CallEvent]]] = {
    "start": lambda data: events.Started(),
    "progress": _progress,
    "delta": lambda data: events.Delta(data["content"], _integer(data["index"]), _text(data["channel"])),
    "notification": lambda data: events.Log("info", data["params"], _text(data["method"])),
    "tool-call": lambda data: events.ToolCall(
        _text(data["call"]), _text(data["name"]), data["arguments"], _integer(data["line"]) if "line" in data else 0
    ),
    "tool-result": lambda data: events.ToolResult(_text(data["call"]), data["content"], _flag(data["isError"])),
    "input-required": lambda data: events.InputRequired(_text(data["key"]), _text(data["method"]), data["params"]),
    "input-received": _input_received,
    "attempt": _attempt,
    "reset": _reset,
    "end": _end,
    "error": lambda data: events.Failed(error_of(_text(data["code"]), _text(data["class"]), data["jsonrpc"])),
}
