"""Runs one call: the only place where a call ends.

A call is `waiting`, then `sent` (its request is written, no task is needed) or in a `task`, then `ended`. Whatever
happens, exactly one ending is appended. The task is a plain one of asyncio: `start_soon` costs three times that.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Final

from mcp_hub.call import Call, CallChannel, CallHandler, Question, SentCall
from mcp_hub.calls import timeouts
from mcp_hub.calls.log import CallLog
from mcp_hub.calls.plan import WITHOUT_PLAN, CallPlan, CallState
from mcp_hub.calls.rules import TimeLimits
from mcp_hub.calls.streams.stream import LogWriter, Stream
from mcp_hub.clock import Clock
from mcp_hub.errors import DeadlineExceeded, HubStopping, RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Ending, Failed, InputReceived, InputRequired, Progressed
from mcp_hub.logs import get_logger
from mcp_hub.protocol.progress import ProgressGuard
from mcp_hub.protocol.questions import action_of
from mcp_hub.types import RawJson

__all__ = ["QUIET", "CallRecord", "TimeLimits"]

log = get_logger(__name__)

QUIET: Final = 0.25
"""Seconds after which a call that has said nothing is no short one any more (streams.md §1)."""
_SILENCE: Final = 10.0
"""Seconds without progress after which its caller is told that the call is alive (streams.md §2, "Progress")."""
_DOUBT: Final = 30.0
"""Seconds that a call may stay silent after an answer of its upstream that could be given to nobody."""
_MOST_QUESTIONS: Final = 64
"""Questions of one call that may be open at once."""


def _untimed(due: float) -> None:
    """Nobody looks after the call's time."""


