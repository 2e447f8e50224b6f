"""Takes ended calls into the history, off the way of calls.

Twice a second buffers become a batch, in a thread if large. 8,192 calls or 16 MiB may wait, then the oldest are dropped
and counted. Failed batches are retried.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.calls.history.batches import BatchMaker, Digest, JournalRules, no_digest
from mcp_hub.calls.history.waiting import MOST, CallQueue, Portion
from mcp_hub.calls.metering import CallObserver
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import Clock, wall_time
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.history.base import (
    NO_CHANGE,
    Batch,
    HistoryLimits,
    HistoryStore,
    LostCalls,
    RunningChange,
    running_number,
)

PACE: Final = 0.5
"""Seconds between batches."""
MOST_BYTES: Final = 16 << 20
"""Bytes of unwritten texts."""
_PATIENCE: Final = 5.0
"""Seconds between attempts to write."""

_UNKNOWN: Final = "The hub that ran this call is gone. The outcome of the call is unknown."
log = get_logger(__name__)


class _Audit(Protocol):
    """`calls.history.audit.AuditTrail`."""

    def take(self, portions: Sequence[Portion], dropped: int, wall: float) -> None:
        """Takes ended calls."""

    def watch(self, record: CallRecord) -> None:
        """Takes the questions of a call that may ask."""


class CallJournal:
    """Keeps a hub's calls in `store`. `key` is for hashes of arguments, and may block.

    `definitions` quickly returns the digests of present definitions.
    """

    def __init__(
        self,
        store: HistoryStore,
        hub: str,
        rules: Callable[[], JournalRules],
        definitions: Callable[[], Digest],
        key: Callable[[], bytes],
        clock: Clock,
        audit: _Audit | None = None,
    ) -> None:
        self.rules = rules
        """The present rules."""
        self._clock = clock
        self._queue = CallQueue()
        self._batches = BatchMaker(hub, definitions, key)
        self._writer = _Writer(store, hub)
        self._begun_with: JournalRules | None = None
        """The terms at the first waiting call's end."""
        self._running: dict[str, _RunningCall] = {}
        self._has_new_rules = False
        """The batches of running calls are those of earlier rules."""
        self._lock = anyio.Lock(fast_acquire=True)
        self._audit = audit

    @property
    def ended(self) -> CallObserver:
        """Takes ended calls."""
        return self._queue.ended

    @property
    def store(self) -> HistoryStore:
        return self._writer.store

    @property
    def failing(self) -> str:
        """Why writing fails now, or empty."""
        return self._writer.failing

    @property
    def losses(self) -> list[LostCalls]:
        """Losses not stored yet, newest first."""
        return self._writer.losses[::-1]

    def use(self) -> None:
        """Applies the present rules, to running calls, too."""
        self._queue.use(self.rules().keeping, is_audited=self._audit is not None)
        if self._running:
            self._has_new_rules = True
            self._queue.begun.set()

    def lasts(self, record: CallRecord) -> None:
        """Takes a running call, so that the history has it if the hub is killed."""
        if self._audit is not None:
            self._audit.watch(record)
        if self._queue.keeps and record.call.id not in self._running:
            terms = self._terms()
            if record.stream is not None and record.stream.row.epoch > 1:  # begun at another hub
                terms = replace(terms, digest=no_digest)
            self._running[record.call.id] = _RunningCall(record, terms)
            self._queue.begun.set()

    def definition(self, server: str, tool: str) -> str:
        """A present digest of the tool's definition and supplied arguments."""
        return self._batches.definition(self._terms(), server, tool)

    def _terms(self) -> JournalRules:
        return replace(self.rules(), digest=self._batches.definitions())

    async def run(self) -> None:
        """Writes batches until cancelled."""
        self.use()
        while True:
            with anyio.move_on_after(_PATIENCE if self._writer.is_behind else None):
                await self._queue.begun.wait()
            if self._queue.begun.is_set():
                self._begun_with = self._terms()
                await self._writer.register(self._begun_with)
                with anyio.move_on_after(PACE):
                    await self._queue.full.wait()
            await self.flush()

    async def flush(self, *, is_last: bool = False) -> None:
        async with self._lock:
            current = self._terms()
            self._queue.use(current.keeping, is_audited=self._audit is not None)
            before, self._begun_with = self._begun_with or current, None
            (portions, dropped, unkept), wall = self._queue.take(), wall_time() - self._clock.now()
            if self._audit is not None:
                self._audit.take(portions, dropped, wall)
            ended = [*unkept, *(id_ for portion in portions for id_ in portion.durable_ids)]
            over, batches = self._terms_of(ended), []
            for portion in portions:
                make = partial(self._batches.make, portion, (before, current), wall, over)
                try:
                    is_quick = self._batches.is_quick(portion, current)
                    batches += make() if is_quick else await anyio.to_thread.run_sync(make)
                except Exception:  # a call that nobody expected ends neither the hub nor the history
                    log.exception("history_batch_failed", calls=len(portion))
                    dropped += len(portion)
            outdated = self._outdated()
            begun = [] if is_last else await self._begun_calls(wall, current)
            running = begun, [running_number(id_) for id_ in {*ended, *over, *outdated}]
            dropped = 0 if current.keeping == "off" else dropped
            await self._writer.add(batches, dropped, current.limits, running, is_last=is_last)

    def _terms_of(self, ended: Iterable[str]) -> dict[str, JournalRules]:
        """Known terms at the calls' begin; all while nothing is kept."""
        over = list(ended) if self._queue.keeps else list(self._running)
        calls = {id_: self._running.pop(id_, None) for id_ in over}
        return {id_: call.terms for id_, call in calls.items() if call is not None}

    def _outdated(self) -> list[str]:
        if not self._has_new_rules:
            return []
        self._has_new_rules = False
        for call in self._running.values():
            call.is_taken = False
        return list(self._running)

    async def _begun_calls(self, wall: float, current: JournalRules) -> list[tuple[Batch, bytes]]:
        """Batches of running calls without one."""
        batches = []
        for call in [call for call in self._running.values() if not call.is_taken]:
            call.is_taken = True
            if call.record.log.ended:
                continue
            portion = Portion(has_texts=current.keeping in ("hash", "full"))
            portion.put_running(call.record, self._clock.now())
            make = partial(self._batches.make_running, portion, (call.terms, current), wall)
            try:
                batch = await anyio.to_thread.run_sync(make)
            except Exception:  # as above
                log.exception("history_batch_failed", calls=1)
                continue
            batches += [] if batch is None else [batch]
        return batches

    async def close(self, seconds: float) -> None:
        """Writes the rest within so many seconds. Never raises."""
        is_written = False
        with anyio.move_on_after(seconds, shield=True):
            await self.flush(is_last=True)
            is_written = not self._writer.is_behind
        await self.store.close(is_complete=is_written)


class _RunningCall(msgspec.Struct):
    """A running call, with its terms; `is_taken` once its batch is made."""

    record: CallRecord
    terms: JournalRules
    is_taken: bool = False


class _UnwrittenChanges:
    """Running calls that wait to be written, at most 16 MiB; above 8,192 ended ones only those in the store."""

    def __init__(self) -> None:
        self._begun: dict[int, tuple[Batch, bytes]] = {}
        self._ended: set[int] = set()
        self._stored: set[int] = set()

    def __bool__(self) -> bool:
        return bool(self._begun or self._ended)

    @property
    def change(self) -> RunningChange:
        return list(self._begun.values()), list(self._ended)

    def add(self, running: RunningChange) -> None:
        begun, ended = running
        for number in ended:
            self._begun.pop(number, None)
            self._ended.add(number)  # another hub may have written it
        if len(self._ended) > MOST:
            self._ended &= self._stored
        for batch, texts in begun:
            if sum(len(waiting) for _, waiting in self._begun.values()) + len(texts) <= MOST_BYTES:
                self._begun[batch.base] = batch, texts

    def written(self, running: RunningChange) -> None:
        """Forgets a change that is in the store now."""
        begun, ended = running
        numbers = [batch.base for batch, _ in begun]
        for number in numbers:
            self._begun.pop(number, None)
        self._ended.difference_update(ended)
        self._stored.difference_update(ended)
        self._stored.update(numbers)

    def clear(self) -> None:
        self._begun.clear()
        self._ended.clear()


class _Writer:
    """Batches on their way to the store."""

    def __init__(self, store: HistoryStore, hub: str) -> None:
        self.store = store
        self.failing = ""
        self.losses: list[LostCalls] = []
        self._hub = hub
        self._open: Batch | None = None
        self._open_bytes = 0
        self._unwritten: list[tuple[Batch, bytes]] = []
        self._running = _UnwrittenChanges()
        self._is_registered = False
        self._retry = -math.inf

    @property
    def is_behind(self) -> bool:
        return bool(self._unwritten or self.losses or self._running)

    async def register(self, rules: JournalRules) -> None:
        """Notes once that this hub has calls: it may be killed."""
        if not self._is_registered and rules.keeping != "off":
            self._is_registered = True
            with suppress(StoreError):  # the first batch meets the same
                await self.store.write(Batch(self._hub, 0), 0, b"", (), rules.limits)

    async def add(
        self,
        batches: Sequence[tuple[Batch, bytes]],
        dropped: int,
        limits: HistoryLimits,
        running: RunningChange = NO_CHANGE,
        *,
        is_last: bool,
    ) -> None:
        """Writes or keeps batches."""
        self._unwritten += batches
        self._running.add(running)
        if dropped:
            self.losses.append(LostCalls("dropped", wall_time(), self._hub, dropped))
        if self.failing and not is_last and anyio.current_time() < self._retry:
            self._shorten()
            return
        while self.is_behind:
            batch, texts = self._unwritten[0] if self._unwritten else (None, b"")
            try:
                await self._write(batch, texts, limits)
            except StoreError as error:
                if error.is_outage:
                    self._failed(error)
                    self._shorten()
                    return
                log.error("history_batch_refused", store=self.store.location, reason=str(error))
                if batch is None:
                    self.losses.clear()
                    self._running.clear()
                else:
                    self._lose(len(batch), str(error))
            del self._unwritten[:1]
        if self.failing:
            log.warning("history_written_again", store=self.store.location)
        self.failing = ""

    def _failed(self, error: StoreError) -> None:
        self._retry = anyio.current_time() + _PATIENCE
        if not self.failing:
            log.error("history_not_written", store=self.store.location, reason=str(error))
        self.failing = str(error)

    async def _write(self, batch: Batch | None, texts: bytes, limits: HistoryLimits) -> None:
        losses = list(self.losses)
        running = self._running.change
        if batch is None:
            await self.store.write(Batch(self._hub, 0), 0, b"", losses, limits, running)
        else:
            whole = batch if self._open is None else self._open.extended(batch)
            if not await self.store.write(whole, len(batch), texts, losses, limits, running):
                whole, self._open_bytes = batch, 0  # the calls before are gone
                await self.store.write(batch, len(batch), texts, losses, limits, running)
            self._open_bytes += len(texts)
            is_open = limits.is_open(whole.key, self._open_bytes)
            self._open, self._open_bytes = (whole, self._open_bytes) if is_open else (None, 0)
        del self.losses[: len(losses)]
        self._running.written(running)
        self._is_registered = True

    def _shorten(self) -> None:
        while (
            sum(len(batch) for batch, _ in self._unwritten) > MOST
            or sum(len(texts) for _, texts in self._unwritten) > MOST_BYTES
        ):
            batch, _ = self._unwritten.pop(0)
            self._lose(len(batch), self.failing)

    def _lose(self, count: int, reason: str) -> None:
        losses = self.losses
        if losses and losses[-1].kind == "unwritten":
            count += losses.pop().count
        losses.append(LostCalls(kind="unwritten", at=wall_time(), hub=self._hub, count=count, reason=reason))
