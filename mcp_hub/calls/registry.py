"""Admits, times and cancels running calls. A principal's calls wait in order of arrival."""

import math
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

import anyio
import msgspec

from mcp_hub.aio import Timer, Turn, call_later
from mcp_hub.call import Call, CallHandler
from mcp_hub.calls.attempts import lapses
from mcp_hub.calls.metering import CallObserver, Meters
from mcp_hub.calls.plan import WITHOUT_PLAN, CallPlan, TimeLimits
from mcp_hub.calls.runner import QUIET, CallOwner, CallRecord, new_record
from mcp_hub.calls.timeouts import EARLY, overdue
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy, HubStopping
from mcp_hub.events import Cancelled, Ending, Failed
from mcp_hub.logs import get_logger
from mcp_hub.types import CallId, plural

log = get_logger(__name__)

_GRACE: Final = 5.0
"""Seconds for a handler to obey a stop."""
_IDLE_LANES: Final = 256
"""Idle principals remembered."""
_TICK: Final = 0.05
"""Seconds between turns of the wheel, at least."""

_AT_ONCE: Final = 64
"""Calls that become durable in one turn; a thousand would block the loop for 50 ms."""


class _Tracer(Protocol):
    """Traces calls, for OpenTelemetry."""

    def begun(self, record: CallRecord, handler: CallHandler) -> CallHandler:
        """A call has begun; returns the handler to use."""

    def ended(self, record: CallRecord) -> None:
        """The call has ended."""

    def trace_of(self, call: str) -> str | None:
        """The trace of a running call, in hexadecimal."""

    async def close(self) -> None:
        """No more calls begin."""


class _Lane(msgspec.Struct):
    running: int = 0
    waiting: deque[CallRecord] = msgspec.field(default_factory=deque)


