"""Hubs whose configuration a test changes while they run."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from anyio.abc import TaskGroup

from tests.e2e.client import Hub
from tests.interaction.fronts import stdio_session
from tests.interaction.hub_process import prepared
from tests.upstreams.child import until
from tests.upstreams.launch import entry, events
from tests.upstreams.stdio_client import StdioClient

CHANGED = "notifications/tools/list_changed"
HUB = {"prefix": "always", "expose": "full", "store": {"type": "memory"}, "watch": False}


class File:
    """A configuration that tests change; each server keeps a journal beside it."""

    def __init__(self, root: Path, *names: str, **hub: Any) -> None:
        self.root = root
        self.hub: dict[str, Any] = {**HUB, **hub}
        self.servers: dict[str, dict[str, Any]] = {}
        self.more: dict[str, Any] = {}
        for name in names:
            self.add(name)

    def add(self, name: str, *options: str, **more: Any) -> None:
        self.servers[name] = {**entry(*options, name=name, journal=self.root / f"{name}.journal"), **more}

    @property
    def text(self) -> str:
        return json.dumps({"hub": self.hub, "servers": self.servers, **self.more})

    def write(self) -> None:
        beside = self.root / "servers.yaml.new"
        beside.write_text(prepared(self.text))
        beside.replace(self.root / "servers.yaml")

    def starts(self, name: str) -> int:
        """How many processes the server has had."""
        return len(events(self.root / f"{name}.journal", "start"))

    def pids(self, name: str) -> list[int]:
        return [record["pid"] for record in events(self.root / f"{name}.journal", "start")]


@asynccontextmanager
async def running(file: File) -> AsyncIterator[StdioClient]:
    """A hub over stdio that has listed all tools; how often it announced them until then depends on the machine."""
    async with stdio_session(file.text, file.root) as client:
        await until(lambda: client.stderr.count('"upstream_ready"') >= len(file.servers))
        await client.request("tools/list")
        client.transcript.clear()
        yield client
        assert await client.close() == 0


def reload(hub: StdioClient | Hub) -> None:
    hub.send_signal(signal.SIGHUP)


async def reloaded(hub: StdioClient | Hub, count: int = 1) -> dict[str, Any]:
    """What the hub says of its last reload, once it has had so many."""
    await until(lambda: len(told(hub, "config_reloaded")) >= count)
    return told(hub, "config_reloaded")[-1]


async def applied(file: File, hub: StdioClient | Hub, count: int = 1) -> dict[str, Any]:
    """Writes the file and has it reloaded; as for `reloaded`."""
    file.write()
    reload(hub)
    return await reloaded(hub, count)


def begun(tasks: TaskGroup, client: StdioClient, tool: str, **arguments: Any) -> list[dict[str, Any]]:
    """The answer to a call that is made now, once it has come."""
    answers: list[dict[str, Any]] = []

    async def call() -> None:
        answers.append(await client.request("tools/call", params(tool, **arguments)))

    tasks.start_soon(call)
    return answers


def told(hub: StdioClient | Hub, event: str) -> list[dict[str, Any]]:
    """The lines of the log with this event; the last line may not be complete."""
    lines = [line for line in hub.stderr.split("\n")[:-1] if f'"{event}"' in line]
    return [json.loads(line) for line in lines]


async def names(client: StdioClient) -> set[str]:
    found = (await client.request("tools/list"))["result"]["tools"]
    return {tool["name"] for tool in found}


def notices(client: StdioClient) -> int:
    return sum(message.get("method") == CHANGED for message in client.transcript)


def params(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}
