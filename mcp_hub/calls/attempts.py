"""Retries one call after failures that may pass, and announces them to its readers."""

from typing import Final, Protocol

import anyio

from mcp_hub.call import Call, CallChannel, CallHandler, SentCall
from mcp_hub.calls.plan import CallPlan
from mcp_hub.calls.reading.stream import Stream
from mcp_hub.calls.retries import class_of
from mcp_hub.calls.timeouts import CallTimes, OpenQuestions
from mcp_hub.errors import RpcError
from mcp_hub.events import Attempt, Completed, Ending, Reset
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.extensions import STREAMS, declares
from mcp_hub.protocol.jsonrpc.rpc_errors import for_others

log = get_logger(__name__)

_DETAIL: Final = 200
"""Characters of the error shown with an attempt."""


class _Retriable(CallChannel, Protocol):
    """A running call with its retries."""

    call: Call
    plan: CallPlan
    times: CallTimes
    questions: OpenQuestions
    stopping: Ending | None
    stream: Stream | None


async def attempted(record: _Retriable, handler: CallHandler) -> Completed:
    """The result of `handler`, retried after failures that may pass.

    After an attempt with unknown outcome, its error is raised instead of a later one.
    """
    number = 1
    unknown: RpcError | None = None
    while True:
        try:
            return await handler(record.call, record)
        except RpcError as error:
            unknown = unknown or (error if error.is_outcome_unknown else None)
            pause = _pause(record, error, number)
            if pause is None:
                if unknown is None or error.raw is not None:
                    raise
                raise unknown from None
            number += 1
            _announce(record, number, error, pause)
        record.times.begin_wait("its next attempt")
        try:
            await anyio.sleep(pause)
        finally:
            record.times.end_wait()
        record.times.hear()  # the attempt has the longest silence to itself


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
    call, plan = record.call, record.plan
    has_asked = (
        record.questions.count > plan.events or call.input_responses is not None or call.request_state is not None
    )
    if plan.retries is None or record.stopping is not None or has_asked or _has_shown_text(record):
        return None
    record.times.hear()
    return plan.retries(call, error, number, record.times.due)


def _has_shown_text(record: _Retriable) -> bool:
    call = record.call
    if record.stream is None or not record.stream.content.is_any or not call.wants_progress or call.takes_events:
        return False
    return not declares(call.capabilities, call.era, STREAMS)


def _announce(record: _Retriable, number: int, error: RpcError, pause: float) -> None:
    reason, call = str(class_of(error)), record.call
    log.info("call_retried", call_id=call.id, upstream=call.upstream, attempt=number, reason=reason)
    detail = (error if call.shows_paths else for_others(error)).message
    record.send(Attempt(number, reason, round(pause, 3), hide_head(detail, _DETAIL)))
    if record.stream is not None and record.stream.content.is_any:
        record.stream.content.reset()
        record.send(Reset(number, reason))
