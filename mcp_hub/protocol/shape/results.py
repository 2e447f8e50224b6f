"""Results, progress and log notifications in the form of an era.

Source: specification 2026-07-28, basic/index "Result types", server/utilities/caching.
"""

import re
from typing import Final

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Log, Progressed
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import notification_frame, object_bytes, raw_object
from mcp_hub.types import HANDSHAKE, MODERN, Era, RawJson, RawObject

COALESCED = "dev.mcp-hub/coalesced"
"""`_meta` key of a progress notification that stands for earlier ones too: how many were merged into it."""

HEAD: Final = b'{"resultType":"complete",'
"""The beginning of a result of many modern servers."""
TAIL: Final = b',"resultType":"complete"}'
"""The end of a result of others (the Python SDK): a member before the last brace belongs to the whole."""
_COMPLETE = msgspec.Raw(b'"complete"')
_ASKS = msgspec.Raw(b'"input_required"')
_MAY_ASK = frozenset({"tools/call", "prompts/get", "resources/read"})
"""Calls that a server may answer with a question (basic/patterns/mrtr "Supported Requests")."""
_CACHEABLE = frozenset({"resources/read", "resources/directory/read", "skills/get"})
_UNCACHEABLE = {"ttlMs": msgspec.Raw(b"0"), "cacheScope": msgspec.Raw(b'"private"')}
_PUBLIC = msgspec.Raw(b'"public"')
_FIRST = re.compile(rb'\s*\{\s*(?=")')
_UNSURE = re.compile(rb'"(?:resultType|ttlMs|cacheScope|structuredContent)"')
_FOREIGN = re.compile(rb'"(?:resultType|ttlMs|cacheScope)"')
"""Members of the modern era; a result that mentions none need not be taken apart to be sure of that."""


def begins(raw: RawJson, text: bytes) -> bool:
    return bytes(memoryview(raw)[: len(text)]) == text


def ends(raw: RawJson, text: bytes) -> bool:
    return bytes(memoryview(raw)[-len(text) :]) == text


def is_complete(result: RawJson) -> bool:
    """True if neither a task nor a question; False if unsure."""
    return bytes(memoryview(result)[-len(TAIL) :]) == TAIL or begins(result, HEAD)


def call_result(
    method: str, completed: Completed, era: Era, *, shared: bool = False
) -> tuple[RawJson | memoryview, ...]:
    """A call's result for the caller's era, in parts to join. Raises `RpcError` for input that the era cannot ask for.

    `shared`: shared caches may keep it, as no profile, token or session influenced it.
    """
    if era is HANDSHAKE:
        is_plain = completed.era is HANDSHAKE and _is_free(completed, _FOREIGN)
        return (completed.result,) if is_plain else _down(method, completed)
    return _up(method, completed) if completed.era is HANDSHAKE else _modern(method, completed.result, shared)


def _is_free(completed: Completed, members: re.Pattern[bytes]) -> bool:
    """Whether none of these members is in the result; texts need not be searched."""
    return completed.is_plain or members.search(completed.result) is None


def _modern(method: str, result: RawJson, shared: bool) -> tuple[RawJson | memoryview, ...]:
    if method not in _CACHEABLE and is_complete(result):
        return (result,)
    members = raw_object(result)
    if members is None:
        return (result,)
    _refuse_extension(members, (_ASKS,) if method in _MAY_ASK else ())
    with_type = {"resultType": _COMPLETE, **members} if "resultType" not in members else members
    if with_type["resultType"] == _ASKS:
        with_type = _without(members, tuple(_UNCACHEABLE))
    elif method in _CACHEABLE:
        with_type = {**with_type, **_cache_hints(members, shared)}
    return (result,) if with_type == members else (object_bytes(with_type),)


def _cache_hints(members: RawObject, shared: bool) -> RawObject:
    hints = dict(_UNCACHEABLE)
    if bytes(members.get("ttlMs", b"")).isdigit():
        hints["ttlMs"] = members["ttlMs"]
    if shared and members.get("cacheScope") == _PUBLIC:
        hints["cacheScope"] = _PUBLIC
    return hints


