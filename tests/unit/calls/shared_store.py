"""One store that several hubs share, as each of them sees it: late, failing, fenced or dead at will. Virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.stores.base import Change, Chunk, EventPage, Message, StoreLimits
from mcp_hub.stores.locks import new_instance_id
from mcp_hub.stores.memory import MemoryInbox, MemoryLog, MemorySessions, MemoryStore, MemoryStreams, _MemoryLeases
from mcp_hub.types import CallId


class Shared:
    """What is in the store, and which hubs live."""

    def __init__(self, limits: StoreLimits | None = None) -> None:
        self.core = MemoryStore(limits)
        self.alive: set[str] = set()
        self.writes: Counter[str] = Counter()
        """By who made them."""

    def row(self, id_: str) -> StreamInfo | None:
        return self.core.streams.row(CallId(id_))

    def lines(self, id_: str) -> list[bytes]:
        """All events that are kept."""
        return list(self.core.streams.lines(CallId(id_)))


class HubStore(MemoryLog, MemoryInbox, _MemoryLeases):
    """The store of one hub, which is its own log, inbox and leases.

    Without a `delay` it answers in the same call; else it acts after one, answers after two.

    `refusals` are what the next appends get instead of being written; `broken` fails everything that is asked for,
    `fetch_error` events alone.
    """

    is_durable = True
    replicas = None

    def __init__(self, shared: Shared | None = None, delay: Callable[[], float] | None = None) -> None:
        self.shared = shared or Shared()
        super().__init__(MemoryStreams(StoreLimits(), new_instance_id()))
        self.sessions = MemorySessions(100)
        self.shared.alive.add(self.instance)
        self.delay = delay
        self.refusals: list[StoreError | None] = []
        self.broken: StoreError | None = None
        self.fetch_error: StoreError | None = None
        self.appends: list[Chunk] = []
        self.changes: list[Change] = []
        self.fetches = self.looks = 0
        self.holds_back = False
        self._held: list[Callable[[], None]] = []
        self._seen = 0
        self.is_dead = False

    @property
    def log(self) -> "HubStore":
        return self

    inbox = leases = log

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    def die(self) -> None:
        """Nothing that is under way happens any more."""
        self.is_dead = True
        self.shared.alive.discard(self.instance)

    def let_go(self) -> None:
        """Answers what was held back."""
        self.holds_back = False
        held, self._held = self._held, []
        for answer in held:
            answer()

    def _ask(self, act: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Acts, then answers, each when it is time."""

        def answer(result: Any) -> None:
            if self.holds_back:
                self._held.append(lambda: done(result))
            elif not self.is_dead:
                done(result)

        def step() -> None:
            if not self.is_dead:
                result = self.broken or act()
                self._after(lambda: answer(result))

        self._after(step)

    def _after(self, then: Callable[[], None]) -> None:
        if self.delay is None:
            then()
        else:
            asyncio.get_running_loop().call_later(self.delay(), then)

    async def _told(self, act: Callable[[], Any]) -> Any:
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answer(result: Any) -> None:
            if not told.done():
                told.set_result(result)

        self._ask(act, answer)
        result = await told
        if isinstance(result, StoreError):
            raise result
        return result

    def _wrote(self, error: StoreError | None) -> StoreError | None:
        if error is None:
            self.shared.writes[self.instance] += 1
        return error

    def create(self, row: StreamInfo, chunk: Chunk, callback: Callable[[StoreError | None], None]) -> None:
        self.appends.append(chunk)
        refusal = self.refusals.pop(0) if self.refusals else None
        self._ask(lambda: refusal or self._wrote(self.shared.core.streams.create(row, chunk)), callback)

    def append(
        self, stream: CallId, epoch: int, chunk: Chunk, change: Change, callback: Callable[[StoreError | None], None]
    ) -> None:
        self.appends.append(chunk)
        self.changes.append(change)
        refusal = self.refusals.pop(0) if self.refusals else None
        self._ask(
            lambda: refusal or self._wrote(self.shared.core.streams.append(stream, epoch, chunk, change)), callback
        )

    def fetch(
        self, stream: CallId, after: int, limit: int, callback: Callable[[EventPage | StoreError | None], None]
    ) -> None:
        self.fetches += 1
        self._ask(lambda: self.fetch_error or self.shared.core.streams.page(stream, after, limit), callback)

    async def find(self, stream: CallId) -> StreamInfo | None:
        found: StreamInfo | None = await self._told(lambda: self.shared.core.streams.row(stream))
        return found

    async def post(self, message: Message) -> bool:
        self.shared.writes[self.instance] += 1
        return await self.shared.core.inbox.post(message)

    async def take(self) -> list[Message]:
        self.looks += 1
        if self.broken:
            raise self.broken
        self.shared.core.streams.instance = self.instance
        return await self.shared.core.inbox.take()

    async def has_news(self) -> bool:
        before, self._seen = self._seen, self.shared.writes.total() - self.shared.writes[self.instance]
        return before != self._seen

    async def orphans(self) -> list[StreamInfo]:
        rows = reversed(self.shared.core.streams.rows())
        return [row for row in rows if not row.has_ended and row.owner not in self.shared.alive]

    async def is_orphan(self, row: StreamInfo) -> bool:
        return bool(await self._told(lambda: row.owner not in self.shared.alive))

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        def act() -> StreamInfo | None:
            if row.owner in self.shared.alive:
                return None
            self.shared.core.streams.instance = self.instance
            claimed: StreamInfo | None = _run(self.shared.core.leases.claim(row, lines, change))
            if claimed is not None:
                self._wrote(None)
            return claimed

        claimed: StreamInfo | None = await self._told(act)
        return claimed

    async def sweep(self, now: float) -> int:
        return 0


def _run(coroutine: Any) -> Any:
    """What a coroutine that never waits comes to."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError
