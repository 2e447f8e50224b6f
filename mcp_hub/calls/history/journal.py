"""Takes each call that ends into the history, off the call's way.

Where a call ends, its numbers are appended to a list and its texts to a buffer. A task takes them twice a second, or
when there are many, and a thread makes a batch of them: texts are masked, then cut. 8,192 calls or 16 MiB of texts may
wait; then the oldest are dropped, and the history says how many. A batch that cannot be written is tried again with the
next one.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import msgspec

from mcp_hub.calls.history.batches import VALUE, BatchMaker, DefinitionSource, JournalRules, Portion, Terms
from mcp_hub.calls.metering import Outcome
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import Clock, wall_time
from mcp_hub.errors import HubRestarted, StoreError
from mcp_hub.events import Failed
from mcp_hub.logs import get_logger
from mcp_hub.stores.history.base import (
    NO_CHANGE,
    Batch,
    BatchRefused,
    HistoryLimits,
    HistoryStore,
    LostCalls,
    RunningCalls,
    running_number,
)

PACE: Final = 0.5
"""Seconds between two batches."""
FULL: Final = 2048
"""Calls of a portion, which is written at once, without waiting for the next batch."""
MOST: Final = 8192
"""Calls that may wait."""
PORTION_BYTES: Final = 4 << 20
"""Bytes of the arguments and results of a portion."""
MOST_BYTES: Final = 16 << 20
"""Bytes of texts that may wait where they cannot be written."""
_PATIENCE: Final = 5.0
"""Seconds between two attempts to write where that does not work."""

_UNKNOWN: Final = "The hub that ran this call is gone. The outcome of the call is unknown."
_NOTHING: Final = msgspec.Raw()
_WITH_RESULT: Final = int(Outcome.TOOL_ERROR)
"""The last outcome with a result; a member of an enumeration takes five times as long to compare."""

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
        definitions: DefinitionSource,
        key: Callable[[], bytes],
        clock: Clock,
    ) -> None:
        self.rules = rules
        """Those of now."""
        self._clock = clock
        self._queue = _Queue()
        self._batches = BatchMaker(hub, definitions, key)
        self._writer = _Writer(store, hub)
        self._begun_with: Terms | None = None
        """The terms when the first of the calls that wait had ended."""
        self._running: dict[str, _RunningCall] = {}
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
        """Losses that are not in the store yet, the newest first."""
        return self._writer.losses[::-1]

    def use(self) -> None:
        """Goes by the rules of now."""
        self._queue.use(self.rules().keeping)
        if self._running and not self._queue.keeps:
            self._queue.begun.set()

    def lasts(self, record: CallRecord) -> None:
        """Takes a call that runs for longer than a moment: if the hub is killed, the history has it nevertheless."""
        if self._queue.keeps and record.call.id not in self._running:
            terms = self._terms()
            if record.stream is not None and record.stream.row.epoch > 1:  # begun at another hub
                terms = Terms(None, terms.rules)
            self._running[record.call.id] = _RunningCall(record, terms)
            self._queue.begun.set()

    def definition(self, server: str, tool: str) -> str:
        """As `BatchMaker.definition`, of now."""
        return self._batches.definition(self._terms(), server, tool)

    def _terms(self) -> Terms:
        return Terms(self._batches.definitions.current(), self.rules())

    async def run(self) -> None:
        """Writes batches; runs until cancelled."""
        self.use()
        while True:
            with anyio.move_on_after(_PATIENCE if self._writer.is_behind else None):
                await self._queue.begun.wait()
            if self._queue.begun.is_set():
                self._begun_with = self._terms()
                await self._writer.register(self._begun_with.rules)
                with anyio.move_on_after(PACE):
                    await self._queue.full.wait()
            await self.flush()

    async def flush(self, *, is_last: bool = False) -> None:
        """Writes the calls that wait."""
        async with self._lock:
            self.use()
            current = self._terms()
            before, self._begun_with = self._begun_with or current, None
            (portions, dropped, lost), wall = self._queue.take(), wall_time() - self._clock.now()
            ended = [*lost, *(id_ for portion in portions for _, id_, *_, is_durable in portion.rows if is_durable)]
            over, batches = self._terms_of(ended), []
            for portion in portions:
                make = partial(self._batches.make, portion, (before, current), wall, over)
                try:
                    batches += await anyio.to_thread.run_sync(make)
                except Exception:  # a call that nobody expected ends neither the hub nor the history
                    log.exception("history_batch_failed", calls=len(portion.rows))
                    dropped += len(portion.rows)
            begun = [] if is_last else await self._begun_calls(wall)
            running = RunningCalls(begun, [running_number(id_) for id_ in {*ended, *over}])
            await self._writer.add(batches, dropped, current.rules.limits, running, is_last=is_last)

    def _terms_of(self, ended: Iterable[str]) -> dict[str, Terms]:
        """The terms of these calls when they began, as far as they are known; of all where nothing is kept any more."""
        over = list(ended) if self._queue.keeps else list(self._running)
        calls = {id_: self._running.pop(id_, None) for id_ in over}
        return {id_: call.terms for id_, call in calls.items() if call is not None}

    async def _begun_calls(self, wall: float) -> list[tuple[Batch, bytes]]:
        """The batch of each running call that has none yet."""
        batches = []
        for call in [call for call in self._running.values() if not call.is_taken]:
            call.is_taken = True
            if call.record.log.ended:
                continue
            portion = _portion_of(call.record, self._clock.now(), has_texts=self._queue.keeps_texts)
            make = partial(self._batches.make_running, portion, call.terms, wall)
            try:
                batch = await anyio.to_thread.run_sync(make)
            except Exception:  # as above
                log.exception("history_batch_failed", calls=1)
                continue
            batches += [] if batch is None else [batch]
        return batches

    async def close(self, seconds: float) -> None:
        """Writes the last batch and ends the history of this hub, within so many seconds. Never raises."""
        with anyio.move_on_after(seconds, shield=True):
            await self.flush(is_last=True)
        await self.store.close()


class _RunningCall(msgspec.Struct):
    """A call that runs, with the terms when it began; `is_taken` once its batch was made."""

    record: CallRecord
    terms: Terms
    is_taken: bool = False


def _portion_of(record: CallRecord, now: float, *, has_texts: bool) -> Portion:
    """A running call as one that its hub has not ended."""
    portion, call = Portion(has_texts=has_texts), record.call
    arguments = call.params.get("arguments", _NOTHING) if has_texts else _NOTHING
    portion.turn_to(call, Outcome.RPC_ERROR, _NOTHING)
    portion.endings[0] = Failed(HubRestarted(_UNKNOWN))
    if len(arguments) > VALUE:
        portion.put(0, arguments, _NOTHING)
        portion.texts += b"\0\0"
    else:
        portion.texts += b"%b\0\0" % arguments
    times = record.times.started, record.times.began
    portion.rows.append((0, call.id, now, *times, len(arguments), 0, record.stream is not None))
    return portion


class _Writer:
    """The batches on their way to the store: one is open, others could not be written yet."""

    def __init__(self, store: HistoryStore, hub: str) -> None:
        self.store = store
        self.failing = ""
        self.losses: list[LostCalls] = []
        self._hub = hub
        self._open: Batch | None = None
        self._unwritten: list[tuple[Batch, bytes]] = []
        self._begun: dict[int, tuple[Batch, bytes]] = {}
        self._ended: set[int] = set()
        self._is_registered = False
        self._retry = -math.inf

    @property
    def is_behind(self) -> bool:
        """Whether something could not be written yet."""
        return bool(self._unwritten or self.losses or self._begun or self._ended)

    async def register(self, rules: JournalRules) -> None:
        """Notes that this hub has calls, so that it can be missed if it is killed. Once."""
        if not self._is_registered and rules.keeping != "off":
            self._is_registered = True
            with suppress(StoreError):  # the first batch meets the same
                await self.store.write(Batch(self._hub, 0), 0, b"", (), rules.limits)

    async def add(
        self,
        batches: Sequence[tuple[Batch, bytes]],
        dropped: int,
        limits: HistoryLimits,
        running: RunningCalls = NO_CHANGE,
        *,
        is_last: bool,
    ) -> None:
        """Writes batches behind those that wait, or keeps the last ones of them for the next time."""
        self._unwritten += batches
        self._change(running)
        if dropped:
            self.losses.append(LostCalls("dropped", wall_time(), self._hub, dropped))
        if self.failing and not is_last and anyio.current_time() < self._retry:
            self._shorten()
            return
        while self.is_behind:
            batch, texts = self._unwritten[0] if self._unwritten else (None, b"")
            try:
                await self._write(batch, texts, limits)
            except BatchRefused as error:
                log.error("history_batch_refused", place=self.store.place, reason=str(error))
                if batch is None:
                    self.losses.clear()
                    self._begun.clear()
                    self._ended.clear()
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

    def _change(self, running: RunningCalls) -> None:
        """Running calls that cannot be written wait as long as they run, 16 MiB of them at most."""
        for number in running.ended:
            if self._begun.pop(number, None) is None:
                self._ended.add(number)
        for batch, texts in running.begun:
            if sum(len(waiting) for _, waiting in self._begun.values()) + len(texts) <= MOST_BYTES:
                self._begun[batch.base] = batch, texts

    def _failed(self, error: StoreError) -> None:
        self._retry = anyio.current_time() + _PATIENCE
        if not self.failing:
            log.error("history_not_written", place=self.store.place, reason=str(error))
        self.failing = str(error)

    async def _write(self, batch: Batch | None, texts: bytes, limits: HistoryLimits) -> None:
        losses = list(self.losses)
        running = RunningCalls(list(self._begun.values()), list(self._ended))
        if batch is None:
            await self.store.write(Batch(self._hub, 0), 0, b"", losses, limits, running)
        else:
            whole = batch if self._open is None else self._open.extended(batch)
            if not await self.store.write(whole, len(batch), texts, losses, limits, running):
                whole = batch  # the calls before are gone
                await self.store.write(batch, len(batch), texts, losses, limits, running)
            key = whole.key
            self._open = whole if key.calls < limits.batch and key.last - key.first < limits.span else None
        del self.losses[: len(losses)]
        for number in [call.base for call, _ in running.begun]:
            self._begun.pop(number, None)
        self._ended.difference_update(running.ended)
        self._is_registered = True

    def _shorten(self) -> None:
        """Lets go of the oldest calls that cannot be written, and counts them."""
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
        losses.append(LostCalls("unwritten", wall_time(), self._hub, count, reason))


class _Queue:
    """The calls that wait to be written, in portions; `ended` is on the way of each call.

    `keeps` calls at all, and `keeps_texts`. A portion that is full is sealed; of too many the oldest is dropped.
    """

    def __init__(self) -> None:
        self.keeps = self.keeps_texts = False
        self._open = Portion(has_texts=False)
        self._sealed: list[Portion] = []
        self._dropped = 0
        self._lost: list[str] = []
        self._next = 1
        self.begun, self.full = anyio.Event(), anyio.Event()

    def use(self, keeping: str) -> None:
        """Keeps so much from now on."""
        has_texts = keeping in ("hash", "full")
        if has_texts is not self.keeps_texts and self._open.rows:
            self._seal()
        self.keeps, self.keeps_texts = keeping != "off", has_texts
        if not self._open.rows:
            self._open = Portion(has_texts=has_texts)

    def ended(self, record: CallRecord, outcome: Outcome, now: float) -> None:
        """Takes a call that has ended. All in one function: each further one would take a fiftieth of a quick call."""
        if not self.keeps:
            return
        call, times, portion = record.call, record.times, self._open
        params = call.params
        name = params.get("name") or params.get("uri", _NOTHING)
        last, before, called, mark = portion.latest
        if (
            name != called
            or outcome is not before
            or call.client is not last.client
            or (call.session != last.session and call.client is None)
            or call.upstream != last.upstream
            or call.method != last.method
            or call.principal != last.principal
        ):
            mark = portion.turn_to(call, outcome, name)
        if outcome > _WITH_RESULT:
            portion.endings[len(portion.rows)] = record.log.ending
        argument_size = result_size = 0
        if self.keeps_texts:
            arguments = params.get("arguments", _NOTHING)
            result = record.log.ending.result if outcome <= _WITH_RESULT else _NOTHING  # type: ignore[union-attr]
            argument_size, result_size, texts = len(arguments), len(result), portion.texts
            if argument_size > VALUE or result_size > VALUE:
                portion.put(len(portion.rows), arguments, result)
                texts += b"\0\0"
            else:
                texts += arguments
                texts += b"\0"
                texts += result
                texts += b"\0"
            if len(texts) > PORTION_BYTES or portion.size > PORTION_BYTES:
                self._next = 0
        portion.rows.append(
            (mark, call.id, now, times.started, times.began, argument_size, result_size, record.stream is not None)
        )
        if len(portion.rows) >= self._next:
            self._crowded()

    def _crowded(self) -> None:
        """The first call of a portion, or the last one that it takes."""
        portion = self._open
        if not self.begun.is_set():
            self.begun.set()
        self._next = FULL
        if len(portion.rows) >= FULL or max(portion.size, len(portion.texts)) > PORTION_BYTES:
            self._seal()

    def _seal(self) -> None:
        self._sealed.append(self._open)
        self._open, self._next = Portion(has_texts=self.keeps_texts), 1
        self.full.set()
        while len(self._sealed) > MOST // FULL:
            rows = self._sealed.pop(0).rows
            self._dropped += len(rows)
            self._lost += [id_ for _, id_, *_, is_durable in rows if is_durable]
            del self._lost[:-MOST]

    def take(self) -> tuple[list[Portion], int, list[str]]:
        """The portions that wait, how many calls were dropped before them, and the ids of those with streams."""
        portions, dropped, lost = [*self._sealed, self._open], self._dropped, self._lost
        self._sealed, self._open = [], Portion(has_texts=self.keeps_texts)
        self._dropped, self._next, self._lost = 0, 1, []
        self.begun, self.full = anyio.Event(), anyio.Event()
        return [portion for portion in portions if portion.rows], dropped, lost
