"""What happens first when a hub that serves over HTTP is told to stop: it is not ready any more."""

from pathlib import Path

import anyio
import pytest
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mcp_hub.app.http import HttpFront
from mcp_hub.cli.commands.serve import _stop_when
from mcp_hub.cli.http_server import http_server
from tests.unit.fronts.local_hub import local_hub
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio


async def test_readiness_ends_before_calls_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    async with local_hub(tmp_path) as (app, _):
        front = HttpFront(app, None, is_local=lambda settings: True)
        health, metrics = front.health, front.metrics
        assert health.reasons() == [] and b"mcp_hub_ready 1.0" in metrics.rendered(None)[0]
        monkeypatch.setattr(front.mcp, "close", lambda: seen.append([reason.code for reason in health.reasons()]))
        stopped = anyio.Event()
        server = http_server(front.endpoints, HttpToolsProtocol)
        stopped.set()
        with anyio.fail_after(WAIT):
            await _stop_when(stopped, app, server, front)
        assert seen == [["stopping"]] and server.should_exit
        assert b"mcp_hub_ready 0.0" in metrics.rendered(None)[0]
