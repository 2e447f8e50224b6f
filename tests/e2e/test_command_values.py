"""`${cmd:…}` in a whole hub: one run for all servers, a new one at a start and at a 401, and nobody waits for it."""

import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from mcp_types import TextContent

from mcp_hub import Hub, RpcError
from mcp_hub.masking import forget, hide
from mcp_hub.types import UpstreamState, UpstreamStatus
from tests.unit.upstreams.remote import Remote
from tests.unit.wire.http_server import Reply, Request, serving
from tests.upstreams.child import until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

LIMIT = 240
SERVER = """
import json, os, sys
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
TOOLS = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("token", "end")]}
for line in sys.stdin:
    message = json.loads(line)
    if message.get("params", {}).get("name") == "end":
        sys.exit(1)
    called = {"content": [{"type": "text", "text": os.environ["TOKEN"] + "".join(sys.argv[1:])}]}
    result = {"initialize": HELLO, "tools/list": TOOLS, "tools/call": called}.get(message["method"])
    answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
"""Says what its variable and its arguments are, or ends."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a program `op`, which notes that it ran and has the value of a file."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "op").write_text("#!/bin/sh\necho run >> runs\ncat value\n")
    (tmp_path / "op").chmod(0o755)
    (tmp_path / "value").write_text("first-value\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """A test masks nothing for those after it."""
    yield
    forget()


@asynccontextmanager
async def hub_of(folder: Path, servers: str) -> AsyncIterator[Hub]:
    file = folder / "servers.yaml"
    file.write_text(f"hub: {{store: memory}}\nservers:\n{servers}")
    file.chmod(0o600)
    env = {"MCP_HUB_STATE_DIR": str(folder / "state"), "HOME": str(folder), "PATH": os.environ["PATH"]}
    with anyio.fail_after(LIMIT):
        async with Hub.from_config(file, env=env, wait=LIMIT) as hub:
            yield hub


def stdio(name: str, token: str, argument: str = "") -> str:
    args = f"[../server.py, '{argument}']"
    return f"  {name}: {{command: {sys.executable}, args: {args}, env: {{TOKEN: '{token}'}}, cwd: sub}}\n"


async def text(hub: Hub, tool: str) -> str:
    (content,) = (await hub.call_tool(tool, {})).content
    assert isinstance(content, TextContent)
    return content.text


def runs(folder: Path) -> int:
    return (folder / "runs").read_text().count("run")


def status(hub: Hub, name: str) -> UpstreamStatus:
    (found,) = [status for status in hub.servers() if status.server == name]
    return found


async def test_servers_get_the_value_of_one_run_and_that_of_now_when_they_start_again(folder: Path) -> None:
    servers = "".join(stdio(name, "${cmd:./op}", "-${cmd:./op}") for name in ("one", "two", "three"))
    async with hub_of(folder, servers) as hub:
        for name in ("one", "two", "three"):
            assert await text(hub, f"{name}_token") == "first-value-first-value"
        assert runs(folder) == 1
        (folder / "value").write_text("second-${cmd:touch hit}\n")
        assert await text(hub, "one_token") == "first-value-first-value"  # it is not read for a call
        with pytest.raises(RpcError):
            await hub.call_tool("one_end", {})
        assert await text(hub, "one_token") == "second-${cmd:touch hit}-second-${cmd:touch hit}"
        assert await text(hub, "two_token") == "first-value-first-value" and runs(folder) == 2
        assert "***" in hide("a first-value b") and "***" in hide("a second-${cmd:touch hit} b")
    assert not (folder / "hit").exists()


@pytest.mark.proof
async def test_server_that_had_a_value_is_started_again_while_there_is_none(folder: Path) -> None:
    async with hub_of(folder, stdio("one", "${cmd:./op}")) as hub:
        assert await text(hub, "one_token") == "first-value"
        (folder / "value").write_text("")  # the vault is locked for a moment
        with pytest.raises(RpcError):
            await hub.call_tool("one_end", {})
        await until(lambda: status(hub, "one").code == "lookup_failed")
        assert status(hub, "one").state is not UpstreamState.FAILED
        (folder / "value").write_text("third-value\n")
        assert await text(hub, "one_token") == "third-value"


async def test_nobody_waits_for_a_slow_command_but_its_server(folder: Path) -> None:
    os.mkfifo(folder / "slow")
    servers = stdio("slow", "${cmd:cat slow}") + stdio("quick", "${cmd:./op}") + stdio("plain", "a value")
    async with hub_of(folder, servers) as hub:
        assert await text(hub, "quick_token") == "first-value" and await text(hub, "plain_token") == "a value"
        assert status(hub, "slow").state is UpstreamState.STARTING
        await anyio.Path(folder / "slow").write_text("late-value\n")
        assert await text(hub, "slow_token") == "late-value"


async def test_server_without_a_value_has_failed_with_its_place_and_program_and_the_others_work(folder: Path) -> None:
    (folder / "value").write_text("")
    servers = stdio("bad", "${cmd:./op}") + stdio("none", "${cmd:no-such-program x}") + stdio("good", "a value")
    servers += "  far: {url: 'http://127.0.0.1:9/mcp', bearer: '${cmd:echo two words}'}\n"
    async with hub_of(folder, servers) as hub:
        assert await text(hub, "good_token") == "a value"
        await until(lambda: all(status(hub, name).state is UpstreamState.FAILED for name in ("bad", "none", "far")))
        reasons = {name: (status(hub, name).code, status(hub, name).reason or "") for name in ("bad", "none", "far")}
        assert {code for code, _ in reasons.values()} == {"lookup_failed"}
        assert 'servers.bad.env.TOKEN: program "./op" writes nothing' in reasons["bad"][1]
        assert 'servers.none.env.TOKEN: program "no-such-program" was not found' in reasons["none"][1]
        assert (
            'servers.far.bearer: the output of program "echo" cannot be sent' in reasons["far"][1]
            and "two words" not in reasons["far"][1]
        )


async def test_command_runs_again_when_a_remote_server_refuses_its_value(folder: Path) -> None:
    remote, accepted, refused = Remote(), ["Bearer first-value"], 0

    async def guarded(request: Request, reply: Reply) -> None:
        nonlocal refused
        if request.headers.get("authorization") != accepted[-1]:
            refused += 1
            return await reply.status(401)
        await remote(request, reply)

    async with serving(guarded) as server:
        servers = "".join(f"  {name}: {{url: '{server.url}', bearer: '${{cmd:./op}}'}}\n" for name in ("far", "near"))
        async with hub_of(folder, servers) as hub:
            await hub.call_tool("far_x", {})
            await hub.call_tool("near_x", {})
            assert runs(folder) == 1 and not refused
            (folder / "value").write_text("second-value\n")
            accepted.append("Bearer second-value")
            await hub.call_tool("far_x", {})
            assert (runs(folder), refused) == (2, 1)
            await hub.call_tool("far_x", {})
            assert (runs(folder), refused) == (2, 1)
            assert "***" in hide("a second-value b")
            assert status(hub, "far").restarts == 0  # the session continues
