"""The end of `serve`: asked in any way it is gone in under 2 s, with every process that it started."""

import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import pytest

from tests.e2e.background import Background
from tests.e2e.client import Hub
from tests.interaction.fronts import (
    ERAS,
    HANDSHAKE,
    MODERN,
    Peer,
    children,
    connected,
    http_hub,
    is_alive,
    stdio_hub,
    stdio_session,
)
from tests.pace import paced
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import argv, events, received, servers_yaml
from tests.upstreams.messages import modern
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

GUARD = 2.0
"""Seconds: the promise."""
STOPPED = 1005
ENDS = {"stdio": ("SIGINT", "SIGTERM", "EOF"), "http": ("SIGINT", "SIGTERM")}
WAYS = [(front, end) for front, ends in ENDS.items() for end in ends]


@asynccontextmanager
async def serving(front: str, text: str, root: Path, *names: str) -> AsyncIterator[tuple[StdioClient | Hub, Peer]]:
    """A hub whose servers are all ready, and a handshake client of it."""
    async with (stdio_hub if front == "stdio" else http_hub)(text, root) as running:
        if isinstance(running, StdioClient):
            await running.initialize()
        async with connected(running, HANDSHAKE) as peer:
            for name in names:
                await running.wait_stderr(f'"upstream": "{name}".*upstream_ready')
            await peer.names()
            yield running, peer


async def end(running: StdioClient | Hub, way: str) -> float:
    """Ends the hub and waits for it; the seconds that it took."""
    async with paced(running.pid) as pace:
        if way == "EOF":
            assert running.process.stdin is not None
            await running.process.stdin.aclose()
        else:
            running.send_signal(getattr(signal, way))
        assert await running.wait() == 0, running.stderr
    return pace.seconds


async def spawned(peer: Peer, name: str, **arguments: Any) -> int:
    pid: int = json.loads((await peer.call(f"{name}_spawn", arguments)).text)["pid"]
    return pid


@pytest.mark.parametrize(("front", "way"), WAYS)
@pytest.mark.first(3)
async def test_hub_ends_in_time_and_takes_every_process_along(front: str, way: str, tmp_path: Path) -> None:
    log = tmp_path / "journal"
    text = servers_yaml({name: argv(name=name, journal=log) for name in "ab"})
    async with serving(front, text, tmp_path, "a", "b") as (running, peer):
        pids = {event["pid"] for event in events(log, "start")}
        pids |= {await spawned(peer, "a"), await spawned(peer, "b", keeps_stdout=True)}
        assert len(pids) == 4
        assert pids <= children(running.pid)
        pids = children(running.pid)
        assert await end(running, way) < GUARD
        await until(lambda: not any(map(is_alive, pids)))
        assert "Traceback" not in running.stderr


@pytest.mark.first(1)
@pytest.mark.parametrize(("front", "way"), [("stdio", "EOF"), ("stdio", "SIGTERM"), ("http", "SIGTERM")])
async def test_servers_that_will_not_go_are_killed_in_time(front: str, way: str, tmp_path: Path) -> None:
    text = servers_yaml({"stubborn": argv(mode="ignore-term"), "deaf": argv(mode="ignore-eof"), "good": argv()})
    async with serving(front, text, tmp_path, "stubborn", "deaf", "good") as (running, _):
        pids = children(running.pid)
        assert len(pids) >= 3
        assert await end(running, way) < GUARD
        await until(lambda: not any(map(is_alive, pids)))


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("way", ["SIGINT", "SIGTERM"])
async def test_running_calls_over_stdio_get_exactly_one_error_each(way: str, era: str, tmp_path: Path) -> None:
    log = tmp_path / "journal"
    text = servers_yaml({"a": argv(name="a", journal=log), "b": argv(mode="ignore-term", journal=log)})
    async with serving("stdio", text, tmp_path, "a", "b") as (client, _):
        assert isinstance(client, StdioClient)
        calls = {
            "w": {"name": "a_wait_cancel", "arguments": {"nonce": "w"}},
            "s": {"name": "a_slow", "arguments": {"seconds": 60}},
            "p": {"name": "a_progress", "arguments": {"n": 100, "delay": 1}, "_meta": {"progressToken": 1}},
            "b": {"name": "b_wait_cancel", "arguments": {"nonce": "b"}},
        }
        for id_, params in calls.items():
            await client.send_request("tools/call", modern(params) if era == MODERN else params, id=id_)
        await until(lambda: len(received(log, "tools/call")) == len(calls))
        assert await end(client, way) < GUARD
        await client.wait_closed()
        answers = [message for message in client.transcript if message.get("id") in calls]
        assert sorted(message["id"] for message in answers) == sorted(calls)
        assert {message["error"]["code"] for message in answers} == {STOPPED}, answers
        assert client.noise == []


