"""What the store knows of a stream, beyond following it; and what a call goes by there."""

from collections.abc import Sequence
from typing import Final

import anyio
import msgspec

from mcp_hub.calls.stand_ins import event_of
from mcp_hub.errors import UnknownStream
from mcp_hub.events import InputReceived, InputRequired, Progress
from mcp_hub.stores.base import Change, Chunk, EventStore, Page, StoreError, StreamRow
from mcp_hub.types import CallId, RawJson
from mcp_hub.upstreams.base import Call

__all__ = ["PAGE", "appended", "asked", "fetched", "last_progress", "open_questions", "own_name"]

PAGE: Final = 4096
"""Events that are fetched at once."""


async def fetched(store: EventStore, id_: CallId, after: int, most: int = PAGE) -> tuple[bytes, ...]:
    """A page of events, encoded; empty at the end. Raises `StoreError`, `UnknownStream`."""
    news = anyio.Event()
    found: list[Page | StoreError | None] = []

    def done(page: Page | StoreError | None) -> None:
        found.append(page)
        news.set()

    store.fetch(id_, after, most, done)
    await news.wait()
    (page,) = found
    if isinstance(page, StoreError):
        raise page
    if page is None:
        raise UnknownStream
    return page.lines


async def appended(store: EventStore, row: StreamRow, lines: Sequence[bytes], change: Change) -> None:
    """Adds events behind the last one of a stream that this process owns and nobody writes to. Raises `StoreError`."""
    news = anyio.Event()
    errors: list[StoreError | None] = []

    def done(error: StoreError | None) -> None:
        errors.append(error)
        news.set()

    store.append(row.id, row.epoch, Chunk(row.last + 1, tuple(lines)), change, done)
    await news.wait()
    if errors[0] is not None:
        raise errors[0]


async def open_questions(store: EventStore, row: StreamRow) -> dict[str, InputRequired]:
    """What a stream still asks, by key, oldest first."""
    if row.status != "input_required":
        return {}
    asked: dict[str, InputRequired] = {}
    after = row.first - 1
    while after < row.last:
        lines = await fetched(store, row.id, after)
        if not lines:
            break
        for line in lines:
            if b'"type":"input-' in line:
                event = event_of(line)
                if isinstance(event, InputRequired):
                    asked[event.key] = event
                elif isinstance(event, InputReceived):
                    asked.pop(event.key, None)
        after += len(lines)
    return asked


async def last_progress(store: EventStore, row: StreamRow) -> float:
    """The last value that its progress had, as far as the latest events tell; 0 if it had none."""
    last, after = 0.0, max(row.last - PAGE, row.first - 1)
    while after < row.last and (lines := await fetched(store, row.id, after)):
        for line in lines:
            if b'"type":"progress"' in line and isinstance(event := event_of(line), Progress):
                last = event.progress
        after += len(lines)
    return last


def asked(call: Call) -> str:
    """What the client called: the exported name or the URI."""
    return _string(call.asked) if isinstance(call.asked, msgspec.Raw) else own_name(call)


def own_name(call: Call) -> str:
    """What the upstream knows it by."""
    raw = call.params.get("name", call.params.get("uri"))
    return _string(raw) if raw is not None else call.method


def _string(raw: RawJson) -> str:
    try:
        return msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return ""