class CallRegistry(CallOwner):
    """Owns calls until they end, so many `running` and `waiting` ones of each principal, besides scripts'.

    `on_durable` gets each that is not short and quiet.
    """

    def __init__(
        self,
        clock: Clock,
        running: int,
        waiting: int,
        *,
        on_durable: Callable[[CallRecord], object] = lambda record: None,
        turn: Turn | None = None,
        tracer: _Tracer | None = None,
        observer: CallObserver | None = None,
    ) -> None:
        self._loop_turn = turn if turn is not None else Turn()
        self._on_durable = on_durable
        self._clock = clock
        self._limits = running, waiting
        self._records: dict[CallId, CallRecord] = {}
        self._lanes: dict[str, _Lane] = {}
        self._next_turn: tuple[float, Timer] | None = None
        self._emptied: anyio.Event | None = None
        """Set once no call is left. It is there after `close`."""
        self.meters = Meters(observer)
        self.tracer = tracer

    def __len__(self) -> int:
        return len(self._records)

    @property
    def under_way(self) -> Collection[CallRecord]:
        """Calls that have not ended, waiting ones included."""
        return self._records.values()

    def start(self, call: Call, handler: CallHandler, limits: TimeLimits, plan: CallPlan = WITHOUT_PLAN) -> CallRecord:
        """Makes a call's record, and begins it if its principal may. Raises `Busy`, and `HubStopping` after `close`."""
        if self._emptied is not None:
            return self._left(call, handler, limits, plan)
        lane = self._lanes.get(call.principal)
        if lane is None:
            lane = self._lanes[call.principal] = _Lane()
        if self.tracer is not None:
            plan = msgspec.structs.replace(plan, upstream=None)  # its span is set around a handler
        record = new_record(call, handler, limits, self._clock, plan, self)
        most_running, most_waiting = self._limits
        is_inner = call.parent is not None  # its parent has the place: it must not wait behind it
        was_let_in = plan.resumption is not None  # by another hub; perhaps a call that runs here waits for it
        is_next = is_inner or was_let_in or lane.running < most_running
        if is_next:
            lane.running += not is_inner
        elif len(lane.waiting) < most_waiting:
            lane.waiting.append(record)
            record.times.begin(later=True)
        else:
            load = f"{plural(most_running, 'call')} running and {most_waiting} waiting for this client"
            raise Busy.at(load, "hub.limits.waiting_calls", most_waiting)
        self._records[call.id] = record
        if self.tracer is not None:
            record.wrap(partial(self.tracer.begun, record))
        if is_next:
            record.run()
        if record.state != "ended":
            soon = record.times.started + min(QUIET, limits.silence, limits.total)
            if self._next_turn is None or self._next_turn[0] > soon:
                self.reschedule(soon)
        return record

    def _left(self, call: Call, handler: CallHandler, limits: TimeLimits, plan: CallPlan) -> CallRecord:
        """The record of a call of another hub, which the next one continues. Raises `HubStopping` for any other."""
        if plan.resumption is None:
            raise _unsent()
        record = new_record(call, handler, limits, self._clock, plan, self)
        record.stop(_hub_stopped(record))
        return record

    def trace_of(self, call: str) -> str | None:
        """The trace in hexadecimal, if the hub began it."""
        return None if self.tracer is None else self.tracer.trace_of(call)

    def limit(self, running: int, waiting: int) -> None:
        """Replaces the limits. Calls that wait begin, as far as more may run now."""
        self._limits = running, waiting
        for lane in self._lanes.values():
            while lane.waiting and lane.running < running:
                lane.running += 1
                self._loop_turn.after(partial(self._begin, lane.waiting.popleft()))

    def cancel(self, record: CallRecord, reason: str | None = None) -> None:
        self.stop(record, Cancelled(reason))

    def stop(self, record: CallRecord, ending: Ending) -> None:
        if record.log.ended or record.stopping is not None:
            return
        waiting = record.state == "waiting"
        record.stop(ending)
        if waiting:
            with suppress(ValueError):  # it is about to begin
                self._lanes[record.call.principal].waiting.remove(record)
            self.has_ended(record)
        elif record.state != "ended":
            call_later(_GRACE, lambda: self._force(record, ending))

    def _force(self, record: CallRecord, ending: Ending) -> None:
        if record.log.append(ending):
            log.warning("call_abandoned", call_id=record.call.id, upstream=record.call.upstream)

    def becomes_durable(self, record: CallRecord) -> None:
        self._on_durable(record)

    def has_ended(self, record: CallRecord) -> None:
        if self._records.get(record.call.id) is record:  # else this hub has lost it, and continues it anew
            del self._records[record.call.id]
        self.meters.ended(record, self._clock.now())
        if self.tracer is not None:
            self.tracer.ended(record)
        if self._emptied is not None and not self._records:
            self._emptied.set()
        if record.times.began is not None and record.call.parent is None:  # else it had no place
            self._hand_on(record)

    def _hand_on(self, record: CallRecord) -> None:
        lane = self._lanes[record.call.principal]
        if lane.waiting and lane.running <= self._limits[0]:
            self._loop_turn.after(partial(self._begin, lane.waiting.popleft()))
        else:
            lane.running -= 1
            if not lane.running and len(self._lanes) > _IDLE_LANES:
                del self._lanes[record.call.principal]

    def _begin(self, successor: CallRecord) -> None:
        if successor.state == "ended":  # cancelled meanwhile
            self._hand_on(successor)
            return
        successor.times.begin()
        successor.run()
        if not successor.log.ended:
            successor.times.wheel.reschedule(min(successor.times.due, self._clock.now() + QUIET))

    def reschedule(self, due: float) -> None:
        if self._next_turn is not None:
            planned, timer = self._next_turn
            if planned <= due:
                return
            timer.cancel()
        self._next_turn = due, call_later(max(due - self._clock.now(), _TICK), self._turn_wheel)

    def _turn_wheel(self) -> None:
        self._loop_turn.run(self._turn)

    def _turn(self) -> None:
        self._next_turn = None
        now = self._clock.now()
        soon, next_due = now + EARLY, math.inf
        begun = 0
        for record in list(self._records.values()):
            due = record.times.wheel.at
            if due <= soon:
                was_short = record.is_short
                record.times.wheel.begin()
                due = record.times.wheel.plan(*self._look(record, now, is_full=begun >= _AT_ONCE))
                begun += was_short and not record.is_short
            if due < next_due:
                next_due = due
        if next_due < math.inf:
            self.reschedule(next_due)

    def _look(self, record: CallRecord, time: float, *, is_full: bool) -> tuple[float, ...]:
        """The times of the next look; `is_full`: no more calls become durable in this turn."""
        times = record.times
        if times.due <= time:
            ending = self._never_begun(record) if record.is_unsent else _overdue(record)
            if not lapses(record, ending):
                self.stop(record, ending)
                return (math.inf,)
        due = time if is_full and record.is_short else record.look(time)
        return due, times.due

    def _never_begun(self, record: CallRecord) -> Failed:
        seconds, call = record.times.limits.total, record.call
        reason = (
            f'{call.method} of "{call.upstream}" waited {seconds:g} s for its turn (`max_duration`) and was not sent'
        )
        most_running, _ = self._limits
        return Failed(Busy.at(reason, "hub.limits.running_calls", most_running))

    async def close(self, seconds: float) -> None:
        """Ends every call, within `seconds`. None begins any more."""
        self._emptied = anyio.Event()
        for record in list(self._records.values()):
            self.stop(record, _hub_stopped(record))
        if self._records:
            with anyio.move_on_after(seconds, shield=True):
                await self._emptied.wait()
        for record in self._records.values():
            self._force(record, record.stopping or _hub_stopped(record))


def _overdue(record: CallRecord) -> Failed:
    return overdue(record.times, record.call, record.questions.oldest)


def _hub_stopped(record: CallRecord) -> Failed:
    if record.is_unsent:
        return Failed(_unsent())
    reason = "The hub is stopping. The outcome of this call is unknown."
    return Failed(HubStopping(reason, data={"outcome": "unknown"}))


def _unsent() -> HubStopping:
    return HubStopping("The hub is stopping. This call was not sent: try again when it is back.")
