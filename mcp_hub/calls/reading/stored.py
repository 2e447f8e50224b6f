"""Single stored events, and names of their calls. Unusable ones are replaced: no number is missing."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

import anyio
import msgspec

from mcp_hub.call import Call, StreamInfo
from mcp_hub.errors import RpcError, StoreError, UnknownStream
from mcp_hub.events import (
    CallEvent,
    Cancelled,
    Completed,
    Ending,
    Failed,
    InputReceived,
    InputRequired,
    Log,
    Progressed,
    Started,
)
from mcp_hub.masking import hide_head
from mcp_hub.methods import is_foreign
from mcp_hub.protocol.eras import CALL_METHODS
from mcp_hub.protocol.shape.stream_events import decoded
from mcp_hub.stores.base import Change, Chunk, EventPage, StreamLog
from mcp_hub.types import CallId, RawJson

UNWRITABLE: Final = (ValueError, TypeError, OverflowError, RecursionError, msgspec.MsgspecError)
"""Errors of encoding, and of an event that may not follow."""
_SHOWN: Final = 4096
"""Characters kept of an unwritable text."""
_T = TypeVar("_T")
PAGE: Final = 4096
"""Events fetched at once."""
_LOOK: Final = 256
"""Events searched at once."""
_decode_text = msgspec.json.Decoder(str).decode


def unwritable(event: CallEvent, problem: Exception) -> CallEvent:
    """A replacement that can be written: an ending for an ending, else a log message."""
    why = _writable(str(problem))
    match event:
        case Completed():
            return Failed(RpcError(f"The call succeeded, but its result cannot be written: {why}"))
        case Cancelled(reason):
            return Cancelled(_writable(reason or why))
        case Failed(error):
            message = f"{_writable(error.message)} (the rest of this error cannot be written: {why})"
            is_unknown = (error.data or {}).get("outcome") == "unknown"
            data = {"outcome": "unknown"} if is_unknown else None
            return Failed(RpcError(message, code=error.code, data=data))
        case _:
            text = f"an event of this call ({type(event).__name__}) cannot be written: {why}"
            params = {"level": "warning", "logger": "mcp-hub", "data": text}
            return Log("warning", msgspec.json.encode(params))


def event_of(line: bytes) -> CallEvent:
    """A line's event; `Started` if unreadable."""
    try:
        return decoded(line)[1]
    except ValueError:
        return Started()


def ending_of(row: StreamInfo, line: bytes) -> Ending:
    """An ended stream's last event, an ending in any case."""
    event = event_of(line)
    if isinstance(event, Ending):
        return event
    if row.status == "cancelled":
        return Cancelled()
    reason = f"The call has ended ({row.status}). Its result cannot be read: a newer hub may have written it."
    return Failed(RpcError(reason))


def _writable(text: str) -> str:
    return hide_head(text, _SHOWN).encode("utf-8", "replace").decode()


async def fetched(store: StreamLog, id_: CallId, after: int, limit: int = PAGE) -> tuple[bytes, ...]:
    """A page; empty at the end. Raises `StoreError`, `UnknownStream`."""
    page: EventPage | StoreError | None = await done_with(partial(store.fetch, id_, after, limit))
    if isinstance(page, StoreError):
        raise page
    if page is None:
        raise UnknownStream
    return page.lines


async def appended(store: StreamLog, row: StreamInfo, lines: Sequence[bytes], change: Change) -> None:
    """Appends without a writer. Raises `StoreError`."""
    chunk = Chunk(row.last + 1, tuple(lines))
    error: StoreError | None = await done_with(partial(store.append, row.id, row.epoch, chunk, change))
    if error is not None:
        raise error


async def done_with(start: Callable[[Callable[[_T], None]], None]) -> _T:
    """Waits for the store's callback."""
    news = anyio.Event()
    results: list[_T] = []

    def settle(value: _T) -> None:
        results.append(value)
        news.set()

    start(settle)
    await news.wait()
    return results[0]


async def _events(store: StreamLog, id_: CallId, after: int, last: int, mark: bytes) -> AsyncIterator[CallEvent]:
    """Events after `after` up to `last` whose lines have `mark`."""
    while after < last and (lines := await fetched(store, id_, after, min(last - after, PAGE))):
        for line in lines:
            if mark in line:
                yield event_of(line)
        after += len(lines)


async def open_questions(store: StreamLog, row: StreamInfo) -> dict[str, InputRequired]:
    """A stream's open questions by key, oldest first."""
    questions: dict[str, InputRequired] = {}
    if row.status == "input_required":
        async for event in _events(store, row.id, row.first - 1, row.last, b'"type":"input-'):
            if isinstance(event, InputRequired):
                questions[event.key] = event
            elif isinstance(event, InputReceived):
                questions.pop(event.key, None)
    return questions


async def asked_last(store: StreamLog, row: StreamInfo, keys: Collection[str]) -> dict[str, InputRequired]:
    """Committed questions, read backwards."""
    questions: dict[str, InputRequired] = {}
    last = row.last
    while last >= row.first and not all(key in questions for key in keys):
        start = max(row.first - 1, last - _LOOK)
        async for event in _events(store, row.id, start, last, b'"type":"input-required"'):
            if isinstance(event, InputRequired):
                questions[event.key] = event
        last = start
    return questions


async def ending(store: StreamLog, row: StreamInfo) -> Ending | None:
    """An ended stream's last event, or None. Raises `StoreError`."""
    with suppress(UnknownStream):
        for line in await fetched(store, row.id, row.last - 1, 1):
            return ending_of(row, line)
    return None


async def last_progress(store: StreamLog, row: StreamInfo) -> Progressed | None:
    """The last progress in the latest page."""
    last: Progressed | None = None
    start = max(row.last - PAGE, row.first - 1)
    async for event in _events(store, row.id, start, row.last, b'"type":"progress"'):
        if isinstance(event, Progressed):
            last = event
    return last


class _Run(msgspec.Struct):
    code: str = ""


class _Sealed(msgspec.Struct):
    run: _Run = msgspec.field(default_factory=_Run)


class _Continuation(msgspec.Struct):
    state: _Sealed = msgspec.field(default_factory=_Sealed, name="how")


def script_of(row: StreamInfo) -> str:
    """The script of a run; empty for other calls. Its seal is not looked at."""
    try:
        return msgspec.json.decode(row.continuation or b"", type=_Continuation).state.run.code
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def exported_name(call: Call) -> str:
    """The name or URI in the client's form."""
    raw = call.exported_name
    return _string(raw) if type(raw) is msgspec.Raw else own_name(call)


def own_name(call: Call) -> str:
    """The name or URI in the upstream's form."""
    if call.method not in CALL_METHODS and is_foreign(call.method):
        return call.method
    raw = call.params.get("name", call.params.get("uri"))
    return _string(raw) if raw is not None else call.method


def _string(raw: RawJson) -> str:
    try:
        return _decode_text(raw)
    except msgspec.DecodeError:
        return ""
