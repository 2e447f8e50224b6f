"""Internal → era-correct wire form, in one place: results, progress and log notifications.

Bytes are spliced; a result is taken apart one level only when the two eras differ and it carries a member that the
other lacks. Source: specification 2026-07-28, basic/index "Result types" and server/utilities/caching; protocol.md §2.
"""

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Log, Progress
from mcp_hub.protocol.envelope import notification_frame, object_bytes, raw_object
from mcp_hub.types import Era, RawJson, RawObject

__all__ = ["COALESCED", "call_result", "log_frame", "progress_frame", "readdressed"]

COALESCED = "dev.mcp-hub/coalesced"
"""`_meta` key of a progress notification that stands for earlier ones too: how many were merged into it."""

_COMPLETE = msgspec.Raw(b'"complete"')
_ASKS = (msgspec.Raw(b'"input_required"'),)
_HEAD = b'{"resultType":"complete",'
"""How most modern servers begin a result."""
_CACHEABLE = frozenset({"resources/read"})
_UNCACHEABLE = {"ttlMs": msgspec.Raw(b"0"), "cacheScope": msgspec.Raw(b'"private"')}


def call_result(method: str, done: Completed, era: Era) -> tuple[RawJson | memoryview, ...]:
    """The result of a call for a caller of `era`, in parts that are to be joined: a large one is copied once only.

    Raises `RpcError` when the upstream asks for input and the caller's era cannot be asked that way.
    """
    if done.era is era:
        if era is Era.HANDSHAKE and "resultType" in (raw_object(done.result) or ()):
            return _down(method, done.result)
        if era is Era.MODERN and bytes(memoryview(done.result)[: len(_HEAD)]) != _HEAD:
            _refuse_extension(raw_object(done.result) or {}, _ASKS)
        return (done.result,)
    return _up(method, done.result) if era is Era.MODERN else _down(method, done.result)


def _up(method: str, result: RawJson) -> tuple[RawJson | memoryview, ...]:
    members = raw_object(result)
    if members is None:
        return (result,)
    if members and "resultType" not in members and method not in _CACHEABLE:
        return (_HEAD, memoryview(result)[1:])
    extra = _UNCACHEABLE if method in _CACHEABLE else {}
    return (object_bytes({"resultType": _COMPLETE, **extra, **_without(members, ("resultType",))}),)


def _down(method: str, result: RawJson) -> tuple[RawJson | memoryview, ...]:
    members = raw_object(result)
    if members is None:
        return (result,)
    _refuse_extension(members, ())
    structured = members.get("structuredContent")
    # before 2026-07-28 structuredContent is an object; the text content says the same
    foreign = ("structuredContent",) if structured is not None and bytes(memoryview(structured)[:1]) != b"{" else ()
    if method in _CACHEABLE:
        foreign = (*foreign, *_UNCACHEABLE)
    view = memoryview(result)
    if not foreign and len(members) > 1 and bytes(view[: len(_HEAD)]) == _HEAD:
        return (b"{", view[len(_HEAD) :])
    return (object_bytes(_without(members, ("resultType", *foreign))),)


def readdressed(result: RawJson, own: RawJson, exported: str) -> RawJson:
    """The result of `resources/read` with the URI that the client read in place of the upstream's `own`."""
    members = raw_object(result)
    try:
        contents = msgspec.json.decode((members or {})["contents"], type=list[RawObject])
        wanted = msgspec.json.decode(own)
        changed = [
            {**item, "uri": msgspec.Raw(object_bytes(exported))}
            if msgspec.json.decode(item.get("uri", b"null")) == wanted
            else item
            for item in contents
        ]
    except (KeyError, msgspec.DecodeError, RecursionError):
        return result
    return object_bytes({**(members or {}), "contents": changed})


def _refuse_extension(members: RawObject, allowed: tuple[msgspec.Raw, ...]) -> None:
    """A result of a type that this caller did not agree to would be misread. Raises `RpcError`."""
    kind = members.get("resultType", _COMPLETE)
    if kind != _COMPLETE and kind not in allowed:
        what = "for input that this client cannot be asked for" if kind in _ASKS else "to go on in another way"
        raise RpcError(f"upstream asked {what}", data={"upstream": {"resultType": msgspec.Raw(bytes(kind))}})


def _without(members: RawObject, names: tuple[str, ...]) -> RawObject:
    return {key: value for key, value in members.items() if key not in names}


def progress_frame(token: bytes, event: Progress) -> bytes:
    """`notifications/progress` under the caller's own token."""
    params: dict[str, object] = {"progressToken": msgspec.Raw(token), "progress": event.progress}
    if event.total is not None:
        params["total"] = event.total
    if event.rest:
        params.update(event.rest)
    if event.skipped:
        meta = raw_object((event.rest or {}).get("_meta", msgspec.UNSET)) or {}
        params["_meta"] = {**meta, COALESCED: event.skipped}
    return notification_frame("notifications/progress", msgspec.json.encode(params))


def log_frame(event: Log) -> bytes:
    """`notifications/message`, params as the upstream sent them."""
    return notification_frame("notifications/message", event.params)
