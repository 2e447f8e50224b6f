"""`kill -9` of a hub: its output ends and its servers go with it, whichever command it was and whatever it ran."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.fronts import HANDSHAKE, Peer, children, connected, http_hub, is_alive, stdio_session
from tests.upstreams.child import Child, until
from tests.upstreams.launch import argv, events, received, servers_yaml
from tests.upstreams.stdio_client import StdioClient

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(sys.platform != "linux", reason="there is a guard on Linux only")]


async def spawned(peer: Peer, tool: str, **arguments: Any) -> int:
    pid: int = json.loads((await peer.call(tool, arguments)).text)["pid"]
    return pid


def guards(pids: set[int]) -> set[int]:
    return {pid for pid in pids if b"watchdog_program" in command(pid)}


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def test_output_of_a_killed_stdio_hub_ends_and_nothing_is_left(tmp_path: Path) -> None:
    async with stdio_session(servers_yaml({"a": argv(mode="ignore-term"), "b": argv()}), tmp_path) as client:
        async with connected(client, HANDSHAKE) as peer:
            await client.wait_stderr('"upstream": "a".*upstream_ready')
            await client.wait_stderr('"upstream": "b".*upstream_ready')
            left = await spawned(peer, "b_spawn", new_session=True)
        pids = children(client.pid)
        assert left in pids and len(guards(pids)) == 1
        os.kill(client.pid, signal.SIGKILL)  # it alone: neither its group nor its session
        await client.wait_closed()
        await until(lambda: not any(map(is_alive, pids)))


async def test_killed_command_leaves_nothing(tmp_path: Path) -> None:
    journal, config = tmp_path / "journal", tmp_path / "servers.yaml"
    config.write_text(servers_yaml({"a": argv(mode="ignore-term", journal=journal)}))
    line = [sys.executable, "-m", "mcp_hub", "call", "--config", str(config), "a_slow", "--arg", "seconds=60"]
    async with Child(line, {"MCP_HUB_STATE_DIR": str(tmp_path)}) as running:
        await until(lambda: received(journal, "tools/call"))
        pids = children(running.pid)
        assert {event["pid"] for event in events(journal, "start")} < pids
        os.kill(running.pid, signal.SIGKILL)
        await until(lambda: not any(map(is_alive, pids)))


@asynccontextmanager
async def hub_under_a_hub(root: Path) -> AsyncIterator[StdioClient]:
    """A client of the outer one; the server of the inner one, which ignores SIGTERM, runs."""
    inner, journal = root / "inner.yaml", root / "journal"
    inner.write_text(servers_yaml({"a": argv(mode="ignore-term", journal=journal)}))
    hub = [sys.executable, "-m", "mcp_hub", "serve", "--client", "mcp-hub", "--config", str(inner)]
    async with stdio_session(servers_yaml({"inner": hub}), root) as client:
        await until(lambda: events(journal, "start"))
        yield client


async def test_hub_under_a_hub_takes_its_servers_along_when_the_outer_one_is_killed(tmp_path: Path) -> None:
    async with hub_under_a_hub(tmp_path) as client:
        await until(lambda: len(guards(children(client.pid))) == 2)
        pids = children(client.pid)
        os.kill(client.pid, signal.SIGKILL)
        await until(lambda: not any(map(is_alive, pids)))


async def test_hub_under_a_hub_leaves_the_outer_one_no_zombies(tmp_path: Path) -> None:
    """The servers of a killed inner hub are adopted by the outer one, which did not start them."""
    async with hub_under_a_hub(tmp_path) as client:
        (server,) = [event["pid"] for event in events(tmp_path / "journal", "start")]
        os.kill(parent(server), signal.SIGKILL)
        await until(lambda: not is_there(server))
        assert await client.close() == 0


async def test_hub_without_servers_of_its_own_has_no_guard(tmp_path: Path) -> None:
    roots = [tmp_path / name for name in "ab"]
    for root in roots:
        root.mkdir()
    async with http_hub(servers_yaml({"a": argv()}), roots[0]) as behind:
        async with http_hub(servers_yaml({"remote": behind.url}), roots[1]) as hub:
            await hub.wait_stderr('"upstream": "remote".*upstream_ready')
            assert not children(hub.pid)
            assert len(guards(children(behind.pid))) == 1


async def test_zombies_of_a_running_hub_are_reaped(tmp_path: Path) -> None:
    async with stdio_session(servers_yaml({"a": argv()}), tmp_path) as client:
        async with connected(client, HANDSHAKE) as peer:
            left = [await spawned(peer, "a_spawn", new_session=True) for _ in range(3)]
            for pid in left:
                os.kill(pid, signal.SIGKILL)
            await peer.call("a_crash")  # it did not reap them
            await until(lambda: not any(map(is_there, left)))
        assert await client.close() == 0


def is_there(pid: int) -> bool:
    """Be it as a zombie."""
    return Path(f"/proc/{pid}").exists()
