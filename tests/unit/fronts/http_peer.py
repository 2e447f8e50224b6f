"""A client of the HTTP front in memory, one call of it at a time in virtual time; no server and no upstream."""

import asyncio
import json
from collections.abc import Callable, Coroutine, MutableMapping
from typing import Any, cast

import msgspec

from mcp_hub.calls.cursors import Cursor
from mcp_hub.calls.parking import Leg
from mcp_hub.calls.runner import CallRecord, TimeLimits, call_later
from mcp_hub.events import CallEvent, Cancelled, Completed, Progress, Started
from mcp_hub.fronts.exchange import Housekeeper
from mcp_hub.fronts.http_request import HttpRequest
from mcp_hub.fronts.resumption import Client, Resumption
from mcp_hub.hub import Facade
from mcp_hub.ids import new_call_id
from mcp_hub.protocol.envelope import Envelope
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.types import Era, RawJson
from mcp_hub.upstreams.base import Call, CallChannel, Question
from tests.e2e.client import SseEvent, SseParser
from tests.unit.calls.virtual_time import LoopClock, run, sleep

__all__ = ["Connection", "MadeCall", "World", "values", "virtual"]

Scenario = Callable[[], Coroutine[Any, Any, None]]


class Connection:
    """One HTTP exchange: what the front sends, and a client that may stop reading or leave, as uvicorn shows them."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.body = b""
        self.is_complete = False
        self.task: asyncio.Task[None]
        self._gone = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()

    async def receive(self) -> MutableMapping[str, Any]:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await self._reads.wait()
        if self._gone.is_set():
            return
        assert not self.is_complete, "nothing may follow the end of a response"
        if message["type"] == "http.response.start":
            assert self.status is None
            self.status = message["status"]
        else:
            assert self.status is not None
            self.body += message["body"]
            self.is_complete = not message.get("more_body")

    def stall(self) -> None:
        self._reads.clear()

    def go_on(self) -> None:
        self._reads.set()

    def leave(self) -> None:
        self._gone.set()
        self._reads.set()

    @property
    def events(self) -> list[SseEvent]:
        return SseParser().feed(self.body)

    @property
    def messages(self) -> list[Any]:
        return [event.message for event in self.events if event.data]

    @property
    def ids(self) -> list[int]:
        return [Cursor.parse(event.id).seq for event in self.events if event.id is not None]

    @property
    def error(self) -> Any:
        return json.loads(self.body)


class World:
    """A front's streams, with limits as they are; `cancelled` are the calls that it gave up, which takes 3 s."""

    def __init__(self, close_after: float | None = None) -> None:
        self.cancelled: list[CallRecord] = []
        self._keeper = Housekeeper()
        self._keeping = asyncio.create_task(self._keeper.run())
        self.resumption = Resumption(cast(Facade, self), self._keeper, LoopClock(), close_after)

    def cancel(self, record: CallRecord, reason: str | None = None) -> None:
        self.cancelled.append(record)
        record.stopping = Cancelled(reason)
        call_later(3, lambda: record.log.append(Cancelled(reason)))

    def exported(self, session: Session, call: Call, result: RawJson) -> RawJson:
        return result

    def is_shared(self, *about: object) -> bool:
        return False

    def client(self, version: str = "2025-11-25", id_: str = "s") -> Client:
        return Client(Session(id_, LOCAL, Era.HANDSHAKE, version, {"elicitation": {}}))

    def open(self, run: Callable[[Connection], Any]) -> Connection:
        connection = Connection()
        connection.task = asyncio.create_task(run(connection))
        return connection

    async def get(self, client: Client, last: str) -> Connection:
        """The response to a GET with that `Last-Event-ID`, after a moment."""
        connection = self.open(
            lambda peer: self.resumption.resume(client, last, peer.receive, peer.send)  # type: ignore[arg-type]
        )
        await sleep(0.01)
        return connection


class MadeCall:
    """A call that its client has POSTed, and what happens to it."""

    def __init__(
        self, world: World, client: Client, key: int = 1, params: bytes = b"{}", *, takes_sse: bool = True
    ) -> None:
        self.world = world
        self.client = client
        call = Call(
            new_call_id(), "git", "tools/call", {"arguments": msgspec.Raw(params)}, {}, "s", "p", Era.HANDSHAKE, {}
        )
        self.record = CallRecord(call, _unused, TimeLimits(9e9, 9e9), LoopClock())
        self.record.log.append(Started())
        leg = Leg(self.record)

        async def answer(peer: Connection) -> None:
            request = HttpRequest(Envelope(), {}, [], LOCAL, peer.receive, peer.send, takes_sse)
            await world.resumption.answer(client, request, b"%d" % key, key, b'"t"', leg)

        self.post = world.open(answer)
        self.answers: list[Any] = []

    def place(self, seq: int) -> str:
        return str(Cursor(self.record.call.id, seq))

    async def happens(self, *events: CallEvent) -> None:
        for event in events:
            self.record.log.append(event)
        await sleep(0.01)

    async def progresses(self, *values: int) -> None:
        await self.happens(*map(Progress, values))

    async def ends(self) -> None:
        await self.happens(Completed(b'{"content":[]}'))

    def asks(self) -> str:
        params = b'{"message":"name?","requestedSchema":{"type":"object","properties":{}}}'
        return self.record.ask(Question("elicitation/create", params, self.answers.append))

    async def comes_back(self, seq: int) -> Connection:
        return await self.world.get(self.client, self.place(seq))

    async def drops(self) -> None:
        self.post.leave()
        await sleep(0.5)
        assert self.post.task.done()


async def _unused(call: Call, channel: CallChannel) -> Completed:
    raise NotImplementedError


def virtual(scenario: Scenario) -> Callable[[], None]:
    """Runs a test on the loop whose time passes by itself."""

    def test() -> None:
        run(scenario)

    test.__name__ = scenario.__name__
    test.__doc__ = scenario.__doc__
    return test


def values(connection: Connection) -> list[Any]:
    """The progress in it; "answer" stands for the response."""
    return [m["params"]["progress"] if "method" in m else "answer" for m in connection.messages]
