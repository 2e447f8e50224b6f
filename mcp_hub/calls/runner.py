"""Runs one call: the only place where a call ends.

A record passes through these states (`CallState`), never back:

    WAITING   its principal runs enough calls; nothing is sent
    SENT      the request is written; the answer is taken in place
    STARTING  its task has not run yet
    TASK      a handler runs in the task
    ENDED     the ending is in the log

`run` leads to SENT where the upstream can begin in place, else to STARTING. An answer in SENT that needs work gets a
task.

Exactly one ending is appended. A handler returns or raises it; others use `stop`, whose first ending is `stopping`. It
acts at once in WAITING and SENT, at the task's first step in STARTING, by cancellation in TASK. It replaces what the
handler raises; a returned result wins.

A call becomes durable once: at its first event, question or resume point, or after `QUIET` seconds. Its owner calls
`look` at the time given to `reschedule`.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from mcp_hub.call import Call, CallHandler, Question, SentCall
from mcp_hub.calls.attempts import attempted, finishing
from mcp_hub.calls.log import CallLog
from mcp_hub.calls.plan import WITHOUT_PLAN, CallPlan, CallState, ResumePoint, TimeLimits
from mcp_hub.calls.progress import CallProgress
from mcp_hub.calls.reading.stream import Stream
from mcp_hub.calls.timeouts import CallTimes, OpenQuestions
from mcp_hub.clock import Clock
from mcp_hub.errors import HubStopping, RpcError
from mcp_hub.events import (
    Attempt,
    CallEvent,
    Cancelled,
    Completed,
    Delta,
    Ending,
    Failed,
    Progressed,
    Reset,
    failed_by,
)
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.rpc_errors import for_others
from mcp_hub.types import RawJson

log = get_logger(__name__)

QUIET: Final = 0.25
"""Seconds after which a silent call becomes durable."""


class CallOwner:
    """Owns calls until they end; does nothing."""

    def reschedule(self, due: float) -> None:
        """The call needs `look` by that time."""

    def becomes_durable(self, record: "CallRecord") -> None:
        """The call has an event or outlives `QUIET`."""

    def stop(self, record: "CallRecord", ending: Ending) -> None:
        """Ends the call so. Idempotent."""

    def has_ended(self, record: "CallRecord") -> None:
        """The call has ended."""


class LogWriter(Protocol):
    """Writes a call's stream."""

    is_kept: bool
    """Whether the store has a state from which another hub can continue, even if it has failed since."""

    def wake(self) -> None:
        """The log has news."""

    async def committed(self) -> None:
        """Returns once present events are stored or cannot be."""

    def is_committed(self, wake: Callable[[], None]) -> bool:
        """Whether they are; if not, `wake` is called soon."""


_UNOWNED: Final = CallOwner()


class _Looks(msgspec.Struct):
    """The looks of the owner's wheel at one call; the first is with its next turn."""

    owner: CallOwner
    at: float = -math.inf

    def reschedule(self, due: float) -> None:
        self.at = min(self.at, due)
        self.owner.reschedule(due)

    def begin(self) -> None:
        self.at = math.inf

    def plan(self, *due: float) -> float:
        self.at = min(self.at, *due)
        return self.at


