"""Fixtures for tests of tasks that servers run, and of sessions that they lose."""

import pytest

from mcp_hub.calls.timeouts import CallTimes
from mcp_hub.upstreams.peer import task_poll
from mcp_hub.upstreams.supervision import supervisor as keeper


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at a task follow at once, and nobody waits for a server to take note of a cancellation."""
    monkeypatch.setattr(task_poll, "_POLL", (0.001, 0.001, 0.001))
    monkeypatch.setattr(task_poll, "_GOODBYE", 0.05)


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """One for each time that a server was heard of."""
    times: list[None] = []
    monkeypatch.setattr(CallTimes, "touch", lambda _: times.append(None))
    return times


@pytest.fixture
def any_session_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session need not have lasted for its loss to be no failure."""
    monkeypatch.setattr(keeper, "_SESSION", 0.0)
