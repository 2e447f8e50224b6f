"""Counts calls and measures durations, after OpenTelemetry's conventions for MCP (semantic-conventions-genai)."""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import IntEnum
from typing import Final, Literal

import msgspec

from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import CallCancelled, DeadlineExceeded
from mcp_hub.events import Completed, Ending, Failed
from mcp_hub.types import OWN, RawJson

BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper ends of buckets in seconds; the last bucket is unbounded."""
_MOST: Final = 4096
"""Pairs of server and method."""
_SAID: Final = re.compile(rb'"isError"\s*:\s*true')
"""Results without it are not errors: in a string the quotes would be escaped."""


class Outcome(IntEnum):
    """The kind of an ending. `TOOL_ERROR`: a result with `isError`."""

    OK = 0
    TOOL_ERROR = 1
    RPC_ERROR = 2
    CANCELLED = 3
    TIMED_OUT = 4


Durations = tuple[tuple[int, ...], float]
"""Counts by bucket, the last unbounded; seconds in all."""


class MethodFigures(msgspec.Struct, frozen=True):
    """Ended calls of one method at one server, or of the hub's own tools (`OWN`).

    `events` reached readers, `merged` were merged or dropped for slow ones, `refused` were illegal. `at_server` is the
    server's part of `whole`.
    """

    server: str
    method: str
    outcomes: Mapping[str, int]
    events: int
    merged: int
    refused: int
    whole: Durations
    at_server: Durations


LoadFigure = Literal["calls_running", "calls_waiting", "streams", "followers"]
Load = Mapping[str, Counter[LoadFigure]]
"""Calls that have not ended, their durable streams and followers, by server."""


Figures = tuple[Load, tuple[MethodFigures, ...]]
"""A hub's calls in numbers."""


class _Result(msgspec.Struct):
    isError: bool = False


class _Histogram:
    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.seconds = 0.0

    def add(self, took: float) -> None:
        self.counts[bisect_left(BOUNDS, took)] += 1
        self.seconds += took

    def with_those_of(self, addend: "_Histogram") -> Durations:
        return tuple(map(int.__add__, self.counts, addend.counts)), self.seconds + addend.seconds


class _Meter:
    """Calls of one method at one server; `at_once`: without a wait."""

    __slots__ = ("at_once", "at_server", "events", "merged", "outcomes", "refused", "whole")

    def __init__(self) -> None:
        self.outcomes = [0] * len(Outcome)
        self.at_once, self.whole, self.at_server = _Histogram(), _Histogram(), _Histogram()
        self.events = self.merged = self.refused = 0

    def figures(self, server: str, method: str) -> MethodFigures:
        return MethodFigures(
            server=server,
            method=method,
            outcomes={outcome.name.lower(): self.outcomes[outcome] for outcome in Outcome},
            events=self.events,
            merged=self.merged,
            refused=self.refused,
            whole=self.at_once.with_those_of(self.whole),
            at_server=self.at_once.with_those_of(self.at_server),
        )


CallObserver = Callable[[CallRecord, Outcome, float], None]
"""Gets each ended call, its outcome, and the registry's time."""


class Meters:
    """One hub's meters. `observer` sees each ended call."""

    def __init__(self, observer: CallObserver | None = None) -> None:
        self._observer = observer
        self._meters: dict[tuple[str, str], _Meter] = {}

    def ended(self, record: CallRecord, now: float) -> None:
        """Counts an ended call; once each."""
        call, log, times = record.call, record.log, record.times
        meter = self._meters.get((call.upstream, call.method))
        if meter is None:
            meter = self._fresh(call.upstream, call.method)
        ending = log.ending
        if type(ending) is Completed:
            may_fail = not ending.is_plain and call.method == "tools/call"
            is_error = may_fail and _SAID.search(ending.result) and is_tool_error(ending.result)
            outcome = Outcome.TOOL_ERROR if is_error else Outcome.OK
        else:
            outcome = outcome_of(ending)
        meter.outcomes[outcome] += 1
        took = now - times.started
        if times.began == times.started:
            at_once = meter.at_once
            at_once.counts[bisect_left(BOUNDS, took)] += 1
            at_once.seconds += took
        else:
            meter.whole.add(took)
            if times.began is not None:  # else its turn never came
                meter.at_server.add(now - times.began)
        meter.events += log.event_count
        if log.merged or log.refused:
            meter.merged += log.merged
            meter.refused += log.refused
        if self._observer is not None:
            self._observer(record, outcome, now)

    def ended_at(self, server: str) -> int:
        return sum(sum(meter.outcomes) for key, meter in self._meters.items() if key[0] == server)

    def _fresh(self, server: str, method: str) -> _Meter:
        if len(self._meters) >= _MOST:
            del self._meters[next(iter(self._meters))]
        meter = self._meters[server, method] = _Meter()
        return meter

    def figures(self, servers: Collection[str]) -> tuple[MethodFigures, ...]:
        """Figures of these servers and the hub's tools; forgets others."""
        for key in [key for key in self._meters if key[0] != OWN and key[0] not in servers]:
            del self._meters[key]
        return tuple(meter.figures(*key) for key, meter in self._meters.items())


def load_figures(records: Iterable[CallRecord]) -> Load:
    """Counts these calls."""
    load: dict[str, Counter[LoadFigure]] = {}
    for record in records:
        figures = load.setdefault(record.call.upstream, Counter())
        figures["calls_waiting" if record.times.began is None else "calls_running"] += 1
        if record.stream is not None:
            figures["streams"] += 1
            figures["followers"] += len(record.stream.readers)
    return load


def outcome_of(ending: Ending) -> Outcome:
    """The outcome that an ending counts as."""
    if isinstance(ending, Completed):
        return Outcome.TOOL_ERROR if is_tool_error(ending.result) else Outcome.OK
    if isinstance(ending, Failed):
        if isinstance(ending.error, DeadlineExceeded):
            return Outcome.TIMED_OUT
        return Outcome.CANCELLED if isinstance(ending.error, CallCancelled) else Outcome.RPC_ERROR
    return Outcome.CANCELLED


def is_tool_error(result: RawJson) -> bool:
    """Whether the result's own `isError` is set."""
    if _SAID.search(result) is None:
        return False
    try:
        return msgspec.json.decode(result, type=_Result).isError
    except (msgspec.DecodeError, RecursionError):
        return False
