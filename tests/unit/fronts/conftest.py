"""Hubs in memory: behind the REST front, with `/mcp` too, and without a front."""

import gc
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mcp_hub.app.build import App
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.local_hub import Tools, local_hub
from tests.unit.fronts.rest_peer import RestPeer, mcp_hub, rest_hub


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[RestPeer]:
    async with rest_hub(tmp_path) as peer:
        yield peer


@pytest.fixture
async def open_peer(tmp_path: Path) -> AsyncIterator[RestPeer]:
    """Without tokens: every program on this machine may come in, and so might web pages."""
    async with rest_hub(tmp_path, tokens=False) as peer:
        yield peer


@pytest.fixture
async def mcp_peer(tmp_path: Path) -> AsyncIterator[RestPeer]:
    async with mcp_hub(tmp_path) as peer:
        yield peer


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[tuple[App, Tools]]:
    async with local_hub(tmp_path, max_result_tokens=0) as opened:
        yield opened


@pytest.fixture
async def full(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    """With a dashboard and without tokens, as on a person's own machine."""
    async with dashboard_hub(tmp_path) as peer:
        yield peer


@pytest.fixture
async def shared(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    async with dashboard_hub(tmp_path, tokens=True) as peer:
        yield peer


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Memory is free only where nothing refers to it: an idle hub allocates nothing, so its collector never runs."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
