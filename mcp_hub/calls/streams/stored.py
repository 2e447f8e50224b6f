"""Reads and writes single events of stored streams, and names calls as their streams do."""

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from typing import Final, TypeVar

import anyio
import msgspec

from mcp_hub.call import Call, StreamInfo
from mcp_hub.calls.streams.placeholders import event_of
from mcp_hub.errors import StoreError, UnknownStream
from mcp_hub.events import CallEvent, InputReceived, InputRequired, Progressed
from mcp_hub.stores.base import Change, Chunk, EventPage, EventStore
from mcp_hub.types import CallId, RawJson

_T = TypeVar("_T")

PAGE: Final = 4096
"""Events that are fetched from the store at once."""
_LOOK: Final = 256
"""Events that are looked through at once for what is asked."""
_decode_text = msgspec.json.Decoder(str).decode


async def fetched(store: EventStore, id_: CallId, after: int, most: int = PAGE) -> tuple[bytes, ...]:
    """A page of events, encoded; empty at the end. Raises `StoreError`, `UnknownStream`."""
    page: EventPage | StoreError | None = await done_with(partial(store.fetch, id_, after, most))
    if isinstance(page, StoreError):
        raise page
    if page is None:
        raise UnknownStream
    return page.lines


async def appended(store: EventStore, row: StreamInfo, lines: Sequence[bytes], change: Change) -> None:
    """Adds events behind the last one of a stream that this process owns and nobody writes to. Raises `StoreError`."""
    chunk = Chunk(row.last + 1, tuple(lines))
    error: StoreError | None = await done_with(partial(store.append, row.id, row.epoch, chunk, change))
    if error is not None:
        raise error


async def done_with(start: Callable[[Callable[[_T], None]], None]) -> _T:
    """Waits until the store calls back."""
    news = anyio.Event()
    found: list[_T] = []

    def done(result: _T) -> None:
        found.append(result)
        news.set()

    start(done)
    await news.wait()
    return found[0]


async def _events(store: EventStore, id_: CallId, after: int, last: int, mark: bytes) -> AsyncIterator[CallEvent]:
    """The events behind `after`, up to `last`, whose lines have `mark`."""
    while after < last and (lines := await fetched(store, id_, after, min(last - after, PAGE))):
        for line in lines:
            if mark in line:
                yield event_of(line)
        after += len(lines)


async def open_questions(store: EventStore, row: StreamInfo) -> dict[str, InputRequired]:
    """The open questions of a stream, by key, oldest first."""
    asked: dict[str, InputRequired] = {}
    if row.status == "input_required":
        async for event in _events(store, row.id, row.first - 1, row.last, b'"type":"input-'):
            if isinstance(event, InputRequired):
                asked[event.key] = event
            elif isinstance(event, InputReceived):
                asked.pop(event.key, None)
    return asked


async def asked_last(store: EventStore, row: StreamInfo, keys: Collection[str]) -> dict[str, InputRequired]:
    """The committed questions of these keys, looked for from the end: a call that waits says little else."""
    found: dict[str, InputRequired] = {}
    last = row.last
    while last >= row.first and not all(key in found for key in keys):
        start = max(row.first - 1, last - _LOOK)
        async for event in _events(store, row.id, start, last, b'"type":"input-required"'):
            if isinstance(event, InputRequired):
                found[event.key] = event
        last = start
    return found


async def last_progress(store: EventStore, row: StreamInfo) -> Progressed | None:
    """Its last progress, as far as the latest events tell."""
    last: Progressed | None = None
    start = max(row.last - PAGE, row.first - 1)
    async for event in _events(store, row.id, start, row.last, b'"type":"progress"'):
        if isinstance(event, Progressed):
            last = event
    return last


def asked(call: Call) -> str:
    """The name or URI that the client called, as exported."""
    raw = call.asked
    return _string(raw) if type(raw) is msgspec.Raw else own_name(call)


def own_name(call: Call) -> str:
    """The upstream's own name or URI of it."""
    raw = call.params.get("name", call.params.get("uri"))
    return _string(raw) if raw is not None else call.method


def _string(raw: RawJson) -> str:
    try:
        return _decode_text(raw)
    except msgspec.DecodeError:
        return ""
