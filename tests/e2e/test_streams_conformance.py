"""The vectors of docs/specification/streams.md against the hub, a server that streams, and broken servers."""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest

from mcp_hub.conformance.peers import RawClient, http_peer, sse_peer, stdio_peer
from mcp_hub.conformance.runner import Cases, Runner
from mcp_hub.conformance.vectors import Scenario, read_all
from mcp_hub.types import Era, JsonObject
from tests.e2e import broken_streams
from tests.e2e.broken_streams import FAULTS
from tests.e2e.client import Hub
from tests.e2e.sse_client import sse_url
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub
from tests.streaming import server as example

pytestmark = pytest.mark.anyio

SCENARIOS = {one.name: one for one in read_all(Path(__file__).parents[2] / "docs/specification/vectors")}
PLAYED = [(scenario, era) for scenario in SCENARIOS.values() for era in scenario.eras]
NAMES = [f"{scenario.name}-{era.value}" for scenario, era in PLAYED]
EXAMPLE = Path(__file__).parents[2] / "examples/streaming"
STREAMING = [sys.executable, "-m", "examples.streaming.server"]
DYING = [sys.executable, str(Path(__file__).with_name("dying_streams.py"))]
REPORT: JsonObject = {"lines": 6, "pause": 0.02}
SLOW: JsonObject = {"lines": 6, "pause": 0.12}
LONG: JsonObject = {"lines": 30, "pause": 0.12}
"""Longer than the hub waits before it makes a task, or answers early."""
STREAMS = "dev.mcp-hub/streams"
FEW = 4
"""Events that the server of the vector `truncated` keeps."""


def reference() -> Cases:
    """Those of the example server, at the pace of a server that does not gather."""
    cases: dict[str, JsonObject] = json.loads((EXAMPLE / "cases.json").read_text())
    for case in cases.values():
        case["arguments"]["pause"] = 0.02
    return {"": {"tool": "report", "arguments": REPORT}, "many": {"tool": "report", "arguments": REPORT}, **cases}


def keeps(scenario: Scenario) -> int:
    return FEW if scenario.needs == "many" else 10_000


# -- the example server, in this process


@pytest.mark.parametrize(("scenario", "era"), PLAYED, ids=NAMES)
async def test_a_server_built_with_the_sdk_passes(scenario: Scenario, era: Era) -> None:
    made = broken_streams.server(keeps=keeps(scenario))

    def connect(capabilities: JsonObject, is_other: bool, name: str) -> AbstractAsyncContextManager[RawClient]:
        return broken_streams.piped(lambda: made, era, capabilities, name)

    outcome = await Runner(connect, reference(), "stdio").play(scenario)
    assert outcome == ("passed", "") or (outcome[0] == "skipped" and scenario.name in NOT_OF_THE_EXAMPLE)


@pytest.mark.parametrize("name", ["paging", "running", "busy", "truncated"])
async def test_a_server_of_small_pages_passes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "LONGEST_PAGE", 1)
    scenario = SCENARIOS[name]
    made = broken_streams.server(keeps=keeps(scenario))

    def connect(capabilities: JsonObject, is_other: bool, name: str) -> AbstractAsyncContextManager[RawClient]:
        return broken_streams.piped(lambda: made, Era.HANDSHAKE, capabilities, name)

    assert await Runner(connect, reference(), "stdio").play(scenario) == ("passed", "")


NOT_OF_THE_EXAMPLE = {"foreign", "left", "lost", "rest", "task", "early"}
"""It has neither principals, nor a store, tasks, early answers, REST and a tool that may be lost."""


@pytest.mark.parametrize(("scenario", "era"), PLAYED, ids=NAMES)
@pytest.mark.first(4)
async def test_a_server_built_with_the_sdk_passes_over_http(scenario: Scenario, era: Era) -> None:
    async with broken_streams.over_http(broken_streams.server(keeps=keeps(scenario))) as url:

        def connect(capabilities: JsonObject, is_other: bool, name: str) -> AbstractAsyncContextManager[RawClient]:
            return http_peer(url, None, era, capabilities, name)

        outcome = await Runner(connect, reference(), "http").play(scenario)
    assert outcome == ("passed", "") or (outcome[0] == "skipped" and scenario.name in NOT_OF_THE_EXAMPLE)


async def test_the_example_is_a_command_that_passes() -> None:
    connect = partial(_process, STREAMING, Era.HANDSHAKE)
    assert await Runner(connect, reference(), "stdio").play(SCENARIOS["events"]) == ("passed", "")


def _process(
    command: Sequence[str], era: Era, capabilities: JsonObject, is_other: bool, name: str
) -> AbstractAsyncContextManager[RawClient]:
    return stdio_peer(command, era, capabilities, name)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_broken_server_fails(fault: str) -> None:
    _, name = FAULTS[fault]
    scenario = SCENARIOS[name]
    made = broken_streams.server(fault, keeps(scenario))

    def connect(capabilities: JsonObject, is_other: bool, name: str) -> AbstractAsyncContextManager[RawClient]:
        return broken_streams.piped(lambda: made, Era.HANDSHAKE, capabilities, name)

    verdict, why = await Runner(connect, reference(), "stdio").play(scenario)
    assert verdict == "failed" and why


def test_each_fault_breaks_a_rule_of_its_own_that_its_vector_names() -> None:
    rules = [rule for rule, _ in FAULTS.values()]
    assert len(set(rules)) == len(rules) >= 12
    assert all(rule in SCENARIOS[scenario].rules for rule, scenario in FAULTS.values())