class CallRecord(msgspec.Struct, weakref=True, eq=False):
    """A call with log and state; its handler's `CallChannel`.

    `is_short`: it may still get a `stream`. `resumption` lets another hub continue it.
    """

    call: Call
    handler: CallHandler
    times: CallTimes
    plan: CallPlan
    log: CallLog
    questions: OpenQuestions
    _owner: CallOwner
    resumption: ResumePoint | None
    is_short: bool
    state: CallState = "waiting"
    stopping: Ending | None = None
    task: asyncio.Task[None] | None = None
    stream: Stream | None = None
    writer: LogWriter | None = None
    _sent: SentCall | None = None
    _made_progress: CallProgress | None = None

    # -- what the handler reports -------------------------------------------------------------------------------------

    def send(self, event: CallEvent) -> None:
        now = self.times.hear()
        if self.is_short:
            self._become_durable()
        if type(event) is Progressed:
            admitted = (self._made_progress or self._progress).admit(event, now)
            if admitted is None:
                self.log.refuse()
                return
            event = admitted
        elif type(event) is Delta and self.stream is not None:
            self.stream.content.saw(event)
        elif type(event) is Attempt or type(event) is Reset:
            if not self._restarts(event):
                return
        self.log.append(event)
        if type(event) is Delta and self.call.partials is not None:
            self._progress.show(event, now)
            self.times.wheel.reschedule(self._beat(now))

    def _restarts(self, event: Attempt | Reset) -> bool:
        """Whether partial content begins anew; a reset of a server may take nothing back."""
        if isinstance(event, Reset) and (self.stream is None or not self.stream.content.saw(event)):
            return False
        if self._made_progress is not None:
            self._made_progress.begin_attempt()
        return True

    @property
    def _progress(self) -> CallProgress:
        if self._made_progress is None:
            times = self.times
            began = times.started if times.began is None else times.began
            is_taken_up = self.plan.resumption is not None
            self._made_progress = CallProgress(self.call.partials, self.plan.progressed, began, is_taken_up=is_taken_up)
        return self._made_progress

    def continuable(self, state: RawJson | None, *, is_firm: bool = False, is_quiet: bool = False) -> None:
        point = self.resumption
        revoked = point.revoked if point is not None else None
        if isinstance(self.stopping, Cancelled):
            revoked = self.stopping.reason or ""
        if point is None or state is not point.state or revoked is not point.revoked:
            self._resume_by(None if state is None else ResumePoint(state, revoked, is_firm))
        if state is not None and not is_quiet:
            self._become_durable()

    def _resume_by(self, resumption: ResumePoint | None) -> None:
        self.resumption = resumption
        if self.writer is not None:
            self.writer.wake()

    @property
    def survives(self) -> bool:
        stream = self.stream
        if stream is None or self.resumption is None:
            return False
        if stream.is_lost or failed_by(self.stopping, "owner_lost"):
            return True
        is_kept = stream.store.is_durable or (self.writer is not None and self.writer.is_kept)
        return is_kept and failed_by(self.stopping, HubStopping)

    async def until_stored(self, *, whole: bool) -> None:
        if whole:
            await self.log.over()
        if self.writer is not None:
            await self.writer.committed()

    async def drained(self) -> None:
        await self.log.drained()

    def ask(self, question: Question) -> str:
        if self.questions.refusal is None:
            self._become_durable()
        return self.questions.ask(question)

    # -- durable streams ----------------------------------------------------------------------------------------------

    def _become_durable(self) -> None:
        if self.is_short:
            self.is_short = False
            if not self.log.ended:
                self._owner.becomes_durable(self)

    def has_stream(self, stream: Stream, writer: LogWriter) -> None:
        """Sets the durable stream, which `writer` writes; notifies the log's readers."""
        self.stream, self.writer = stream, writer
        self.log.becomes_durable(stream.reader)

    def is_written(self) -> None:
        """The writer is over, and needs no more news."""
        self.writer = None

    # -- time ---------------------------------------------------------------------------------------------------------

    def look(self, now: float) -> float:
        """Does what is due; returns the time of the next look."""
        if self.log.ended:
            return math.inf
        due = self.times.ring(now)
        if self.times.began is None:
            return due
        if self.is_short:
            if now < self.times.began + QUIET:
                return min(due, self.times.began + QUIET)
            self._become_durable()
        return min(due, self._beat(now)) if self.call.wants_progress else due

    def _beat(self, now: float) -> float:
        progress = self._progress
        if (message := progress.beat(now)) is not None:
            self.log.append(message)
        return progress.due

    # -- from waiting to the ending -----------------------------------------------------------------------------------

    @property
    def is_unsent(self) -> bool:
        """Whether nothing was sent, by any hub."""
        return self.state in ("waiting", "starting") and self._sent is None and self.resumption is None

    def wrap(self, layer: Callable[[CallHandler], CallHandler]) -> None:
        self.handler = layer(self.handler)

    def cancel(self, reason: str | None = None, *, error: RpcError | None = None) -> None:
        """Ends the call, also at its server: as cancelled, or by `error`. Idempotent."""
        self._owner.stop(self, Cancelled(reason) if error is None else Failed(error))

    def stop(self, ending: Ending) -> None:
        """Ends the call, as its state allows. Idempotent."""
        if self.log.ended or self.stopping is not None:
            return
        self.stopping = ending
        if isinstance(ending, Cancelled) and self.resumption is not None:
            self._resume_by(ResumePoint(self.resumption.state, ending.reason or ""))
        match self.state:
            case "waiting":
                self.state = "ended"
                self.log.begin()
                self.log.append(ending)
            case "sent":
                assert self._sent is not None
                self._sent.abandon()
                self._end(ending)
            case "task":
                assert self.task is not None
                self.task.cancel()

    def run(self) -> None:
        """Begins the call, in place if possible."""
        self.log.begin()
        if self.plan.upstream is not None:
            try:
                self._sent = self.plan.upstream.begin(self.call, self)
            except RpcError as error:
                self._end(Failed(error))
                return
        if self._sent is None:
            self._begin_task()
            return
        self.state = "sent"
        self._sent.then(self._answered)

    def _answered(self) -> None:
        if self.state != "sent" or self._sent is None:
            return
        completed, plan = self._sent.result(), self.plan
        fits = completed is not None and (plan.truncate is None or self._fits(completed))
        if completed is not None and fits and (plan.passes is None or plan.passes(completed)):
            self._sent.leave()
            self._end(completed)
        else:
            assert plan.upstream is not None
            finish = finishing(self._sent, plan.upstream.call)
            self._begin_task(finish if plan.layers is None else plan.layers(finish))

    def _begin_task(self, handler: CallHandler | None = None) -> None:
        self.state = "starting"
        self.task = asyncio.get_running_loop().create_task(self._run(handler))

    async def _run(self, handler: CallHandler | None) -> None:
        ending: Ending
        self.state = "task"  # a task that is cancelled before its first step would never append the ending
        if self.stopping is not None:
            if self._sent is not None:
                self._sent.abandon()
            self._end(self.stopping)
            return
        try:
            ending = await self._completed(handler or self.handler)
        except asyncio.CancelledError:
            ending = self.stopping or Cancelled("the hub is stopping")
        except RpcError as error:
            ending = self.stopping or Failed(error if self.call.shows_paths else for_others(error))
        except Exception:
            log.exception("call_crashed", call_id=self.call.id, upstream=self.call.upstream)
            ending = Failed(RpcError("Internal error of the hub. Its log has the details."))
        self._end(ending)

    async def _completed(self, handler: CallHandler) -> Completed:
        call, truncate = self.call, self.plan.truncate
        completed = await (handler(call, self) if self.plan.retries is None else attempted(self, handler))
        return completed if truncate is None or self._fits(completed) else await truncate(call, completed)

    def _fits(self, completed: Completed) -> bool:
        limit = self.call.result_tokens
        return (not limit or len(completed.result) <= limit) and self.call.path is None

    def _end(self, ending: Ending) -> None:
        self.state = "ended"
        self._sent = None  # which knows the record: nothing is left to the garbage collector
        if self.questions.open and self.stream is not None and isinstance(ending, Completed):
            self.questions.close()  # no question is open when there is a result
        self.log.append(ending)
        if self.questions.open:
            self.questions.close()
        self._owner.has_ended(self)


