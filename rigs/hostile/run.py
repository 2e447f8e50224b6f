"""Bad servers behind one hub, a good one beside them, and every promise of the hub judged while the faults are on."""

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import anyio
import anyio.abc

from rigs.client import Answer, JudgingClient
from rigs.hostile.cases import Case
from rigs.hostile.health import Healthy, Process
from rigs.report import crashes
from tests.interaction.fronts import is_alive
from tests.upstreams.child import HttpUpstream
from tests.upstreams.launch import argv, servers_yaml

_UP = 120.0
"""Seconds in which every server has to be ready or given up; several start at once on a slow machine."""
_BACK = 120.0
"""Seconds in which a server has to answer again after its fault, its restart included."""
_GONE = 60.0
_PATIENT = {"timeout": "60s", "start_timeout": "60s", "request_timeout": "60s"}
"""Limits of the good server: a busy machine is not what it is to show."""
_LIMITS = {
    "timeout": "2s",
    "start_timeout": "5s",
    "request_timeout": "3s",
    "restart": {"intensity": 50, "period": "60s"},
}


@dataclass(frozen=True)
class Row:
    """A case over one transport; `era` None leaves the era to the two sides."""

    case: Case
    transport: str
    era: str | None = None

    @property
    def options(self) -> list[str]:
        era = self.era or (self.case.eras[0] if len(self.case.eras) == 1 else None)
        return [*self.case.options, *(["--era", era] if era else [])]

    @property
    def server(self) -> tuple[object, ...]:
        """Rows that have this in common can be met by one process."""
        return self.transport, *self.options, str(self.case.own), self.case.child_dies and self.case.name


@dataclass
class Outcome:
    """What a row came to; the figures are those of its whole hub. `wrongs` is empty if every promise was kept."""

    row: Row
    ending: str = "–"
    seconds: float = 0.0
    p99: float = 0.0
    worst: float = 0.0
    memory: float = 0.0
    leftovers: list[str] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)


@dataclass
class _Server:
    """One bad process: its rows are met one after the other."""

    name: str
    rows: list[Row]
    outcomes: list[Outcome]


