"""How soon lists are read again: at once for a server that seldom changes them, ever later for one that always does."""

import pytest

from mcp_hub.upstreams.lists.list_state import _Pacer


def test_a_change_now_and_then_is_listed_at_once() -> None:
    pacer = _Pacer()
    assert [pacer.pause(now) for now in (0, 60, 75, 1000)] == [0.1] * 4


def test_tools_that_are_added_one_by_one_are_all_listed_at_once() -> None:
    pacer = _Pacer()
    assert [pacer.pause(now) for now in range(6)] == [0.1] * 6


def test_a_server_that_announces_changes_all_the_time_is_listed_every_five_seconds_at_most() -> None:
    pacer = _Pacer()
    now, times = 0.0, []
    while now < 60:
        now += pacer.pause(now)
        times.append(now)
    assert times[-1] - times[-2] == 5.0
    assert len(times) < 30


def test_a_quiet_while_forgives_everything() -> None:
    pacer = _Pacer()
    now = 0.0
    for _ in range(50):
        now += pacer.pause(now)
    assert pacer.pause(now + 1) == pytest.approx(5.0)
    assert pacer.pause(now + 30) == 0.1
