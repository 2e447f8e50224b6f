"""Our conformance server by itself, or behind a hub whose one upstream it is."""

import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2

from rigs.clients.clients import fastmcp_python
from rigs.conformance.server.skills import FILES
from rigs.conformance.suite import ROOT
from tests.e2e.client import HttpClient
from tests.interaction.fronts import http_hub, is_alive, replica_count
from tests.upstreams.child import WAIT, Child
from tests.upstreams.messages import modern

MAIN = "rigs.conformance.server.main"
FASTMCP = Path(__file__).parent / "server" / "fastmcp_skills.py"
TASK_TOOLS = {
    "greet": {"task": "never"},
    "failing_job": {"task": "required"},
    **dict.fromkeys(("slow_compute", "protocol_error_job", "confirm_delete", "multi_input"), {"task": "always"}),
}
"""Which of the server's tools make tasks; `test_tool_with_task` does when it takes long."""
BARE = "bare-"
TASK_AFTER = 1.5


@asynccontextmanager
async def http_server(pids: Path, *options: str) -> AsyncIterator[str]:
    """Our server over Streamable HTTP; its URL."""
    async with Child([sys.executable, "-m", MAIN, "--http", "0", "--pids", str(pids), *options], cwd=ROOT) as server:
        yield (await server.wait_stderr(r"http://127\.0\.0\.1:\d+/mcp")).group()
        await server.terminate()


@asynccontextmanager
async def fastmcp_server(root: Path) -> AsyncIterator[str]:
    """A server made with FastMCP over Streamable HTTP, which has one of our skills; its URL. Raises: `NotInstalled`."""
    own = {uri: text for uri, text in FILES.items() if uri.startswith("skill://pdf-processing/")}
    for uri, text in own.items():
        file = root / "skills" / uri.removeprefix("skill://")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Child([str(fastmcp_python()), str(FASTMCP), str(root / "skills"), str(port)], cwd=ROOT) as server:
        await server.wait_stderr(r"Uvicorn running")
        yield f"http://127.0.0.1:{port}/mcp"
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
        if replica_count() > 1:
            await store_is_settled(running.url)
        yield running.url


async def store_is_settled(url: str) -> None:
    """Returns when the hub can say for certain that a stream is unknown: a lease after its server has started."""
    unknown = url.removesuffix("/mcp") + "/v1/streams/unknown"
    with anyio.fail_after(WAIT):
        async with httpx2.AsyncClient() as client:
            while (await client.get(unknown)).status_code != 404:  # noqa: ASYNC110 - a lease sets no event of ours
                await anyio.sleep(0.1)


@asynccontextmanager
async def arranged(arrangement: str, root: Path) -> AsyncIterator[str]:
    """Where the scenarios go in this arrangement (`bare-…`: with a bare server); at its end its processes are gone.

    Over stdio there is one for each era of its clients, and at most two that only served to find out what it speaks.
    """
    pids = root / "pids"
    bare = ["--bare"] if arrangement.startswith(BARE) else []
    kind, _, era = arrangement.removeprefix(BARE).partition("-")
    if kind == "stdio":
        options = ["-m", MAIN, "--era", era, "--pids", str(pids), *bare]
        child = {"command": sys.executable, "args": options, "cwd": str(ROOT)}
        async with hub_before(child, root) as hub:
            yield hub
    else:
        async with http_server(pids, *bare) as server:
            if kind == "direct":
                yield server
            else:
                async with hub_before({"url": server, **({"era": era} if era else {})}, root) as hub:
                    yield hub
    started = pids.read_text().split()
    assert 1 <= len(started) <= (3 * replica_count() if kind == "stdio" else 1)
    assert not any(is_alive(int(pid)) for pid in started)
