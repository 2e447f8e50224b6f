"""`make clients`: which clients declare that they support tasks, and whether docs/clients.md says so.

Libraries, MCP Inspector, Mastra and the Claude Agent SDK connect to a hub, and what they send is recorded. Exit code 1
if the table of the page has another answer or no row for one of them, or if one is not installed.
"""

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import anyio

from mcp_hub.types import JsonObject
from rigs import report
from rigs.clients.apps import Fault, expect
from rigs.clients.claude import TOOLS, ClaudeHome, Project
from rigs.clients.clients import CLIENTS, DRIVERS, Client
from rigs.clients.deep import DEEP
from rigs.clients.install import ROOT, NotInstalled, node, node_package, node_version
from rigs.clients.rig import BOTH
from rigs.clients.run import Row, driven
from rigs.clients.tee import recorded
from rigs.clients.transcripts import Sent, messages
from tests.upstreams.child import PeerClosed

PAGE: Final = ROOT / "docs" / "clients.md"
EXTENSION: Final = "io.modelcontextprotocol/tasks"
_SECONDS: Final = 120
_MASTRA, _AGENT_SDK = "@mastra/mcp@2", "@anthropic-ai/claude-agent-sdk@0"
_INSPECTORS: Final = ("inspector-legacy", "inspector-modern")

Found = tuple[str, str]
"""The name and version of a client, and what it declares."""


def declared(sent: Sequence[Sent]) -> str:
    """`yes` for the extension, `2025-11-25` for the older capability, else `no`. Raises `Fault` if nothing was sent."""
    said = [message for one in sent if one.side == "client" for message in messages(one.line)]
    capabilities = [found for message in said if (found := _capabilities(message)) is not None]
    expect(bool(capabilities), "it sent no capabilities", [message.get("method") for message in said])
    if any(EXTENSION in one.get("extensions", {}) for one in capabilities):
        return "yes"
    return "2025-11-25" if any("tasks" in one for one in capabilities) else "no"


def _capabilities(message: JsonObject) -> JsonObject | None:
    params: JsonObject = message.get("params") or {}
    found: JsonObject | None = params.get("capabilities")
    if found is None:
        found = (params.get("_meta") or {}).get("io.modelcontextprotocol/clientCapabilities")
    return found


def library(client: Client) -> Found:
    """A client that has a driver connects, and lists tools."""
    version = client.library.version()
    with TemporaryDirectory() as folder:
        root = Path(folder)
        try:
            anyio.run(driven, Row(client, "recorded", BOTH), ["connect"], root)
        except* (AssertionError, PeerClosed, TimeoutError) as broken:
            raise Fault("; ".join(map(str, broken.exceptions))) from None
        return version, declared(recorded(root / "sent.jsonl"))


def mastra() -> Found:
    """Mastra calls a tool that takes longer than `hub.task_after`."""
    package = node_package(_MASTRA, "mastra-mcp-2")
    return node_version(package), _slow_call([str(node()), str(DRIVERS / "mastra.mjs"), str(package)])


def agent_sdk() -> Found:
    """The model of a session calls such a tool."""
    package = node_package(_AGENT_SDK)
    return node_version(package), _slow_call([str(node()), str(DRIVERS / "agent_sdk.mjs"), str(package), TOOLS[0]])


def _slow_call(line: Sequence[str]) -> str:
    with TemporaryDirectory() as folder, ClaudeHome(Path(folder), "stdio") as home:
        work = Project(home, "work")
        hub = [sys.executable, "-m", "mcp_hub", "serve", "--config", str(home.folder / "servers.yaml")]
        tee = [sys.executable, "-m", "rigs.clients.tee", str(work.file), *hub]
        timer = threading.Timer(15, work.release, ["web"])
        timer.start()
        done = subprocess.run(
            [*line, *tee], env=home.env, cwd=work.folder, capture_output=True, text=True, timeout=_SECONDS
        )
        timer.cancel()
        expect(done.returncode == 0, "it failed", done.stderr[-400:])
        expect(bool(work.said("client", "tools/call")), "it called no tool", done.stdout[-400:])
        return declared(work.sent)


WITH_DRIVER: Final = {client.name: client for client in (*DEEP, *(CLIENTS[name] for name in _INSPECTORS))}
OTHERS: Final[Mapping[str, Callable[[], Found]]] = {"mastra": mastra, "agent-sdk": agent_sdk}


def documented(page: str) -> dict[str, str]:
    """The answers of the table between `<!-- tasks -->` and `<!-- /tasks -->`, by the names behind `measured as`."""
    table = page.partition("<!-- tasks -->")[2].partition("<!-- /tasks -->")[0]
    rows = [line.split("|") for line in table.splitlines() if "measured as" in line]
    names = {name: row[2].split()[0].strip(",:") for row in rows for name in re.findall(r"`([\w-]+)`", row[4])}
    return names


def main() -> int:
    parser = report.arguments("clients.declared", __doc__)
    parser.add_argument("--only", action="append", choices=[*WITH_DRIVER, *OTHERS], help="only this one")
    expected = documented(PAGE.read_text("utf-8"))
    lines: list[str] = []
    faults: list[str] = []
    for name in parser.parse_args().only or [*WITH_DRIVER, *OTHERS]:
        report.say(f"{name} …")
        try:
            version, seen = library(WITH_DRIVER[name]) if name in WITH_DRIVER else OTHERS[name]()
        except NotInstalled as problem:
            faults.append(f"not installed: {name}: {problem}")
        except (Fault, subprocess.TimeoutExpired) as problem:
            faults.append(f"{name}: {problem}")
        else:
            lines.append(f"{name}, {version}: declares tasks: {seen}")
            if expected.get(name) != seen:
                faults.append(f"{name} declares tasks: {seen}; the page says {expected.get(name)}")
    return report.reported(lines, faults)


if __name__ == "__main__":
    sys.exit(main())