class Canary:
    """A listener whose `url` is in what bad servers say: nobody may ever connect; `seen` has what came nevertheless."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/"
        self._tasks.start_soon(self._serve, listener)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _serve(self, listener: anyio.abc.Listener[anyio.abc.SocketStream]) -> None:
        async with listener:
            await listener.serve(self._note)

    async def _note(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            self.seen.append((await stream.receive(1000)).decode("latin-1")[:200])


async def run_together(rows: Sequence[Row], root: Path) -> list[Outcome]:
    """All rows behind one hub; rows of equal options share a server. Never raises for what the hub does wrong."""
    servers: dict[tuple[object, ...], _Server] = {}
    for row in rows:
        # pieces of one server's rows may come behind one hub: then they are servers of their own
        copies = sum(len(server.rows) for key, server in servers.items() if key[:-1] == row.server) // 6
        key = (*row.server, copies)
        server = servers.setdefault(key, _Server(f"s{len(servers)}", [], []))
        server.rows.append(row)
        server.outcomes.append(Outcome(row))
    run = _Run(list(servers.values()), root)
    await run.all()
    found = {id(outcome.row): outcome for server in run.servers for outcome in server.outcomes}
    return [found[id(row)] for row in rows]


class _Run:
    def __init__(self, servers: list[_Server], root: Path) -> None:
        self.servers = servers
        self._root = root
        self._common: list[str] = []
        self._spawned: set[int] = set()
        self._remotes: list[HttpUpstream] = []

    async def all(self) -> None:
        async with AsyncExitStack() as stack:
            canary = await stack.enter_async_context(Canary())
            text = await self._config(stack, canary.url)
            path = self._root / "servers.yaml"
            path.write_text(text)
            command = [sys.executable, "-m", "mcp_hub", "serve", "--config", str(path), "--client", "mcp-hub"]
            env = {"MCP_HUB_STATE_DIR": str(self._root / "state")}
            client = await stack.enter_async_context(JudgingClient(command, env))
            hub = Process(client.pid)
            try:
                await self._judge(client, hub)
                await self._end(client, hub)
            except Exception as exc:  # whatever it is, the rows have failed and the next ones go on
                self._common.append(f"the hub does not answer: {_inner(exc)!r}; stderr: {client.stderr[-1500:]}")
            self._common += client.wrongs
            self._common += [f"a URL of a server's was fetched: {what}" for what in canary.seen]
            self._common += [line[:600] for line in crashes(client.stderr)]
            for pid in self._spawned:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for server in self.servers:
            for outcome in server.outcomes:
                outcome.wrongs += self._common

    async def _config(self, stack: AsyncExitStack, canary: str) -> str:
        commands: dict[str, Any] = {"good": argv(name="good")}
        for server in self.servers:
            row = server.rows[0]
            options = [*row.options, "--canary", canary]
            if row.transport == "http":
                remote = await stack.enter_async_context(HttpUpstream(*options))
                self._remotes.append(remote)
                commands[server.name] = remote.url
            else:
                commands[server.name] = argv(*options)
        text = servers_yaml(commands, defaults=_LIMITS, hub={"first_list_wait": "1s"})
        document = json.loads(text)
        document["servers"]["good"].update(_PATIENT)
        for server in self.servers:
            if server.rows[0].case.is_listed:
                document["servers"][server.name]["start_timeout"] = _PATIENT["start_timeout"]
            document["servers"][server.name].update(server.rows[0].case.own)
            if server.rows[0].transport == "http":
                document["servers"][server.name]["headers"] = {"authorization": "Bearer secret"}
        return json.dumps(document)

    async def _judge(self, client: JudgingClient, hub: Process) -> None:
        await client.initialize()
        healthy = Healthy(client)
        await healthy.ready()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(healthy.run)
            async with anyio.create_task_group() as each:
                for server in self.servers:
                    each.start_soon(self._ready, client, server)
            hub.look()
            fds = hub.descriptors()
            async with anyio.create_task_group() as each:
                for server in self.servers:
                    each.start_soon(self._meet, client, hub, server)
            await self._lists(client)
            hub.look()
            if (more := await hub.fewer_than(fds + 4, 3.0)) is not None:
                self._common.append(f"{more} descriptors, {fds} before")
            healthy.is_over = True
        self._common += healthy.wrongs
        allowed = max(outcome.row.case.memory for server in self.servers for outcome in server.outcomes)
        peak = hub.peak()
        for server in self.servers:
            for outcome in server.outcomes:
                outcome.p99, outcome.worst, outcome.memory = healthy.p99, healthy.worst, peak
                if peak > allowed:
                    outcome.wrongs.append(f"the hub took {peak:.0f} MiB, {allowed} are allowed")

    async def _ready(self, client: JudgingClient, server: _Server) -> None:
        if server.rows[0].case.is_listed and not await self._answers(client, server, _UP):
            server.outcomes[0].wrongs.append(f"not ready within {_UP:g} s: {client.stderr[-1500:]}")

    async def _answers(self, client: JudgingClient, server: _Server, seconds: float) -> bool:
        """Whether `echo` has a result within that time."""
        until = time.monotonic() + seconds
        while True:
            with suppress(TimeoutError):
                if (await client.call(f"{server.name}_echo", {"text": "x"}, seconds=8)).ending == "result":
                    return True
            if time.monotonic() > until:
                return False
            await anyio.sleep(0.05)

    async def _meet(self, client: JudgingClient, hub: Process, server: _Server) -> None:
        for row, outcome in zip(server.rows, server.outcomes, strict=True):
            hub.look()
            answers: list[Answer] = []
            try:
                async with anyio.create_task_group() as tasks:
                    for _ in range(row.case.times):
                        tasks.start_soon(self._call, client, server.name, row.case, answers)
            except* TimeoutError:
                outcome.wrongs.append(f"no answer within {row.case.seconds:g} s")
            if not answers:
                continue
            last = max(answers, key=lambda answer: answer.seconds)
            outcome.ending, outcome.seconds = last.ending, last.seconds
            outcome.wrongs += [
                f"ended as {answer.ending}: {str(answer.message)[:300]}"
                for answer in answers
                if answer.ending not in row.case.ends
            ]
            await self._aftermath(client, server, outcome, last)

    async def _call(self, client: JudgingClient, name: str, case: Case, answers: list[Answer]) -> None:
        answers.append(await client.call(f"{name}_{case.tool}", case.arguments, seconds=case.seconds))

    async def _aftermath(self, client: JudgingClient, server: _Server, outcome: Outcome, answer: Answer) -> None:
        case = outcome.row.case
        pid = _pid(answer) if case.child_dies else None
        if pid is not None:
            self._spawned.add(pid)
        if case.after is not None:
            await client.call(f"{server.name}_{case.after}", {}, seconds=case.seconds)
        if pid is not None and case.child_dies == "server" and not await _gone({pid}, _GONE):
            outcome.wrongs.append(f"its child {pid} outlived it")
        if case.comes_back and not await self._answers(client, server, _BACK):
            outcome.wrongs.append(f"no call works within {_BACK:g} s after the fault")
        if case.check is not None:
            definitions = await _settled_tools(client, server.name, case, answer)
            if (wrong := case.check(answer, definitions)) is not None:
                outcome.wrongs.append(wrong)

    async def _lists(self, client: JudgingClient) -> None:
        """Whole lists come while bad servers are there, and every entry is one that strict clients take."""
        names = [tool["name"] for tool in await _tools(client)]
        if "good_echo" not in names:
            self._common.append("the good server's tools are not listed")
        if len(names) != len(set(names)):
            self._common.append("names are listed twice")
        for method in ("resources/list", "prompts/list", "ping"):
            answer = await client.request(method, {}, seconds=5)
            if answer.ending != "result":
                self._common.append(f"{method}: {answer.message}")

    async def _end(self, client: JudgingClient, hub: Process) -> None:
        hub.look()
        code = await client.close(_GONE)
        if code != 0:
            self._common.append(f"the hub ended with {code}: {client.stderr[-1500:]}")
        if client.unanswered():
            self._common.append(f"never answered: {client.unanswered()[:10]}")
        if not await _gone(hub.seen | self._spawned, _GONE):
            left = [hub.describe(pid) for pid in hub.seen | self._spawned if is_alive(pid)]
            self._common.append(f"left behind: {left}")
            for server in self.servers:
                for outcome in server.outcomes:
                    outcome.leftovers = left


def _inner(exc: Exception) -> BaseException:
    """The first of a group."""
    found: BaseException = exc
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return found


def _pid(answer: Answer) -> int | None:
    try:
        return int(json.loads(answer.text)["pid"])
    except (ValueError, KeyError):
        return None


async def _gone(pids: set[int], seconds: float) -> bool:
    until = time.monotonic() + seconds
    while any(map(is_alive, pids)):
        if time.monotonic() > until:
            return False
        await anyio.sleep(0.02)
    return True


async def _tools(client: JudgingClient) -> list[dict[str, Any]]:
    """Every page of the list; each has to come in the time of a hang guard."""
    found: list[dict[str, Any]] = []
    params: dict[str, Any] = {}
    while True:
        answer = await client.request("tools/list", params, seconds=8)
        result = answer.message["result"]
        found += result["tools"]
        if "nextCursor" not in result:
            return found
        params = {"cursor": result["nextCursor"]}


async def _settled_tools(client: JudgingClient, name: str, case: Case, answer: Answer) -> list[dict[str, Any]]:
    """The server's definitions, once they are as the case wants them, or after a while."""
    until = time.monotonic() + 5
    while True:
        mine = [tool for tool in await _tools(client) if tool["name"].startswith(f"{name}_")]
        assert case.check is not None
        if case.check(answer, mine) is None or time.monotonic() > until:
            return mine
        await anyio.sleep(0.1)
