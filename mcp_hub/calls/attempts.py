"""Retries one call after failures that may pass, and announces them to its readers."""

from typing import Final, Protocol

import anyio

from mcp_hub.call import Call, CallChannel, CallHandler, SentCall
from mcp_hub.calls.plan import CallPlan
from mcp_hub.calls.reading.stream import Stream
from mcp_hub.calls.retries import class_of
from mcp_hub.calls.timeouts import CallTimes, OpenQuestions, running
from mcp_hub.errors import RpcError
from mcp_hub.events import Attempt, Completed, Ending, Failed, Reset
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.rpc_errors import for_others

log = get_logger(__name__)

_DETAIL: Final = 200
"""Characters of the error shown with an attempt."""


class _Task(Protocol):
    def cancel(self) -> object: ...
    def cancelling(self) -> int: ...
    def uncancel(self) -> int: ...


class _Retriable(CallChannel, Protocol):
    """A running call with its retries."""

    call: Call
    plan: CallPlan
    times: CallTimes
    questions: OpenQuestions
    stopping: Ending | None
    stream: Stream | None

    @property
    def task(self) -> _Task | None: ...


async def attempted(record: _Retriable, handler: CallHandler) -> Completed:
    """The result of `handler`, retried after failures that may pass.

    After an attempt with unknown outcome, its error is raised instead of a later one.
    """
    number = 1
    unknown: RpcError | None = None
    while True:
        try:
            return await _attempt(record, handler)
        except RpcError as error:
            unknown = unknown or (error if error.is_outcome_unknown else None)
            pause = _pause(record, error, number)
            if pause is None:
                if unknown is None or error.raw is not None:
                    raise
                raise unknown from None
            number += 1
            _announce(record, number, error, pause)
        record.times.begin_wait("its next attempt", pause)
        try:
            await anyio.sleep(pause)
        finally:
            record.times.end_wait()
        record.times.hear()  # the attempt has the longest silence to itself


async def _attempt(record: _Retriable, handler: CallHandler) -> Completed:
    """One attempt. Raises the reason of its end if it was cancelled without its call."""
    task = record.task
    if task is None or not record.times.limits.retries_silence:
        return await handler(record.call, record)
    with running(record.times, task.cancel) as attempt:
        try:
            return await handler(record.call, record)
        except (RpcError, anyio.get_cancelled_exc_class()) as exc:
            is_answer = isinstance(exc, RpcError) and exc.raw is not None
            if attempt.lapse is None or is_answer or task.cancelling() > 1:
                raise
            raise attempt.lapse from None
        finally:
            if attempt.lapse is not None:
                task.uncancel()


def lapses(record: _Retriable, ending: Failed) -> bool:
    """Whether the overdue attempt of a call was cancelled, so that another one may follow; False: the call ends."""
    retries, times, error = record.plan.retries, record.times, ending.error
    if retries is None or _is_last(record) or not retries.covers(record.call, error):
        return False
    if not times.attempt.give_up(error, times.clock.now()):
        return False
    record.continuable(None)  # its server is asked to stop
    return True


def finishing(sent: SentCall, again: CallHandler) -> CallHandler:
    """Finishes a written request; later attempts call `again`."""
    is_first = True

    async def finish(call: Call, channel: CallChannel) -> Completed:
        nonlocal is_first
        if is_first:
            is_first = False
            return await sent.finish()
        return await again(call, channel)

    return finish


def _pause(record: _Retriable, error: RpcError, number: int) -> float | None:
    times, retries = record.times, record.plan.retries
    if retries is None or _is_last(record):
        return None
    times.hear()
    return retries.pause(record.call, error, number, times.due, times.started + times.limits.total)


def _is_last(record: _Retriable) -> bool:
    """Whether the call is being stopped, has asked its caller, or may be another hub's by now."""
    call, stream = record.call, record.stream
    has_answers = call.input_responses is not None or call.request_state is not None
    has_asked = has_answers or record.questions.count > record.plan.events
    return record.stopping is not None or has_asked or (stream is not None and not stream.store.is_held(stream.row.id))


def _announce(record: _Retriable, number: int, error: RpcError, pause: float) -> None:
    reason, call = str(class_of(error)), record.call
    log.info("call_retried", call_id=call.id, upstream=call.upstream, attempt=number, reason=reason)
    record.continuable(None)
    detail = (error if call.shows_paths else for_others(error)).message
    record.send(Attempt(number, reason, round(pause, 3), hide_head(detail, _DETAIL)))
    if record.stream is not None and record.stream.content.is_any:
        record.stream.content.saw(Reset)
        record.send(Reset(number, reason))