def _up(method: str, completed: Completed) -> tuple[RawJson | memoryview, ...]:
    result = completed.result
    if method not in _CACHEABLE and _is_free(completed, _FOREIGN) and (start := _FIRST.match(result)):
        return (HEAD, memoryview(result)[start.end() :])
    members = raw_object(result)
    if members is None:
        return (result,)
    if members and "resultType" not in members and method not in _CACHEABLE:
        return (HEAD, memoryview(result)[1:])
    extra = _UNCACHEABLE if method in _CACHEABLE else {}
    return (object_bytes({"resultType": _COMPLETE, **extra, **_without(members, ("resultType", *extra))}),)


def _down(method: str, completed: Completed) -> tuple[RawJson | memoryview, ...]:
    if ends(completed.result, TAIL):
        head = memoryview(completed.result)[: -len(TAIL)]
        if completed.is_plain or _UNSURE.search(head) is None:
            return (head, b"}")
    elif begins(completed.result, HEAD):
        head = memoryview(completed.result)[len(HEAD) :]
        if completed.is_plain or _UNSURE.search(head) is None:
            return (b"{", head)
    members = raw_object(completed.result)
    if members is None:
        return (completed.result,)
    if completed.era is MODERN:  # to one of the handshake era it is a member like any other
        _refuse_extension(members, ())
    foreign = ["resultType", *(_UNCACHEABLE if method in _CACHEABLE else ())]
    structured = members.get("structuredContent")
    if completed.era is MODERN and structured is not None and not begins(structured, b"{"):
        foreign.append("structuredContent")  # before 2026-07-28 it is an object; the text content says the same
    foreign = [name for name in foreign if name in members]
    if not foreign:
        return (completed.result,)
    if foreign == ["resultType"] and begins(completed.result, HEAD):
        return (b"{", memoryview(completed.result)[len(HEAD) :])
    return (object_bytes(_without(members, tuple(foreign))),)


def _refuse_extension(members: RawObject, allowed: tuple[msgspec.Raw, ...]) -> None:
    """Raises `RpcError`."""
    kind = members.get("resultType", _COMPLETE)
    if kind != _COMPLETE and kind not in allowed:
        reason = "asked for input that this client cannot be asked for"
        if kind != _ASKS:
            reason = f"returned result type {hide_head(bytes(kind), 60)}, which this client did not negotiate"
        raise RpcError(f"the server {reason}", data={"upstream": {"resultType": msgspec.Raw(bytes(kind))}})


def _without(members: RawObject, names: tuple[str, ...]) -> RawObject:
    return {key: value for key, value in members.items() if key not in names}


def progress_members(event: Progressed) -> dict[str, object]:
    """Members of a progress notification without its token."""
    members: dict[str, object] = {"progress": event.progress}
    if event.total is not None:
        members["total"] = event.total
    if event.members:
        members.update(event.members)
    if event.skipped:
        meta = raw_object((event.members or {}).get("_meta", msgspec.UNSET)) or {}
        members["_meta"] = {**meta, COALESCED: event.skipped}
    return members


_PROGRESS: Final = (
    b'{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":%b,"progress":%d%b}}\n'
)
_PROGRESS_WITH_MESSAGE: Final = _PROGRESS.replace(b"%d%b}", b'%d%b,"message":%b}')


def progress_frame(token: bytes, event: Progressed) -> bytes:
    """`notifications/progress` with the caller's token."""
    if type(event.progress) is int and (event.total is None or type(event.total) is int) and not event.skipped:
        members, total = event.members, b"" if event.total is None else b',"total":%d' % event.total
        if members is None:
            return _PROGRESS % (token, event.progress, total)
        if len(members) == 1 and (message := members.get("message")) is not None:
            return _PROGRESS_WITH_MESSAGE % (token, event.progress, total, message)
    params = {"progressToken": msgspec.Raw(token), **progress_members(event)}
    return notification_frame("notifications/progress", object_bytes(params))


def log_frame(event: Log) -> bytes:
    return notification_frame(event.method or "notifications/message", event.params)
