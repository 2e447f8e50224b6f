"""The examples of the library, as a reader runs them, against a real server that is fetched from its index."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp import Client

pytestmark = pytest.mark.anyio

EXAMPLES = Path(__file__).parents[2] / "examples"
FETCH = 180
LIMIT = 600
RUNNING = re.compile(r"running on (http://[0-9.:]+)")


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """In which `uvx mcp-server-time` can be started; skips where it cannot."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    env = {**os.environ, "PATH": path, "MCP_HUB_STATE_DIR": str(tmp_path_factory.mktemp("state"))}
    try:
        fetched = subprocess.run(
            ["uvx", "mcp-server-time", "--help"], env=env, capture_output=True, text=True, timeout=FETCH
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"uvx mcp-server-time cannot be started: {error}")
    if fetched.returncode != 0:
        pytest.skip(f"uvx mcp-server-time cannot be started: {fetched.stderr[-300:]}")
    return env


def run(env: dict[str, str], program: Sequence[str], awaited: str = "") -> str:
    """What the example prints. On a busy machine the server may start later than it is waited for, but not each time:
    without `awaited` in it, the example is run again.
    """
    line = [sys.executable, *program]
    for _ in range(5):
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=LIMIT)
        if awaited in done.stdout:
            break
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.proof
def test_calls_lists_searches_calls_streams_and_resumes(env: dict[str, str]) -> None:
    tools = "time_get_current_time, time_convert_time, mine_add, mine_count_down"
    said = run(env, [f"{EXAMPLES}/library_calls.py"], tools)
    assert tools in said
    assert "best hit: time_" in said and "Asia/Tokyo" in said and "T21:00:00" in said
    assert "Did you mean time_convert_time" in said
    numbers = [int(line.split()[1].rstrip(":")) for line in said.splitlines() if line.startswith("event ")]
    assert numbers == sorted(set(numbers)) and numbers[:3] == [2, 3, 4]
    assert "structured: {'started_at': 5, 'status': 'lift-off'}" in said


@pytest.mark.proof
def test_an_agent_uses_the_hub_through_a_client_of_the_sdk(env: dict[str, str]) -> None:
    said = run(env, [f"{EXAMPLES}/library_agent.py"], "Europe/Berlin")
    assert said.startswith("The tool says: ") and "Europe/Berlin" in said


def test_a_module_of_tools_is_served_by_its_name(env: dict[str, str]) -> None:
    said = run(env, ["-m", "mcp_hub.examples.tools"])
    assert "mine_add: Add two numbers." in said and "1 + 2 = 3" in said


@pytest.fixture
async def application(env: dict[str, str]) -> AsyncIterator[str]:
    """The URL of the Starlette application in a process of its own, which ends after SIGTERM."""
    command = [sys.executable, f"{EXAMPLES}/library_embedded.py", "0"]
    async with await anyio.open_process(command, env=env, stdout=None) as process:
        assert process.stderr is not None
        said = ""
        with anyio.fail_after(LIMIT):
            while (found := RUNNING.search(said)) is None:
                said += (await process.stderr.receive()).decode()
        yield found[1]
        process.terminate()
        with anyio.fail_after(LIMIT):
            code = await process.wait()
    assert code in (0, -signal.SIGTERM)


@pytest.mark.proof
async def test_a_starlette_application_serves_the_hub_beside_its_own_route(application: str) -> None:
    with anyio.fail_after(LIMIT):
        async with httpx2.AsyncClient(timeout=LIMIT, verify=False) as http:
            while not (listed := (await http.get(f"{application}/hub/v1/tools")).json()["tools"]):
                pass  # it waits for the server, on a busy machine not long enough
            own = (await http.get(f"{application}/time/Europe/Berlin")).json()
            assert not own["error"] and "Europe/Berlin" in own["text"]
            assert [tool["name"] for tool in listed] == ["time_get_current_time", "time_convert_time"]
        for mode in ("legacy", "auto"):
            async with Client(f"{application}/hub/mcp", mode=mode) as client:
                result = await client.call_tool("time_get_current_time", {"timezone": "Asia/Tokyo"})
                assert not result.is_error and "Asia/Tokyo" in str(result.content)