@pytest.mark.parametrize("attach", ["never", "always"])
async def test_calls_of_a_killed_client_end_in_time(attach: str, hubs: Background, tmp_path: Path) -> None:
    """The system closes both pipes of a killed client; one that only closes its input still gets its answers."""
    log = tmp_path / "journal"
    hub = {"attach": attach, "attach_idle": "1s"}
    config = private_config(tmp_path, servers_yaml({"a": argv(name="a", journal=log)}, hub=hub))
    with started(config, hubs) as client:
        assert client.stdin is not None and client.stdout is not None
        requests = ("hello", "initialize", HELLO), ("w", *called("wait_cancel", nonce="w"))
        client.stdin.write(lines(*requests))
        client.stdin.flush()
        await until(lambda: received(log, "tools/call"))
        async with paced(client.pid) as pace:
            client.stdout.close()
            client.stdin.close()
            await until(lambda: client.poll() is not None)
        assert client.returncode == 0 and pace.seconds < GUARD
    if attach == "never":
        (call,) = received(log, "tools/call")
        assert [m["params"]["requestId"] for m in received(log, "notifications/cancelled")] == [call["id"]]


@pytest.mark.parametrize("era", ERAS)
async def test_http_hub_ends_in_time_while_calls_and_streams_run(era: str, tmp_path: Path) -> None:
    log = tmp_path / "journal"
    answers: list[Any] = []
    async with serving("http", servers_yaml({"a": argv(name="a", journal=log)}), tmp_path, "a") as (hub, session):
        assert isinstance(hub, Hub)
        pids = children(hub.pid)
        async with connected(hub, era) as peer, session.wire.listen() as listening:  # type: ignore[union-attr]

            async def call() -> None:
                answers.append(await peer.call("a_wait_cancel", {"nonce": "w"}))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(call)
                await until(lambda: received(log, "tools/call"))
                assert await end(hub, "SIGTERM") < GUARD
            await listening.rest()
        assert answers[0].error["code"] == STOPPED
        await until(lambda: not any(map(is_alive, pids)))
        assert "Traceback" not in hub.stderr


@pytest.mark.parametrize(("front", "way"), [("stdio", "EOF"), ("stdio", "SIGINT"), ("http", "SIGTERM")])
@pytest.mark.first(1)
async def test_hub_can_be_ended_before_anything_is_ready(front: str, way: str, tmp_path: Path) -> None:
    text = servers_yaml({"a": argv(mode="hang-start"), "b": argv("--start-delay", "60"), "c": ["/no/such/program"]})
    async with (stdio_hub if front == "stdio" else http_hub)(text, tmp_path) as running:
        if isinstance(running, StdioClient):
            await running.initialize()
        await until(lambda: len(children(running.pid)) >= 2)
        pids = children(running.pid)
        assert await end(running, way) < GUARD
        await until(lambda: not any(map(is_alive, pids)))


@pytest.mark.parametrize("way", ["SIGINT", "SIGTERM"])
@pytest.mark.first(1)
async def test_signal_right_after_the_address_was_announced_is_obeyed(way: str, tmp_path: Path) -> None:
    async with http_hub(servers_yaml({"a": argv(mode="ignore-term")}), tmp_path) as hub:
        assert await end(hub, way) < GUARD


async def test_impatient_second_signal_does_no_harm(tmp_path: Path) -> None:
    async with serving("stdio", servers_yaml({"a": argv(mode="ignore-term")}), tmp_path, "a") as (running, _):
        pids = children(running.pid)
        for _ in range(3):
            running.send_signal(signal.SIGTERM)
        assert await end(running, "SIGINT") < GUARD
        await until(lambda: not any(map(is_alive, pids)))