def new_record(
    call: Call,
    handler: CallHandler,
    limits: TimeLimits,
    clock: Clock,
    plan: CallPlan = WITHOUT_PLAN,
    owner: CallOwner = _UNOWNED,
) -> CallRecord:
    """The record before a call's begin."""
    now, log = clock.now(), CallLog()
    times = CallTimes(clock=clock, wheel=_Looks(owner), limits=limits, started=now, began=now, heard=now)
    # so many `events`, so that no question gets the key of one that another hub put
    questions = OpenQuestions(log, times, plan.events)
    return CallRecord(
        call=call, handler=handler, times=times, plan=plan, log=log, questions=questions, _owner=owner,
        resumption=plan.resumption, is_short=plan.may_last,
    )  # fmt: skip


def moved_record(record: CallRecord, handler: CallHandler) -> CallRecord:
    """The record of a call that another hub has, over the same stream; none of its questions is open here."""
    plan = msgspec.structs.replace(WITHOUT_PLAN, events=record.questions.count)
    moved = new_record(record.call, handler, record.times.limits, record.times.clock, plan)
    moved.stream = record.stream
    return moved


def newest_progress(record: CallRecord) -> Progressed | None:
    return None if record._made_progress is None else record._made_progress.newest


def put_questions(record: CallRecord, questions: OpenQuestions) -> None:
    """Puts others in place of a call's questions, with the same that are open."""
    record.questions = questions
