"""Kills hubs and servers while events happen: on one hub with SQLite, or on replicas with one server of Redis.

The service behind each event server outlives it, so that every event can be replayed from the cursor that the server
gave. Servers are of each way of delivery, and each is followed by a client of each way.
"""

import math
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import anyio

from rigs.chaos.hubs import Fleet, Hub
from rigs.events.clients import Client, Hooked, Hooks, Polling, Streaming
from rigs.report import crashes
from tests.e2e.client import HttpClient
from tests.interaction.fronts import HANDSHAKE, MODERN, Peer, children
from tests.interaction.hooked import Receiver
from tests.interaction.occurring import Service
from tests.redis_server import RedisServer
from tests.upstreams.child import until
from tests.upstreams.launch import FIRST_LIST, free_port

_NAMES: Final = {"polled": "build.done", "pushed": "build.done", "early": "build.done", "hooked": "push"}
_HOOKING: Final = Path(__file__).parents[2] / "tests" / "upstreams" / "webhook_server.py"
_PATIENCE: Final = 300.0
"""Seconds without anything new after which what has happened counts as lost, on a busy machine."""
_STOP: Final = 60.0
_CUT_OFF: Final = re.compile(
    r"Traceback (?:(?!^uvicorn\.error).)*?CancelledError: Task cancelled, timeout graceful shutdown exceeded",
    re.DOTALL | re.MULTILINE,
)
"""A request that lasts longer than the second in which a hub stops: the web server logs where it was."""
_PATIENT: Final = 0.8
_PROGRESS: Final = 15.0
"""Share of kills of a hub before which something has to arrive, and the most seconds for that."""
_LATE: Final = 10.0
"""Seconds between two reports on clients that lack something."""


@dataclass(frozen=True)
class Plan:
    """How many kills, and about how many events; `pause` is the most seconds between two acts, `lease` a replica's.

    `hubs` over 1 are replicas on one server.
    """

    kills: int = 50
    events: int = 2500
    seed: int = 1
    hubs: int = 1
    pause: float = 1.0
    lease: float = 1.5
    seconds: float = math.inf
    """After which nothing is killed any more."""


@dataclass
class Outcome:
    """Acts, the events that happened at each server, what clients saw, and the faults."""

    acts: Counter[str] = field(default_factory=Counter)
    happened: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_NAMES, 0))
    clients: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        return sum(count for act, count in self.acts.items() if act.startswith("kills"))

    def lines(self) -> list[str]:
        acts = ", ".join(f"{count} {act}" for act, count in sorted(self.acts.items()))
        events = f"{sum(self.happened.values())} events: {self.happened}"
        return [f"{self.kills} kills in {self.seconds:.0f} s ({acts})", events, *self.clients]