LOUD = """
import os, sys
from mcp_hub.upstreams.functions.registry import Registry

print("printed on import")
registry = Registry()

@registry.tool
async def loud(text: str) -> str:
    '''Prints wherever it can.'''
    print(text)
    sys.stdout.flush()
    sys.__stdout__.write(text + "\\n")
    sys.__stdout__.flush()
    os.write(1, text.encode() + b"\\n")
    os.system("echo from a child: " + text)
    return text

@registry.tool
def reads() -> str:
    '''Reads from standard input.'''
    return os.read(0, 100).decode() or "nothing"
"""


async def test_stray_prints_and_reads_do_not_touch_the_wire(tmp_path: Path) -> None:
    (tmp_path / "loud_tools.py").write_text(LOUD)
    text = json.dumps({"servers": {"l": {"local": "loud_tools:registry"}}})
    async with stdio_session(text, tmp_path) as client:
        peer = Peer(client, HANDSHAKE)
        for era in ERAS:
            for i in range(5):
                seen = await Peer(client, era).call("l_loud", {"text": f"stray {i}"})
                assert seen.text == f"stray {i}"
        assert (await peer.call("l_reads")).text == "nothing"
        assert (await peer.request("ping")).result == {}
        assert await client.close() == 0
        assert client.noise == []
        assert {message["jsonrpc"] for message in client.transcript} == {"2.0"}
        await client.wait_stderr("printed on import")
        assert client.stderr.count("from a child: stray 4") == 2
        assert client.stderr.count("\nstray 4") >= 6


# -- a client that asks and closes its side at once, as a shell pipe does


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}}


Request = tuple[str, str, dict[str, Any]]
"""Id, method and params."""


def private_config(root: Path, text: str) -> Path:
    config = root / "servers.yaml"
    config.write_text(text)
    config.chmod(0o600)
    return config


def serving_command(config: Path) -> list[str]:
    return [sys.executable, "-m", "mcp_hub", "serve", "--config", str(config), "--client", "mcp-hub"]


def started(config: Path, hubs: Background) -> subprocess.Popen[bytes]:
    return subprocess.Popen(serving_command(config), stdin=PIPE, stdout=PIPE, env=clean_env(hubs))


def clean_env(hubs: Background) -> dict[str, str]:
    root, runtime = str(hubs.root), str(hubs.runtime)
    return {"MCP_HUB_STATE_DIR": f"{root}/state", "PATH": "/usr/bin:/bin", "HOME": root, "XDG_RUNTIME_DIR": runtime}


def lines(*requests: Request) -> bytes:
    messages = [{"jsonrpc": "2.0", "id": id_, "method": method, "params": params} for id_, method, params in requests]
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def piped(hubs: Background, *requests: Request, **hub: str) -> dict[Any, dict[str, Any]]:
    """The answers of a hub to these lines and the end of its input, by id; each once. `hub`: settings of the hub."""
    config = private_config(hubs.root, servers_yaml({"a": argv()}, hub=hub))
    line, env = serving_command(config), clean_env(hubs)
    done = subprocess.run(line, input=lines(*requests), capture_output=True, timeout=3 * WAIT, check=True, env=env)
    messages = [json.loads(line) for line in done.stdout.split(b"\n") if line]
    answers = [message for message in messages if "id" in message]
    assert len({answer["id"] for answer in answers}) == len(answers)
    return {answer["id"]: answer for answer in answers}


def called(tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": f"a_{tool}", "arguments": arguments}


@pytest.mark.first(1)
@pytest.mark.parametrize("attach", ["never", "always"])
def test_requests_before_the_end_of_input_are_answered(attach: str, hubs: Background) -> None:
    answers = piped(
        hubs,
        ("hello", "initialize", HELLO),
        ("list", "tools/list", {}),
        ("echo", *called("echo", text="hi")),
        ("nobody", *called("nobody")),
        ("slow", *called("slow", seconds=2)),
        attach=attach,
        attach_idle="1s",
    )
    assert "result" in answers["slow"]
    assert [tool["name"] for tool in answers["list"]["result"]["tools"]].count("a_echo") == 1
    assert answers["echo"]["result"]["structuredContent"] == {"text": "hi"}
    assert answers["nobody"]["error"]["code"] == -32602


def test_call_beyond_the_drain_timeout_ends_with_the_reason_that_the_hub_shuts_down(hubs: Background) -> None:
    answers = piped(hubs, ("hello", "initialize", HELLO), ("long", *called("slow", seconds=60)), drain_timeout="500ms")
    assert answers["long"]["error"]["code"] == 1005
