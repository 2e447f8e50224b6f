"""A client of the HTTP front in memory, one call of it at a time in virtual time; no server and no upstream runs."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import msgspec

from mcp_hub.aio import call_later
from mcp_hub.call import Call, Early, Question, StreamInfo
from mcp_hub.calls.handle import CallHandle
from mcp_hub.calls.metering import Meters
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import CallPlan, CallRules, SessionRules, StreamLimits, TimeLimits
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.runner import QUIET, CallRecord
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.events import CallEvent, Cancelled, Completed, Ending, Progressed, Started
from mcp_hub.fronts.http.endpoints import respond_error
from mcp_hub.fronts.http.replay import Origin
from mcp_hub.fronts.http.request import Housekeeper, HttpRequest
from mcp_hub.fronts.http.response import HttpError, HttpResponse
from mcp_hub.fronts.http.resume import ClientCalls, Resumption
from mcp_hub.hub import HubPort
from mcp_hub.ids import new_call_id
from mcp_hub.notices import Notices
from mcp_hub.protocol.jsonrpc.envelope import Envelope
from mcp_hub.protocol.sse import Cursor
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.sessions.stored import StoredSession
from mcp_hub.stores.base import EventStore, Message, StoreLimits, StreamLog
from mcp_hub.stores.locks import new_instance_id
from mcp_hub.stores.memory import MemoryInbox, MemoryLog, MemoryStore, _MemoryLeases
from mcp_hub.types import CallId, Era, Kind, PartialForm
from tests.unit.calls.call_scripts import LoneOwner
from tests.unit.calls.virtual_time import LoopClock, sleep
from tests.unit.fakes import enveloped
from tests.unit.fronts.rest_peer import Response
from tests.unit.fronts.small_hub import Source, catalog_of


class Connection(Response):
    """One HTTP exchange whose request has been read: what the front sends, as uvicorn shows it."""

    task: asyncio.Task[None]

    @property
    def messages(self) -> list[Any]:
        return [event.message for event in self.events if event.data]

    @property
    def ids(self) -> list[int]:
        return [Cursor.parse(event.id).seq for event in self.events if event.id is not None]

    @property
    def questions(self) -> list[Any]:
        return [message for message in self.messages if "method" in message and "id" in message]


class WindowLog:
    """A log as one hub process sees it, until that is killed: then nothing more gets in, and nobody is told."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self.is_dead = False
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def create(self, *change: Any) -> None:
        self.writes += 1
        if not self.is_dead:
            self._log.create(*change)

    def append(self, *change: Any) -> None:
        self.writes += 1
        if not self.is_dead:
            self._log.append(*change)


