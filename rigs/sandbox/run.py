"""Runs every escape in each language: first outside of a sandbox, where it has to get through, then under each rule."""

import json
import shlex
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from rigs.report import crashes, say
from rigs.sandbox.cases import HOSTS, NONE, ON, PASSING, PRIVATE, SHRINKS, SOCKETS, WORKING, Kind
from rigs.sandbox.scenarios import Played, play
from rigs.sandbox.spaces import become, give
from rigs.sandbox.world import lay_out, programs, running
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.upstreams.launch import patient

OUTSIDE, NEIGHBOUR = "outside", "neighbour"
_UP = 240.0
"""Seconds in which all servers have to be ready, or to have failed."""
_SECONDS = 60.0
"""For one escape; its server ends it after 8."""
_HOSTS = ["good.example", "private.example", "both.example", "mapped.example", "nat64.example", "rebind.example"]
_SIGNALS_SINCE = 6


@dataclass(frozen=True)
class Verdict:
    """What a server says of an escape: `succeeded`, `refused`, `unknown` in its language, `broken`, or `absent`, since
    the server did not start.
    """

    verdict: str
    detail: str = ""

    @property
    def is_through(self) -> bool:
        return self.verdict == "succeeded"


@dataclass(frozen=True)
class Row:
    """One escape in one language."""

    kind: Kind
    name: str
    language: str
    control: Verdict
    inside: Mapping[str, Verdict]
    may_shrink: bool = False
    """Whether this kernel, as it is limited, does not stop it."""

    @property
    def state(self) -> str:
        """`hole`, `open` where the kernel is too old, `broken`, `refused`, or `not here`: not even possible outside."""
        verdicts = [one.verdict for one in self.inside.values()]
        if "succeeded" in verdicts:
            return "open" if self.may_shrink else "hole"
        if "broken" in verdicts or self.control.verdict == "broken":
            return "broken"
        return "refused" if self.control.is_through else "not here"


@dataclass
class Outcome:
    """All rows, with those that the sandbox does not promise to stop, and what else was wrong."""

    rows: list[Row] = field(default_factory=list)
    passing: list[Row] = field(default_factory=list)
    played: list[Played] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    absent: dict[str, str] = field(default_factory=dict)
    """Rules under which servers did not start, with the reason."""


class Site:
    """A hub whose servers are the hostile program of each language, without a sandbox and under each rule."""

    def __init__(self, rest: RestClient, world: dict[str, str]) -> None:
        self.world = world
        self._rest = rest
        self.absent: dict[str, str] = {}

    async def ready(self) -> None:
        """Waits until every server has answered or failed. Raises: `TimeoutError`."""
        with anyio.fail_after(_UP):
            while True:
                reports = (await self._rest.ask("GET", "/servers")).json()["servers"]
                if all(one["state"] not in ("starting", "waiting") for one in reports):
                    break
                await anyio.sleep(0.1)
        self.absent = {
            one["server"]: str(one.get("reason") or one["state"]) for one in reports if one["state"] != "ready"
        }

    async def tried(self, name: str, language: str, rule: str) -> Verdict:
        """What comes of an escape."""
        server = server_name(rule, language)
        if server in self.absent:
            return Verdict("absent", self.absent[server])
        arguments = {"name": name, "world": {**self.world, "escape-name": name}}
        with anyio.move_on_after(_SECONDS):
            response = await self._rest.call(f"{server}_escape", arguments)
            try:
                content = response.json()["result"]["content"][0]["text"]
                return Verdict(**json.loads(content))
            except (KeyError, ValueError, IndexError, TypeError):
                return Verdict("broken", response.text[:300])
        return Verdict("broken", "no answer")


def server_name(rule: str, language: str) -> str:
    """The name of the server of a language under a rule."""
    return f"{rule}-{language.lower()}" if language else rule


