"""What a call's log tells its meter once the call has ended."""

import math

import pytest

from mcp_hub.call import Call, CallChannel
from mcp_hub.calls.coalesce import LAG
from mcp_hub.calls.metering import Meters, MethodFigures, Outcome, outcome_of
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.runner import CallRecord, new_record
from mcp_hub.errors import CallCancelled, DeadlineExceeded, RpcError
from mcp_hub.events import Cancelled, Completed, Ending, Failed, Log, Progressed, Started
from mcp_hub.ids import new_call_id
from mcp_hub.types import Era


class Clock:
    def now(self) -> float:
        return 0.0


async def nothing(call: Call, channel: CallChannel) -> Completed:
    raise AssertionError("not called")


def begun() -> CallRecord:
    call = Call(new_call_id(), "a", "tools/call", {}, {}, "s", "p", Era.MODERN, {})
    record = new_record(call, nothing, TimeLimits(1, 1), Clock())
    record.log.append(Started())
    return record


def metered(record: CallRecord, took: float = 0.0) -> MethodFigures:
    record.log.append(Completed(b"{}"))
    meters = Meters()
    meters.ended(record, took)
    (figures,) = meters.figures({"a"})
    return figures


def test_progress_that_is_no_number_is_refused() -> None:
    record = begun()
    for value in (1, 2, math.nan, math.inf, 3):
        record.send(Progressed(value))
    meter = metered(record)
    assert (meter.events, meter.refused, meter.merged) == (3, 2, 0)


def test_what_a_slow_reader_does_not_get_is_counted() -> None:
    record = begun()
    reader = record.log.reader(lambda: None)
    for _ in range(LAG + 10):
        record.send(Log("info", b'{"level":"info","data":1}'))
    meter = metered(record)
    assert meter.merged == 11 and meter.events + meter.merged >= LAG + 10
    reader.close()


@pytest.mark.parametrize(("took", "bucket"), [(0.0, 0), (0.01, 0), (0.011, 1), (300.0, 13), (300.1, 14)])
def test_a_bucket_holds_its_upper_end(took: float, bucket: int) -> None:
    meter = metered(begun(), took)
    assert meter.whole == meter.at_server
    counts, seconds = meter.whole.counts, meter.whole.seconds
    assert counts.index(1) == bucket and sum(counts) == 1 and seconds == pytest.approx(took)


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (Completed(b"{}"), Outcome.OK),
        (Completed(b'{"isError":true}'), Outcome.TOOL_ERROR),
        (Failed(RpcError("x")), Outcome.RPC_ERROR),
        (Failed(CallCancelled("x")), Outcome.CANCELLED),
        (Failed(DeadlineExceeded("x")), Outcome.TIMED_OUT),
        (Cancelled("x"), Outcome.CANCELLED),
    ],
)
def test_each_ending_is_one_outcome(ending: Ending, outcome: Outcome) -> None:
    assert outcome_of(ending) is outcome
