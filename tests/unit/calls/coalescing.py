"""What a writer takes from the coalescer, played in virtual time: it calls `take` when it is due, or later."""

import json
from typing import Any

from mcp_hub.calls.coalesce import Coalescer
from mcp_hub.events import CallEvent, Log

Timed = tuple[float, CallEvent]
Taken = list[tuple[float, list[CallEvent]]]


def play(timeline: list[Timed], lateness: float = 0.0, coalescer: Coalescer | None = None) -> Taken:
    """What is taken and when, by a writer that is `lateness` behind what is due."""
    coalescer = coalescer or Coalescer()
    taken: Taken = []
    now = timeline[0][0] if timeline else 0.0

    def write(until: float) -> None:
        nonlocal now
        for _ in range(10_000):
            due = coalescer.due
            assert (due is None) == (coalescer.count == 0), "what is pending is due some time"
            if due is None or max(due, now) + lateness >= until:
                return
            now = max(due, now) + lateness
            taken.append((now, coalescer.take(now)))
            assert taken[-1][1], "nothing was due"
        raise AssertionError("the writer is never done")

    for at, event in timeline:
        write(at)
        now = max(now, at)
        coalescer.add(event, now)
    write(float("inf"))
    assert (coalescer.count, coalescer.size) == (0, 0)
    return taken


def flat(taken: Taken) -> list[CallEvent]:
    return [event for _, events in taken for event in events]


def of(kind: type[Any], events: list[CallEvent]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def notices(events: list[CallEvent]) -> list[int]:
    """The counts of suppressed messages."""
    texts = [json.loads(bytes(log.params))["data"] for log in of(Log, events)]
    return [int(text.split()[0]) for text in texts if isinstance(text, str)]


def let_through(events: list[CallEvent]) -> list[Log]:
    return [log for log in of(Log, events) if b"suppressed" not in bytes(log.params)]
