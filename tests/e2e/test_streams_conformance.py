"""The vectors of docs/specification/streams.md against the hub, a server that streams, and broken servers."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from mcp_hub.conformance.peers import RawClient, http_peer, sse_peer, stdio_peer
from mcp_hub.conformance.runner import Runner
from mcp_hub.conformance.vectors import Scenario, read_all
from mcp_hub.types import Era, JsonObject
from tests.e2e.client import Hub
from tests.e2e.sse_client import sse_url
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub

pytestmark = pytest.mark.anyio

SCENARIOS = {one.name: one for one in read_all(Path(__file__).parents[2] / "docs/specification/vectors")}
STREAMING = [sys.executable, "-m", "examples.streaming.server"]
BROKEN = [sys.executable, str(Path(__file__).with_name("broken_streams.py"))]
SLOW: JsonObject = {"lines": 6, "pause": 0.12}
LASTING: JsonObject = {"lines": 1000, "pause": 0.12}
"""Of the scenario that cancels the call: it must not end before."""
HUB = {"expose": "full"}
CONFIG = {
    "servers": {"inner": {"command": STREAMING[0], "args": STREAMING[1:]}},
    "hub": {
        "tokens": [{"token": name * 20, "principal": name} for name in ("a", "b")],
        **HUB,
    },
}


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    """One for all scenarios; the server behind it streams by itself."""
    async with http_hub(json.dumps(CONFIG), tmp_path_factory.mktemp("hub"), relays_all=False) as running:
        yield running


def arguments(scenario: Scenario) -> JsonObject:
    return LASTING if scenario.name == "cancelled" else SLOW


def over_http(url: str, era: Era, scenario: Scenario) -> Runner:
    def connect(capabilities: JsonObject, is_other: bool) -> AbstractAsyncContextManager[RawClient]:
        return http_peer(url, ("b" if is_other else "a") * 20, era, capabilities)

    return Runner(connect, "inner_report", arguments(scenario), has_other=True)


def over_sse(url: str, scenario: Scenario) -> Runner:
    def connect(capabilities: JsonObject, is_other: bool) -> AbstractAsyncContextManager[RawClient]:
        return sse_peer(sse_url(url), ("b" if is_other else "a") * 20, capabilities)

    return Runner(connect, "inner_report", arguments(scenario), has_other=True)


def over_stdio(command: Sequence[str], era: Era, scenario: Scenario, tool: str = "report") -> Runner:
    def connect(capabilities: JsonObject, is_other: bool) -> AbstractAsyncContextManager[RawClient]:
        return stdio_peer(command, era, capabilities)

    return Runner(connect, tool, arguments(scenario))


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
@pytest.mark.first(2)
async def test_the_hub_passes_over_http(hub: Hub, scenario: Scenario, era: Era) -> None:
    outcome = await over_http(hub.url, era, scenario).play(scenario)
    assert outcome == ("passed", "")


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
@pytest.mark.first(1)
async def test_the_hub_passes_over_sse(hub: Hub, scenario: Scenario) -> None:
    outcome = await over_sse(hub.url, scenario).play(scenario)
    assert outcome == ("passed", "")


@pytest.mark.first(1)
@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_the_hub_passes_over_stdio(scenario: Scenario, era: Era, tmp_path: Path) -> None:
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({**CONFIG, "hub": HUB | {"store": {"path": str(tmp_path / "store")}}}))
    command = [*forked_command(), "serve", "--config", str(config)]
    outcome = await over_stdio(command, era, scenario, "inner_report").play(scenario)
    assert outcome == ("passed", "") or scenario.name == "foreign"


@pytest.mark.first(1)
@pytest.mark.parametrize("era", [*reversed(Era)])
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
async def test_a_server_built_with_the_sdk_passes(scenario: Scenario, era: Era) -> None:
    outcome = await over_stdio(STREAMING, era, scenario).play(scenario)
    assert outcome == ("passed", "") or scenario.name == "foreign"


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("mutant", "scenario"),
    [
        ("gap", "events"), ("two-endings", "events"), ("cursor", "events"),
        ("repeat", "events"), ("after-the-ending", "events"), ("other-suffix", "paging"),
    ],
)  # fmt: skip
async def test_a_broken_server_fails(mutant: str, scenario: str) -> None:
    verdict, why = await over_stdio([*BROKEN, mutant], Era.HANDSHAKE, SCENARIOS[scenario]).play(SCENARIOS[scenario])
    assert verdict == "failed" and why
