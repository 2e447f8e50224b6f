"""The suite's server scenarios: against our own server (which tests that server), and against the hub in front of it.

The hub has one upstream, one process for all scenarios of an arrangement, whatever era its clients and that upstream
speak; `http` reaches the same server over Streamable HTTP.
"""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.suite import SERVER_SCENARIOS, TASK_SCENARIOS, run_server_scenarios, run_task_scenario
from tests.e2e.client import HttpClient, modern
from tests.interaction.fronts import http_hub, is_alive
from tests.upstreams.child import WAIT, Child

pytestmark = pytest.mark.anyio

MAIN = Path(__file__).parent / "server" / "main.py"
HANDSHAKE = ("2025-06-18", "2025-11-25")
ALL = tuple(SERVER_SCENARIOS)

CHILDREN = {"both": ALL, "handshake": HANDSHAKE, "modern": ALL}
"""Versions that are run through the hub per era of its child."""
TASK_TOOLS = {
    "greet": {"task": "never"},
    "failing_job": {"task": "required"},
    **dict.fromkeys(("slow_compute", "protocol_error_job", "confirm_delete", "multi_input"), {"task": "always"}),
}
"""Which of the server's tools make tasks; `test_tool_with_task` does when it takes long."""
TASK_AFTER = 1.5
RUNS = [
    *(("direct", version) for version in ALL),
    *((f"stdio-{era}", version) for era, versions in CHILDREN.items() for version in versions),
    *(("http", version) for version in ALL),
]

TASK_RUNS = [
    *(("stdio-modern", name) for name in TASK_SCENARIOS),
    # those that ask; on a handshake pipe nobody is asked for 5 s after a call was given up, and these give up many
    *(("http-handshake", name) for name in ("mrtr-input", "mrtr-composition", "dispatch-and-envelope")),
]


@asynccontextmanager
async def http_server(pids: Path) -> AsyncIterator[str]:
    """Our server over Streamable HTTP; its URL."""
    async with Child([sys.executable, str(MAIN), "--http", "0", "--pids", str(pids)]) as server:
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


@pytest.fixture(scope="module")
async def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """Where the scenarios go in this arrangement; at its end exactly one server process has run, and is gone."""
    root = tmp_path_factory.mktemp(request.param)
    pids = root / "pids"
    kind, _, era = request.param.partition("-")
    if kind == "stdio":
        child = {"command": sys.executable, "args": [str(MAIN), "--era", era, "--pids", str(pids)]}
        async with hub_before(child, root) as hub:
            yield hub
    else:
        async with http_server(pids) as server:
            if kind == "direct":
                yield server
            else:
                async with hub_before({"url": server, **({"era": era} if era else {})}, root) as hub:
                    yield hub
    [pid] = pids.read_text().split()
    assert not is_alive(int(pid))


@pytest.mark.parametrize(("url", "version"), RUNS, indirect=["url"], scope="module")
async def test_all_server_scenarios_pass(suite: Sequence[str], url: str, version: str) -> None:
    run = await run_server_scenarios(suite, url, version)
    print(version, "at", url, run)
    assert not run.complaints, "\n".join(run.complaints)
    assert len(run.verdicts) == SERVER_SCENARIOS[version]
    # a check that could not be made is no success: a capability that the hub does not pass on hides behind it
    assert [each.scenario for each in run.verdicts if each.count("SKIPPED")] == []


@pytest.mark.parametrize(("url", "name"), TASK_RUNS, indirect=["url"], scope="module")
async def test_calls_of_ordinary_tools_become_tasks(suite: Sequence[str], url: str, name: str) -> None:
    run = await run_task_scenario(suite, url, name)
    assert not run.complaints, "\n".join(run.complaints)
    (verdict,) = run.verdicts
    # the suite cannot listen to tasks yet, and says so
    assert verdict.count("SKIPPED") == (name == "status-notifications")
