"""`python -m rigs.sandbox.real`: servers of public registries, each started without a sandbox and with `sandbox: on`.
Of those that answer outside, three of four have to answer inside without any further setting; else the exit code is 1.
With `--net` those that use the network are started under `net: [hosts]`, and a stand-in answers for their hosts: ten
have to get its answer, and none of them from a host that is not in its rule. `servers.toml` has the list. Every server
is downloaded by npx or uvx, inside once more: the whole list takes an hour.
"""

import json
import os
import re
import shutil
import sys
import tomllib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import anyio.to_thread
import httpx2

from rigs.report import arguments, reported, say
from rigs.sandbox.stand_in import SETTINGS, Network, StandIn, home_of, near_indexes, stand_in
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT

LIST = Path(__file__).with_name("servers.toml")
SHARE = 0.75
"""Of the servers that answer outside, those that have to answer inside."""
NETWORKED = 10
"""Servers that have to get the answer of the stand-in under `net: [hosts]`."""
_START = 240.0  # with its download
_ELSEWHERE = "elsewhere.example"
"""The only host of a rule under which no server of the list gets an answer."""
_VALUES: Mapping[str, Any] = {"string": "note", "number": 1, "integer": 1, "boolean": False, "array": [], "object": {}}
_READING = re.compile(r"get|list|read|search|show|describe|status|version|help|info|find|query|current", re.IGNORECASE)
"""Names of tools that change nothing."""
_DENIED = re.compile(r"EACCES|EPERM|permission denied|not permitted|read-only file system", re.IGNORECASE)
_REFUSED = re.compile(r'"event": ?"sandbox_refused"')
_FAILED = '"state": "backing_off"'


@dataclass(frozen=True)
class Entry:
    """A server of the list."""

    name: str
    package: str
    version: str
    args: Sequence[str] = ()
    command: str = ""
    beside: Sequence[str] = ()
    env: Mapping[str, str] | None = None
    tool: str = ""
    arguments: Mapping[str, Any] | None = None
    net: Network | None = None

    def settings(self, places: Mapping[str, str]) -> dict[str, Any]:
        """Its entry in `servers.yaml`, without the key `sandbox`."""
        registry, _, package = self.package.partition(":")
        if registry == "npm":
            line = ["npx", "-y", f"{package}@{self.version}"]
        else:
            beside = [word for one in self.beside for word in ("--with", one)]
            line = ["uvx", *beside, "--from", f"{package}=={self.version}", self.command or package]
        args = [*line[1:], *(str(filled(one, places)) for one in self.args)]
        return {
            "command": line[0],
            "args": args,
            "env": filled(self.env or {}, places),
            "start_timeout": f"{_START:.0f}s",
        }


@dataclass(frozen=True)
class Answered:
    """What came of one start: how many tools it listed, and whether a call had a result; else the error.

    `text` is the result, or the error of the tool; `refusals` are the lines of the hub's log about refused hosts,
    `failures` the starts that failed before it was up.
    """

    tools: int = 0
    called: str = ""
    arguments: Mapping[str, Any] | None = None
    error: str = ""
    is_error: bool = False
    text: str = ""
    refusals: Sequence[str] = ()
    failures: int = 0
    seconds: float = 0.0

    @property
    def is_good(self) -> bool:
        return not self.error

    @property
    def is_refused(self) -> bool:
        """Whether a file may have been refused: some servers say so in a result that is no error."""
        return self.is_error or _DENIED.search(self.text) is not None


def entries(path: Path = LIST) -> list[Entry]:
    """The list, in its order."""
    chosen = []
    for name, fields in tomllib.loads(path.read_text("utf-8")).items():
        network = fields.pop("net", None)
        chosen.append(Entry(name, **fields, net=None if network is None else Network(**network)))
    return chosen


def filled(value: Any, places: Mapping[str, str]) -> Any:
    """A value with the folders in place of their names."""
    if isinstance(value, str):
        for name, place in places.items():
            value = value.replace(f"{{{name}}}", place)
        return value
    if isinstance(value, Mapping):
        return {name: filled(one, places) for name, one in value.items()}
    return [filled(one, places) for one in value] if isinstance(value, list) else value


