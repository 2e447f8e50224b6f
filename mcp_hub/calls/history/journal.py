"""Takes each call that ends into the history, off the call's way.

Where a call ends, one reference is appended to a list. A task takes the list twice a second, or when it is full, and a
thread makes the batch of it: texts are masked, then cut. 8,192 calls or 16 MiB of arguments and results may wait; then
the oldest are dropped, and the history says how many. A batch that cannot be written is tried again with the next one.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import anyio
import anyio.to_thread

from mcp_hub.calls.history.batches import BatchMaker, DefinitionSource, EndedCall, JournalRules
from mcp_hub.calls.history.recent import SessionClients
from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import Clock, wall_time
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.history.base import Batch, BatchRefused, CallTexts, HistoryLimits, HistoryStore, LostCalls

PACE: Final = 0.5
"""Seconds between two batches."""
FULL: Final = 512
"""Calls that are written at once, without waiting for the next batch."""
MOST: Final = 8192
MOST_BYTES: Final = 16 << 20
"""Calls that may wait, and bytes of their arguments and results."""
_DROPPED: Final = 512
"""Calls that are dropped at once; fewer bytes than the bound wait then, or none."""
_PATIENCE: Final = 5.0
"""Seconds between two attempts to write where that does not work."""
_RESULT: Final = 64 << 10
"""Bytes of a result that wait: enough to mask a long secret in its beginning as a whole."""

log = get_logger(__name__)


class CallJournal:
    """Keeps the calls of a hub in `store`; `ended` is a `CallObserver`.

    `clock` is that of the calls' times. `key` is for hashes of arguments, and may block.
    """

    def __init__(
        self,
        store: HistoryStore,
        hub: str,
        rules: Callable[[], JournalRules],
        clients: SessionClients,
        definitions: DefinitionSource,
        key: Callable[[], bytes],
        clock: Clock,
    ) -> None:
        self.rules = rules
        """Those of now."""
        self._clock = clock
        self._queue = _Queue()
        self._batches = BatchMaker(hub, clients, definitions, key)
        self._writer = _Writer(store, hub)
        self._begun_with: object = None
        """The definitions when the first of the calls that wait had ended."""
        self._lock = anyio.Lock()
        self.ended = self._queue.ended

    @property
    def store(self) -> HistoryStore:
        """The place of the calls."""
        return self._writer.store

    @property
    def failing(self) -> str:
        """The reason why nothing can be written now."""
        return self._writer.failing

    @property
    def losses(self) -> list[LostCalls]:
        """Those that are not in the store yet, the newest first."""
        return self._writer.losses[::-1]

    def use(self) -> None:
        """Goes by the rules of now."""
        keeping = self.rules().keeping
        self._queue.keeps, self._queue.keeps_results = keeping != "off", keeping == "full"

    async def run(self) -> None:
        """Writes batches; runs until cancelled."""
        self.use()
        while True:
            await self._queue.begun.wait()
            self._begun_with = self._batches.definitions.now()
            with anyio.move_on_after(PACE):
                await self._queue.full.wait()
            await self.flush()

    async def flush(self, *, is_last: bool = False) -> None:
        """Writes the calls that wait."""
        async with self._lock:
            self.use()
            rules, now = self.rules(), self._batches.definitions.now()
            before, self._begun_with = self._begun_with or now, None
            (calls, dropped), wall = self._queue.take(), wall_time() - self._clock.now()
            made = None
            try:
                if calls:
                    made = await anyio.to_thread.run_sync(self._batches.made, calls, (before, now), rules, wall)
            except Exception:  # a call that nobody expected ends neither the hub nor the history
                log.exception("history_batch_failed", calls=len(calls))
                dropped += len(calls)
            await self._writer.add(made, dropped, rules.limits, is_last=is_last)

    async def close(self, seconds: float) -> None:
        """Writes the last batch and ends the history of this hub, within so many seconds. Never raises."""
        with anyio.move_on_after(seconds, shield=True):
            await self.flush(is_last=True)
        await self.store.close()


class _Writer:
    """The batches on their way to the store: one is open, others could not be written yet."""

    def __init__(self, store: HistoryStore, hub: str) -> None:
        self.store = store
        self.failing = ""
        self.losses: list[LostCalls] = []
        self._hub = hub
        self._open: Batch | None = None
        self._unwritten: list[tuple[Batch, list[CallTexts]]] = []
        self._retry = -math.inf

    async def add(
        self, made: tuple[Batch, list[CallTexts]] | None, dropped: int, limits: HistoryLimits, *, is_last: bool
    ) -> None:
        """Writes a batch behind those that wait, or keeps the last ones of them for the next time."""
        if made is not None:
            self._unwritten.append(made)
        if dropped:
            self.losses.append(LostCalls("dropped", wall_time(), self._hub, dropped))
        if self.failing and not is_last and anyio.current_time() < self._retry:
            self._shorten()
            return
        while self._unwritten or self.losses:
            batch, texts = self._unwritten[0] if self._unwritten else (None, [])
            try:
                await self._write(batch, texts, limits)
            except BatchRefused as error:
                log.error("history_batch_refused", place=self.store.place, reason=str(error))
                if batch is None:
                    self.losses.clear()
                else:
                    self._lose(len(batch), str(error))
            except StoreError as error:
                self._failed(error)
                self._shorten()
                return
            del self._unwritten[:1]
        if self.failing:
            log.warning("history_written_again", place=self.store.place)
        self.failing = ""

    def _failed(self, error: StoreError) -> None:
        self._retry = anyio.current_time() + _PATIENCE
        if not self.failing:
            log.error("history_not_written", place=self.store.place, reason=str(error))
        self.failing = str(error)

    async def _write(self, batch: Batch | None, texts: list[CallTexts], limits: HistoryLimits) -> None:
        losses = list(self.losses)
        if batch is None:
            await self.store.write(Batch(self._hub, 0), 0, [], losses, limits)
        else:
            whole = batch if self._open is None else self._open.extended(batch)
            if not await self.store.write(whole, len(batch), texts, losses, limits):  # the calls before are gone
                whole = batch
                await self.store.write(batch, len(batch), texts, losses, limits)
            key = whole.key
            self._open = whole if key.calls < limits.batch and key.last - key.first < limits.span else None
        del self.losses[: len(losses)]

    def _shorten(self) -> None:
        """Lets go of the oldest calls that cannot be written, and counts them."""
        while (
            sum(len(batch) for batch, _ in self._unwritten) > MOST
            or sum(_size(texts) for _, texts in self._unwritten) > MOST_BYTES
        ):
            batch, _ = self._unwritten.pop(0)
            self._lose(len(batch), self.failing)

    def _lose(self, count: int, reason: str) -> None:
        losses = self.losses
        if losses and losses[-1].kind == "unwritten":
            count += losses.pop().count
        losses.append(LostCalls("unwritten", wall_time(), self._hub, count, reason))


class _Queue:
    """The calls that wait to be written; `ended` is on the way of each call.

    `keeps` calls at all, and `keeps_results`.
    """

    def __init__(self) -> None:
        self.keeps = self.keeps_results = False
        self._calls: list[EndedCall] = []
        self._bytes = self._dropped = 0
        self._next = 1
        self.begun, self.full = anyio.Event(), anyio.Event()

    def ended(self, record: CallRecord, outcome: Outcome, now: float) -> None:
        """Takes a call that has ended."""
        if not self.keeps:
            return
        call, times = record.call, record.times
        ending: Any = record.log.ending
        size = 0
        if outcome <= Outcome.TOOL_ERROR:
            ending = ending.result
            size = len(ending)
            if not self.keeps_results:
                ending = None
            elif size > _RESULT:
                ending = bytes(memoryview(ending)[:_RESULT])
        arguments = call.params.get("arguments")
        given = 0 if arguments is None else len(arguments)
        self._bytes += given + (size if size < _RESULT else _RESULT)
        calls = self._calls
        calls.append((
            call, ending, size, given, outcome, times.started, times.began, now, record.stream is not None
        ))  # fmt: skip
        if len(calls) >= self._next or self._bytes > MOST_BYTES:
            self._crowded()

    def _crowded(self) -> None:
        """The first call, or so many that they are to be written now, or too many."""
        calls, count = self._calls, len(self._calls)
        if count == 1:
            self.begun.set()
            self._next = FULL
        if count >= FULL or self._bytes > MOST_BYTES:
            self.full.set()
            self._next = MOST
        if count > MOST or (self._bytes > MOST_BYTES and count > 1):
            gone = min(_DROPPED, count - 1)
            self._bytes -= sum(given + min(size, _RESULT) for _, _, size, given, *_ in calls[:gone])
            del calls[:gone]
            self._dropped += gone

    def take(self) -> tuple[list[EndedCall], int]:
        """The calls that wait, and how many were dropped before them."""
        calls, dropped = self._calls, self._dropped
        self._calls, self._dropped, self._bytes, self._next = [], 0, 0, 1
        self.begun, self.full = anyio.Event(), anyio.Event()
        return calls, dropped


def _size(texts: Sequence[CallTexts]) -> int:
    return sum(len(own.arguments or "") + len(own.result or "") for own in texts)
