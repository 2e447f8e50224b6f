"""One hub with a bank and one server for each attack behind it, and what a client of it gets to see."""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import anyio
from mcp import Client, MCPError

from rigs.attacks.poison import BANK, Definition
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT

SERVER = Path(__file__).with_name("server.py")
CANARY = "canary-of-the-hub"
"""A secret in the environment of the hub, and in a file of its user."""


def mark(server: str) -> str:
    """Where the server of an attack wants things to go; nothing else holds this text."""
    return f"collect.example/{server}"


def _filled(root: Path, server: str, script: Mapping[str, Any]) -> str:
    """The script of a server with its mark and the folder of its files."""
    return json.dumps(script).replace("{sink}", mark(server)).replace("{statements}", str(root / "statements"))


@dataclass(frozen=True)
class Site:
    """A running hub over HTTP, its official SDK client, and what REST says of each server."""

    hub: Hub
    client: Client
    root: Path
    told: Mapping[str, str]
    """Each list, and the introduction, as text."""
    reports: Mapping[str, Mapping[str, Any]]
    rest: RestClient

    def sees(self, server: str) -> bool:
        """Whether the mark of this server is in anything that the client was told before it asked for more."""
        return any(mark(server) in text for text in self.told.values())

    def tools_with_mark(self, server: str) -> set[str]:
        """The tools of the server that carry its mark."""
        tools = json.loads(self.told["tools"])
        return {one["name"] for one in tools if mark(server) in json.dumps(one)}

    def findings(self, server: str) -> dict[str, set[str]]:
        """What the hub reports of the server: for each of its texts what is wrong with it."""
        found: dict[str, set[str]] = {}
        for flag in self.reports[server].get("flags", ()):
            found.setdefault(flag["tool"], set()).add(f"flag {flag['kind']}")
        for one in self.reports[server].get("unapproved", ()):
            found.setdefault(one["tool"], set()).add(one["kind"])
        return found

    def called(self, server: str) -> list[dict[str, Any]]:
        """The calls that arrived at the server, of all processes of this setting."""
        journal = self.root / f"{server}.calls"
        return [json.loads(line) for line in journal.read_text("utf-8").splitlines()] if journal.exists() else []

    async def call(self, tool: str, **arguments: str) -> str:
        """The text of an answer; empty for an error of the hub."""
        try:
            result = await self.client.call_tool(tool, arguments)
        except MCPError:
            return ""
        return "".join(getattr(one, "text", "") for one in getattr(result, "content", ()))


def write_files(root: Path) -> None:
    """The files of the user that servers are to keep away from, and the folder that is theirs."""
    (root / "statements").mkdir(parents=True)
    (root / "secret").write_text(CANARY, "utf-8")


def write_scripts(root: Path, scripts: Mapping[str, Mapping[str, Any]]) -> None:
    """What each server says from now on."""
    for server, script in scripts.items():
        (root / f"{server}.json").write_text(_filled(root, server, script), "utf-8")


def entry(root: Path, server: str) -> dict[str, Any]:
    """The entry of a scripted server in `servers.yaml`."""
    args = ["-S", str(SERVER), str(root / f"{server}.json"), str(root / f"{server}.calls")]
    return {"command": sys.executable, "args": args}


@asynccontextmanager
async def site(root: Path, entries: Mapping[str, Mapping[str, Any]], strict: bool) -> AsyncIterator[Site]:
    """A hub with these servers, whose lists a client has read once they are all up. Its state stays under `root`."""
    defaults = {"defaults": {"approval": "block", "hints": "approved"}} if strict else {}
    config = {"hub": {"prefix": "always"}, **defaults, "servers": dict(entries)}
    running = http_hub(json.dumps(config), root, HOME=str(root / "home"), SOME_API_KEY=CANARY)
    async with running as hub, RestClient(hub) as rest:
        await _ready(rest, len(entries))
        async with Client(hub.url) as client:
            yield Site(hub, client, root, await _told(client), await _reports(rest), rest)


async def _ready(rest: RestClient, count: int) -> None:
    """Waits until every server has answered or failed. Raises: `TimeoutError`."""
    with anyio.fail_after(6 * WAIT):
        while True:
            states = [one["state"] for one in (await _reports(rest)).values()]
            if len(states) == count and "starting" not in states:
                return
            await anyio.sleep(0.1)


async def _reports(rest: RestClient) -> dict[str, Mapping[str, Any]]:
    """What REST says of each server."""
    return {one["server"]: one for one in (await rest.ask("GET", "/servers")).json()["servers"]}


async def updated(seen: Site, server: str) -> Site:
    """The site once the hub has noticed that this server offers something else. Raises: `TimeoutError`."""
    with anyio.fail_after(WAIT):
        while not (reports := await _reports(seen.rest))[server].get("unapproved"):  # noqa: ASYNC110 - as above
            await anyio.sleep(0.05)
    return replace(seen, told=await _told(seen.client), reports=reports)


async def _told(client: Client) -> dict[str, str]:
    """Everything that a client puts before a model or its user."""
    lists: dict[str, list[Any]] = {
        "tools": await _pages(client.list_tools, "tools"),
        "prompts": await _pages(client.list_prompts, "prompts"),
        "resources": await _pages(client.list_resources, "resources"),
        "templates": await _pages(client.list_resource_templates, "resource_templates"),
    }
    told = {name: json.dumps([one.model_dump(mode="json") for one in found]) for name, found in lists.items()}
    return {**told, "instructions": client.instructions or ""}


async def _pages(listed: Callable[..., Awaitable[Any]], key: str) -> list[Any]:
    found: list[Any] = []
    page = await listed(cache_mode="bypass")
    found += getattr(page, key)
    while page.next_cursor is not None:
        page = await listed(cursor=page.next_cursor, cache_mode="bypass")
        found += getattr(page, key)
    return found


def honest(name: str) -> dict[str, Any]:
    """The script of a server that does what it says, with all sorts of texts."""
    tools: list[Definition] = list(BANK)
    prompts = [{"name": "review", "description": "Reviews the accounts."}]
    said = f"review of {name}"
    return {"tools": tools, "prompts": prompts, "said": said, "serverInfo": {"name": name, "version": "1"}}
