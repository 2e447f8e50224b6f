"""A call that runs here, in the hands of the client that made it."""

from collections.abc import Callable, Mapping

import msgspec

from mcp_hub.call import Call, Early, EarlyAnswer, Question, Reader
from mcp_hub.calls.early_answers import OutputSoFar, TaskAnswer
from mcp_hub.calls.log import DurableReader
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import CallState
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.port import StreamPort
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed
from mcp_hub.types import RawJson

__all__ = ["RunningCall", "running_call"]


class RunningCall(msgspec.Struct, gc=False):
    """A `call.CallHandle` of the call that `record` is of."""

    call: Call
    open_questions: Mapping[str, Question]
    seconds: float
    record: CallRecord
    streams: StreamPort
    parking: PendingInput
    after: int = 0
    early: Early | None = None

    @property
    def has_ended(self) -> bool:
        return self.record.state is CallState.ENDED or self.record.log.ended

    @property
    def plain_result(self) -> Completed | None:
        return self.record.log.plain_result if self.record.stream is None else None

    @property
    def stored(self) -> int | None:
        stream = self.record.stream
        return None if stream is None else stream.row.last

    @property
    def had_input(self) -> bool:
        call = self.call
        return self.record.asked > 0 or call.input_responses is not None or call.request_state is not None

    def reader(self, wake: Callable[[], None], after: int = 0, *, is_stored: bool = False) -> Reader:
        record = self.record
        if not is_stored:
            return record.log.reader(wake, after)
        if record.stream is not None:
            return record.stream.reader(wake, after)
        return DurableReader(record.log, wake, after)

    def watch(self, news: Callable[[], object] | None) -> None:
        self.record.log.watch(news)

    def early_answer(self, ready: Callable[[], None]) -> EarlyAnswer | None:
        if self.early is None:
            return None
        made = TaskAnswer if self.early.is_task else OutputSoFar
        return made(self.record, self.streams, self.early.after, ready, is_retry=self.after > 0)

    def answer(self, key: str, outcome: RawJson | RpcError) -> bool:
        return self.record.answer(key, outcome)

    def park(self, cursor: int) -> str:
        return self.parking.park(self.record, cursor)

    def keep(self, info: Callable[[], bytes]) -> None:
        self.record.keep(info)

    def cancel(self, reason: str | None = None) -> None:
        self.record.cancel(reason)

    def leave(self, back_within: float | None = None) -> None:
        self.streams.leave(self.record, back_within)


def running_call(
    record: CallRecord, streams: StreamPort, parking: PendingInput, after: int = 0, early: Early | None = None
) -> RunningCall:
    """The handle of a client that has seen the events up to `after`."""
    seconds = record.times.limits.total
    return RunningCall(record.call, record.open_questions, seconds, record, streams, parking, after, early)