class Window:
    """A store with such a log."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.log = WindowLog(store.log)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class Owner(LoneOwner):
    """Has the calls of a world."""

    def __init__(self, world: "World") -> None:
        super().__init__(world.streams)
        self.stop = world.stop  # type: ignore[method-assign]


class World:
    """A front's streams in one hub process, over a store that may be another's.

    `cancelled` are the calls that were given up, which takes 3 s. Tool `reads` only reads.
    """

    def __init__(
        self,
        close_after: float | None = None,
        *,
        store: MemoryStore | None = None,
        rules: CallRules | None = None,
        limits: StreamLimits | None = None,
    ) -> None:
        self.cancelled: list[CallRecord] = []
        self.meters = Meters()
        self.store = store or MemoryStore()
        self.window = Window(self.store)
        clock, changes = LoopClock(), Notices()
        self.streams = StreamTable(cast(EventStore, self.window), clock, limits or StreamLimits())
        source = Source(changes)
        source.offers(Kind.TOOL, "runs")
        source.adds_tool({"name": "reads", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}})
        self.owner = Owner(self)
        self.pending_input = PendingInput(clock, 1, self.cancel)
        given = rules or CallRules()
        registry = cast(CallRegistry, self)
        self.hub = HubPort(
            catalog_of(source, changes, clock),
            registry,
            {},
            {},
            SessionRules(10),
            self.pending_input,
            changes,
            self.streams,
            lambda server, tool: given,
        )
        self._housekeeper = Housekeeper()
        self._tasks = [asyncio.create_task(self._housekeeper.run()), asyncio.create_task(self.streams.run())]
        self.resumption = Resumption(self.hub, self._housekeeper, clock, close_after)

    def cancel(self, record: CallRecord, reason: str | None = None) -> None:
        self.stop(record, Cancelled(reason))

    def stop(self, record: CallRecord, ending: Ending) -> None:
        if record.stopping is None:
            self.cancelled.append(record)
            record.stopping = ending

            def end() -> None:
                record.log.append(ending)

            call_later(3, end)

    def killed(self) -> "World":
        """The hub process that is started on the same store after this one was killed."""
        self.window.log.is_dead = True
        for task in self._tasks:
            task.cancel()
        self.store.streams.instance = new_instance_id()
        return World(store=self.store)

    def beside(self) -> "World":
        """Another hub process on the same store; this one goes on."""
        return World(store=cast(MemoryStore, Neighbour(self.store)))

    def client(self, version: str = "2025-11-25", id_: str = "s", **capabilities: Any) -> ClientCalls:
        return ClientCalls(
            StoredSession(Session(id_, LOCAL, Era.HANDSHAKE, version, {"elicitation": {}, **capabilities}))
        )

    def open(self, run: Callable[[Connection], Any]) -> Connection:
        connection = Connection()
        connection.task = asyncio.create_task(run(connection))
        return connection

    def comes(self, client: ClientCalls, last: str) -> Connection:
        """The response to a GET with that `Last-Event-ID`."""

        async def resume(peer: Connection) -> None:
            try:
                await self.resumption.resume(client, last, HttpResponse(peer.receive, peer.send))
            except HttpError as error:
                await respond_error(peer.send, error)

        return self.open(resume)

    async def get(self, client: ClientCalls, last: str) -> Connection:
        """The same, after a moment."""
        connection = self.comes(client, last)
        await sleep(0.03)
        return connection


class NeighbourInbox(MemoryInbox):
    """Nothing in it is for this process."""

    async def take(self) -> list[Message]:
        return []

    async def has_news(self) -> bool:
        return True


class NeighbourLeases(_MemoryLeases):
    """The owners of all streams are alive until this process `is_alone`."""

    is_alone = False

    async def is_orphan(self, row: StreamInfo) -> bool:
        return self.is_alone and await super().is_orphan(row)

    async def orphans(self) -> list[StreamInfo]:
        return await super().orphans() if self.is_alone else []


class NeighbourLog:
    """The log of the same streams for a process of its own."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self.instance = new_instance_id()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class Neighbour:
    """The same store for a process of its own."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.log = NeighbourLog(store.log)
        self.inbox = NeighbourInbox(store.streams)
        self.leases = NeighbourLeases(store.streams)

    def be_alone(self) -> None:
        self.leases.is_alone = True
        self._store.streams.instance = self.log.instance

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class LateLog(MemoryLog):
    """Takes its time to fetch, as from a file; `is_stale` if it does not know yet what was let go."""

    is_stale = False

    def fetch(self, *what: Any) -> None:
        call_later(0.1, lambda: super(LateLog, self).fetch(*what))

    async def find(self, stream: CallId) -> StreamInfo | None:
        return None if self.is_stale else await super().find(stream)


class LateStore(MemoryStore):
    """A store with such a log."""

    def __init__(self, limits: StoreLimits | None = None) -> None:
        super().__init__(limits)
        self.log: LateLog = LateLog(self.streams)


class MadeCall:
    """A call that its client has POSTed, and what happens to it."""

    def __init__(
        self,
        world: World,
        client: ClientCalls | None = None,
        key: int = 1,
        *,
        takes_sse: bool = True,
        tool: str = "runs",
        early: Early | None = None,
        partials: PartialForm | None = None,
    ) -> None:
        self.world = world
        self.client = client = client or world.client()
        name = msgspec.Raw(b'"%s"' % tool.encode())
        session = client.session
        call = Call(
            new_call_id(), "git", "tools/call", {"name": name}, {}, session.id, "local", Era.HANDSHAKE, {},
            exported_name=name, partials=partials,
        )  # fmt: skip
        info = Origin.maker(b"%d" % key, b'"t"') if takes_sse else None
        plan = CallPlan(reads_only=lambda call: tool == "reads", info=info)
        self.record = world.owner.record(call, TimeLimits(9e9, 9e9), plan)
        self.record.log.append(Started())
        world.owner.reschedule(self.record.times.started + QUIET)
        leg = CallHandle(self.record.call, self.record, world.hub.durable, early=early)

        async def answer(peer: Connection) -> None:
            request = HttpRequest({}, {}, LOCAL, peer.receive, peer.send, Envelope(), takes_sse)
            await world.resumption.answer(client, request, b"%d" % key, key, b'"t"', leg)

        self.post = world.open(answer)
        self.answers: list[Any] = []

    def place(self, seq: int) -> str:
        return str(Cursor(self.record.call.id, seq))

    async def happens(self, *events: CallEvent) -> None:
        await sleep(0)  # the POST is read first
        for event in events:
            if isinstance(event, Ending):
                self.record.log.append(event)
            else:
                self.record.send(event)
        await sleep(0.03)

    async def progresses(self, *values: int) -> None:
        await self.happens(*map(Progressed, values))

    async def ends(self) -> None:
        await self.happens(Completed(b'{"content":[]}'))

    async def asks(self) -> str:
        await sleep(0)
        params = b'{"message":"name?","requestedSchema":{"type":"object","properties":{}}}'
        return self.record.ask(Question("elicitation/create", params, self.answers.append))

    async def comes_back(self, seq: int) -> Connection:
        return await self.world.get(self.client, self.place(seq))

    async def drops(self) -> None:
        self.post.leave()
        await sleep(0.5)
        assert self.post.task.done()


def values(connection: Connection) -> list[Any]:
    """The progress in it; "answer" stands for the response."""
    return [m["params"]["progress"] if "method" in m else "answer" for m in connection.messages]


def reply(client: ClientCalls, id_: int) -> None:
    """The client declines what it is asked."""
    client.questions.take(declined(id_))


def declined(id_: int) -> Envelope:
    return enveloped({"jsonrpc": "2.0", "id": id_, "result": {"action": "decline"}})
