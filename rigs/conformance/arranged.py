"""Our conformance server by itself, or behind a hub whose one upstream it is."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rigs.conformance.suite import ROOT
from tests.e2e.client import HttpClient
from tests.interaction.fronts import http_hub, is_alive
from tests.upstreams.child import WAIT, Child
from tests.upstreams.messages import modern

MAIN = "rigs.conformance.server.main"
TASK_TOOLS = {
    "greet": {"task": "never"},
    "failing_job": {"task": "required"},
    **dict.fromkeys(("slow_compute", "protocol_error_job", "confirm_delete", "multi_input"), {"task": "always"}),
}
"""Which of the server's tools make tasks; `test_tool_with_task` does when it takes long."""
TASK_AFTER = 1.5


@asynccontextmanager
async def http_server(pids: Path) -> AsyncIterator[str]:
    """Our server over Streamable HTTP; its URL."""
    async with Child([sys.executable, "-m", MAIN, "--http", "0", "--pids", str(pids)], cwd=ROOT) as server:
        yield (await server.wait_stderr(r"http://127\.0\.0\.1:\d+/mcp")).group()
        await server.terminate()


@asynccontextmanager
async def hub_before(upstream: dict[str, Any], root: Path) -> AsyncIterator[str]:
    """A hub that has listed this one upstream, whose names it leaves as they are; its URL."""
    hub = {"prefix": "never", "first_list_wait": WAIT, "task_after": TASK_AFTER}
    servers = {"conformance": {**upstream, "per_tool": TASK_TOOLS}}
    async with http_hub(json.dumps({"hub": hub, "servers": servers}), root) as running:
        async with HttpClient(running.url) as client:
            listed = await client.request("tools/list", modern())
            assert listed.last["result"]["tools"], running.stderr
        yield running.url


@asynccontextmanager
async def arranged(arrangement: str, root: Path) -> AsyncIterator[str]:
    """Where the scenarios go in this arrangement; at its end the server's processes are gone.

    Over stdio there is one for each era of its clients, and at most two that only served to find out what it speaks.
    """
    pids = root / "pids"
    kind, _, era = arrangement.partition("-")
    if kind == "stdio":
        options = ["-m", MAIN, "--era", era, "--pids", str(pids)]
        child = {"command": sys.executable, "args": options, "cwd": str(ROOT)}
        async with hub_before(child, root) as hub:
            yield hub
    else:
        async with http_server(pids) as server:
            if kind == "direct":
                yield server
            else:
                async with hub_before({"url": server, **({"era": era} if era else {})}, root) as hub:
                    yield hub
    started = pids.read_text().split()
    assert 1 <= len(started) <= (3 if kind == "stdio" else 1)
    assert not any(is_alive(int(pid)) for pid in started)
