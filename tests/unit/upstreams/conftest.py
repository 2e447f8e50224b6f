"""Fixtures for tests of tasks that servers run."""

import pytest

from mcp_hub.upstreams.peer import task_poll


@pytest.fixture
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looks at a task follow at once, and nobody waits for a server to take note of a cancellation."""
    monkeypatch.setattr(task_poll, "_POLL", (0.001, 0.001, 0.001))
    monkeypatch.setattr(task_poll, "_GOODBYE", 0.05)
