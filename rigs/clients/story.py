"""`make clients`: the whole stay of a person: move in, use, files that clients rewrite, upgrade, a kill, leave.

Claude Code, Claude Desktop, Cursor, VS Code and Codex have eight servers in an empty home: one is broken, one needs a
variable that is not set, one is disabled, three have secrets. Real commands move them into the hub, the Python SDK uses
two of the entries, the clients rewrite their files in their own ways, another version of the hub takes over, the hub is
killed. Then the person leaves, in three homes by three ways; each file must be as it was before, but for what its
client wrote meanwhile. The last home is that of WSL, with clients on Windows. Exit code 1 for a fault. Needs Linux.
"""

import difflib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
from mcp import Client, MCPError, StdioServerParameters

from mcp_hub.edit.entries import read_data
from rigs import report
from rigs.attach.builds import VERSIONS, build
from rigs.attach.place import GONE, Fault, environment, expect, processes_of
from rigs.clients.home import (
    ANEW,
    CLIENTS,
    CODE,
    CODEX,
    CURSOR,
    DESKTOP,
    FILES,
    MOVED,
    REWRITES,
    SECRETS,
    TOKEN,
    VSCODE,
    StoryHome,
    parsed,
    rewrite,
)
from rigs.clients.wsl import WslHome, windows_in, windows_out, windows_use
from tests.upstreams.child import until
from tests.upstreams.launch import SERVER, received


def move_in(home: StoryHome) -> None:
    """Each client has the hub in place of its servers, and secrets are where only their owner can read them."""
    home.hub("install", "--all", "--import")
    for name in FILES:
        there = home.servers(name)
        left = {"off"} if name == CODEX else set()
        expect(there.keys() == {"mcp-hub"} | left, f"{name} does not have the hub alone", sorted(there))
    expect("STORY_VARIABLE_NOT_SET" in home.hub("check", code=2), "check does not name the variable that is not set")
    config: Any = read_data(home.config.read_text(), "servers.yaml")
    expect(MOVED <= {*config["servers"]}, "not all servers moved", sorted(config["servers"]))
    for path in [*home.files(), *map(home.folder.joinpath, FILES)]:
        content = path.read_bytes()
        if any(secret.encode() in content for secret in SECRETS):
            expect(path.stat().st_mode & 0o077 == 0, f"a secret that others can read is in {path}")
            expect(path.name != "servers.yaml" and str(path.relative_to(home.folder)) not in FILES, f"secret in {path}")
        expect(TOKEN.encode() not in content, f"the value of a variable is in {path}")


@asynccontextmanager
async def opened(home: StoryHome, name: str, code: Path | None = None) -> AsyncIterator[Client]:
    """The Python SDK with the entry of this client; `code` is the folder of another version of the hub."""
    entry = home.servers(name)["mcp-hub"]
    env = {**home.env, **({} if code is None else {"PYTHONPATH": str(code)})}
    server = StdioServerParameters(command=entry["command"], args=entry["args"], env=env, cwd=home.folder)
    async with Client(server, mode="auto") as client:
        yield client


async def echo(client: Client, server: str, seconds: float = 30.0) -> None:
    """Calls a tool until it answers: what a hub that was killed had begun is an error first."""
    text, seen = f"hello {server}", ""
    with anyio.move_on_after(seconds):
        while text not in seen:
            try:
                result = await client.call_tool(f"{server}_echo", {"text": text})
                seen = str(result.structured_content)
            except Exception as problem:
                seen = repr(problem)
            await anyio.sleep(0.05)
    expect(text in seen, f"{server}_echo does not answer", seen[-300:])


def the_hub(home: StoryHome) -> int:
    """The process of the one background hub."""
    hubs = [hub for hub in json.loads(home.hub("status", "--json"))["hubs"] if hub.get("pid")]
    expect(len(hubs) == 1, "there is not one hub", hubs)
    return int(hubs[0]["pid"])


