"""Commands wait for servers of a running hub that are on their way up, and not for those that have failed."""

from collections.abc import Sequence

import anyio
import pytest

from mcp_hub.cli.access import waiting
from mcp_hub.protocol.rest.servers import ServerInfo

pytestmark = pytest.mark.anyio

READY = ServerInfo("a", "ready", 0)
FIRST = ServerInfo("a", "starting", 0)
TURN = ServerInfo("a", "starting", 1, reason="its first caller speaks the other era", code="restarted")
AGAIN = ServerInfo("a", "starting", 1, reason="exited with code 1", code="start_crashed")


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
    states: Sequence[ServerInfo], questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[ServerInfo] = []

    async def statuses() -> list[ServerInfo]:
        asked.append(states[min(len(asked), len(states) - 1)])
        return [READY, asked[-1]]

    monkeypatch.setattr(waiting, "_SHORTEST", 0.0)
    monkeypatch.setattr(waiting, "_RUNNING", 0.5)
    with anyio.fail_after(240):
        await waiting.settle_running(statuses)
    assert len(asked) == questions or not questions
