"""Counts calls by outcome and measures how long they took, of each server and method.

Counted once where a call ends, by integer increments; sampled for reports (`fronts.monitoring.metrics`).
What a server said on the way is taken from the call's log, so that no event costs anything. Buckets and names are
those of the OpenTelemetry conventions for MCP (semantic-conventions-genai, gen-ai/mcp, "Metrics").
"""

import re
from bisect import bisect_left
from collections.abc import Collection, Iterator
from enum import IntEnum
from typing import Final

import msgspec

from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import CallCancelled, DeadlineExceeded
from mcp_hub.events import Completed, Ending, Failed
from mcp_hub.types import RawJson

BOUNDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Upper ends of the buckets in seconds; one more has no end."""
_MOST: Final = 4096
"""Pairs of a server and a method that are remembered, those of servers that are configured no more included."""
_SAID: Final = re.compile(rb'"isError"\s*:\s*true')
"""A result without these bytes is not an error: in a string the quotes would be escaped."""


class Outcome(IntEnum):
    """The end of a call: a result, a result by which the tool says that it failed, an error answer, a cancellation, or
    a time limit.
    """

    OK = 0
    TOOL_ERROR = 1
    RPC_ERROR = 2
    CANCELLED = 3
    TIMED_OUT = 4


class _Result(msgspec.Struct):
    isError: bool = False


class Meter:
    """Of one method at one server.

    `events` went on to readers, `held` were merged or left out for slow ones, `refused` were not
    allowed.
    `at_once` counts by bucket the calls that did not wait for their turn, which are nearly all, with their seconds.
    """

    __slots__ = (
        "_client", "_client_seconds", "_server", "_server_seconds", "at_once", "at_once_seconds", "events", "held",
        "outcomes", "refused",
    )  # fmt: skip

    def __init__(self) -> None:
        self.outcomes = [0] * len(Outcome)
        self.at_once = [0] * (len(BOUNDS) + 1)
        self.at_once_seconds = 0.0
        self.events = 0
        self.held = 0
        self.refused = 0
        self._server = self.at_once.copy()
        self._client = self.at_once.copy()
        self._server_seconds = self._client_seconds = 0.0

    def add_waited(self, whole: float, client: float | None) -> None:
        """Counts a call that waited for its turn; `client` is None of one whose turn never came."""
        self._server[bisect_left(BOUNDS, whole)] += 1
        self._server_seconds += whole
        if client is not None:
            self._client[bisect_left(BOUNDS, client)] += 1
            self._client_seconds += client

    @property
    def server(self) -> tuple[list[int], float]:
        """From the client's request to its answer: counts by bucket, and seconds in all."""
        counts = [sum(pair) for pair in zip(self.at_once, self._server, strict=True)]
        return counts, self.at_once_seconds + self._server_seconds

    @property
    def client(self) -> tuple[list[int], float]:
        """The same of the time that the server was at it, or waited for."""
        counts = [sum(pair) for pair in zip(self.at_once, self._client, strict=True)]
        return counts, self.at_once_seconds + self._client_seconds


class Meters:
    """Those of one hub."""

    def __init__(self) -> None:
        self._meters: dict[tuple[str, str], Meter] = {}

    def __iter__(self) -> Iterator[tuple[tuple[str, str], Meter]]:
        """By server and method; the server of the hub's own tools is `types.OWN`."""
        return iter(self._meters.items())

    def ended(self, record: CallRecord, now: float) -> None:
        """Counts a call whose ending is in its log; once for each."""
        call, log, times = record.call, record.log, record.times
        meter = self._meters.get((call.upstream, call.method))
        if meter is None:
            meter = self._fresh(call.upstream, call.method)
        ending = log.ending
        if type(ending) is Completed:
            is_error = call.method == "tools/call" and _SAID.search(ending.result) and is_tool_error(ending.result)
            meter.outcomes[1 if is_error else 0] += 1
        else:
            meter.outcomes[outcome_of(ending)] += 1
        took = now - times.started
        if times.began == times.started:
            meter.at_once[bisect_left(BOUNDS, took)] += 1
            meter.at_once_seconds += took
        else:
            meter.add_waited(took, None if times.began is None else now - times.began)
        meter.events += log.said
        if log.held or log.refused:
            meter.held += log.held
            meter.refused += log.refused

    def _fresh(self, server: str, method: str) -> Meter:
        if len(self._meters) >= _MOST:
            del self._meters[next(iter(self._meters))]
        meter = self._meters[server, method] = Meter()
        return meter

    def keep(self, servers: Collection[str]) -> None:
        """Forgets those of other servers."""
        for key in [key for key in self._meters if key[0] not in servers]:
            del self._meters[key]


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
    """Whether the result itself says so, and not something within it."""
    if _SAID.search(result) is None:
        return False
    try:
        return msgspec.json.decode(result, type=_Result).isError
    except (msgspec.DecodeError, RecursionError):
        return False