def possible_calls(
    entry: Entry, tools: Sequence[Mapping[str, Any]], places: Mapping[str, str]
) -> list[tuple[str, Any]]:
    """Tools and arguments of which the first that brings no error counts, at most four; empty without tools.

    They are those that only read by their names, without required arguments first; else the first one.
    """
    if entry.tool:
        return [(entry.tool, filled(entry.arguments or {}, places))]
    return (read_only_calls(tools) or [(one["name"], _required(one)) for one in tools[:1]])[:4]


def read_only_calls(tools: Sequence[Mapping[str, Any]]) -> list[tuple[str, Any]]:
    """Calls of the tools that only read by their names, with their required arguments; the fewest first."""
    calls = [(one["name"], _required(one)) for one in tools if _READING.search(one["name"])]
    return sorted(calls, key=lambda call: len(call[1]))


def _required(tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("inputSchema", {})
    return {key: _value(schema.get("properties", {}).get(key, {})) for key in schema.get("required", ())}


def _value(schema: Mapping[str, Any]) -> Any:
    """A value that a simple schema allows."""
    if "enum" in schema:
        return schema["enum"][0]
    return _VALUES.get(schema.get("type", "string"), "note")


async def answered(
    root: Path, entry: Entry, places: Mapping[str, str], sandbox: Any, env: Mapping[str, str] | None = None
) -> Answered:
    """Starts a hub with this server alone, and calls one tool. `sandbox` is the value of the key, None for none.

    `env` is for the hub. A second hub with the same `root` has the state of the first one.
    """
    settings = entry.settings(places) | ({} if sandbox is None else {"sandbox": sandbox})
    config = {"hub": {"prefix": "never", "expose": "full"}, "servers": {entry.name: settings}}
    await anyio.Path(root).mkdir(exist_ok=True)
    began = anyio.current_time()
    variables: dict[str, Any] = {"HOME": places["home"], **(env or {})}
    async with http_hub(json.dumps(config), root, **variables) as hub, RestClient(hub) as rest:
        answer = await _answer(rest, entry, places)
    refusals = [line for line in hub.stderr.splitlines() if _REFUSED.search(line)]
    failures = sum(_FAILED in line for line in hub.stderr.splitlines())
    return replace(answer, refusals=refusals, failures=failures, seconds=anyio.current_time() - began)


async def _answer(rest: RestClient, entry: Entry, places: Mapping[str, str]) -> Answered:
    """The outcome of a call, once the server is up."""
    report = await settled_report(rest)
    if report["state"] != "ready":
        return Answered(
            error=": ".join(str(report[key]) for key in ("state", "code", "reason") if report.get(key))[:1000]
        )
    tools = (await rest.ask("GET", "/tools")).json()["tools"]
    answer = Answered(error="it has no tools")
    for name, values in possible_calls(entry, tools, places):
        answer = await _called(rest, name, values)
        if answer.is_good and not answer.is_error:
            break
    return replace(answer, tools=len(tools))


async def _called(rest: RestClient, name: str, values: Mapping[str, Any]) -> Answered:
    try:
        response = await rest.call(name, values)
    except httpx2.TimeoutException:
        return Answered(error=f"no answer to a call of {name}")
    if response.status_code != 200:
        return Answered(called=name, arguments=values, error=response.text[:300], text=response.text)
    result = response.json()["result"]
    is_error = bool(result.get("isError"))
    return Answered(called=name, arguments=values, is_error=is_error, text=json.dumps(result))


async def settled_report(rest: RestClient) -> Mapping[str, Any]:
    """The report of the server, once it is up or has failed."""
    with anyio.fail_after(_START + WAIT):
        while True:
            (report,) = (await rest.ask("GET", "/servers")).json()["servers"]
            if report["state"] not in ("starting", "waiting"):
                return dict(report)
            await anyio.sleep(0.5)


class Tally:
    """The rows of a table, and the counts behind its last line."""

    head: Sequence[str] = ("server", "package", "without a sandbox", "`sandbox: on`", "seconds")

    def __init__(self) -> None:
        self.rows: dict[str, str] = {}
        self.outside = 0
        self.inside = 0
        self.faults: list[str] = []

    async def try_server(self, folder: Path, entry: Entry) -> None:
        """Outside first; inside only if it answers there, in a new home folder."""
        places = home_of(folder)
        outside = await tried(folder / "outside", entry, places, None)
        shutil.rmtree(folder / "home")  # the start inside does not find what the one outside has made
        home_of(folder)
        if outside.is_good:
            entry = replace(entry, tool=outside.called, arguments=outside.arguments)
        inside = await tried(folder / "inside", entry, places, "on") if outside.is_good else None
        if inside is not None and inside.is_refused and not outside.is_refused:
            inside = replace(inside, error=f"an error that is not there outside: {inside.text}")
        self.outside += outside.is_good
        self.inside += inside is not None and inside.is_good
        seconds = "–" if inside is None else f"{outside.seconds:.0f} / {inside.seconds:.0f}"
        package = f"{entry.package.partition(':')[2]} {entry.version}"
        line = "" if inside is None or inside.is_good else await self._line(folder, entry, places)
        self.add(entry, package, _cell(outside), line + _cell(inside), seconds)

    async def _line(self, folder: Path, entry: Entry, places: Mapping[str, str]) -> str:
        """The line by which a server answers that did not: with the folders of its call or environment. Else empty."""
        named = json.dumps([entry.arguments, dict(entry.env or {}), *entry.args])
        folders = [name for name in ("data", "repo") if f"{{{name}}}" in named or places[name] in named]
        retried = await tried(folder / "inside", entry, places, {"write": [places[name] for name in folders]})
        is_cured = folders and retried.is_good and not retried.is_refused
        return f"answers with `write: [{', '.join(f'~/{name}' for name in folders)}]`; else " if is_cured else ""

    def add(self, entry: Entry, *cells: str) -> None:
        """A row, which is shown at once, too."""
        self.rows[entry.name] = f"| {entry.name} | {' | '.join(cells)} |"
        say(self.rows[entry.name])

    def summary(self, count: int) -> str:
        """The last line; it adds a fault if too few answer."""
        if self.inside < SHARE * self.outside:
            self.faults.append(f"{self.inside} of {self.outside} servers answer in a sandbox, {SHARE:.0%} have to")
        return f"{count} servers, {self.outside} answer outside of a sandbox, {self.inside} of them inside"


class NetworkTally(Tally):
    """Servers behind a stand-in: `outside` has those that it answered without a sandbox, by the proxy variables."""

    head = ("server", "client", "hosts", "by a proxy, without a sandbox", "`net: [hosts]`", "another host in `net`")

    async def try_server(self, folder: Path, entry: Entry) -> None:
        """By the proxy variables outside; then with its hosts as the rule, and with another host."""
        assert (network := entry.net) is not None
        places = home_of(folder)
        async with stand_in(folder, network.answers) as world:
            settings = [Path(places["home"], name) for name in SETTINGS]
            proxies = world.proxies(settings)
            env = {**(entry.env or {}), **world.trust}
            entry = replace(entry, tool=network.tool, arguments=network.arguments, env=env)
            outside = await tried(folder / "outside", replace(entry, env={**env, **proxies}), places, None)
            cells = [_net_cell(outside, world, network), "–", "–"]
            if cells[0] == _BY_STAND_IN:
                self.outside += 1
                cells[1:] = await self._inside(folder, entry, places, world, proxies)
            self.add(entry, network.client, ", ".join(network.hosts), *cells)

    async def _inside(
        self, folder: Path, entry: Entry, places: Mapping[str, str], world: StandIn, proxies: Mapping[str, str]
    ) -> list[str]:
        assert entry.net is not None
        cells = []
        for hosts in (entry.net.hosts, [_ELSEWHERE]):
            world.requests.clear()
            rule = {"net": [*hosts, *await anyio.to_thread.run_sync(near_indexes)]}
            answer = await tried(folder / "inside", entry, places, rule, proxies)
            asked = {host for host, _ in world.requests}
            if strangers := asked - set(hosts):
                self.faults.append(f"{entry.name}: {', '.join(sorted(strangers))} answered, which its rule lacks")
            if hosts == [_ELSEWHERE]:
                cells.append(_refusal_cell(answer, entry.net))
            else:
                cells.append(_net_cell(answer, world, entry.net))
        self.inside += cells[0] == _BY_STAND_IN
        return cells

    def summary(self, count: int) -> str:
        """The last line; it adds a fault if too few answer."""
        needed = min(NETWORKED, count)
        if self.inside < needed:
            self.faults.append(f"the stand-in answered {self.inside} servers under net, and {needed} have to get that")
        return (
            f"{count} servers, {self.outside} take a proxy of the environment, {self.inside} of them answer under net"
        )


_BY_STAND_IN = "answers"


def _net_cell(answer: Answered, world: StandIn, network: Network) -> str:
    """Whether the answer is that of the stand-in; else the reason, or that nothing asked it."""
    if world.canary in answer.text:
        return _BY_STAND_IN
    asked = {host for host, _ in world.requests} & set(network.hosts)
    kind = "asked: " if asked else "takes no proxy: " if answer.called else ""
    return kind + _short(answer.error or answer.text)


def _refusal_cell(answer: Answered, network: Network) -> str:
    """The refusal of the host, with the line to add if the server shows it."""
    named = [host for host in network.hosts if any(host in line for line in answer.refusals)]
    lines = [host for host in network.hosts if re.search(rf'add \\*"{re.escape(host)}', answer.text + answer.error)]
    if not named:
        return f"no refusal: {_short(answer.error or answer.text)}"
    return f"refuses {', '.join(named)}" + ("; the server shows the line" if lines else "")


def _cell(one: Answered | None) -> str:
    if one is None:
        return "–"
    if not one.is_good:
        return _short(one.error)
    return f"{one.tools} tools, `{one.called}`" + (" (an error of the tool)" if one.is_error else "")


def _short(text: str) -> str:
    return " ".join(text.replace("|", "/").split())[:240]


async def tried(
    root: Path, entry: Entry, places: Mapping[str, str], sandbox: Any, env: Mapping[str, str] | None = None
) -> Answered:
    try:
        return await answered(root, entry, places, sandbox, env)
    except (AssertionError, TimeoutError, KeyError, ValueError, httpx2.TransportError) as exc:
        return Answered(error=f"{type(exc).__name__}: {exc}"[:300])


async def _run(root: Path, chosen: Iterable[Entry], tally: Tally, together: int) -> None:
    """Tries all servers, some at a time; their files are gone behind each."""
    waiting = deque(chosen)

    async def work() -> None:
        while waiting:
            entry = waiting.popleft()
            folder = root / entry.name
            folder.mkdir()
            await tally.try_server(folder, entry)
            await anyio.to_thread.run_sync(partial(shutil.rmtree, folder, ignore_errors=True))

    async with anyio.create_task_group() as tasks:
        for _ in range(together):
            tasks.start_soon(work)


def main() -> int:
    parser = arguments("sandbox.real", __doc__)
    parser.add_argument("--only", default="", help="servers with one of these in their names or packages: A,B")
    parser.add_argument("--net", action="store_true", help="those that use the network, under net: [hosts]")
    parser.add_argument("--together", type=int, default=2, help="servers at a time")
    given = parser.parse_args()
    words = given.only.split(",")
    chosen = [one for one in entries() if any(word in one.name or word in one.package for word in words)]
    chosen = [one for one in chosen if one.net is not None or not given.net]
    tally = NetworkTally() if given.net else Tally()
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with TemporaryDirectory(prefix="sandbox-real-", ignore_cleanup_errors=True) as folder:
        anyio.run(_run, Path(folder), chosen, tally, given.together)
    rows = [tally.rows[one.name] for one in chosen]
    lines = [f"| {' | '.join(tally.head)} |", f"|{' --- |' * len(tally.head)}", *rows, ""]
    return reported([*lines, tally.summary(len(chosen))], tally.faults)


if __name__ == "__main__":
    sys.exit(main())
