"""Runs one call: the only place where a call ends.

One plain task for each call (architecture.md, "Life of a call" 5); whatever the handler does, exactly one ending is
appended. May use asyncio directly: an anyio task group's `start_soon` costs three times a plain task.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Final

import structlog

from mcp_hub.calls import late
from mcp_hub.calls.log import CallLog
from mcp_hub.calls.progress import ProgressGuard
from mcp_hub.calls.rules import TimeLimits
from mcp_hub.calls.stream import Stream, Writer
from mcp_hub.clock import Clock
from mcp_hub.errors import DeadlineExceeded, HubStopping, RpcError
from mcp_hub.events import (
    CallEvent,
    Cancelled,
    Completed,
    Ending,
    Failed,
    InputReceived,
    InputRequired,
    Progress,
    Started,
)
from mcp_hub.protocol.questions import action_of
from mcp_hub.types import RawJson
from mcp_hub.upstreams.base import Call, CallHandler, Question

__all__ = ["QUIET", "Bell", "CallRecord", "TimeLimits", "Timer", "Beside", "call_later", "call_soon", "run"]

log = structlog.get_logger(__name__)

Timer = asyncio.TimerHandle

QUIET: Final = 0.25
"""Seconds after which a call that has said nothing is no short one any more (streams.md §1)."""
_SILENCE: Final = 10.0
"""Seconds without progress after which its caller is told that the call is alive (streams.md §2, "Progress")."""
_DOUBT: Final = 30.0
"""Seconds that a call may stay silent after an answer of its upstream that could be given to nobody."""
_BEGUN: Final = Started()
_MOST_QUESTIONS: Final = 64
"""Questions of one call that may be open at once."""


def _untimed(due: float) -> None:
    """Nobody looks after the call's time."""


