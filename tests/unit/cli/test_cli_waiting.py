"""Commands wait for servers of a running hub that are on their way up, and not for those that have failed."""

from collections.abc import Sequence

import anyio
import pytest

from mcp_hub.cli.access import waiting
from mcp_hub.types import UpstreamState, UpstreamStatus

pytestmark = pytest.mark.anyio

READY = UpstreamStatus("a", UpstreamState.READY)
FIRST = UpstreamStatus("a", UpstreamState.STARTING)
TURN = UpstreamStatus("a", UpstreamState.STARTING, "its first caller", code="restarted", restarts=1)
AGAIN = UpstreamStatus("a", UpstreamState.STARTING, "exited with code 1", code="start_crashed", restarts=1)


@pytest.mark.parametrize(
    ("states", "questions"),
    [
        ([READY], 1),
        ([FIRST, READY], 2),
        ([FIRST, TURN, READY], 3),
        ([TURN, AGAIN], 2),
        ([AGAIN], 1),
        ([FIRST], 0),
    ],
)
async def test_server_on_its_way_up_is_waited_for(
    states: Sequence[UpstreamStatus], questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[UpstreamStatus] = []

    async def statuses() -> list[UpstreamStatus]:
        asked.append(states[min(len(asked), len(states) - 1)])
        return [READY, asked[-1]]

    monkeypatch.setattr(waiting, "_SHORTEST", 0.0)
    monkeypatch.setattr(waiting, "_RUNNING", 0.5)
    with anyio.fail_after(10):
        await waiting.settle_running(statuses)
    assert len(asked) == questions or not questions
