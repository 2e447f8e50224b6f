"""The memory that a stream of large events costs a hub, whoever reads it."""

import sys
from pathlib import Path

import httpx2
import pytest

from tests.e2e.client import Hub
from tests.interaction.fronts import http_hub

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

MODULE = """
from collections.abc import AsyncIterator
from mcp_hub import Registry, Result

registry = Registry()

@registry.tool
async def large(count: int) -> AsyncIterator[str | Result]:
    for _ in range(count):
        yield "x" * 200_000
    yield Result("done")
"""
CONFIG = "servers:\n  own: {local: 'large_here:registry', prefix: never}\n"
MOST = 60.0
"""MB, for as many of the stream."""


def memory(hub: Hub, key: str) -> float:
    """Of the process, in MB: `VmRSS` now, `VmHWM` the most since `forget`."""
    assert hub.pid is not None
    status = Path(f"/proc/{hub.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) / 1024


def forget(hub: Hub) -> None:
    """The peak begins anew."""
    Path(f"/proc/{hub.pid}/clear_refs").write_text("5")


async def read(http: httpx2.AsyncClient, method: str, url: str, body: object = None) -> int:
    """The bytes of an event stream."""
    headers = {"accept": "text/event-stream"}
    async with http.stream(method, url, json=body, headers=headers) as response:
        assert response.status_code == 200
        return sum([len(chunk) async for chunk in response.aiter_raw()])


async def test_a_stream_of_60_mb_costs_no_more_than_that(tmp_path: Path) -> None:
    (tmp_path / "large_here.py").write_text(MODULE)
    async with (
        http_hub(CONFIG, tmp_path, MCP_HUB_DUMPABLE="1") as hub,
        httpx2.AsyncClient(timeout=240, verify=False) as http,
    ):
        rest = hub.url.removesuffix("/mcp") + "/v1"
        await http.post(f"{rest}/tools/large/call", json={"arguments": {"count": 1}})
        before = memory(hub, "VmRSS")
        forget(hub)
        assert await read(http, "POST", f"{rest}/tools/large/call", {"arguments": {"count": 300}}) > 60_000_000
        assert memory(hub, "VmHWM") - before <= MOST
        stream = (await http.get(f"{rest}/streams")).json()["streams"][0]["stream"]
        assert await read(http, "GET", f"{rest}/streams/{stream}/events") > 60_000_000
        assert memory(hub, "VmHWM") - before <= MOST
