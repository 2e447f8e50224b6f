import json
import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mcp_hub.events import Progressed, hubs_message
from mcp_hub.protocol.jsonrpc.envelope import number_key, raw_object
from mcp_hub.protocol.notifications import CEILING, ProgressGuard, plain_progress, progressed

anything: st.SearchStrategy[Any] = (
    st.floats()
    | st.integers()
    | st.integers(-3, 3)
    | st.booleans()
    | st.text(max_size=3)
    | st.none()
    | st.sampled_from([10**400, -(10**400), 1e308, CEILING, math.nextafter(CEILING, 0), "12", [], {}])
)
usable = st.floats(-CEILING, CEILING) | st.integers(-(10**15), 10**15)


def guarded(values: list[Any], totals: list[Any] | None = None) -> tuple[list[Progressed], int]:
    guard = ProgressGuard()
    totals = totals or [None] * len(values)
    admitted = [guard.admit(Progressed(value, total)) for value, total in zip(values, totals, strict=True)]
    return [event for event in admitted if event is not None], guard.dropped


@given(st.lists(anything, max_size=30))
@example([math.nan, math.inf, "12", True, 10**400, -5, -5, -5, 0, None])
@example([CEILING, CEILING, CEILING])
@example([1e15 - 1, 1, 1, 1])
def test_whatever_comes_leaves_strictly_increasing_and_finite(values: list[Any]) -> None:
    admitted, dropped = guarded(values)
    assert all(type(event.progress) in (int, float) and math.isfinite(event.progress) for event in admitted)
    assert all(a.progress < b.progress for a, b in pairwise(admitted))
    assert all(abs(event.progress) <= CEILING for event in admitted)
    assert len(admitted) + dropped == len(values)


@given(st.lists(usable, max_size=30, unique=True).map(sorted))
def test_an_increasing_sequence_is_left_as_it_is(values: list[float]) -> None:
    admitted, dropped = guarded(values)
    sent = [Progressed(value) for value in values]
    assert admitted == sent
    assert [type(event.progress) for event in admitted] == [type(value) for value in values], "7 does not become 7.0"
    assert dropped == 0