async def use(home: StoryHome) -> None:
    """Two clients share one hub and each server; the secrets reach the servers; the hub is killed under both."""
    async with opened(home, CURSOR) as one, opened(home, CODEX) as two:
        for client in (one, two):
            names = {tool.name for tool in (await client.list_tools()).tools}
            expect("find_tools" in names or "notes_echo" in names, "the tools are not listed", sorted(names))
            for server in ("notes", "vault", "team", "files", "db"):
                await echo(client, server)
        hub = the_hub(home)
        _servers_run_once(home)
        await _killed_in_a_call(home, hub, one)
        for client in (one, two):
            for server in ("vault", "team", "files", "db"):
                await echo(client, server)
        expect(the_hub(home) != hub, "the killed hub is still the hub", hub)
        _servers_run_once(home)


async def _killed_in_a_call(home: StoryHome, hub: int, client: Client) -> None:
    """Kills the hub while a call runs, which must end."""
    journal, ended = home.folder / "vault.journal", anyio.Event()

    async def call() -> None:
        with suppress(MCPError):
            await client.call_tool("vault_slow", {"seconds": 60})
        ended.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await until(lambda: any(one["params"]["name"] == "slow" for one in received(journal, "tools/call")), GONE)
        os.kill(hub, signal.SIGKILL)
        with anyio.move_on_after(GONE):
            await ended.wait()
        tasks.cancel_scope.cancel()
    expect(ended.is_set(), f"a call of the killed hub has not ended after {GONE:g} s")


def _servers_run_once(home: StoryHome) -> None:
    lines = [one for one in processes_of(home.folder).values() if str(SERVER) in one.line]
    for name, secret in (("vault", SECRETS[1]), ("files", SECRETS[0]), ("db", SECRETS[2]), ("team", TOKEN)):
        own = [one for one in lines if f"--name {name} " in one.line]
        expect(len(own) == 1, f"{name} does not run once", [*map(str, own)])
        is_there = secret in environment(own[0].pid).values()
        expect(is_there, f"the secret of {name} does not reach it", own[0])


async def upgrade(home: StoryHome, builds: Path) -> None:
    """A newer client ends the idle hub of the older version; older ones use the new hub; installing again is idle."""
    newer, before = build(builds, VERSIONS["new"]), the_hub(home)
    async with opened(home, CODE, newer) as client:
        await echo(client, "notes")
        after = the_hub(home)
        expect(after != before, "the older hub was not replaced", after)
        expect(before not in processes_of(home.folder), "the older hub still runs", before)
        async with opened(home, CURSOR) as older:
            await echo(older, "notes")
            expect(the_hub(home) == after, "an older client has another hub", after)
    contents = {name: home.content(name) for name in FILES}
    home.hub("install", "--all")
    changed = [name for name in FILES if home.content(name) != contents[name]]
    expect(not changed, "to install again changed files", changed)


def as_before(home: StoryHome, names: Sequence[str] = FILES) -> list[str]:
    """The differences in form of files that are as before but for what their clients wrote. Raises `Fault`."""
    lines = []
    for name in names:
        now, wanted = home.content(name), home.before[name]
        if name in REWRITES:
            wanted = REWRITES[name](wanted, home)
        if now == wanted:
            continue
        shown = difference(wanted, now)
        expect(name in ANEW and parsed(name, now) == parsed(name, wanted), f"{name} is not as it was", shown)
        form = "white space differs" if now.split() == wanted.split() else f"the order differs: {shown}"
        lines.append(f"{name}: the servers came back with the same data; {form}")
    return lines


def difference(wanted: bytes, now: bytes) -> str:
    """The lines that differ, in one line without secrets, shortened."""
    before, after = (content.decode().splitlines() for content in (wanted, now))
    lines = [
        line.strip() for line in difflib.unified_diff(before, after, lineterm="", n=0) if line[:2] not in ("--", "++")
    ]
    text = " | ".join(lines)
    for secret in SECRETS:
        text = text.replace(secret, "***")
    return text[:600]


