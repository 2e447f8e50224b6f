"""A client library that knows nothing of replicas, and its replica that is killed in the middle of a call."""

import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from rigs.clients.clients import Client
from rigs.clients.install import ROOT
from rigs.replicas.balancer import Balancer
from tests.interaction.replicas import Replicas, replicas
from tests.upstreams.child import HttpUpstream, until
from tests.upstreams.launch import received
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

SECONDS = 8.0
"""Of the call: longer than a client waits before it comes back (5 s, as the hub asks it to)."""
_MOST = 240.0
WAYS = ("owner", "connection")


async def outcome(client: Client, way: str, root: Path) -> Message:
    """How the call went whose replica was killed: the one that ran it, or another one that its client had come to.

    The server behind the replicas keeps tasks of its own, so that another replica can continue the call. Raises:
    `NotInstalled`.
    """
    journal = root / "journal"
    env = {"HOME": str(root), "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    async with HttpUpstream("--tasks-extension", era="modern", journal=journal) as upstream:
        config = json.dumps({"hub": {"prefix": "never"}, "servers": {"far": {"url": upstream.url}}})
        driver = StdioClient(client.library.argv(), {**os.environ, **env}, cwd=ROOT)
        async with replicas(config, root) as running, driver:
            call = {"tool": "task_required", "arguments": {"seconds": SECONDS, "nonce": way}}
            target = {"target": {"url": running.url}, "mode": client.mode, **client.extras()}
            await driver.send({**target, "steps": ["moved"], "moved": call})
            await until(lambda: received(journal, "tools/call") or told(driver))
            if told(driver):
                return told(driver)[0]
            await anyio.sleep(1)
            await _KILLS[way](running)
            return await driver.wait_for(lambda message: "step" in message, seconds=_MOST)


def told(driver: StdioClient) -> list[Message]:
    """How its steps went, as far as they are done."""
    return [message for message in driver.transcript if "step" in message]


async def _kill_owner(running: Replicas) -> None:
    await _kill(running, _owner(running.proxy))


async def _kill_connection(running: Replicas) -> None:
    """The client is brought to the other replica first, by a cut connection; then that one is killed."""
    owner = _owner(running.proxy)
    running.proxy.leave_out(owner)
    before = len(running.proxy.taken)
    running.proxy.flip()
    await until(lambda: len(running.proxy.taken) > before)
    await anyio.sleep(1)
    running.proxy.take_back(owner)
    (other,) = [hub.url.removesuffix("/mcp") for hub in running.hubs if not hub.url.startswith(owner)]
    await _kill(running, other)


def _owner(proxy: Balancer) -> str:
    """The replica that took the call, which is the latest POST."""
    return [url for method, url in proxy.taken if method == "POST"][-1]


async def _kill(running: Replicas, url: str) -> None:
    (hub,) = [hub for hub in running.hubs if hub.url.startswith(url)]
    await hub.kill_alone()


_KILLS: dict[str, Callable[[Replicas], Awaitable[None]]] = {"owner": _kill_owner, "connection": _kill_connection}
