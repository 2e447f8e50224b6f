"""When a client that lost its hub tries again, and when it gives up."""

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.client.stream_reader import Patience

CHANCES = st.floats(0, 1, exclude_max=True)


def test_pauses_grow_to_three_seconds() -> None:
    patience = Patience(1000, lambda: 1.0)
    assert [patience.pause(0) for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]


def test_wait_that_the_hub_asks_for_is_kept_if_there_is_time() -> None:
    patience = Patience(10, lambda: 0.5)
    assert patience.pause(0, retry_after=5) == 5
    assert patience.pause(7, retry_after=5) == 3


@given(st.lists(st.tuples(CHANCES, st.floats(0, 5)), min_size=1, max_size=60), st.floats(0, 60))
def test_attempts_in_a_row_end_within_the_time(steps: list[tuple[float, float]], seconds: float) -> None:
    chances = iter([chance for chance, _ in steps])
    patience = Patience(seconds, lambda: next(chances))
    now = 1000.0
    for _, took in steps:
        pause = patience.pause(now)
        if pause is None:
            assert now >= 1000 + seconds
            return
        assert 0 <= pause <= 3
        assert now + pause <= 1000 + seconds + 1e-6
        now += pause + took