class CallRecord:
    """A call, its log and its task. It is the `CallChannel` that the handler is handed.

    `began` is when its turn came, None before. `sooner` is told when the call may run out of time earlier than it could
    so far, `lasting` when it turns out not to be a short quiet one. `continuation` is what another hub needs to go on
    with it, which its `writer` is told, `revoked` why that is to end it. `stream` is its durable stream, once it has
    one: then whoever follows the call is told (`on_stream`), and `info` is what its front wants kept. `alarm` is
    handed the time when it may be due, and says when to ask again (`sooner` for the first time): a timer for each call
    would cost half a kilobyte. `fit` makes what stands for a result of more bytes than the call takes tokens.
    """

    __slots__ = (
        "__weakref__", "_asked", "_clock", "_doubted", "_guard", "_heard", "_open", "_spoke", "alarm", "began", "call",
        "continuation", "entered", "fit", "handler", "info", "lasting", "limits", "log", "on_stream", "revoked",
        "sooner", "started", "stopping", "stream", "task", "writer",
    )  # fmt: skip

    def __init__(self, call: Call, handler: CallHandler, limits: TimeLimits, clock: Clock) -> None:
        self.call = call
        self.handler = handler
        self.limits = limits
        self.log = CallLog()
        self.task: asyncio.Task[None] | None = None
        self.entered = False
        self.fit: Callable[[Call, Completed], Awaitable[Completed]] | None = None
        self.stopping: Ending | None = None
        self._clock = clock
        self._guard: ProgressGuard | None = None
        self._open: dict[str, Question] = {}
        self._asked = 0
        self.continuation: RawJson | None = None
        self.revoked: str | None = None
        self.sooner: Callable[[float], None] = _untimed
        self.lasting: Callable[[CallRecord], object] | None = None
        self.info: Callable[[], bytes] | None = None
        self.writer: Writer | None = None
        self.on_stream: Callable[[Stream], None] | None = None
        self.alarm: Callable[[float], float] | None = None
        self.stream: Stream | None = None
        self._doubted = -math.inf
        self.started = self._heard = self._spoke = clock.now()
        self.began: float | None = self.started

    def send(self, event: CallEvent) -> None:
        self._heard = self._clock.now()
        if self.lasting is not None:
            self.make_lasting()
        if type(event) is Progress:
            if self._guard is None:
                self._guard = ProgressGuard()
            admitted = self._guard.admit(event)
            if admitted is None:
                self.log.refused += 1
                return
            self._spoke = self._heard
            event = admitted
        self.log.append(event)

    def heard(self) -> None:
        if not self._open:
            self._heard = self._clock.now()

    def doubt(self) -> None:
        if self._doubted <= self._heard and not self._open:
            self._doubted = self._clock.now()
            self.sooner(self.due)

    def continuable(self, how: RawJson | None) -> None:
        self.continuation = how
        if self.lasting is not None and how is not None:
            self.make_lasting()
        if self.writer is not None:
            self.writer.wake()

    @property
    def is_left(self) -> bool:
        """Whether the hub stops and another one can go on with the call."""
        is_durable = self.stream is not None and self.stream.is_durable
        return is_durable and self.continuation is not None and self._ends_by(HubStopping)

    @property
    def is_overdue(self) -> bool:
        """Whether it is being ended because it ran out of time."""
        return self._ends_by(DeadlineExceeded)

    def _ends_by(self, error: type[RpcError]) -> bool:
        return isinstance(self.stopping, Failed) and isinstance(self.stopping.error, error)

    @property
    def is_unsent(self) -> bool:
        """Whether its turn has never come, here or at another hub: nothing was done."""
        return not self.entered and self.continuation is None

    def ask(self, question: Question) -> str:
        self._asked += 1
        key = f"q{self._asked}"
        if self.log.ended or len(self._open) >= _MOST_QUESTIONS:
            reason = "the call has ended" if self.log.ended else f"{_MOST_QUESTIONS} questions of this call are open"
            question.answered(RpcError(f"{question.method} not passed on: {reason}"))
            return key
        self._heard = self._clock.now()
        if self.lasting is not None:
            self.make_lasting()
        self._open[key] = question
        self.log.append(InputRequired(key, question.method, question.params))
        self.sooner(self.due)
        return key

    def withdraw(self, key: str) -> None:
        self.answer(key, RpcError("the question was withdrawn"))

    def answer(self, key: str, outcome: RawJson | RpcError) -> bool:
        """Settles a question with the caller's result or an error; False if it is not open (answered, withdrawn)."""
        question = self._open.pop(key, None)
        if question is None:
            return False
        self._heard = self._clock.now()
        self.log.append(InputReceived(key, len(self._open), action_of(question.method, outcome)))
        question.answered(outcome)
        return True

    @property
    def had_input(self) -> bool:
        """Whether the caller was asked anything on the way, or comes back with what it was asked for."""
        call = self.call
        return self._asked > 0 or call.input_responses is not None or call.request_state is not None

    @property
    def open_questions(self) -> Mapping[str, Question]:
        """By key, oldest first."""
        return self._open

    def _leave_open(self) -> None:
        """The call has ended: what is still open will not be answered."""
        while self._open:
            _, question = self._open.popitem()
            question.answered(RpcError(f"{question.method} was not answered: the call has ended"))

    def take_up(self, how: RawJson, progressed: float, events: int, revoked: str | None = None) -> None:
        """The call was begun, and maybe `revoked`, at another hub; its stream goes on behind so many events.

        No question gets the key of an earlier one: there are no more of those than events.
        """
        self.lasting = None
        self._asked = events
        self.continuation, self.revoked = how, revoked
        self._guard = ProgressGuard(progressed)

    def make_lasting(self) -> None:
        """The call is no short quiet one: whoever wants to know (`lasting`) is told, once, unless it has ended."""
        lasting, self.lasting = self.lasting, None
        if lasting is not None and not self.log.ended:
            lasting(self)

    def has_stream(self, stream: Stream) -> None:
        """The call has become durable: from now on its events are to be had there, too."""
        self.stream = stream
        if self.on_stream is not None:
            self.on_stream(stream)

    def look(self, now: float) -> float:
        """Does what is due of a call that lasts: its durable stream, alarm, heartbeat. When there is more to do."""
        if self.task is None or self.log.ended:
            return math.inf
        if self.lasting is not None:
            if now < self.started + QUIET:
                return self.started + QUIET
            self.make_lasting()
        due = math.inf if self.alarm is None else self.alarm(now)
        return min(due, self._beat(now)) if self.call.wants_progress else due

    def _beat(self, now: float) -> float:
        """The heartbeat, if it is due; when the next one is."""
        if now >= self._spoke + _SILENCE:
            self._spoke = now
            if self._guard is None:
                self._guard = ProgressGuard()
            beat = self._guard.heartbeat()
            if beat is not None:
                self.log.append(beat)
        return self._spoke + _SILENCE

    def begin(self) -> None:
        """The wait is over; from here on the upstream may not be silent for too long."""
        self.began = self._heard = self._spoke = self._clock.now()

    async def kept(self, *, whole: bool) -> None:
        if whole:
            await self.log.over()
        if self.writer is not None:
            await self.writer.committed()

    async def drained(self) -> None:
        await self.log.drained()

    @property
    def due(self) -> float:
        """When the call runs out of time, unless its upstream is heard of before. While it waits nobody is silent."""
        if self.task is None:
            return self.started + self.limits.total
        patience = self.limits.answer if self._open else self.limits.silence
        doubted = self._doubted + _DOUBT if self._doubted > self._heard else math.inf
        return min(self._heard + patience, self.started + self.limits.total, doubted)

    def overdue(self) -> Failed:
        """The ending of a call that ran out of time."""
        limits, latest = self.limits, self.started + self.limits.total
        if self._open and self._heard + limits.answer <= latest:
            return late.unanswered(next(iter(self._open.values())).method, limits.answer)
        if self._doubted > self._heard and self._doubted + _DOUBT == self.due:
            return late.in_doubt(self.call, _DOUBT)
        if self.task is None:
            return late.out_of_time(self.call, "was busy with others for", limits.total, "max_duration")
        if self._heard + limits.silence <= latest:
            return late.out_of_time(self.call, "was silent for", limits.silence, limits.setting)
        return late.out_of_time(self.call, "has not answered after", limits.total, "max_duration")

    def stop(self, ending: Ending) -> None:
        """Asks the handler to stop; the call ends with `ending` when it does."""
        if self.log.ended or self.stopping is not None:
            return
        self.stopping = ending
        if isinstance(ending, Cancelled) and self.continuation is not None:
            self.revoked = ending.reason or ""
            self.continuable(self.continuation)
        if self.task is None:
            self.log.append(_BEGUN)
            self.log.append(ending)
        elif self.entered:
            self.task.cancel()


