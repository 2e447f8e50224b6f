"""Streams in one SQLite file shared by hubs."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Final, NamedTuple, TypeVar

import anyio

from mcp_hub.aio import Bell, call_soon
from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.base import Appended, Change, Chunk, Fetched, Message, SessionRow, StoreLimits
from mcp_hub.stores.faults import StoreFault, faulty
from mcp_hub.stores.locks import Instances, remove
from mcp_hub.stores.sqlite import reads, writes
from mcp_hub.stores.sqlite.quarantine import Tenancy, carry_over, identity, moved
from mcp_hub.stores.sqlite.transactions import ReadOnlyTransactions, ReadTransactions, WriteTransactions
from mcp_hub.stores.sqlite.worker import Job, Worker
from mcp_hub.types import CallId

FILE: Final = "streams.db"
_CLOSING: Final = 1.0
"""Seconds that closing may take."""

_TOGETHER: Final = 4 << 20
"""Bytes of events that are written together, or those of one append."""

T = TypeVar("T")
_Append = tuple[writes.Append, Appended]
log = get_logger(__name__)


class _Links(NamedTuple):
    writer: Worker
    reader: Worker
    damaged: Callable[[int, str], None]


class _SqliteLog:
    is_durable = is_settled = True

    def __init__(self, links: _Links, instance: str, limits: StoreLimits) -> None:
        self.instance = instance
        self._limits = limits
        self._heads: writes.Heads = {}
        self._gathered: list[_Append] = []
        self._size = 0  # bytes of their events
        self._writer, self._reader, self._damaged = links

    def survives(self, stream: CallId) -> bool:
        return True

    def is_held(self, stream: CallId) -> bool:
        return True

    def create(self, row: StreamInfo, chunk: Chunk, callback: Appended) -> None:
        run = partial(writes.create, row=row, chunk=chunk)
        self._writer.submit(Job(run, callback, writes=True, is_vital=True, size=_size(chunk)))

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Appended) -> None:
        if not self._gathered:
            call_soon(self.hand_over)
        self._gathered.append(((stream, epoch, chunk, change), callback))
        self._size += _size(chunk)
        if self._size >= _TOGETHER:
            self.hand_over()

    def hand_over(self) -> None:
        """Hands over the appends of one pass of the event loop, which are written together."""
        gathered, self._gathered, self._size = self._gathered, [], 0
        if gathered:
            self._submit(gathered)

    def _submit(self, gathered: list[_Append]) -> None:
        appends = [each for each, _ in gathered]
        self._writer.submit(
            Job(
                partial(writes.append, self._heads, self._limits, appends=appends),
                partial(self._appended, gathered),
                writes=True,
                is_vital=any(change.is_vital for _, _, _, change in appends),
                size=sum(_size(chunk) for _, _, chunk, _ in appends),
            )
        )

    def _appended(self, gathered: list[_Append], outcome: list[StoreError | None] | StoreError) -> None:
        if isinstance(outcome, StoreError):
            if len(gathered) > 1 and not isinstance(outcome, StoreFault):  # of one of them, which then fails alone
                for each in gathered:
                    self._submit([each])
                return
            outcome = [outcome] * len(gathered)
        for (_, callback), error in zip(gathered, outcome, strict=True):
            try:
                callback(error)
            except Exception:  # others wait for the rest
                log.exception("store_callback_failed", store=FILE)

    def fetch(self, stream: CallId, after: int, limit: int, callback: Fetched) -> None:
        run = partial(reads.fetch, stream=stream, after=after, limit=limit, damaged=self._damaged)
        self._reader.submit(Job(run, callback))

    async def find(self, stream: CallId) -> StreamInfo | None:
        return await self._reader.ask(partial(reads.find, stream=stream, damaged=self._damaged))

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        return await self._reader.ask(partial(reads.find_key, principal=principal, key=key, damaged=self._damaged))

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        return await self._reader.ask(partial(reads.rows, principal=principal, limit=limit, damaged=self._damaged))


class _SqliteInbox:
    def __init__(self, links: _Links, instance: str, clock: Clock) -> None:
        self._clock = clock
        self._writer, self._reader, _ = links
        self._instance = instance
        self._messages: list[Message] = []
        self._news = Bell()
        self._version = 0

    async def begin(self) -> None:
        self._version = await self._writer.ask(_data_version)

    async def take(self) -> list[Message]:
        if await self._reader.ask(partial(reads.has_messages, owner=self._instance)):
            taken = partial(writes.take_messages, owner=self._instance)
            await self._writer.ask(taken, writes=True, on_result=self._messages.extend)
        messages, self._messages = self._messages, []
        return messages

    async def post(self, message: Message) -> bool:
        return await self._writer.ask(partial(writes.post, message=message), writes=True)

    async def has_news(self) -> bool:
        version, before = await self._writer.ask(_data_version), self._version
        self._version = version
        self._writer.watch(self._clock, _data_version, version, self._news.ring)
        return version != before

    def moved(self, followed: Sequence[StreamInfo]) -> Collection[CallId]:
        return [row.id for row in followed]  # the file says that it was written to, and not where

    async def wait(self, seconds: float, longest: float = 0.0) -> None:
        await self._news.wait(max(seconds, longest))


class _SqliteLeases:
    """An owner is gone when its lock is free."""

    interval = 5.0

    def __init__(self, links: _Links, instances: Instances, limits: StoreLimits) -> None:
        self._writer, self._reader, self._damaged = links
        self._instances = instances
        self._limits = limits

    async def orphans(self) -> list[StreamInfo]:
        await self._writer.ask(_data_version)  # which notices that the file was moved
        return await self._reader.ask(self._orphans)

    def _orphans(self, db: Connection) -> list[StreamInfo]:
        running = reads.running(db, self._damaged)
        gone = {owner for owner in {row.owner for row in running} if self._instances.is_gone(owner)}
        return [row for row in running if row.owner in gone]

    async def is_orphan(self, row: StreamInfo) -> bool:
        return await self._reader.ask(lambda _: self._instances.is_gone(row.owner))

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        run = partial(self._claim, row=row, lines=lines, change=change)
        return await self._writer.ask(run, writes=True, is_vital=True)

    def _claim(self, db: Connection, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        if not self._instances.is_gone(row.owner):
            return None
        if not writes.claim(db, self._limits, row, self._instances.id, lines, change):
            return None
        return reads.find(db, row.id, self._damaged)


class _SqliteSessions:
    def __init__(self, links: _Links, limits: StoreLimits) -> None:
        self._writer, self._reader, _ = links
        self._limits = limits

    async def put(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow:
        await self._writer.ask(partial(writes.put_session, limits=self._limits, session=session), writes=True)
        return session

    async def find(self, id_: str) -> SessionRow | None:
        return await self._reader.ask(partial(reads.session, id_=id_))

    async def drop(self, id_: str) -> None:
        await self._writer.ask(partial(writes.drop_session, id_=id_), writes=True)


class SqliteStore:
    """An `EventStore` on `<folder>/streams.db`; fails with `StoreFault`.

    The caller enters and leaves `instances`.
    """

    replicas = None

    def __init__(
        self, folder: Path, limits: StoreLimits, clock: Clock, instances: Instances, *, is_read_only: bool = False
    ) -> None:
        self._instances = instances
        self.path = folder / FILE
        self._limits = limits
        self.is_read_only = is_read_only
        reads_by = ReadOnlyTransactions if is_read_only else ReadTransactions
        writes_on, reads_on = self._transactions = (
            WriteTransactions(self.path, clock, watches=True),
            reads_by(self.path, clock),
        )
        links = _Links(Worker("store-writer", writes_on), Worker("store-reader", reads_on), reads_on.note)
        self._links = links
        self.log = _SqliteLog(links, instances.id, limits)
        self.inbox = _SqliteInbox(links, instances.id, clock)
        self.leases = _SqliteLeases(links, instances, limits)
        self.sessions = _SqliteSessions(links, limits)

    async def open(self) -> None:
        if self.is_read_only:
            await self._links.reader.start()
            return
        try:
            await self._links.writer.start()
            await self._links.reader.start()
            await self.inbox.begin()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        until = anyio.current_time() + _CLOSING
        await self.retire()
        self._transactions[1].is_closing.set()
        if not await self._links.reader.stop(max(until - anyio.current_time(), 0)):
            log.error("store_close_timed_out", store=str(self.path))

    async def retire(self) -> None:
        """Stops writing and releases the shared lock, within the time of `close`; reading continues."""
        self.log.hand_over()
        self._transactions[0].is_closing.set()
        if not await self._links.writer.stop(_CLOSING):
            log.error("store_writes_timed_out", store=str(self.path))

    async def mend(self) -> None:
        """Saves a deleted or replaced log, once no hub writes to it, and opens the file anew.

        Raises `StoreFault`; reading continues.
        """
        writing, reading = self._transactions
        assert isinstance(reading, ReadTransactions)
        await self.retire()
        tenancy = Tenancy(self.path)
        try:
            with tenancy.alone() as is_alone:
                if is_alone:
                    await self._links.reader.ask(reading.rescue)
                elif reading.was_rescued(tenancy.noted):
                    await self._links.reader.ask(reading.renew)
                else:
                    raise StoreFault("moved", f"store {self.path}: its log was moved, and another hub uses it")
        except OSError as error:
            raise faulty(error, self.path) from error
        writing.is_closing.clear()
        await self._links.writer.start()
        await self.inbox.begin()

    def leave_path(self) -> None:
        """Removes log and index of a moved file, before another one is opened there."""
        for end, inode in self._transactions[1].opened.items():
            if end and identity(companion := self.path.with_name(self.path.name + end)) == inode:
                remove(companion)

    async def carry_over(self) -> int:
        """Copies this process's streams to the file now at the path; their number. Raises `StoreError`."""
        return await self._links.reader.ask(partial(carry_over, path=self.path, owner=self.log.instance))

    @property
    def moved(self) -> list[str]:
        """The names of the file and its log, if they were deleted or replaced."""
        return moved(self.path, self._transactions[1].opened)

    @property
    def identity(self) -> tuple[int, int] | None:
        return self._transactions[0].identity

    async def touch(self) -> None:
        await self._write(writes.touch)

    async def sweep(self, now: float) -> int:
        await self._set_aside()
        total = 0
        while swept := await self._write(partial(writes.sweep, limits=self._limits, now=now)):
            total += swept
        return total

    async def _set_aside(self) -> None:
        """Damaged rows of a live owner come again."""
        if noted := self._transactions[1].noted():
            run = partial(writes.set_aside, numbers=noted, is_gone=self._instances.is_gone)
            for id_, reason in (await self._write(run)).items():
                log.warning("record_set_aside", store=str(self.path), stream=ascii(id_), reason=reason)

    async def _write(self, run: Callable[[Connection], T]) -> T:
        return await self._links.writer.ask(run, writes=True)


def _size(chunk: Chunk) -> int:
    return sum(map(len, chunk.lines))


def _data_version(db: Connection) -> int:
    """Changes after writes of other processes (sqlite.org/pragma.html#pragma_data_version)."""
    return int(db.execute("PRAGMA data_version").fetchone()[0])