class CallRecord:
    """A call, its log and its state. It is the `CallChannel` that the handler is handed.

    `began` is when its turn came, None before. `reschedule` is told when the call may run out of time earlier than it
    could so far, `on_durable` when it turns out not to be a short quiet one. `continuation` is what another hub needs
    to go on with it, which its `writer` is told, `revoked` why that is to end it. `stream` is its durable stream, once
    it has one: then whoever follows the call is told (`on_stream`), and `info` is what its front wants kept. `timer` is
    handed the time when it may be due, and says when to ask again (`reschedule` for the first time): a timer for each
    call would cost half a kilobyte.
    """

    __slots__ = (
        "__weakref__", "_asked", "_clock", "_doubted", "_entered", "_guard", "_heard", "_on_end", "_open", "_sent",
        "_spoke", "began", "call", "continuation", "handler", "info", "limits", "log", "on_durable",
        "on_stream", "plan", "reschedule", "revoked", "started", "state", "stopping", "stream", "task", "timer",
        "writer",
    )  # fmt: skip

    def __init__(
        self, call: Call, handler: CallHandler, limits: TimeLimits, clock: Clock, plan: CallPlan = WITHOUT_PLAN
    ) -> None:
        self.call = call
        self.handler = handler
        self.limits = limits
        self.plan = plan
        self.log = CallLog()
        self.state = CallState.WAITING
        self._sent: SentCall | None = None
        self.task: asyncio.Task[None] | None = None
        self._entered = False
        self._on_end: Callable[[CallRecord], None] = _nobody
        self.stopping: Ending | None = None
        self._clock = clock
        self._guard: ProgressGuard | None = None
        self._open: dict[str, Question] = {}
        self._asked = 0
        self.continuation: RawJson | None = None
        self.revoked: str | None = None
        self.reschedule: Callable[[float], None] = _untimed
        self.on_durable: Callable[[CallRecord], object] | None = None
        self.info: Callable[[], bytes] | None = None
        self.writer: LogWriter | None = None
        self.on_stream: Callable[[Stream], None] | None = None
        self.timer: Callable[[float], float] | None = None
        self.stream: Stream | None = None
        self._doubted = -math.inf
        self.started = self._heard = self._spoke = clock.now()
        self.began: float | None = self.started

    def send(self, event: CallEvent) -> None:
        self._heard = self._clock.now()
        if self.on_durable is not None:
            self.make_lasting()
        if type(event) is Progressed:
            if self._guard is None:
                self._guard = ProgressGuard()
            admitted = self._guard.admit(event)
            if admitted is None:
                self.log.refused += 1
                return
            self._spoke = self._heard
            event = admitted
        self.log.append(event)

    def touch(self) -> None:
        if not self._open:
            self._heard = self._clock.now()

    def suspect(self) -> None:
        if self._doubted <= self._heard and not self._open:
            self._doubted = self._clock.now()
            self.reschedule(self.due)

    def continuable(self, how: RawJson | None) -> None:
        self.continuation = how
        if self.on_durable is not None and how is not None:
            self.make_lasting()
        if self.writer is not None:
            self.writer.wake()

    @property
    def survives(self) -> bool:
        """Whether the hub stops and another one can go on with the call."""
        is_durable = self.stream is not None and self.stream.is_durable
        return is_durable and self.continuation is not None and self._ends_by(HubStopping)

    @property
    def is_waiting(self) -> bool:
        """Whether its turn has not come yet."""
        return self.state is CallState.WAITING

    @property
    def is_overdue(self) -> bool:
        """Whether it is being ended because it ran out of time."""
        return self._ends_by(DeadlineExceeded)

    def _ends_by(self, error: type[RpcError]) -> bool:
        return isinstance(self.stopping, Failed) and isinstance(self.stopping.error, error)

    @property
    def is_unsent(self) -> bool:
        """Whether its turn has never come, here or at another hub: nothing was done."""
        return not (self._entered or self._sent) and self.continuation is None

    def ask(self, question: Question) -> str:
        self._asked += 1
        key = f"q{self._asked}"
        if self.log.ended or len(self._open) >= _MOST_QUESTIONS:
            reason = "the call has ended" if self.log.ended else f"{_MOST_QUESTIONS} questions of this call are open"
            question.answered(RpcError(f"{question.method} not passed on: {reason}"))
            return key
        self._heard = self._clock.now()
        if self.on_durable is not None:
            self.make_lasting()
        self._open[key] = question
        self.log.append(InputRequired(key, question.method, question.params))
        self.reschedule(self.due)
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
        self.on_durable = None
        self._asked = events
        self.continuation, self.revoked = how, revoked
        self._guard = ProgressGuard(progressed)

    def make_lasting(self) -> None:
        """The call is no short quiet one: whoever wants to know (`on_durable`) is told, once, unless it has ended."""
        on_durable, self.on_durable = self.on_durable, None
        if on_durable is not None and not self.log.ended:
            on_durable(self)

    def has_stream(self, stream: Stream) -> None:
        """The call has become durable: from now on its events are to be had there, too."""
        self.stream = stream
        self.log.tell()
        if self.on_stream is not None:
            self.on_stream(stream)

    def look(self, now: float) -> float:
        """Does what is due of a call that lasts: its durable stream, alarm, heartbeat. When there is more to do."""
        if self.state is CallState.WAITING or self.log.ended:
            return math.inf
        if self.on_durable is not None:
            if now < self.started + QUIET:
                return self.started + QUIET
            self.make_lasting()
        due = math.inf if self.timer is None else self.timer(now)
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
        if self.state is CallState.WAITING:
            return self.started + self.limits.total
        patience = self.limits.answer if self._open else self.limits.silence
        doubted = self._doubted + _DOUBT if self._doubted > self._heard else math.inf
        return min(self._heard + patience, self.started + self.limits.total, doubted)

    def overdue(self) -> Failed:
        """The ending of a call that ran out of time."""
        limits, latest = self.limits, self.started + self.limits.total
        if self._open and self._heard + limits.answer <= latest:
            return timeouts.unanswered(next(iter(self._open.values())).method, limits.answer)
        if self._doubted > self._heard and self._doubted + _DOUBT == self.due:
            return timeouts.in_doubt(self.call, _DOUBT)
        if self.state is CallState.WAITING:
            return timeouts.out_of_time(self.call, "was busy with others for", limits.total, "max_duration")
        if self._heard + limits.silence <= latest:
            return timeouts.out_of_time(self.call, "was silent for", limits.silence, limits.setting)
        return timeouts.out_of_time(self.call, "has not answered after", limits.total, "max_duration")

    def stop(self, ending: Ending) -> None:
        """Ends the call with `ending`: in place, unless it has a task, whose handler is asked to stop."""
        if self.log.ended or self.stopping is not None:
            return
        self.stopping = ending
        if isinstance(ending, Cancelled) and self.continuation is not None:
            self.revoked = ending.reason or ""
            self.continuable(self.continuation)
        match self.state:
            case CallState.WAITING:
                self.state = CallState.ENDED
                self.log.begin()
                self.log.append(ending)
            case CallState.SENT:
                assert self._sent is not None
                self._sent.abandon()
                self.end(ending)
            case CallState.TASK if self._entered:
                assert self.task is not None
                self.task.cancel()

    # -- from waiting to the ending -----------------------------------------------------------------------------------

    def run(self, on_end: Callable[["CallRecord"], None]) -> None:
        """Begins the call, in place if that is possible; `on_end` is called once, after the ending is in the log."""
        self._on_end = on_end
        self.log.begin()
        if self.plan.upstream is not None:
            try:
                self._sent = self.plan.upstream.begin(self.call, self)
            except RpcError as error:
                self.end(Failed(error))
                return
        if self._sent is None:
            self._begin_task()
            return
        self.state, self._entered = CallState.SENT, True
        self._sent.then(self._answered)

    def _answered(self) -> None:
        """The request has its answer, or will have none: ends the call here, or leaves the rest to a task."""
        if self.state is not CallState.SENT or self._sent is None:
            return
        done, plan, most = self._sent.result(), self.plan, self.call.result_tokens
        is_short = done is not None and (not most or plan.truncate is None or len(done.result) <= most)
        if done is not None and is_short and (plan.passes is None or plan.passes(done)):
            self._sent.leave()
            self.end(done)
        else:
            self._entered = False
            self._begin_task(self._finishing(self._sent))

    def _finishing(self, sent: SentCall) -> CallHandler:
        """The rest of a call that was begun in place, inside of what belongs around its handler."""
        assert self.plan.upstream is not None
        return self.plan.layered(_finishing(sent, self.plan.upstream.call))

    def _begin_task(self, handler: CallHandler | None = None) -> None:
        """`handler` instead of the record's own."""
        self.state = CallState.TASK
        self.task = asyncio.get_running_loop().create_task(self._run(handler))

    async def _run(self, handler: CallHandler | None) -> None:
        ending: Ending
        self._entered = True  # a task that is cancelled before its first step would never get to append the ending
        if self.stopping is not None:
            if self._sent is not None:
                self._sent.abandon()
            self.end(self.stopping)
            return
        try:
            ending = await self._completed(handler or self.handler)
        except asyncio.CancelledError:
            ending = self.stopping or Cancelled("the hub is stopping")
        except RpcError as error:
            ending = self.stopping or Failed(error)
        except Exception:
            log.exception("call_crashed", call_id=self.call.id, upstream=self.call.upstream)
            ending = Failed(RpcError("internal error of the hub; its log has the details"))
        self.end(ending)

    async def _completed(self, handler: CallHandler) -> Completed:
        call, truncate = self.call, self.plan.truncate
        done = await handler(call, self)
        if truncate is None or not call.result_tokens or len(done.result) <= call.result_tokens:
            return done
        return await truncate(call, done)

    def end(self, ending: Ending) -> None:
        """Appends the ending and lets go of what belongs to the call."""
        self.state = CallState.ENDED
        self._sent = None  # which knows the record: nothing is left to the garbage collector
        self.log.append(ending)
        if self._open:
            self._leave_open()
        on_end, self._on_end = self._on_end, _nobody
        on_end(self)


def _finishing(sent: SentCall, again: CallHandler) -> CallHandler:
    """The rest of a call whose request is written, as a handler; called once more, it makes the call `again`."""
    is_first = True

    async def finish(call: Call, channel: CallChannel) -> Completed:
        nonlocal is_first
        if is_first:
            is_first = False
            return await sent.finish()
        return await again(call, channel)

    return finish


def _nobody(record: CallRecord) -> None:
    """The ending was reported."""