def entries(
    commands: Mapping[str, Sequence[str]], world: Mapping[str, str], rules: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """The servers of `servers.yaml`: in each language one without a sandbox, and one under each of these rules."""
    sandboxes: dict[str, Any] = {
        ON: "on",
        NONE: {"net": "none"},
        HOSTS: {"net": [*_HOSTS, "*.cdn.example"]},
        SOCKETS: {"net": "none", "sockets": [world["agent"]]},
    }
    found: dict[str, dict[str, Any]] = {}
    entry: dict[str, Any] = {}
    for language, (command, *args) in commands.items():
        entry = {"command": command, "args": args, "cwd": str(Path(world["home"]) / "hostile"), "timeout": "15s"}
        found[server_name(OUTSIDE, language)] = entry
        for rule in rules:
            found[server_name(rule, language)] = {**entry, "sandbox": sandboxes[rule]}
    if HOSTS in rules:
        found["other"] = {**entry, "sandbox": {"net": ["other.example"]}}
    neighbour = {**found.get(server_name(OUTSIDE, "Python"), entry), "sandbox": "on"}
    return {**found, NEIGHBOUR: neighbour} if "Python" in commands and ON in rules else found


@asynccontextmanager
async def _hub(servers: Mapping[str, Any], world: Mapping[str, str], **env: str) -> AsyncIterator[Hub]:
    """A hub over HTTP with these servers, whose environment and descriptor 9 hold the canary."""
    text = json.dumps(patient({"hub": {"prefix": "always", "expose": "full"}, "servers": dict(servers)}))
    await anyio.Path(world["config"]).write_text(f"{text}\n# {world['canary']}\n")
    line = [
        *become(world["user"]),
        sys.executable,
        "-m",
        "mcp_hub",
        "serve",
        "--http",
        "--port",
        "0",
        "--config",
        world["config"],
    ]
    argv = ["/bin/sh", "-c", f"exec 9<{shlex.quote(world['project'])}; exec {shlex.join(line)}"]
    own = {f"XDG_{kind}_HOME": f"{world['home']}/xdg" for kind in ("CONFIG", "CACHE", "DATA", "STATE")}
    home = {"HOME": world["home"], "MCP_HUB_STATE_DIR": str(Path(world["state"]).parent), "MCP_HUB_ATTACH": "never"}
    async with Hub(argv, {**own, **home, "HUB_SECRET": world["canary"], **env}) as hub:
        hub.url = (await hub.wait_stderr(r"http://127\.0\.0\.1:\d+/mcp")).group()
        yield hub
        await hub.terminate()


async def run_escapes(
    root: Path,
    kinds: Sequence[Kind],
    languages: Sequence[str],
    abi: int | None = None,
    *,
    is_outside: bool = False,
    with_scenarios: bool = True,
    user: str = "",
) -> Outcome:
    """Tries them all, as another `user` by number if one is named; `abi` limits the version of Landlock.

    With `is_outside` there are only control runs.
    """
    world = lay_out(root, user)
    commands = programs(root / "home", languages, user)
    outcome = Outcome(faults=[f"no compiler or interpreter for {one}" for one in languages if one not in commands])
    rules = [] if is_outside else [rule for rule in WORKING if any(rule in kind.rules for kind in kinds)]
    limited = {} if abi is None else {"MCP_HUB_TEST_LANDLOCK_ABI": str(abi)}
    with running(root, world) as world:
        async with (
            _hub(entries(commands, world, rules), world, **limited) as hub,
            RestClient(hub) as rest,
        ):
            port = hub.url.rsplit(":", 1)[1].removesuffix("/mcp")
            site = Site(rest, {**world, "hub": str(hub.pid), "hub-port": port})
            await site.ready()
            await _introduced(site)
            controls = await _controls(site, kinds, commands)
            before = _snapshot(world)
            await _inside(site, kinds, controls, outcome, rules, abi)
            outcome.faults += _changes(before, _snapshot(world))
            await _working(site, commands, outcome, rules)
            outcome.absent = site.absent
        outcome.faults += [line[:300] for line in crashes(hub.stderr)]
        if with_scenarios:
            outcome.played = await play(root, world, commands, partial(_started, world))
    _judge(outcome, abi)
    _judge_others(outcome)
    return outcome


@asynccontextmanager
async def _started(world: Mapping[str, str], servers: Mapping[str, Any]) -> AsyncIterator[RestClient]:
    """A hub for one scenario."""
    give(Path(world["home"]).parent, world["user"])
    async with _hub(servers, world) as hub, RestClient(hub) as rest:
        yield rest


async def _introduced(site: Site) -> None:
    """Adds what only running servers know: the home of another server, with a canary in it, and the settings beside."""
    home = await site.tried("show-home", "", NEIGHBOUR)
    if home.is_through:
        secret = anyio.Path(home.detail, "secret.txt")
        await secret.write_text(site.world["canary"])
        give(Path(secret), site.world["user"])
        settings = anyio.Path((await site.tried("show-home", "Python", ON)).detail).parent / "settings" / "npmrc"
        site.world |= {"private-home": str(secret), "settings": str(settings)}


async def _controls(
    site: Site, kinds: Sequence[Kind], commands: Mapping[str, Sequence[str]]
) -> dict[tuple[str, str], Verdict]:
    """Each escape outside of a sandbox, by name and language; what a language does not have is left out."""
    found = {}
    for kind in kinds:
        for name in kind.names:
            if "private-home" not in site.world and kind.title == PRIVATE:
                continue
            for language, command in commands.items():
                if kind.is_direct:
                    verdict = await anyio.to_thread.run_sync(_direct, command, name, site.world)
                else:
                    verdict = await site.tried(name, language, OUTSIDE)
                if verdict.verdict != "unknown":
                    found[name, language] = verdict
    return found


def _direct(command: Sequence[str], name: str, world: Mapping[str, str]) -> Verdict:
    """An escape of a server that no hub has started: it inherits what the starter has."""
    arguments = {"name": name, "world": {**world, "escape-name": name}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "escape", "arguments": arguments}}
    files = f"9<{shlex.quote(world['project'])} 2>>{shlex.quote(world['scratch'])}"
    line = f"exec {files}; exec {shlex.join([*become(world['user']), *command])}"
    env = {"HUB_SECRET": world["canary"], "HOME": world["home"], "PATH": "/usr/bin:/bin"}
    text = json.dumps(message) + "\n"
    done = subprocess.run(["/bin/sh", "-c", line], input=text, env=env, capture_output=True, text=True, timeout=20)
    return Verdict(**json.loads(json.loads(done.stdout)["result"]["content"][0]["text"]))