class _Site:
    """The hubs, what happens behind their servers, and the clients."""

    def __init__(self, plan: Plan, folder: Path, server: RedisServer | None) -> None:
        self.rng = random.Random(plan.seed)
        self.outcome = Outcome()
        self.clients: list[Client] = []
        self._plan = plan
        self._server = server
        self._peers: dict[int, Peer] = {}
        self._per_act = max(1, plan.events // max(1, plan.kills) // len(_NAMES))
        self._services = {name: Service(folder, name) for name in _NAMES}
        store = None if server is None else {"url": server.url, "lease": plan.lease}
        settings = {
            "expose": "full", "first_list_wait": FIRST_LIST, "events": {"webhook_hosts": ["127.0.0.1"]},
            "http": {"public_url": "https://hub.example.com"},
        }  # fmt: skip
        argv = {
            "polled": self._services["polled"].argv(MODERN, "poll"),
            "pushed": self._services["pushed"].argv(MODERN, "push"),
            "early": self._services["early"].argv(HANDSHAKE, "push"),
            "hooked": [sys.executable, str(_HOOKING), str(self._services["hooked"].file)],
        }
        servers = {name: {"command": command, "args": args} for name, (command, *args) in argv.items()}
        self.fleet = Fleet(folder, plan.hubs, self.rng, store, settings=settings, servers=servers)
        self.hooks = Hooks(Receiver(free_port()), self.rng)

    async def connect(self, stack: AsyncExitStack) -> None:
        """Waits until each hub serves."""
        began = time.monotonic()
        for hub in self.fleet.hubs:
            await self.fleet.serving(hub, began)
            self._peers[hub.port] = Peer(await stack.enter_async_context(HttpClient(f"{hub.url}/mcp")), MODERN)

    async def begin(self, tasks: anyio.abc.TaskGroup) -> None:
        """Waits until each client has begun."""
        self._lead()
        await tasks.start(self.hooks.run)
        for server, key in _NAMES.items():
            name = f"{server}_{key.replace('.', '_')}"
            hooked = Hooked(server, name, self._peer, self.rng, self.hooks.receiver)
            self.hooks.add(hooked)
            self.clients += [Polling(server, name, self._peer, self.rng), Streaming(server, name, self._peer, self.rng)]
            self.clients.append(hooked)
        for client in self.clients:
            tasks.start_soon(client.run)
        await until(lambda: all(client.cursor is not None for client in self.clients), _PATIENCE)

    def _peer(self) -> Peer:
        return self._peers[self.fleet.one().port]

    def _lead(self) -> None:
        """Any hub gets the messages of the server that sends webhooks."""
        file = self._services["hooked"].file.with_suffix(".hub")
        file.with_suffix(".new").write_text(self.fleet.one().url)
        file.with_suffix(".new").replace(file)

    def happens(self) -> None:
        for name, service in self._services.items():
            first, count = self.outcome.happened[name] + 1, self.rng.randint(1, 2 * self._per_act - 1)
            service.happens(*range(first, first + count))
            self.outcome.happened[name] += count

    # -- acts ---------------------------------------------------------------------------------------------------

    def acts(self) -> list[tuple[str, Callable[[], Awaitable[bool]]]]:
        """What may be done; some are more frequent than others."""
        acts: list[tuple[str, Callable[[], Awaitable[bool]]]] = [
            *[("kills of a hub", self._kill)] * 4, *[("kills of a server", self._kill_server)] * 6,
            ("stops of a hub", self._stop), ("restarts of the receiver", self._restart_receiver),
        ]  # fmt: skip
        if self._server is not None:
            acts += [*[("pauses of a hub", self._suspend)] * 2, ("kills of the store", self._outage)]
        return acts

    async def _kill(self) -> bool:
        if self.rng.random() < _PATIENT:
            await self._progress()
        hub = self.fleet.one()
        hub.life.kill()
        hub.life.process.wait()
        if self.rng.random() < 0.2:  # and once more while it starts
            hub.life = self.fleet.started(hub.port)
            await anyio.sleep(self.rng.uniform(0, 3))
            hub.life.kill()
            hub.life.process.wait()
            self.outcome.acts["kills of a hub that starts"] += 1
        await self._start(hub)
        return True

    async def _start(self, hub: Hub) -> None:
        began = time.monotonic()
        hub.life = self.fleet.started(hub.port)
        if self.rng.random() < 0.5:
            await self.fleet.serving(hub, began)

    async def _progress(self) -> None:
        """Waits until something has come to each client, which takes a busy machine long."""
        for hub in self.fleet.hubs:
            await self.fleet.serving(hub, time.monotonic())
        self.happens()
        counts = [len(client.numbers) for client in self.clients]
        with suppress(TimeoutError):
            await until(lambda: all(map(int.__lt__, counts, (len(c.numbers) for c in self.clients))), _PROGRESS)

    async def _kill_server(self) -> bool:
        pids = [pid for pid in sorted(children(self.fleet.one().life.process.pid)) if _is_event_server(pid)]
        if not pids:
            return False
        with suppress(ProcessLookupError):
            os.kill(self.rng.choice(pids), signal.SIGKILL)
        return True

    async def _stop(self) -> bool:
        hub = self.fleet.one()
        hub.life.process.terminate()
        with suppress(TimeoutError):
            await until(lambda: hub.life.process.poll() is not None, _STOP)
        if hub.life.process.poll() is None:
            self.outcome.faults.append(f"a hub did not stop in {_STOP:g} s")
            hub.life.kill()
            hub.life.process.wait()
        await self._start(hub)
        return True

    async def _restart_receiver(self) -> bool:
        self.hooks.restart()
        return True

    async def _suspend(self) -> bool:
        """SIGSTOP for less or more than the lease."""
        process = self.fleet.one().life.process
        process.send_signal(signal.SIGSTOP)
        try:
            await anyio.sleep(self._plan.lease * self.rng.uniform(0.3, 3))
        finally:
            process.send_signal(signal.SIGCONT)
        return True

    async def _outage(self) -> bool:
        assert self._server is not None
        self._server.kill()
        await anyio.sleep(self._plan.lease * self.rng.uniform(0.05, 2))
        await anyio.to_thread.run_sync(self._server.start)
        return True

    async def act(self) -> None:
        self.happens()
        self._lead()
        name, act = self.rng.choice(self.acts())
        with anyio.CancelScope(shield=True):
            if await act():
                self.outcome.acts[name] += 1
        await anyio.sleep(self.rng.uniform(0, self._plan.pause))

    # -- the end ------------------------------------------------------------------------------------------------

    async def settle(self, say: Callable[[str], None]) -> None:
        """Waits until each client has what has happened."""
        for hub in self.fleet.hubs:
            await self.fleet.serving(hub, time.monotonic())
        seen, since = 0, time.monotonic()
        while (late := self._late()) and time.monotonic() < since + _PATIENCE:
            if (count := sum(len(client.numbers) for client in self.clients)) > seen:
                seen, since = count, time.monotonic()
            say(f"{', '.join(map(str, late))}: not all has come yet, {count} in all")
            with suppress(TimeoutError):
                await until(lambda: not self._late(), _LATE)
        await anyio.sleep(2 * self._plan.pause)  # for events that come twice

    def _late(self) -> list[Client]:
        """The clients that lack something."""
        return [client for client in self.clients if len(client.numbers) < self.outcome.happened[client.server]]

    def judge(self) -> None:
        for client in self.clients:
            client.judge(self.outcome.happened[client.server])
            self.outcome.faults += client.faults
        for way in (Polling, Streaming, Hooked):
            clients = [client for client in self.clients if isinstance(client, way)]
            errors = sum((client.errors for client in clients), Counter[int]())
            losses, again = (sum(each) for each in zip(*((c.losses, c.again) for c in clients), strict=True))
            seen = sum(len(client.numbers) for client in clients)
            shown = ", ".join(f"{count} of {code}" for code, count in sorted(errors.items())) or "none"
            line = f"{way.way}: {seen} events, {losses} lost connections, {again} repetitions, errors: {shown}"
            self.outcome.clients.append(line)
        for log in self.fleet.folder.glob("hub-*.log"):
            self.outcome.faults += crashes(_CUT_OFF.sub("", log.read_text(errors="replace")))


def _is_event_server(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"event_server.py" in line or b"webhook_server.py" in line


@asynccontextmanager
async def _site(plan: Plan, folder: Path) -> AsyncIterator[_Site]:
    async with AsyncExitStack() as stack:
        has_server = plan.hubs > 1
        server = stack.enter_context(RedisServer(folder / "server")) if has_server else None
        site = _Site(plan, folder, server)
        try:
            await site.connect(stack)
            yield site
        finally:
            await anyio.to_thread.run_sync(site.fleet.stop)


async def events(plan: Plan, *, say: Callable[[str], None] = lambda line: None) -> Outcome:
    """Kills so many processes while about as many events happen, and judges each client. Raises: `NotInstalled`."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="events-") as name:
        async with _site(plan, Path(name)) as site, anyio.create_task_group() as tasks:
            await site.begin(tasks)
            while site.outcome.kills < plan.kills and time.monotonic() < began + plan.seconds:
                await site.act()
                seen = ", ".join(f"{client.way} {len(client.numbers)}" for client in site.clients)
                say(f"{site.outcome.kills} kills, {sum(site.outcome.happened.values())} events; {seen}")
            site.happens()
            await site.settle(say)
            tasks.cancel_scope.cancel()
        outcome = site.outcome
        site.judge()
        if outcome.faults:
            kept = Path(tempfile.mkdtemp(prefix="faults-of-events-"))
            await anyio.to_thread.run_sync(partial(shutil.copytree, name, kept, dirs_exist_ok=True, symlinks=True))
            say(f"files and logs: {kept}")
    outcome.seconds = time.monotonic() - began
    return outcome