def run(record: CallRecord, on_end: Callable[[CallRecord], None]) -> None:
    """Starts the record's task; `on_end` is called once, after the ending is in the log."""
    record.log.append(_BEGUN)
    record.task = asyncio.get_running_loop().create_task(_run(record, on_end))


async def _run(record: CallRecord, on_end: Callable[[CallRecord], None]) -> None:
    ending: Ending
    record.entered = True  # a task that is cancelled before its first step would never get to append the ending
    try:
        ending = record.stopping or await _completed(record)
    except asyncio.CancelledError:
        ending = record.stopping or Cancelled("the hub is stopping")
    except RpcError as error:
        ending = record.stopping or Failed(error)
    except Exception:
        log.exception("call_crashed", call_id=record.call.id, upstream=record.call.upstream)
        ending = Failed(RpcError("internal error of the hub; its log has the details"))
    record.log.append(ending)
    if record.open_questions:
        record._leave_open()
    on_end(record)


async def _completed(record: CallRecord) -> Completed:
    call = record.call
    done = await record.handler(call, record)
    if record.fit is None or len(done.result) <= call.result_tokens:
        return done
    return await record.fit(call, done)


class Bell:
    """Wakes the one task that waits for it; one that was rung before is not waited for. An `anyio.Event` costs more."""

    __slots__ = ("_is_rung", "_waiter")

    def __init__(self) -> None:
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._is_rung = True
        self._wake()

    async def wait(self, seconds: float | None = None) -> bool:
        """Returns when it was rung since the last time; False if it was not within that time."""
        if not self._is_rung:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(seconds, self._wake) if seconds is not None else None
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        was_rung, self._is_rung = self._is_rung, False
        return was_rung

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def call_later(seconds: float, callback: Callable[[], None]) -> Timer:
    """The event loop's timer, for the registry's one wheel."""
    return asyncio.get_running_loop().call_later(seconds, callback)


class Beside:
    """Runs work beside a block and no longer; `give_up`, which it is handed, cancels the block and nothing else.

    The work must not fail. An `anyio` task group would cost 4 kB for each, a cancel scope 1 kB.
    """

    __slots__ = ("_before", "_host", "_is_given_up", "_task", "_work")

    def __init__(self, work: Callable[[Callable[[], None]], Coroutine[None, None, None]]) -> None:
        self._work = work
        self._is_given_up = False

    def __enter__(self) -> None:
        host = asyncio.current_task()
        assert host is not None
        self._host, self._before = host, host.cancelling()
        self._task = asyncio.get_running_loop().create_task(self._work(self.give_up))

    def give_up(self) -> None:
        """Cancels the block; idempotent, and not to be called by the block itself."""
        if not self._is_given_up:
            self._is_given_up = True
            self._host.cancel()

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> bool:
        """True, which swallows the cancellation, if it was ours alone."""
        self._task.cancel()
        return self._is_given_up and self._host.uncancel() <= self._before and kind is asyncio.CancelledError


def call_soon(callback: Callable[[], None]) -> None:
    """In the next pass of the event loop."""
    asyncio.get_running_loop().call_soon(callback)