async def _inside(
    site: Site,
    kinds: Sequence[Kind],
    controls: Mapping[tuple[str, str], Verdict],
    outcome: Outcome,
    rules: Sequence[str],
    abi: int | None,
) -> None:
    """Each escape under each rule of its kind."""
    shrinking = _shrinking(abi)
    for kind in kinds:
        say(kind.title)
        for (name, language), control in controls.items():
            if name in kind.names:
                inside = {rule: await site.tried(name, language, rule) for rule in kind.rules if rule in rules}
                (outcome.passing if kind.title == PASSING.title else outcome.rows).append(
                    Row(kind, name, language, control, inside, name in shrinking)
                )


async def _working(site: Site, commands: Mapping[str, Sequence[str]], outcome: Outcome, rules: Sequence[str]) -> None:
    """What has to work, or else every refusal means nothing."""
    for rule, names in WORKING.items():
        for language in commands:
            for name in names if rule in rules else ():
                verdict = await site.tried(name, language, rule)
                if verdict.verdict not in ("succeeded", "unknown", "absent"):
                    outcome.faults.append(f"{name} does not work under {rule} in {language}: {verdict.detail}")


def _snapshot(world: Mapping[str, str]) -> dict[str, bytes]:
    """The files of the user, and the signals that the other process got."""
    files = {
        str(path): path.read_bytes()
        for path in Path(world["home"]).rglob("*")
        if path.is_file() and not path.is_relative_to(Path(world["state"]).parent)
    }
    signals = Path(world["signals"])
    return {**files, "signals of the victim": signals.read_bytes() if signals.exists() else b""}


def _changes(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[str]:
    return [
        f"changed from within: {name}"
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


def _shrinking(abi: int | None) -> set[str]:
    """The escapes that a kernel of this version of Landlock does not stop."""
    return SHRINKS if abi is not None and abi < _SIGNALS_SINCE else set()


def _judge(outcome: Outcome, abi: int | None) -> None:
    """Adds a fault for each hole, and for each row that says nothing."""
    if _shrinking(abi):
        outcome.faults = [one for one in outcome.faults if "signals of the victim" not in one]
    for row in outcome.rows:
        if row.state in ("hole", "broken"):
            through = {rule: one.detail for rule, one in row.inside.items() if one.verdict in ("succeeded", "broken")}
            outcome.faults.append(f"{row.state}: {row.name} in {row.language}: {through or row.control.detail}")
    for server, reason in outcome.absent.items():
        if abi is None:
            outcome.faults.append(f"{server} does not start: {reason[:300]}")


def _judge_others(outcome: Outcome) -> None:
    """Adds a fault for each scenario that gets through or says nothing, and for what is stopped unexpectedly."""
    for row in outcome.passing:
        if row.control.is_through and row.inside and not row.inside[ON].is_through:
            outcome.faults.append(f"stopped, against cases.PASSING: {row.name} in {row.language}")
    for one in outcome.played:
        if one.outside is not True:
            outcome.faults.append(f"does not get through even outside: {one.name}: {one.detail}")
        if one.inside:
            outcome.faults.append(f"hole: {one.name}")
        elif one.inside is None:
            outcome.faults.append(f"not played to its end: {one.name}: {one.detail}")
