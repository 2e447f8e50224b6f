"""A short `make soak`: twelve hundred calls, a dozen kills."""

import asyncio

import pytest

from tests.soak.soak import Plan, soak


@pytest.mark.parametrize(("front", "calls"), [("http", 800), ("stdio", 400)])
def test_nothing_is_lost_and_nothing_is_left_behind(front: str, calls: int) -> None:
    outcome = asyncio.run(soak(Plan(calls, front, rounds=2, workers=16)))
    assert outcome.faults == []
    assert sum(outcome.answered.values()) == calls and outcome.kills == calls // 100
