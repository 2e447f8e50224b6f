"""Durable streams and past calls, read from the store without a hub."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Self

import anyio
from msgspec.structs import replace

from mcp_hub.app.dashboard.past_calls import PastCalls, journal_rules
from mcp_hub.app.limits import open_history, open_store, stream_file
from mcp_hub.call import StreamInfo
from mcp_hub.calls.plan import StreamLimits
from mcp_hub.calls.reading.stored import fetched
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.client.stream_reader import read_event
from mcp_hub.client.streams import OnPause, ignore
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.load import Loaded
from mcp_hub.errors import EventsGone, InvalidParams, UnknownStream, UpstreamUnavailable
from mcp_hub.events import CallEvent, Cancelled, Completed, Failed
from mcp_hub.fronts.rest.problem import unknown_call
from mcp_hub.fronts.rest.streams import status_of
from mcp_hub.protocol.rest.calls import StreamList, StreamStatus
from mcp_hub.protocol.rest.history import HistoryCall, HistoryPage, HistoryQuery
from mcp_hub.sessions.session import LOCAL
from mcp_hub.stores.base import EventStore, Message, StoreLimits, StreamLog
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import CallId

_LOOK: Final = 0.05
_OWNER: Final = 2.0
"""Seconds between two looks at new events, and at the owner of the stream."""


@asynccontextmanager
async def open_streams(loaded: Loaded) -> AsyncIterator["LocalStreams"]:
    """The streams in the store, if there is one. Raises `UpstreamUnavailable`."""
    file = stream_file(loaded.settings, os.environ)
    is_there = file is None or file.exists()  # a look must not create one
    store = open_store(loaded.settings, os.environ) if is_there else MemoryStore(StoreLimits())
    await store.open()
    try:
        if is_there and not store.log.is_durable:
            store_name = loaded.settings.hub.store.shown if file is None else file
            raise UpstreamUnavailable(f"The store {store_name} cannot be used. The log of the hub has the reason.")
        yield LocalStreams(store)
    finally:
        await store.close()


class LocalStreams:
    """The streams of clients without a token."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    async def streams(self, limit: int) -> list[StreamStatus]:
        """The newest first."""
        rows = await self._store.log.rows(LOCAL.principal, limit)
        gone = dict[str, bool]()
        for row in rows:
            if not row.has_ended and row.owner not in gone:
                gone[row.owner] = await self._store.leases.is_orphan(row)
        return [_status(row, is_orphan=gone.get(row.owner, False)) for row in rows]

    async def stream_list(self, limit: int) -> StreamList:
        """Without calls that have no stream yet."""
        return StreamList(await self.streams(limit))

    async def status(self, stream: str) -> StreamStatus:
        """Raises `UnknownStream`."""
        row = await stream_row(self._store.log, stream)
        return _status(row, is_orphan=not row.has_ended and await self._store.leases.is_orphan(row))

    def resume(self, stream: str, after: int = 0, *, on_pause: OnPause = ignore) -> "LocalStream":
        """The events behind `after`."""
        return LocalStream(self._store, stream, after, on_pause)

    async def cancel(self, stream: str) -> StreamStatus:
        """Asks the owner to end the call. Raises `UnknownStream`."""
        row = await tended(self._store, await stream_row(self._store.log, stream))
        if not row.has_ended:
            await self._store.inbox.post(Message(row.id, "cancel", b"cancelled on request"))
        return status_of(row)


def _status(row: StreamInfo, *, is_orphan: bool) -> StreamStatus:
    """The status of a stream; without its hub, as the next hub will find it."""
    status = status_of(row)
    if row.has_ended or not is_orphan:
        return status
    if row.continuation is None:
        return replace(status, status="failed", message="Its hub has ended. The outcome of the call is unknown.")
    return replace(status, message="Its hub has ended. The next one continues the call.")


class LocalStream:
    """The events of one stream, iterated once. `on_pause` says why it waits for another hub.

    Raises `UnknownStream`, `EventsGone`, and `InvalidParams` for a cursor beyond the end.
    """

    def __init__(self, store: EventStore, stream: str, after: int, on_pause: OnPause) -> None:
        self.stream = stream
        self.cursor = after
        self._on_pause = on_pause
        self._store = store
        self._next_look = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Holds nothing."""

    async def __aiter__(self) -> AsyncIterator[CallEvent]:
        row = await self._begin()
        while True:
            lines = await fetched(self._store.log, row.id, self.cursor)
            for line in lines:
                head, event = read_event(line)
                if head.seq != self.cursor + 1:
                    raise EventsGone(head.seq)
                self.cursor = head.seq
                if event is not None:
                    yield event
                if isinstance(event, Completed | Failed | Cancelled):
                    return
            if not lines:
                if row.has_ended:
                    return
                await self._wait(row)
                row = await stream_row(self._store.log, self.stream)

    async def _begin(self) -> StreamInfo:
        await self._store.inbox.has_news()  # from here on: whether there is any
        row = await stream_row(self._store.log, self.stream)
        if self.cursor > row.last:
            message = f"cursor {self.cursor} is beyond the stream's last event, {row.last}"
            raise InvalidParams(message, symbol="invalid_cursor")
        return row

    async def _wait(self, row: StreamInfo) -> None:
        self._store.inbox.moved([row])
        while not await self._store.inbox.has_news():
            if anyio.current_time() >= self._next_look:
                self._next_look = anyio.current_time() + _OWNER
                if (await tended(self._store, row)).has_ended:
                    return
                if await self._store.leases.is_orphan(row):
                    self._on_pause(
                        "The hub of this call has ended. Waiting for the next one, which continues the call."
                    )
            await self._store.inbox.wait(_LOOK)


async def stream_row(store: StreamLog, stream: str) -> StreamInfo:
    """Raises `UnknownStream`."""
    row = await store.find(CallId(stream))
    if row is None or row.principal != LOCAL.principal:
        raise UnknownStream
    return row


async def tended(store: EventStore, row: StreamInfo) -> StreamInfo:
    """The row, with an ending if no hub can continue the call."""
    if row.has_ended or row.continuation is not None or not await store.leases.is_orphan(row):
        return row
    return (await StreamTable(store, SystemClock(), StreamLimits()).open(row.principal, row.id)).row


@asynccontextmanager
async def open_past_calls(loaded: Loaded) -> AsyncIterator["LocalHistory"]:
    """The past calls in the store. Raises `StoreError`."""
    store = open_store(loaded.settings, os.environ) if stream_file(loaded.settings, os.environ) is None else None
    if store is not None:
        await store.open()
    history = open_history(loaded.settings, os.environ, store)
    try:
        rules, servers = journal_rules(loaded.settings), loaded.settings.servers
        yield LocalHistory(PastCalls(history, lambda: rules, servers=servers))
    finally:
        await history.close()
        if store is not None:
            await store.close()


class LocalHistory:
    """The past calls of every principal. Methods raise `StoreError`, too."""

    def __init__(self, calls: PastCalls) -> None:
        self._calls = calls

    async def history(self, query: HistoryQuery) -> HistoryPage:
        return await self._calls.page(LOCAL, query)

    async def past_call(self, id_: str) -> HistoryCall:
        """Raises `InvalidParams`."""
        call = await self._calls.call(LOCAL, id_)
        if call is None:
            unknown = unknown_call()
            raise InvalidParams(str(unknown), symbol=unknown.code)
        return call

    async def clear_history(self) -> int:
        return await self._calls.clear()
