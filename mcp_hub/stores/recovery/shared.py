"""The same over a store that several machines share: what only the store can know is not made up while it is away.

The owner of a stream continues in memory. Whatever else is asked then fails (`StoreFault`), and callers try again. Once
the store is back, each stream of this process that is in memory returns to it, unless another replica has claimed it.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from msgspec.structs import replace

from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock
from mcp_hub.errors import Fenced, KeyTaken, StoreError
from mcp_hub.stores import base
from mcp_hub.stores.base import Appended, Change, Chunk, EventPage, Fetched, SessionRow
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.recovery.failsafe import BackedStore, Backing, FailsafeStore
from mcp_hub.stores.recovery.recent import RecentEvents
from mcp_hub.types import CallId

_AT_ONCE: Final = 64
"""Streams that return each time."""

T = TypeVar("T")


class SharedFailsafeStore(FailsafeStore):
    """An `EventStore` whose owners do not wait for a server that is away."""

    is_shared = True

    def __init__(self, files: Backing, limits: StoreLimits, instance: str, clock: Clock) -> None:
        super().__init__(files, limits, instance)
        self._recent = RecentEvents(clock)
        self._returning: dict[CallId, list[Callable[[], None]]] = {}
        """Streams that are on their way back, with the appends that wait for that."""
        self._doubtful: list[StreamInfo] = []
        """Streams that the store may have made, though it did not say so: their calls were never sent."""

    @property
    def is_settled(self) -> bool:
        return self._files.is_settled

    def create(self, row: StreamInfo, chunk: Chunk, done: Appended) -> None:
        """With a key it fails while the store is away: another replica may have given the key to a call."""
        file = self._files.file
        if row.key is None or file is None:
            super().create(row, chunk, done)
        elif not self._files.is_fit:
            done(_away())
        else:
            file.create(row, chunk, partial(self._created, row, chunk, done))

    def _created(self, row: StreamInfo, chunk: Chunk, done: Appended, error: StoreError | None) -> None:
        if error is None:
            self._confirmed(base.begin(row, chunk), chunk.lines)
        elif isinstance(error, StoreFault):
            self._files.failed(error)
            self._doubtful.append(row)
        done(error)

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, done: Appended) -> None:
        waiting = self._returning.get(stream)
        if waiting is None:
            again = partial(self.append, stream, epoch, chunk, change, done)

            def appended(error: StoreError | None) -> None:
                here = self._away.row(stream)
                if error is None and here is not None and here.last + 1 == chunk.first:  # it left meanwhile
                    self._away.memory.append(stream, epoch, chunk, change, done)
                else:
                    self._appended(stream, again, done, error)

            super().append(stream, epoch, chunk, change, appended)
        else:
            waiting.append(partial(self.append, stream, epoch, chunk, change, done))

    def _appended(self, stream: CallId, again: Callable[[], None], done: Appended, error: StoreError | None) -> None:
        """A refusal may mean that the server has lost what it had confirmed: then that is written once more."""
        row, file = self._own.get(stream), self._files.file
        if not isinstance(error, Fenced) or row is None or file is None:
            done(error)
            return

        def looked(page: EventPage | StoreError | None) -> None:
            kept = page.row if isinstance(page, EventPage) else None
            is_ours = kept is None or (kept.epoch, kept.owner) == (row.epoch, row.owner)
            if isinstance(page, StoreError) or not is_ours or (kept is not None and kept.last >= row.last):
                done(error)
            elif stream in self._own:
                self._go_away(self._own.pop(stream))
                again()
            else:
                again()

        file.fetch(stream, row.last, 1, looked)

    def _go_away(self, row: StreamInfo) -> None:
        self._away.leave(row, self._recent.take(row.id))

    def _confirmed(self, row: StreamInfo, lines: tuple[bytes, ...] = ()) -> None:
        super()._confirmed(row, lines)
        self._recent.add(row, lines)

    def _leave(self) -> None:
        """The server was started again, or is another one: what it lacks of the last seconds is written once more."""
        for row in self._recent.rows():
            self._own.pop(row.id, None)
            if self._away.row(row.id) is None:
                self._go_away(row)

    def _append_home(
        self, file: BackedStore, here: StreamInfo, epoch: int, chunk: Chunk, change: Change, done: Appended
    ) -> None:
        def returned(error: StoreError | None) -> None:
            if error is None:
                self.append(here.id, epoch, chunk, change, done)
            elif isinstance(error, Fenced):
                done(error)
            else:
                self._away.memory.append(here.id, epoch, chunk, change, done)

        self._return(file, here, (), returned)

    def _return(self, file: BackedStore, row: StreamInfo, lines: tuple[bytes, ...], done: Appended) -> None:
        """Writes what the store lacks, which it is asked for: the answer to the last append may have been lost."""
        self._returning[row.id] = []
        over = partial(self._returned, row, done)

        def placed(page: EventPage | StoreError | None) -> None:
            rest = self._away.rest(row.id, lines)
            if isinstance(page, EventPage):
                self._complete(file, page.row, row, rest, over)
            elif page is None:
                file.create(row, rest, partial(made, rest))
            else:
                over(page)

        def made(rest: Chunk, error: StoreError | None) -> None:
            if isinstance(error, KeyTaken):
                file.create(replace(row, key=None), rest, over)
            else:
                over(error)

        file.fetch(row.id, row.last, 1, placed)

    def _returned(self, row: StreamInfo, done: Appended, error: StoreError | None) -> None:
        if error is None:
            lines = self._away.memory.lines(row.id)
            self._messages += self._away.returned(row.id)
            self._confirmed(row, lines)
        elif isinstance(error, StoreFault):
            self._files.failed(error)
        elif isinstance(error, Fenced):
            self._away.returned(row.id)
        else:
            self._away.refused(row.id)
        waiting = self._returning.pop(row.id)
        done(error)
        for proceed in waiting:
            proceed()

    def _complete(self, file: BackedStore, kept: StreamInfo, row: StreamInfo, rest: Chunk, done: Appended) -> None:
        """Appends what the store lacks of `rest`, behind `kept`, so that the stream is as `row` says."""
        if kept.epoch != row.epoch or kept.owner != row.owner:
            done(Fenced(f"stream {row.id}: another hub has claimed it"))
        elif kept.last + 1 < rest.first:
            done(StoreError(f"stream {row.id}: the store has lost events that it had confirmed"))
        elif (kept.status, kept.last, kept.continuation) == (row.status, row.last, row.continuation):
            done(None)
        else:
            missing = rest.lines[kept.last + 1 - rest.first :]
            how = row.continuation if row.continuation is not None else b""
            change = Change(row.updated, row.status, row.message, how, row.info, row.ttl, row.key is None)
            file.append(row.id, row.epoch, Chunk(kept.last + 1, missing), change, done)

    # -- everybody

    def fetch(self, stream: CallId, after: int, most: int, done: Fetched) -> None:
        """Memory may hold the later events alone: a page of those would say that the earlier ones are gone."""

        def is_here(row: StreamInfo | None) -> bool:
            return row is not None and after + 1 >= row.first

        def fetched(page: EventPage | StoreError | None) -> None:
            if isinstance(page, StoreFault):
                self._files.failed_reading(page)
            if is_here(self._away.row(stream)):  # it may have come there while the store was asked
                self._away.memory.fetch(stream, after, most, done)
            elif isinstance(page, EventPage):
                done(self._away.joined(page))
            else:
                done(_away() if page is None and not self._files.is_settled else page)

        file = self._files.file
        if file is None or is_here(self._away.row(stream)):
            self._away.memory.fetch(stream, after, most, done)
        else:
            file.fetch(stream, after, most, fetched)

    async def find(self, stream: CallId) -> StreamInfo | None:
        """Raises `StoreFault` where it cannot be known: while the store is away, and until all have returned to it."""
        try:
            found = await super().find(stream)
        except StoreFault:
            found = self._claimed(stream) or self._own.get(stream)
            if found is None:
                raise
        return self._sure(found)

    def _claimed(self, stream: CallId) -> StreamInfo | None:
        """The row in memory as the store would have it: with the events there counted in."""
        here = self._away.row(stream)
        if here is None or not self._away.can_return(stream):
            return here
        return replace(here, first=self._away.begins.get(stream, here.first))

    async def session(self, id_: str) -> SessionRow | None:
        return self._sure(await super().session(id_))

    def _sure(self, found: T | None) -> T | None:
        if found is None and not self._files.is_settled:
            raise _away()
        return found

    async def _ask(self, ask: Callable[[BackedStore], Awaitable[T]], otherwise: T) -> T:
        """Raises `StoreFault`."""
        if self._files.file is None:
            raise _away()
        try:
            return await ask(self._files.file)
        except StoreFault as fault:
            self._files.failed_reading(fault)
            raise

    # -- coming home

    async def _try_again(self) -> None:
        """With each look for orphans: others wait for what is in memory, though nothing runs here any more."""
        await self._tend()

    async def _bring_home(self) -> None:
        """Returns what is in memory, also streams that run: others wait for their events."""
        file = self._files.file
        if file is not None and self._files.is_fit:
            doubtful, self._doubtful = self._doubtful, []
            for row in doubtful:
                nothing, gone = Chunk(row.last + 1, ()), Change(row.updated, "failed", ttl=0.0, frees_key=True)
                file.append(row.id, row.epoch, nothing, gone, lambda _: None)
        for session in self._away.memory.sessions if self._files.is_fit else ():
            await self.put_session(session)
        for row in self._away.returnable()[:_AT_ONCE]:
            file = self._files.file
            if file is None or not self._files.is_fit:
                return
            if self._away.row(row.id) is not None and row.id not in self._returning:
                await self._return_and_wait(file, row)


def _away() -> StoreFault:
    return StoreFault("away", "The store does not answer. Try again in a moment.")
