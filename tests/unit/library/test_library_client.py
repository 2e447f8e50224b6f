"""A client of the official SDK on a hub of the same process."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from anyio.abc import TaskStatus
from mcp import Client, MCPError

from mcp_hub import Hub
from tests.unit.library import odd_tools
from tests.unit.library.test_library import CONFIG, WAIT, hub_of

pytestmark = pytest.mark.anyio

BOTH = {"jobs": CONFIG["servers"]["jobs"], "odd": {"local": "tests.unit.library.odd_tools"}}  # type: ignore[index]


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    with anyio.fail_after(WAIT):
        async with hub_of(tmp_path, {"servers": BOTH, "hub": {"store": "memory", "expose": "full"}}) as opened:
            yield opened


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_it_lists_and_calls_in_either_era(hub: Hub, mode: str, version: str) -> None:
    reports: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    async with hub.connect(mode=mode) as client:
        assert client.protocol_version == version
        assert "jobs_run_job" in [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("jobs_run_job", {"steps": 3, "seconds": 0}, progress_callback=progressed)
        assert result.structured_content == {"steps": 3, "seconds": 0, "status": "done"}
        assert reports == [1, 2, 3]
        with pytest.raises(MCPError):
            await client.call_tool("absent", {})


async def test_a_client_that_leaves_has_its_calls_cancelled(hub: Hub) -> None:
    odd_tools.begun, odd_tools.ended = anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        async with hub.connect() as client:
            tasks.start_soon(client.call_tool, "odd_endless")
            await odd_tools.begun.wait()
            tasks.cancel_scope.cancel()
    await odd_tools.ended.wait()


async def test_a_hub_that_closes_first_ends_what_its_clients_wait_for(tmp_path: Path) -> None:
    hub = hub_of(tmp_path, {"servers": BOTH, "hub": {"store": "memory"}})
    stopping, has_closed, has_failed = anyio.Event(), anyio.Event(), anyio.Event()
    codes: list[int] = []
    odd_tools.begun = anyio.Event()

    async def live(*, task_status: TaskStatus[None]) -> None:
        async with hub:
            task_status.started()
            await stopping.wait()
        has_closed.set()

    async def call(client: Client) -> None:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("odd_endless")
        codes.append(caught.value.error.code)
        await has_closed.wait()
        with pytest.raises(MCPError):
            await client.list_tools()
        has_failed.set()

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            await tasks.start(live)
            async with hub.connect(mode="legacy") as client:
                tasks.start_soon(call, client)
                await odd_tools.begun.wait()
                stopping.set()
                await has_failed.wait()
    assert codes == [1005]