async def leave(home: StoryHome) -> list[str]:
    """All files as before, nothing runs, what stays is listed; it can be taken back; the purge leaves nothing."""
    said = home.hub("leave")
    lines = as_before(home)
    await home.gone()
    listed = [line.strip().rpartition(" (")[0] for line in said.splitlines() if line.startswith("  /")]
    hidden = [path for path in home.files() if not any(path.is_relative_to(place) for place in listed)]
    expect(not hidden, "leave does not list what stays", [*map(str, hidden)])
    home.hub("install", "--undo")
    expect(all("mcp-hub" in home.servers(name) for name in FILES), "the leave is not taken back")
    said = home.hub("leave", "--purge", "--yes")
    expect("take this back" not in said, "leave --purge offers a way back")
    expect(not home.files(), "leave --purge leaves files", [*map(str, home.files())])
    as_before(home)
    return lines


async def undo(home: StoryHome) -> list[str]:
    """`install --undo` after all: the files as before, and no configuration."""
    home.hub("install", "--undo")
    expect(not home.config.exists(), "the configuration is still there")
    await home.gone()
    return as_before(home)


async def one_by_one(home: StoryHome) -> list[str]:
    """`uninstall --restore` and `export --write` of each client by itself."""
    home.hub("uninstall", "cursor", code=2)
    home.hub("uninstall", "cursor", "claude-code", "vscode", "--restore")
    home.hub("uninstall", "codex", "claude-desktop", "--keep")
    for name in (CODEX, DESKTOP):
        gone = [server for server in ("db", "notes", "broken", "mcp-hub") if server in home.servers(name)]
        expect(not gone, f"{name} still has servers of the hub", gone)
        home.hub("export", CLIENTS[name], "--write")
        wanted = parsed(name, REWRITES[name](home.before[name], home))
        now = parsed(name, home.content(name))
        expect(now == wanted, f"export gives {name} other servers", difference(*map(_shown, (wanted, now))))
    await home.gone()
    return as_before(home, (CURSOR, CODE, VSCODE))


def _shown(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, indent=1, sort_keys=True).encode()


@contextmanager
def chapter(title: str, faults: list[str]) -> Iterator[None]:
    """Notes a fault of the block in one line."""
    report.say(f"{title} …")
    try:
        yield
    except Exception as problem:  # of the SDK, too
        faults.extend(f"{title}: {line}" for line in _lines_of(problem))


def _lines_of(problem: Exception) -> list[str]:
    """One line for each exception in a group."""
    if isinstance(problem, ExceptionGroup):
        return [line for inner in problem.exceptions for line in _lines_of(inner)]
    text = str(problem) if isinstance(problem, Fault) else repr(problem)
    return [" ".join(text.split())[:1000]]


async def story(folder: Path, faults: list[str]) -> list[str]:
    """The three homes; the lines of the report."""
    lines = []
    ways = {"leave": leave, "install --undo": undo, "uninstall and export": one_by_one}
    for number, (title, way) in enumerate(ways.items()):
        (folder / str(number)).mkdir()
        home = StoryHome(folder / str(number))
        begun = time.monotonic()
        try:
            with chapter(title, faults):
                move_in(home)
                if number == 0:
                    await use(home)
                rewrite(home)
                if number == 0:
                    await upgrade(home, folder)
                lines += [f"{title}: {line}" for line in await way(home)]
        finally:
            for pid in processes_of(home.folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        lines.append(f"{title}: {len(FILES)} files, {time.monotonic() - begun:.1f} s")
    return [*lines, await windows_story(folder, faults)]


async def windows_story(folder: Path, faults: list[str]) -> str:
    """The clients on Windows around WSL; the line of the report."""
    begun = time.monotonic()
    (folder / "wsl").mkdir()
    home = WslHome(folder / "wsl", attach="always")
    try:
        with chapter("clients on Windows", faults):
            windows_in(home)
            await windows_use(home)
            await windows_out(home)
    finally:
        for pid in processes_of(home.home):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return f"clients on Windows: {len(home.before)} files, {time.monotonic() - begun:.1f} s"


def main() -> int:
    report.arguments("clients.story", __doc__).parse_args()
    logging.disable(logging.WARNING)  # the SDK misses tools that are only found by a search
    faults: list[str] = []
    with TemporaryDirectory(prefix="story-") as folder:
        lines = anyio.run(story, Path(folder), faults)
    return report.reported(lines, faults)


if __name__ == "__main__":
    sys.exit(main())
