"""A client that loses its connection and comes back, any number of times, gets what one gets that never lost it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.calls import coalesce
from mcp_hub.calls import log as log_module
from mcp_hub.calls.log import CallLog, Reader
from mcp_hub.events import CallEvent, Completed, Delta, InputReceived, InputRequired, Log, Progress, Started
from tests.property.test_log import ENDINGS, check

LAG, MOST = 6, 24


@contextmanager
def limits(lag: int = LAG, events: int = MOST, size: int = 1 << 20) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coalesce, "LAG", lag)
        patch.setattr(log_module, "_KEPT", 2)
        patch.setattr(log_module, "MOST_EVENTS", events)
        patch.setattr(log_module, "MOST_BYTES", size)
        yield


@dataclass
class Client:
    """What one client was sent, by number, and how much of it has arrived; between connections it has no reader."""

    log: CallLog
    sent: dict[int, CallEvent] = field(default_factory=dict)
    arrived: list[CallEvent] = field(default_factory=list)
    reader: Reader | None = None
    was_told: bool = True

    def read(self, most: int | None = None) -> None:
        if self.reader is not None:
            assert self.was_told or not self.reader.has_more, "nobody told this reader that there is more"
            seq = self.reader.cursor
            for event in self.reader.take(most):
                seq += 1
                assert self.sent.setdefault(seq, event) is event, "a number stands for one event for ever"
            self.was_told = self.reader.has_more

    def wake(self) -> None:
        self.was_told = True

    def lose(self, arrived: int) -> None:
        """The connection breaks; of what was sent only so many more have arrived."""
        if self.reader is not None:
            last = min(len(self.arrived) + arrived, self.reader.cursor)
            self.arrived += [self.sent[seq] for seq in range(len(self.arrived) + 1, last + 1)]
            self.reader.close()
            self.reader = None

    @property
    def is_too_late(self) -> bool:
        return len(self.arrived) + 1 < self.log.first_seq

    def come_back(self) -> None:
        if self.reader is None and not self.is_too_late:
            self.reader = self.log.reader(self.wake, len(self.arrived))
            self.was_told = True

    def finish(self) -> list[CallEvent]:
        self.come_back()
        while self.reader is not None and self.reader.has_more:
            self.read(3)
        assert self.reader is None or self.reader.at_end
        self.lose(len(self.sent))
        return self.arrived


Step = CallEvent | tuple[str, int]


@st.composite
def lives(draw: st.DrawFn, length: int = 60) -> list[Step]:
    """What happens to a call and to its client's connection."""
    what = st.sampled_from(["progress"] * 4 + ["log", "delta", "read", "read", "read", "lose", "come back"])
    steps: list[Step] = [Started()]
    for number, kind in enumerate(draw(st.lists(what, max_size=length))):
        match kind:
            case "progress":
                steps.append(Progress(number))
            case "log":
                steps.append(Log("info", json.dumps({"n": number}).encode()))
            case "delta":
                steps.append(Delta(json.dumps({"n": number}).encode()))
            case _:
                steps.append((kind, draw(st.integers(0, 8))))
    return [*steps, draw(st.sampled_from(ENDINGS))]


def play(steps: list[Step], client: Client) -> None:
    for step in steps:
        match step:
            case ("read", most):
                client.read(most)
            case ("lose", arrived):
                client.lose(arrived)
            case ("come back", _):
                client.come_back()
            case _:
                assert not isinstance(step, tuple)
                assert client.log.append(step)


def kept_log() -> CallLog:
    log = CallLog()
    log.keep()
    return log


@given(lives())
def test_whatever_is_lost_the_parts_are_the_whole(steps: list[Step]) -> None:
    """No gap, no repeat, one ending; what was merged while nobody read is counted."""
    with limits(events=1000):
        client = Client(kept_log())
        client.come_back()
        play(steps, client)
        taken = client.finish()
        assert len(taken) == client.log.last_seq
    check([step for step in steps if not isinstance(step, tuple)], taken)


