"""What happens first when a hub that serves over HTTP is told to stop: it is not ready any more."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from mcp_hub.cli.http_health import monitoring_of
from mcp_hub.cli.http_limits import admission_of
from mcp_hub.cli.serve import _stop_when
from mcp_hub.config.hub import HttpSettings
from tests.unit.fronts.local_hub import local_hub
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio


async def test_readiness_ends_before_calls_do(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    async with local_hub(tmp_path) as (app, _):
        fronts: Any = SimpleNamespace(sessions=0)
        health, metrics = monitoring_of(app, fronts, fronts, admission_of(HttpSettings()))
        assert health.reasons() == [] and b"mcp_hub_ready 1.0" in metrics.rendered(None)[0]
        front = SimpleNamespace(close=lambda: seen.append([reason.code for reason in health.reasons()]))
        stopped = anyio.Event()
        server: Any = SimpleNamespace(should_exit=False)
        stopped.set()
        with anyio.fail_after(WAIT):
            await _stop_when(stopped, app, server, health, [front])
        assert seen == [["stopping"]] and server.should_exit
        assert b"mcp_hub_ready 0.0" in metrics.rendered(None)[0]
