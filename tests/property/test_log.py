import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.calls import coalesce
from mcp_hub.calls import log as log_module
from mcp_hub.calls.log import CallLog, _LogReader
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Ending, Failed, Log, Progressed, Started

ENDINGS: list[Ending] = [Completed(b"{}"), Failed(RpcError("x")), Cancelled()]
HUB = '"mcp-hub"'


@contextmanager
def small_limits() -> Iterator[None]:
    """Limits that a short example reaches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coalesce, "LAG", 4)
        patch.setattr(log_module, "_KEPT", 2)
        yield


@dataclass
class Follower:
    """A reader that keeps what it took, and knows whether it was told of more."""

    log: CallLog
    taken: list[CallEvent] = field(default_factory=list)
    woken: bool = True

    def __post_init__(self) -> None:
        self.reader: _LogReader = self.log.reader(self.wake)

    def wake(self) -> None:
        self.woken = True

    def take(self) -> None:
        assert self.woken or not self.reader.has_more, "nobody told this reader that there is more"
        self.taken += self.reader.take()
        self.woken = self.reader.has_more

    def finish(self) -> list[CallEvent]:
        while self.reader.has_more:
            self.take()
        return self.taken


@st.composite
def scripts(draw: st.DrawFn, followers: int) -> tuple[list[CallEvent], list[int | None]]:
    """Events of one call, each telling itself apart, and what happens: None appends the next, a number lets it read."""
    kinds = draw(st.lists(st.sampled_from([Progressed, Progressed, Log, Delta]), max_size=40))
    events: list[CallEvent] = [Started()]
    for number, kind in enumerate(kinds):
        if kind is Progressed:
            events.append(Progressed(number))
        else:
            text = json.dumps({"n": number}).encode()
            events.append(Delta(text) if kind is Delta else Log("info", text))
    events.append(draw(st.sampled_from(ENDINGS)))
    readings = draw(st.lists(st.tuples(st.integers(0, len(events)), st.integers(0, followers - 1)), max_size=30))
    steps: list[int | None] = []
    for place in range(len(events)):
        steps += [who for at, who in readings if at == place]
        steps.append(None)
    return events, steps


def play(events: list[CallEvent], steps: list[int | None], followers: int) -> list[list[CallEvent]]:
    with small_limits():
        log = CallLog()
        readers = [Follower(log) for _ in range(followers)]
        coming = iter(events)
        for step in steps:
            if step is None:
                assert log.append(next(coming))
            else:
                readers[step].take()
        return [reader.finish() for reader in readers]


E = TypeVar("E")


def of(kind: type[E], events: list[CallEvent]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


def check(sent: list[CallEvent], taken: list[CallEvent]) -> None:
    """Order, last value, all content and the ending are kept; what was merged is counted."""
    notices = [event for event in of(Log, taken) if HUB in bytes(event.params).decode()]
    own = [event for event in taken if event not in notices]
    values = {event.progress: event for event in of(Progressed, sent)}
    unmerged = iter(sent)
    for event in own:
        original = values[event.progress] if isinstance(event, Progressed) else event
        assert original in unmerged, "order is kept and nothing is made up"
    assert own[0] == Started() and taken[-1] is sent[-1]
    assert of(Delta, taken) == of(Delta, sent)
    shown, given_ = of(Progressed, taken), of(Progressed, sent)
    assert sum(event.skipped + 1 for event in shown) == len(given_)
    assert [event.progress for event in shown[-1:]] == [event.progress for event in given_[-1:]]
    dropped = sum(int(json.loads(bytes(notice.params))["data"].split()[0]) for notice in notices)
    assert len(of(Log, taken)) - len(notices) + dropped == len(of(Log, sent))


@given(scripts(followers=1))
def test_a_reader_of_any_speed_gets_all_that_matters_in_order(script: tuple[list[CallEvent], list[int | None]]) -> None:
    (taken,) = play(*script, followers=1)
    check(script[0], taken)


@given(scripts(followers=2))
def test_a_slow_and_a_fast_reader_do_not_disturb_each_other(script: tuple[list[CallEvent], list[int | None]]) -> None:
    for taken in play(*script, followers=2):
        check(script[0], taken)


@given(st.integers(0, 400), st.data())
def test_for_every_cut_point_the_first_part_and_the_rest_are_the_whole(length: int, data: st.DataObject) -> None:
    events: list[CallEvent] = [Started(), *(Progressed(number) for number in range(length)), Completed(b"{}")]
    cut = data.draw(st.integers(0, len(events)))
    log = CallLog()
    reader = Follower(log)
    for event in events[:cut]:
        log.append(event)
    assert reader.finish() == events[:cut]
    for event in events[cut:]:
        log.append(event)
    assert reader.reader.at_end == (cut == len(events))
    assert reader.finish() == events
    assert reader.reader.at_end and log._last_seq == len(events)


@given(scripts(followers=1))
def test_a_reader_that_leaves_takes_nothing_from_the_other(script: tuple[list[CallEvent], list[int | None]]) -> None:
    events, steps = script
    with small_limits():
        log = CallLog()
        stays, leaves = Follower(log), Follower(log)
        coming = iter(events)
        for step in steps:
            if step is None:
                log.append(next(coming))
            else:
                stays.take()
                leaves.reader.close()
        check(events, stays.finish())


PROGRESS: list[CallEvent] = [Started(), *(Progressed(number) for number in range(1000))]


@pytest.mark.parametrize("beside", ["nobody", "a fast reader", "one that has left"])
def test_slow_reader_costs_a_bounded_number_of_events(beside: str) -> None:
    with small_limits():
        log = CallLog()
        first = Follower(log)
        fast = Follower(log) if beside == "a fast reader" else None
        if beside == "one that has left":
            first.reader.close()
        for event in PROGRESS:
            log.append(event)
            if fast is not None:
                fast.take()
        slow = Follower(log) if beside == "one that has left" else first
        assert len(slow.finish()) <= (coalesce.LAG + 1 if beside == "nobody" else 10 * coalesce.LAG)
