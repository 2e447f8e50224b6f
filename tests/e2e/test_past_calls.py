"""Calls of hubs that have ended: through a background hub, after its end and after a kill; the commands about them."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcp_hub.files import HISTORY_FILE
from mcp_hub.stores.history.base import RUNNING
from tests.e2e.background import Background
from tests.fork_server import forked_command
from tests.upstreams.child import until
from tests.upstreams.launch import servers_yaml
from tests.upstreams.stdio_client import StdioClient

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="background hubs"),
]

ECHO = Path(__file__).parents[2] / "bench" / "echo_server.py"
CONFIG = servers_yaml({"e": [sys.executable, "-S", "-E", str(ECHO)]}, hub={"attach_idle": "400ms", "prefix": "never"})
IN_FLIGHT = 100


async def called(client: StdioClient, first: int, count: int) -> None:
    """Calls with these numbers among their arguments, many at a time, each in the order of its number."""
    for start in range(first, first + count, IN_FLIGHT):
        ids = [
            await client.send_request("tools/call", {"name": "echo", "arguments": {"text": f"n{n}"}})
            for n in range(start, min(start + IN_FLIGHT, first + count))
        ]
        for id_ in ids:
            assert "result" in await client.response(id_)


async def command(hubs: Background, *args: str, code: int = 0) -> str:
    env = {"MCP_HUB_STATE_DIR": str(hubs.root / "state"), "XDG_RUNTIME_DIR": str(hubs.runtime)}
    line = [*forked_command(), "history", *args, "--config", str(hubs.root / "servers.yaml")]
    done = await anyio.to_thread.run_sync(
        lambda: subprocess.run(line, env={**os.environ, **env}, capture_output=True, timeout=240, check=False)
    )
    assert done.returncode == code, done
    return done.stdout.decode() + done.stderr.decode()


async def exported(hubs: Background, *args: str) -> list[dict[str, Any]]:
    """The calls of the export, the oldest first."""
    lines = (await command(hubs, "export", *args)).splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")][::-1]


def numbers_of(calls: list[dict[str, Any]]) -> list[int]:
    return [int(call["arguments"]["text"][1:]) for call in calls]


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.proof)])
async def test_each_call_is_there_with_arguments_and_order_after_the_hub_has_ended(
    hubs: Background, count: int
) -> None:
    async with hubs.client(CONFIG) as client:
        await client.initialize()
        await called(client, 0, count)
    await hubs.gone()
    before = await exported(hubs)
    assert numbers_of(before) == list(range(count))
    async with hubs.client(CONFIG) as client:
        await client.initialize()
        await called(client, count, 1)
        assert len({call["hub"] for call in await exported(hubs)}) in (1, 2)
        await until_kept(hubs, count + 1)
        through_hub = await exported(hubs)
        page = json.loads(await command(hubs, "--json", "--limit", "1000"))
    assert numbers_of(through_hub) == [*range(count + 1)] and "losses" not in page
    assert [call["id"] for call in page["calls"]] == [call["id"] for call in through_hub[::-1]][:1000]


async def until_kept(hubs: Background, count: int) -> None:
    """Waits until so many calls are in the file."""
    with anyio.fail_after(240):
        while len(await exported(hubs, "--local")) < count:
            pass


async def test_hub_that_is_killed_lacks_at_most_its_last_second_and_the_history_says_so(hubs: Background) -> None:
    async with hubs.client(CONFIG) as client:
        await client.initialize()
        await called(client, 0, 200)
        await until_kept(hubs, 200)  # a second is more than that takes
        await called(client, 200, 50)
        hubs.signal(signal.SIGKILL)
        await until(lambda: not hubs.living)
    calls = await exported(hubs, "--local")
    assert numbers_of(calls) == list(range(len(calls))) and len(calls) >= 200
    said = await command(hubs, "--local")
    assert "A hub ended without notice. It wrote last at 20" in said and "calls after that may be missing" in said


async def test_call_that_runs_when_its_hub_is_killed_is_there_as_failed(hubs: Background) -> None:
    """Although no call has ended before, and at the next hub, too."""
    async with hubs.client(CONFIG) as client:
        await client.initialize()
        await client.send_request("tools/call", {"name": "slow", "arguments": {"ms": 60_000}})
        await until(lambda: running_in(hubs.root / "state" / HISTORY_FILE) == 1)
        assert await exported(hubs) == []
        hubs.signal(signal.SIGKILL)
        await until(lambda: not hubs.living)
    await hubs.gone()
    [call] = before = await exported(hubs, "--local")
    assert (call["status"], call["code"], call["arguments"]) == ("failed", "hub_restarted", {"ms": 60_000})
    assert call["client"] and call["run"] == {"possible": True}
    assert "A hub ended without notice" in await command(hubs, "--local")
    async with hubs.client(CONFIG) as client:
        await client.initialize()
        await called(client, 0, 1)
        await until_kept(hubs, 2)
        assert (await exported(hubs))[:1] == before
        assert "slow" in await command(hubs, "--failed")


def running_in(file: Path) -> int:
    """Running calls in the file."""
    if not file.exists():
        return 0
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection, suppress(sqlite3.OperationalError):
        return int(connection.execute("SELECT count(*) FROM batches WHERE base >= ?", (RUNNING,)).fetchone()[0])
    return 0


async def test_commands_show_a_call_make_it_again_and_clear_the_history(hubs: Background) -> None:
    async with hubs.client(CONFIG) as client:
        await client.initialize()
        await called(client, 7, 1)
        await until_kept(hubs, 1)
        [call] = await exported(hubs)
        shown = await command(hubs, "show", call["id"])
        assert '"n7"} (' in shown and f"mcp-hub history run {call['id']}" in shown
        assert "needs --yes" in await command(hubs, "run", call["id"], code=2)
        assert (await command(hubs, "run", call["id"], "--yes")).startswith("n7\n")
        await until_kept(hubs, 2)
        assert [call["client"] for call in await exported(hubs)][1:] == ["mcp-hub history run"]
        for local in ([], ["--local"]):
            unknown = await command(hubs, "show", "st_never", *local, code=2)
            assert unknown == "st_never: There is no such call in the history. [not_in_history]\n"
        hint = 'No calls. There is no server "ee". No call of server "ee" is in the history. Did you mean "e"?\n'
        for local in ([], ["--local"]):
            assert await command(hubs, "--server", "ee", *local) == hint
        assert await exported(hubs, "--tool", "ecko") == []
        assert "needs --yes" in await command(hubs, "clear", code=2)
        assert "Removed 2 calls." in await command(hubs, "clear", "--yes")
        assert "were removed on request" in await command(hubs)
