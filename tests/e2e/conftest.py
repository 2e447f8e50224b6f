"""Fixtures that several modules of end-to-end tests share."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.background import Background, background
from tests.e2e.bad_input import ALICE, LIMIT, TOKENS
from tests.e2e.browser import Page, base, browsed
from tests.e2e.client import HttpClient, Hub
from tests.e2e.raw_wire import UPSTREAMS, Wire, config
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, FRONTS, connected, http_hub, replica_count, stdio_session
from tests.interaction.hub_process import without_sandbox
from tests.interaction.replicas import SINGLE
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.stdio_client import StdioClient

pytest.register_assert_rewrite("tests.e2e.bad_upstreams")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what does not hold for replicas, or for servers in a sandbox, where the hubs of the tests have them."""
    if replica_count() > 1:
        for item in items:
            if (why := SINGLE.get(item.name.partition("[")[0])) is not None:
                item.add_marker(pytest.mark.skip(reason=f"through replicas: {why}"))
    for item in items:
        if why := without_sandbox(item.name.partition("[")[0]):
            item.add_marker(pytest.mark.skip(reason=f"in a sandbox: {why}"))


REGION = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    """Over HTTP, with tokens and limits; what reaches server `a` is in the file `journal` beside its configuration."""
    root = tmp_path_factory.mktemp("http")
    (root / "tools.json").write_text(json.dumps([{"name": "in", "inputSchema": REGION}]))
    servers = {"a": argv(name="a", journal=root / "journal"), "r": argv(name="r", tools_json=root / "tools.json")}
    settings = {"tokens": TOKENS, "http": {"max_body": LIMIT, "allowed_origins": ["https://app.example"]}}
    async with http_hub(servers_yaml(servers, hub=settings), root) as running:
        yield running


@pytest.fixture
async def alice(hub: Hub) -> AsyncIterator[HttpClient]:
    """A client with a session."""
    async with HttpClient(hub.url, ALICE) as client:
        assert (await client.initialize()).status == 200
        await client.request("tools/list")
        yield client


@pytest.fixture(scope="module", params=FRONTS)
async def wire_hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """A hub on each front, in front of a server of each era, and the folder of their journals."""
    root = tmp_path_factory.mktemp(request.param)
    if request.param == "http":
        async with http_hub(config(root), root) as running:
            yield running, root
        return
    async with stdio_session(config(root), root) as client:
        yield client, root
        assert client.noise == []
        assert await client.close() == 0


@pytest.fixture(scope="module", params=ERAS)
async def wire(request: pytest.FixtureRequest, wire_hub: Any) -> AsyncIterator[Wire]:
    running, root = wire_hub
    async with connected(running, request.param) as peer:
        await peer.names()
        yield Wire(peer, "stdio" if isinstance(running, StdioClient) else "http", root)


@pytest.fixture(scope="module")
async def browser(hub: Hub, root: Path) -> AsyncIterator[Page]:
    """A browser at the dashboard of a module's hub, whose state is in `root`."""
    async with browsed() as page:
        await page.enter(hub, root)
        yield page


@pytest.fixture
async def page(browser: Page, hub: Hub) -> AsyncIterator[Page]:
    """A page with a token, at the overview; in the end it has thrown nothing and kept to its policy."""
    await browser.go("#/overview", "Needs you")
    yield browser
    await browser.ask("Emulation.clearDeviceMetricsOverride")
    assert browser.errors == []
    assert await browser.js("window.violations") == []
    assert browser.hosts == {base(hub)}


@pytest.fixture
async def rest(hub: Hub) -> AsyncIterator[RestClient]:
    async with RestClient(hub) as client:
        yield client


@pytest.fixture
def hubs(tmp_path: Path) -> Iterator[Background]:
    with background(tmp_path) as hubs:
        yield hubs


@pytest.fixture(params=list(UPSTREAMS))
def upstream(request: pytest.FixtureRequest) -> str:
    """A server behind `wire_hub`."""
    name: str = request.param
    return name