@given(st.lists(st.integers(1, LAG - 1), max_size=12), st.integers(0, LAG))
def test_a_client_that_is_never_away_for_long_loses_nothing_to_merging(pauses: list[int], lost: int) -> None:
    """It takes all there is whenever it is connected, and then loses some of it."""
    numbers = iter(range(1000))
    with limits(events=1000):
        client = Client(kept_log())
        events: list[CallEvent] = [Started()]
        client.log.append(Started())
        for pause in pauses:
            client.come_back()
            client.read()
            client.lose(max(len(client.sent) - len(client.arrived) - lost, 0))
            for _ in range(pause):
                events.append(Progress(next(numbers)))
                client.log.append(events[-1])
        events.append(Completed(b"{}"))
        client.log.append(events[-1])
        assert client.finish() == events


@given(lives(length=200))
def test_a_client_comes_too_late_only_for_what_was_full(steps: list[Step]) -> None:
    """Then the oldest events went first, and it is told so; the ending is always there."""
    with limits():
        client = Client(kept_log())
        client.come_back()
        play(steps, client)
        log = client.log
        if client.reader is None and client.is_too_late:
            assert log.last_seq > MOST * 7 // 8
        else:
            taken = client.finish()
            assert len(taken) == log.last_seq
        whole = log.reader(client.wake).take()
        assert whole[-1] is steps[-1] and len(whole) == log.last_seq - log.first_seq + 1


@given(lives(length=200), st.integers(LAG + 2, 40))
def test_a_client_that_is_away_costs_a_bounded_number_of_events(steps: list[Step], most: int) -> None:
    with limits(events=most):
        client = Client(kept_log())
        client.come_back()
        play([step for step in steps if step != ("come back", 0)][:-1], client)
        client.lose(0)
        for step in steps:
            if isinstance(step, Progress | Log | Delta):
                client.log.append(step)
                client.log.append(Progress(1e6))
        assert client.log.last_seq - client.log.first_seq + 1 <= most + 2


@given(st.lists(st.integers(0, 300), min_size=1, max_size=100), st.booleans())
def test_the_payload_that_is_kept_is_bounded(sizes: list[int], is_away: bool) -> None:
    """What a connected client has not read yet is kept whatever it weighs, if it may not be merged."""
    with limits(size=1000):
        log = kept_log()
        log.append(Started())
        reader = log.reader(lambda: None)
        if is_away:
            reader.close()
        for size in sizes:
            log.append(Delta(b"x" * size))
            log.append(Log("info", b"y" * size))
            reader.take()
            assert log.size <= 1000 + 2 * 300 + 200
        log.append(Completed(b"z" * 5000))
        assert log.reader(lambda: None).take()[-1] == Completed(b"z" * 5000)


def test_an_ending_of_any_size_leaves_what_came_before_it() -> None:
    with limits(size=1000):
        log = kept_log()
        events: list[CallEvent] = [Started(), Delta(b"x" * 900), Completed(b"z" * 5000)]
        reader = log.reader(lambda: None)
        for event in events:
            log.append(event)
            reader.take()
        reader.close()
        assert log.reader(lambda: None).take() == events


def test_questions_stay_in_their_place() -> None:
    log = kept_log()
    events: list[CallEvent] = [
        Started(),
        Progress(1),
        InputRequired("q1", "elicitation/create", b"{}"),
        Progress(2),
        InputReceived("q1"),
    ]
    for event in events:
        assert log.append(event)
    for after in range(len(events) + 1):
        assert log.reader(lambda: None, after).take() == events[after:]


def test_what_waited_for_a_client_reaches_it_when_it_has_caught_up_although_nothing_new_comes() -> None:
    with limits(events=1000):
        client = Client(kept_log())
        client.log.append(Started())
        for number in range(50):
            client.log.append(Progress(number))
        client.come_back()
        for _ in range(10):
            client.read(3)
        (last,) = [event for event in client.sent.values() if event == Progress(49, skipped=50 - LAG)]
        assert client.sent[max(client.sent)] is last


MERGEABLE: list[CallEvent] = [Progress(1), Log("info", b"{}")]


@given(st.lists(st.sampled_from(MERGEABLE), min_size=200, max_size=300), st.integers(1, 50))
def test_a_client_that_is_away_is_never_too_late_for_what_can_be_merged(flood: list[CallEvent], before: int) -> None:
    with limits():
        client = Client(kept_log())
        client.come_back()
        client.log.append(Started())
        for event in flood[:before]:
            client.log.append(event)
            client.read()
        client.lose(len(client.sent))
        for event in flood[before:]:
            client.log.append(event)
        client.log.append(Completed(b"{}"))
        assert not client.is_too_late
        assert client.finish()[-1] == Completed(b"{}")