@given(st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_nothing_is_dropped_for_being_repeated_or_going_back(values: list[int]) -> None:
    admitted, dropped = guarded(values)
    assert dropped == 0 and len(admitted) == len(values)
    top = -math.inf
    for value, event in zip(values, admitted, strict=True):
        if value > top:
            assert event.progress == value or event.progress - value < 1e-3
        top = max(top, event.progress)
    assert top - max(values) <= 1e-6 * len(values) + 1e-9, "a step is a hair"


@given(st.lists(st.tuples(usable, anything), max_size=10))
def test_a_total_is_a_finite_number_or_left_out(pairs: list[tuple[float, Any]]) -> None:
    admitted, _ = guarded([value for value, _ in pairs], [total for _, total in pairs])
    for event in admitted:
        assert event.total is None or (type(event.total) in (int, float) and math.isfinite(event.total))


@pytest.mark.parametrize("value", [1, 1.5])
def test_what_comes_with_progress_passes_untouched(value: float) -> None:
    rest = {"message": msgspec.Raw(b'"a"'), "_meta": msgspec.Raw(b'{"x":1}')}
    admitted, _ = guarded([5, value], [9, 10])
    assert [event.total for event in admitted] == [9, 10]
    event = Progressed(value, 2.0, rest)
    assert ProgressGuard().admit(event) is event


steps = st.lists(st.just("beat") | st.tuples(anything, st.none() | st.integers(0, 9)) | st.tuples(usable, usable))


@given(steps)
@example(["beat", (0, 10), "beat", "beat", (0, 10), (1, 10), "beat", (2, 10)])
@example([(CEILING, None), "beat", (1, None), "beat"])
@example([(CEILING - 1, None), "beat", "beat", (CEILING, None)])
def test_whatever_comes_between_heartbeats_leaves_strictly_increasing(sent: list[Any]) -> None:
    guard = ProgressGuard()
    left = [guard.between() if step == "beat" else guard.admit(Progressed(*step)) for step in sent]
    values = [event.progress for event in left if event is not None]
    assert all(a < b for a, b in pairwise(values))
    assert all(type(value) in (int, float) and abs(value) <= CEILING for value in values)


small = st.integers(-1000, 1000)


@given(st.lists(st.tuples(small, st.integers(0, 3)), max_size=30, unique_by=lambda step: step[0]).map(sorted))
def test_heartbeats_change_no_later_value_of_the_server(sent: list[tuple[int, int]]) -> None:
    guard = ProgressGuard()
    for value, beats in sent:
        event = Progressed(value, 2000, {"message": msgspec.Raw(b'"m"')})
        assert guard.admit(event) is event
        for count in range(1, beats + 1):
            beat = guard.between()
            assert beat is not None and beat.server_value == value and beat.is_hubs
            assert 0 < beat.progress - value < 1.1e-6 * count, "the smallest increase"
            assert (beat.total, beat.members) == (2000, event.members), "total and message stay"


def test_a_heartbeat_before_any_value_of_the_server_is_0() -> None:
    guard = ProgressGuard()
    beats = [guard.between(), guard.between()]
    assert beats == [Progressed(0, server_value=None, is_hubs=True), Progressed(1e-6, server_value=None, is_hubs=True)]
    assert guard.admit(Progressed(0, 10)) == Progressed(2e-6, 10, server_value=0)
    assert guard.admit(Progressed(3, 10)) == Progressed(3, 10)
    assert guard.between() == Progressed(3 + 1e-6, 10, server_value=3, is_hubs=True)


@pytest.mark.parametrize(("value", "total"), [(100, None), (99, 100), (100 - 1e-7, None)])
def test_a_heartbeat_has_no_total_that_it_reaches(value: float, total: float | None) -> None:
    guard = ProgressGuard()
    guard.admit(Progressed(value, 100))
    beat = guard.between()
    assert beat is not None and beat.total == total


def test_what_the_server_left_out_last_is_what_it_gave_before() -> None:
    guard = ProgressGuard()
    guard.admit(Progressed(1, 10, {"message": msgspec.Raw(b'"m"')}))
    guard.admit(Progressed(2))
    beat = guard.between()
    assert beat is not None and (beat.total, beat.members) == (10, {"message": msgspec.Raw(b'"m"')})


def test_a_call_of_another_hub_continues_above_its_last_value() -> None:
    guard = ProgressGuard(Progressed(5 + 1e-6, 9, server_value=5, is_hubs=True))
    assert guard.between() == Progressed(5 + 2e-6, 9, server_value=5, is_hubs=True)
    assert guard.admit(Progressed(6, 9)) == Progressed(6, 9)


def test_when_nothing_larger_can_be_sent_there_is_no_heartbeat() -> None:
    guard = ProgressGuard()
    assert guard.admit(Progressed(CEILING)) is not None
    assert guard.between() is None
    assert guard.admit(Progressed(CEILING)) is None and guard.dropped == 1


def test_a_message_of_the_hub_is_no_value_of_the_server() -> None:
    guard = ProgressGuard()
    first, second, third = map(guard.admit, (hubs_message("waits"), hubs_message("came"), Progressed(1)))
    assert first is not None and second is not None and third is not None
    assert (first.progress, first.server_value, first.message) == (0, None, "waits")
    assert (
        second.progress > 0
        and second.server_value is None
        and (third.progress, third.server_value) == (1, msgspec.UNSET)
    )


written = st.dictionaries(
    st.sampled_from(["progressToken", "progress", "total", "message", "_meta", "x"]),
    st.integers(-3, 10**20) | st.floats() | st.text(max_size=3) | st.none() | st.booleans(),
)


@given(written)
@example({"progressToken": 7, "progress": 1, "total": 2, "message": "half"})
@example({"progressToken": 7, "progress": 1, "message": None})
@example({"progressToken": 7, "progress": 1, "total": None})
@example({"progressToken": "7", "progress": 1})
@example({"progressToken": 7, "progress": 1, "_meta": {}})
def test_progress_read_in_one_step_is_what_its_members_say(members: dict[str, Any]) -> None:
    raw = msgspec.Raw(json.dumps(members).encode())
    if (plain := plain_progress(raw)) is not None:
        params = raw_object(raw)
        assert params is not None and number_key(bytes(params.pop("progressToken"))) == plain[0]
        assert plain[1] == progressed(params)
        assert type(plain[1].progress) is type(progressed(params).progress)


def test_usual_progress_is_read_in_one_step() -> None:
    for members in ({"progress": 1}, {"progress": 0.5, "total": 1}, {"progress": 2, "message": "half"}):
        assert plain_progress(msgspec.Raw(json.dumps({"progressToken": 7, **members}).encode())) is not None