# -- the hub, with the example server behind it

EARLY = "in a hurry"
HUB: JsonObject = {
    "expose": "full",
    "task_after": "1s",
    "clients": {"hurried": {"soft_deadline": "1s", "matches": [EARLY]}},
}


def config(root: Path, **hub: object) -> JsonObject:
    dying = [*DYING, str(root / "died")]
    return {
        "servers": {
            "inner": {"command": STREAMING[0], "args": STREAMING[1:]},
            "dying": {
                "command": dying[0],
                "args": dying[1:],
                "restart": {"intensity": 100},
                "per_tool": {"report": {"idempotent": True}},
            },
        },
        "hub": {**HUB, **hub},
    }


def cases(**more: JsonObject) -> Cases:
    """Those of a hub in front of the example server, and of one whose process ends."""
    of_example: dict[str, JsonObject] = json.loads((EXAMPLE / "cases.json").read_text())
    found = {name: {**case, "tool": "inner_report"} for name, case in of_example.items()}
    usual: JsonObject = {"tool": "inner_report", "arguments": SLOW}
    return {
        **found,
        **dict.fromkeys(("", "durable"), usual),
        "task": {**usual, "arguments": LONG},
        "attempts": {"tool": "dying_report", "arguments": {}},
        "lost": {"tool": "dying_lost", "arguments": {}},
        "early": {**usual, "arguments": LONG, "client": EARLY},
        **more,
    }


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    """One for all scenarios; the server behind it streams by itself."""
    root = tmp_path_factory.mktemp("hub")
    tokens = [{"token": name * 20, "principal": name} for name in ("a", "b")]
    async with http_hub(json.dumps(config(root, tokens=tokens)), root, relays_all=False) as running:
        yield running


@pytest.mark.parametrize(("scenario", "era"), PLAYED, ids=NAMES)
@pytest.mark.first(4)
async def test_the_hub_passes_over_http(hub: Hub, scenario: Scenario, era: Era) -> None:
    def connect(capabilities: JsonObject, is_other: bool, name: str) -> AbstractAsyncContextManager[RawClient]:
        return http_peer(hub.url, ("b" if is_other else "a") * 20, era, capabilities, name)

    rest: JsonObject = {"url": f"{hub.url.removesuffix('/mcp')}/v1", "token": "a" * 20}
    outcome = await Runner(connect, cases(rest=rest), "http", has_other=True).play(scenario)
    assert outcome == ("passed", "") or (outcome[0] == "skipped" and scenario.name == "truncated")


@pytest.mark.parametrize("era", Era)
async def test_the_hub_takes_back_what_the_server_behind_it_does(hub: Hub, era: Era) -> None:
    def connect(capabilities: JsonObject, is_other: bool, name: str) -> AbstractAsyncContextManager[RawClient]:
        return http_peer(hub.url, "a" * 20, era, capabilities, name)

    failing: JsonObject = {"tool": "inner_report", "arguments": {"lines": 2, "pause": 0.12, "fails": 2}}
    assert await Runner(connect, cases(**{"": failing}), "http").play(SCENARIOS["events"]) == ("passed", "")


async def test_events_before_a_question_are_sent_before_it(hub: Hub) -> None:
    capabilities: JsonObject = {"extensions": {STREAMS: {}}, "elicitation": {}}
    async with http_peer(hub.url, "a" * 20, Era.MODERN, capabilities, "test") as peer:
        params = {"name": "dying_asks", "arguments": {}, "_meta": {"progressToken": "p"}}
        exchange = await peer.send("tools/call", params)
        asked = (await exchange.answer())["result"]
        assert asked["resultType"] == "input_required"
        answers = dict.fromkeys(asked["inputRequests"], {"action": "decline"})
        params |= {"inputResponses": answers, "requestState": asked["requestState"]}
        assert "content" in (await (await peer.send("tools/call", params)).answer())["result"]
    parts = [notification["params"]["_meta"][STREAMS] for notification in exchange.notifications]
    assert [event["type"] for part in parts for event in part["events"]] == ["delta", "input-required"]


@pytest.mark.parametrize("scenario", [one for one in SCENARIOS.values() if Era.HANDSHAKE in one.eras], ids=str)
@pytest.mark.first(1)
async def test_the_hub_passes_over_sse(hub: Hub, scenario: Scenario) -> None:
    def connect(capabilities: JsonObject, is_other: bool, name: str) -> AbstractAsyncContextManager[RawClient]:
        return sse_peer(sse_url(hub.url), ("b" if is_other else "a") * 20, capabilities, name)

    outcome = await Runner(connect, cases(), "sse", has_other=True).play(scenario)
    assert outcome == ("passed", "") or (outcome[0] == "skipped" and scenario.name in ("truncated", "rest"))


@pytest.mark.first(2)
@pytest.mark.parametrize(("scenario", "era"), PLAYED, ids=NAMES)
async def test_the_hub_passes_over_stdio(scenario: Scenario, era: Era, tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps(config(tmp_path, store={"path": str(tmp_path / "store")})))
    connect = partial(_process, [*forked_command(), "serve", "--config", str(path)], era)
    lasting = {"tool": "inner_report", "arguments": {"lines": 1000, "pause": 0.12}}
    outcome = await Runner(connect, cases(durable=lasting), "stdio").play(scenario)
    assert outcome == ("passed", "") or (outcome[0] == "skipped" and scenario.name in ("truncated", "rest", "foreign"))
