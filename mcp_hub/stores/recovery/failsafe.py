"""A store with memory behind it: whatever is wrong with the file (or the server), calls continue.

A stream whose file fails continues in memory under the same numbers; events in the file are read from there for as long
as that works. While the file is out of use new streams begin in memory, `is_durable` is False, and after a while the
next write, or else `orphans`, tries the file again. Once that works, streams in memory return to it: a running one with
its next events, an ended one when `has_news` or `sweep` is asked. These two also repair a damaged file (`recovery`).
Other processes do not know streams in memory, and a key that only the file knows may be used again.
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path
from typing import Final, Protocol, TypeVar

import anyio

from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import Appended, Change, Chunk, EventPage, EventStore, Fetched, Message, SessionRow
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.instances import Instances, new_instance_id
from mcp_hub.stores.limits import MAX_MESSAGES, StoreLimits
from mcp_hub.stores.recovery.memory_fallback import MemoryFallback
from mcp_hub.stores.recovery.recovery import Recovery
from mcp_hub.types import CallId

_AT_ONCE: Final = 64
"""Ended streams that come home each time."""
_GOODBYE: Final = 0.5
"""Seconds for bringing streams home when the store closes."""

_NO_FILE: Final = 5.0
"""Seconds between two looks for orphans, which try the file, too."""

T = TypeVar("T")


class BackedStore(EventStore, Protocol):
    """A store whose faults come as `StoreFault`."""

    async def touch(self) -> None:
        """Writes without changing anything. Raises `StoreFault` if that does not work."""


class Backing(Protocol):
    """A store over time: in use, out of use, back again. `recovery.Recovery` is the one of a file."""

    @property
    def file(self) -> BackedStore | None:
        """The store that can be read, if any."""

    @property
    def is_fit(self) -> bool: ...

    @property
    def is_settled(self) -> bool:
        """Whether others, too, have had the time to write what they had in memory."""

    def for_writing(self) -> BackedStore | None:
        """The store, if it is fit or worth a try; who is given it says `worked` or `failed`."""

    def worked(self) -> None: ...
    def failed(self, fault: StoreFault) -> None: ...
    def failed_reading(self, fault: StoreFault) -> None: ...
    async def open(self) -> None: ...
    async def recover(self, leave: Callable[[], None]) -> None:
        """If it is time to: tries to have it again. `leave` is called before `file` changes."""

    async def close(self) -> None: ...


class FailsafeStore:
    """An `EventStore` that never fails for the sake of the one behind it."""

    is_shared = False

    def __init__(self, files: Backing, limits: StoreLimits, instance: str) -> None:
        self.instance = instance
        self._files = files
        self._away = MemoryFallback(limits, instance)
        self._own: dict[CallId, StreamInfo] = {}
        """Running streams of this process that are in the file, as they were confirmed."""
        self._messages: list[Message] = []
        self.news = base.ReplicaNews()

    @classmethod
    def on_file(cls, folder: Path, limits: StoreLimits, clock: Clock) -> "FailsafeStore":
        """One on `<folder>/streams.db`."""
        instances = Instances(folder, new_instance_id())
        return cls(Recovery(folder, limits, clock, instances), limits, instances.own)

    @property
    def secret(self) -> bytes | None:
        return None if self._files.file is None else self._files.file.secret

    @property
    def is_durable(self) -> bool:
        return self._files.is_fit

    @property
    def is_settled(self) -> bool:
        return True

    def survives(self, stream: CallId) -> bool:
        return self._away.row(stream) is None

    async def open(self) -> None:
        await self._files.open()

    async def close(self) -> None:
        with anyio.move_on_after(_GOODBYE, shield=True):
            await self._bring_home()
        await self._files.close()

    # -- the owner

    def create(self, row: StreamInfo, chunk: Chunk, done: Appended) -> None:
        file = self._files.for_writing()
        if file is None or self._has_key_away(row):
            self._away.create(row, chunk, done)
            return

        def on_done(error: StoreError | None) -> None:
            if isinstance(error, StoreFault):
                self._files.failed(error)
                self._away.create(row, chunk, done)
                return
            if error is None:
                self._confirmed(base.begin(row, chunk), chunk.lines)
            done(error)

        file.create(row, chunk, on_done)

    def _has_key_away(self, row: StreamInfo) -> bool:
        return row.key is not None and self._away.memory.has_key(row.principal, row.key)

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, done: Appended) -> None:
        here = self._away.row(stream)
        file = self._files.for_writing() if here is None or self._away.can_return(stream) else None
        if file is None:
            self._append_away(stream, epoch, chunk, change, done)
        elif here is not None:
            self._append_home(file, here, epoch, chunk, change, done)
        else:
            self._append(file, stream, epoch, chunk, change, done)

    def _append(
        self, file: BackedStore, stream: CallId, epoch: int, chunk: Chunk, change: Change, done: Appended
    ) -> None:
        def on_done(error: StoreError | None) -> None:
            if isinstance(error, StoreFault):
                self._files.failed(error)
                self._append_away(stream, epoch, chunk, change, done)
                return
            row = self._own.get(stream)
            if error is None and row is not None:
                self._confirmed(base.changed(row, chunk, change), chunk.lines)
            elif error is None:
                self._files.worked()
            done(error)

        file.append(stream, epoch, chunk, change, on_done)

    def _append_away(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, done: Appended) -> None:
        if stream in self._own:
            self._go_away(self._own.pop(stream))
        self._away.memory.append(stream, epoch, chunk, change, done)

    def _append_home(
        self, file: BackedStore, here: StreamInfo, epoch: int, chunk: Chunk, change: Change, done: Appended
    ) -> None:
        try:
            base.refuse(here.id, here, epoch, chunk)
            base.joined(chunk)
        except StoreError as error:
            done(error)
            return

        def on_done(error: StoreError | None) -> None:
            if error is None:
                done(None)
            else:
                self._away.memory.append(here.id, epoch, chunk, change, done)

        self._return(file, base.changed(here, chunk, change), chunk.lines, on_done)

    def _return(self, file: BackedStore, row: StreamInfo, lines: tuple[bytes, ...], done: Appended) -> None:
        """Writes to the file what it lacks of a stream that is away, `lines` behind it, and the row as it is then."""

        def on_done(error: StoreError | None) -> None:
            if error is None:
                self._messages += self._away.returned(row.id)
                self._confirmed(row)
            elif isinstance(error, StoreFault):
                self._files.failed(error)
            else:
                self._away.refused(row.id)
            done(error)

        rest = self._away.rest(row.id, lines)
        if self._away.is_known(row.id):
            change = Change(row.updated, row.status, row.message, row.continuation, row.info, row.ttl, row.key is None)
            file.append(row.id, row.epoch, rest, change, on_done)
        else:
            file.create(row, rest, on_done)

    def _go_away(self, row: StreamInfo) -> None:
        """A stream that the file holds as the row says continues in memory."""
        self._away.leave(row)

    def _confirmed(self, row: StreamInfo, lines: tuple[bytes, ...] = ()) -> None:
        """The file holds the stream as the row says; `lines` are its last events, those that were written now."""
        self._files.worked()
        if row.has_ended:
            self._own.pop(row.id, None)
        else:
            self._own[row.id] = row

    async def inbox(self) -> list[Message]:
        self._messages += await self._away.memory.inbox()
        self._messages += await self._read(lambda file: file.inbox(), [])
        messages, self._messages = self._messages, []
        return messages

    # -- everybody

    def fetch(self, stream: CallId, after: int, most: int, done: Fetched) -> None:
        file, here = self._files.file, self._away.row(stream)
        if file is None or (here is not None and not self._away.is_before(stream, after)):
            self._away.memory.fetch(stream, after, most, done)
            return

        def on_done(page: EventPage | StoreError | None) -> None:
            if isinstance(page, StoreFault):
                self._files.failed_reading(page)
            if self._away.row(stream) is None:
                done(page)
            elif isinstance(page, EventPage) and (page := self._away.joined(page)).lines:
                done(page)
            else:
                self._away.memory.fetch(stream, after, most, done)

        file.fetch(stream, after, most, on_done)

    async def find(self, stream: CallId) -> StreamInfo | None:
        while True:
            was_away = self._away.row(stream) is not None
            kept = await self._ask(lambda file: file.find(stream), None)
            here = self._away.row(stream)
            if here is not None:
                return self._away.whole(here, kept)
            if not was_away:
                return kept

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        row = await self._away.memory.find_key(principal, key)
        if row is None or row.key != key:
            row = await self._ask(lambda file: file.find_key(principal, key), None) or row
        return None if row is None else await self.find(row.id)

    async def rows(self, principal: str | None, most: int) -> list[StreamInfo]:
        in_file: list[StreamInfo] = await self._ask(lambda file: file.rows(principal, most), [])
        kept = {row.id: row for row in in_file}
        for row in await self._away.memory.rows(principal, most):
            kept[row.id] = self._away.whole(row, kept.get(row.id))
        return sorted(kept.values(), key=lambda row: -row.created)[: max(most, 0)]

    async def post(self, message: Message) -> bool:
        """Raises `StoreError` too if the file cannot take it now: the owner may be another process."""
        if self._away.row(message.stream) is not None:
            return await self._away.memory.post(message)
        try:
            return self._files.file is not None and await self._files.file.post(message)
        except StoreFault as fault:
            self._files.failed_reading(fault)
            if message.stream not in self._own or len(self._messages) >= MAX_MESSAGES:
                raise
        self._messages.append(message)
        return True

    async def has_news(self) -> bool:
        await self._tend()
        return await self._read(lambda file: file.has_news(), False)

    def moved(self, followed: Sequence[StreamInfo]) -> Collection[CallId]:
        file = self._files.file
        return () if file is None else file.moved(followed)

    async def wait(self, seconds: float) -> None:
        file = self._files.file
        await (anyio.sleep(seconds) if file is None else file.wait(seconds))

    # -- what an owner left behind

    @property
    def orphan_interval(self) -> float:
        file = self._files.file
        return _NO_FILE if file is None else file.orphan_interval

    async def orphans(self) -> list[StreamInfo]:
        await self._try_again()
        return await self._read(lambda file: file.orphans(), [])

    async def is_orphan(self, row: StreamInfo) -> bool:
        return await self._read(lambda file: file.is_orphan(row), False)

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        """None too if the file cannot be written now."""
        file = self._files.for_writing()
        try:
            claimed = None if file is None else await file.claim(row, lines, change)
        except StoreFault as fault:
            self._files.failed(fault)
            return None
        if claimed is not None:
            self._confirmed(claimed, tuple(lines))
        return claimed

    async def sweep(self, now: float) -> int:
        await self._tend()
        return await self._away.memory.sweep(now) + await self._read(lambda file: file.sweep(now), 0)

    # -- handshake sessions

    async def put_session(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow | None:
        older = before if await self._away.memory.session(session.id) is None else None
        written = await self._written(lambda file: file.put_session(session, older))
        if not written:
            return await self._away.memory.put_session(session)
        await self._away.memory.drop_session(session.id)
        return written[0]

    async def session(self, id_: str) -> SessionRow | None:
        """From memory, else from the file."""
        here = await self._away.memory.session(id_)
        return here or await self._ask(lambda file: file.session(id_), None)

    async def drop_session(self, id_: str) -> None:
        """In memory and in the file."""
        await self._away.memory.drop_session(id_)
        await self._read(lambda file: file.drop_session(id_), None)

    # -- the file

    async def _read(self, ask: Callable[[BackedStore], Awaitable[T]], otherwise: T) -> T:
        """The file's answer, if it can be read."""
        file = self._files.file
        if file is None:
            return otherwise
        try:
            return await ask(file)
        except StoreFault as fault:
            self._files.failed_reading(fault)
            return otherwise

    async def _ask(self, ask: Callable[[BackedStore], Awaitable[T]], otherwise: T) -> T:
        """The same for what a caller asks about: without the file, what memory holds is all there is."""
        return await self._read(ask, otherwise)

    async def _written(self, write: Callable[[BackedStore], Awaitable[T]]) -> list[T]:
        """The file's answer; nothing if it could not be written."""
        if (file := self._files.for_writing()) is None:
            return []
        try:
            answer = [await write(file)]
        except StoreFault as fault:
            self._files.failed(fault)
            return []
        self._files.worked()
        return answer

    async def _tend(self) -> None:
        await self._files.recover(self._leave)
        await self._bring_home()

    async def _try_again(self) -> None:
        """Writes something to a file that is out of use, when it is worth a try: maybe nobody else has anything to."""
        if not self._files.is_fit:
            await self._written(lambda file: file.touch())

    def _leave(self) -> None:
        """The file is about to be another."""
        for row in self._own.values():
            self._away.leave(row)
        self._own = {}

    async def _bring_home(self) -> None:
        """Writes ended streams to the file that were away when they ended, until that fails."""
        for row in [row for row in self._away.returnable() if row.has_ended][:_AT_ONCE]:
            file = self._files.file
            if file is None or not self._files.is_fit:
                return
            if self._away.row(row.id) is not None:  # else somebody else has asked at the same time
                await self._return_and_wait(file, row)

    async def _return_and_wait(self, file: BackedStore, row: StreamInfo) -> None:
        is_done = anyio.Event()
        self._return(file, row, (), lambda _: is_done.set())
        await is_done.wait()
