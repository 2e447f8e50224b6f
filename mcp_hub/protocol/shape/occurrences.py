"""Shapes of MCP Events (SEP-3415): requests, occurrences, notifications and errors. Pure."""

import re
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.globs import late
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import notification_frame, object_bytes, one_line, raw_object, read_as
from mcp_hub.protocol.jsonrpc.repair import NOT_JSON
from mcp_hub.protocol.notifications import SUBSCRIPTION_ID
from mcp_hub.types import JsonObject, RawJson, RawObject

NOT_FOUND: Final = -32023
FORBIDDEN: Final = -32024
EXHAUSTED: Final = -32025
UNSUPPORTED: Final = -32026
CALLBACK: Final = -32027
"""Codes of the extension, which its drafts numbered from -32011 on."""
_DRAFT: Final = dict(zip(range(-32011, -32016, -1), range(NOT_FOUND, CALLBACK - 1, -1), strict=True))
MOST_BYTES: Final = 256 << 10
"""Bytes of one occurrence ("Delivery profile")."""
LONGEST_ID: Final = 512
"""Characters of an `eventId`."""
_LONGEST_ERROR: Final = 4096
"""Bytes of an error with its data."""
_LONGEST_TIME: Final = 64
_TIME: Final = late(r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d)(:\d\d(?:\.\d+)?)?(?:([Zz])|([+-]\d\d):?([0-5]\d))?", re.ASCII)
_EMPTY: Final = Raw(b"{}")


class EventParams(msgspec.Struct, frozen=True):
    """The params of `events/poll`, `events/stream`, `events/subscribe` and `events/unsubscribe`.

    `delivery` is an object of the webhook methods. `ttlMs` null: no expiry; absent: the hub decides.
    """

    name: str
    arguments: Raw = _EMPTY
    cursor: str | None = None
    maxAgeMs: float | None = None
    maxEvents: float | None = None
    delivery: Raw = _EMPTY
    ttlMs: float | None | UnsetType = UNSET

    @property
    def max_age(self) -> float | None:
        """Seconds."""
        return None if self.maxAgeMs is None else max(0, self.maxAgeMs) / 1000


def event_params(params: RawObject, method: str) -> EventParams:
    """Raises `InvalidParams`."""
    present = {name: value for name, value in params.items() if bytes(value) != b"null" or name == "ttlMs"}
    try:
        read = msgspec.json.decode(object_bytes(present), type=EventParams)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidParams(f"{method}: {problem}") from None
    for name in ("arguments", "delivery"):
        if raw_object(getattr(read, name)) is None:
            raise InvalidParams(f"{method}: params.{name} must be an object")
    for name, value in (("maxAgeMs", read.maxAgeMs), ("maxEvents", read.maxEvents), ("ttlMs", read.ttlMs)):
        if isinstance(value, float) and not value.is_integer():
            raise InvalidParams(f"{method}: params.{name} must be a whole number")
    return read


def not_found(kind: str, text: str) -> RpcError:
    """`kind`: `event` or `subscription`."""
    return RpcError(text, code=NOT_FOUND, data={"kind": kind})


def forbidden(text: str) -> RpcError:
    return RpcError(text, code=FORBIDDEN, data={"reason": text})


def exhausted(limit: str, ceiling: int) -> RpcError:
    return RpcError(f"{ceiling} {limit} are open, the most that one client may have", code=EXHAUSTED,
                    data={"limit": limit, "max": ceiling})  # fmt: skip


def unsupported(feature: str, value: str) -> RpcError:
    return RpcError(f"{feature} {value} is not supported here", code=UNSUPPORTED,
                    data={"feature": feature, "value": value})  # fmt: skip


def callback_failed(reason: str) -> RpcError:
    """`reason`: a category of the extension, never a text of the endpoint."""
    return RpcError(f"the callback was not verified: {reason}", code=CALLBACK, data={"reason": reason})


def of_server(error: RpcError) -> RpcError:
    """A server's error with the present code for one of a draft."""
    code = _DRAFT.get(error.code)
    if code is None:
        return error
    members = raw_object(error.encoded()) or {}
    return RpcError(error.message, code=code, raw=object_bytes({**members, "code": code}))


def occurrence_of(params: RawObject) -> RawObject | None:
    """The members of an occurrence that are stored, on one line; None for one that cannot be used.

    The name is the reader's, the cursor the hub's. The time gets the one spelling that strict clients read, and so does
    the id, so that equal ids have equal bytes.
    """
    id_, time = read_as(params.get("eventId", b""), str), read_as(params.get("timestamp", b""), str)
    data = raw_object(params.get("data", UNSET))
    if not id_ or time is None or data is None or len(id_) > LONGEST_ID or len(time) > _LONGEST_TIME:
        return None
    spelled = _spelled(time)
    members = {"eventId": Raw(object_bytes(id_)), "timestamp": params["timestamp"], "data": params["data"]}
    if spelled is not None and spelled != time:
        members["timestamp"] = Raw(object_bytes(spelled))
    meta = raw_object(params.get("_meta", UNSET)) or {}
    meta.pop(SUBSCRIPTION_ID, None)
    if meta:
        members["_meta"] = Raw(object_bytes(meta))
    text = object_bytes(members)
    if spelled is None or len(text) > MOST_BYTES or NOT_JSON in text:
        return None
    return {name: _on_one_line(value) for name, value in members.items()}


def _spelled(time: str) -> str | None:
    """A time of ISO 8601 with `T`, seconds, and `Z` or `+01:00`; without a zone it is UTC. None for any other text."""
    match = _TIME.fullmatch(time)
    try:
        if match is None:  # another form of ISO 8601
            read = datetime.fromisoformat(time)
            return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
        date, clock, seconds, _, hours, minutes = match.groups()
        spelled = f"{date}T{clock}{seconds or ':00'}{f'{hours}:{minutes}' if hours else 'Z'}"
        datetime.fromisoformat(spelled)
    except (ValueError, OverflowError):
        return None
    return spelled


def _on_one_line(value: Raw) -> Raw:
    text = bytes(value)
    return Raw(text.translate(None, b"\r\n")) if b"\n" in text or b"\r" in text else value


def delivered(occurrence: RawObject, name: str, cursor: str | None = None) -> RawObject:
    """An occurrence under the name that its reader knows; with a cursor but for polls."""
    members = {"eventId": occurrence["eventId"], "name": Raw(object_bytes(name)), **occurrence}
    if cursor is not None:
        members["cursor"] = Raw(object_bytes(cursor))
    return members


def event_frame(kind: str, members: RawObject | JsonObject, id_: bytes) -> bytes:
    """A `notifications/events/…` of the stream that request `id_` has opened."""
    meta = members.get("_meta")
    merged = {**(raw_object(meta) or {} if isinstance(meta, Raw) else {}), SUBSCRIPTION_ID: Raw(id_)}
    return notification_frame(f"notifications/events/{kind}", object_bytes({**members, "_meta": merged}))


def error_member(error: RpcError) -> RawJson:
    """An error inside a notification, a control body or a line of the log; a long one keeps its message alone."""
    text = one_line(bytes(error.encoded()))
    return Raw(
        text
        if len(text) <= _LONGEST_ERROR
        else bytes(RpcError(hide_head(error.message, 500), code=error.code).encoded())
    )
