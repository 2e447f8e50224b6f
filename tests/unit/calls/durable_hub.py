"""Hubs reduced to their calls and streams, over a shared store; calls that do as a test says, and followers."""

import asyncio
from collections.abc import Callable
from typing import Any, Self

import msgspec

from mcp_hub.call import Call, CallChannel, Question, StreamInfo
from mcp_hub.calls.plan import WITHOUT_PLAN, CallPlan, StreamLimits, TimeLimits
from mcp_hub.calls.reading.stream import Stream, StreamReader
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.starter import _Continuation
from mcp_hub.calls.streams.owners import GoOn
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Completed, Delta, Progressed
from mcp_hub.protocol.shape.stream_events import decoded
from mcp_hub.stores.base import EventStore
from mcp_hub.types import RawJson
from tests.unit.calls.call_scripts import DONE, LONG, new_call
from tests.unit.calls.shared_store import HubStore, Shared
from tests.unit.calls.virtual_time import LoopClock, sleep

HOW = msgspec.Raw(b'{"task":"t1"}')


class DurableHub:
    """`takes_up` if it can go on with calls of other hubs; those are in `taken_up`."""

    def __init__(
        self,
        store: EventStore | None = None,
        limits: StreamLimits | None = None,
        running: int = 100,
        *,
        takes_up: bool = False,
    ) -> None:
        self.store = store or HubStore()
        self.clock = LoopClock()
        self.go_on: GoOn = self._go_on
        limits = limits or StreamLimits(followers=1000)
        self.streams = StreamTable(self.store, self.clock, limits, self._takes_up if takes_up else None)
        self.registry = CallRegistry(self.clock, running, 100, on_durable=self.streams.begin)
        self.calls: list[DurableCall] = []
        self.taken_up: list[DurableCall] = []
        self._running: asyncio.Task[None] | None = None

    def runs(self) -> Self:
        self._running = asyncio.create_task(self.streams.run())
        return self

    def call(self, principal: str = "p", limits: TimeLimits = LONG, **members: Any) -> "DurableCall":
        call = DurableCall(self, msgspec.structs.replace(new_call(principal), **members), limits)
        self.calls.append(call)
        return call

    async def _takes_up(self, row: StreamInfo, progressed: Progressed | None) -> None:
        await self.go_on(row, progressed)

    async def _go_on(self, row: StreamInfo, progressed: Progressed | None) -> None:
        left = _Continuation.of(row)
        call = DurableCall(self, left.call, LONG, left.plan(row, progressed))
        self.streams.take_up(call.record, row)
        self.taken_up.append(call)

    async def dies(self) -> None:
        """At once, and nothing of it goes on."""
        assert isinstance(self.store, HubStore)
        self.store.die()
        if self._running is not None:
            self._running.cancel()
        for call in (*self.calls, *self.taken_up):
            call.record.task and call.record.task.cancel()
        await asyncio.sleep(0)

    async def stops(self) -> None:
        await self.registry.close(0.3)
        await self.streams.close(0.5)
        if self._running is not None:
            await self._running

    async def follow(self, id_: str, after: int = 0, principal: str = "p", most: int | None = None) -> "Follower":
        stream = await self.streams.open(principal, id_, after)
        return Follower(self.streams, stream, after, most)


class DurableCall:
    """A call whose handler waits for `ends`; `was_left` if it was stopped and left to another hub."""

    def __init__(self, hub: DurableHub, call: Call, limits: TimeLimits, plan: CallPlan = WITHOUT_PLAN) -> None:
        self.outcome: asyncio.Future[Completed] = asyncio.get_running_loop().create_future()
        self.was_left: bool | None = None
        self.record: CallRecord = hub.registry.start(call, self._handle, limits, plan)
        self.id = call.id

    async def _handle(self, call: Call, channel: CallChannel) -> Completed:
        try:
            return await self.outcome
        except asyncio.CancelledError:
            self.was_left = channel.survives
            raise

    def says(self, *events: CallEvent) -> None:
        for event in events:
            self.record.send(event)

    def ends(self, how: Completed | BaseException = DONE) -> None:
        if self.outcome.done():
            return
        if isinstance(how, Completed):
            self.outcome.set_result(how)
        else:
            self.outcome.set_exception(how)


class Follower:
    """Takes all there is, as soon as it is told; or nothing while it `is_slow`."""

    def __init__(self, streams: StreamTable, stream: Stream, after: int, most: int | None = None) -> None:
        self.after = after
        self.lines: list[bytes] = []
        self.events: list[CallEvent] = []
        self.is_slow = False
        self._most = most
        self._is_due = False
        self.turns = 0
        self.reader: StreamReader = streams.follow(stream, self._wake, after)

    def _wake(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self.take)

    def take(self) -> None:
        self._is_due = False
        self.turns += 1
        if self.is_slow or self.reader.is_closed:
            return
        for entry in self.reader.take_entries(self._most):
            self.lines.append(entry.line)
            self.events.append(plain(entry.read))
        if self.reader.has_more:
            self._wake()

    def wakes_up(self) -> None:
        self.is_slow = False
        self._wake()

    @property
    def at_end(self) -> bool:
        return self.reader.at_end

    @property
    def seqs(self) -> list[int]:
        return [decoded(line)[0] for line in self.lines]


def store_of(hub: DurableHub) -> HubStore:
    assert isinstance(hub.store, HubStore)
    return hub.store


def written(hub: DurableHub, id_: str) -> list[CallEvent]:
    """The events in the store, whose numbers have no hole."""
    lines = store_of(hub).shared.lines(id_)
    assert [decoded(line)[0] for line in lines] == list(range(1, len(lines) + 1))
    return [plain(decoded(line)[1]) for line in lines]


def row_of(hub: DurableHub, id_: str) -> StreamInfo:
    row = store_of(hub).shared.row(id_)
    assert row is not None
    return row


def status(hub: DurableHub, id_: str) -> str:
    return row_of(hub, id_).status


async def one_call(hub: DurableHub | None = None, seconds: float = 1) -> "tuple[DurableHub, DurableCall]":
    """A hub with a call that began so long ago; after a second it is durable."""
    hub = hub or DurableHub()
    call = hub.call()
    await sleep(seconds)
    return hub, call


async def pair_with_call(*, takes_up: bool = False, delay: float | None = None) -> "tuple[Pair, DurableCall]":
    """Two hubs on one store, with such a call at the first."""
    pair = Pair(takes_up=takes_up, delay=delay)
    return pair, (await one_call(pair.one))[1]


def plain(event: CallEvent) -> CallEvent:
    """The event with bytes for payloads that are views of a line."""
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    made: Callable[..., CallEvent] = type(event)
    return made(**{k: bytes(v) if isinstance(v, msgspec.Raw) else v for k, v in values.items()})


def delta(text: str, index: int = 0) -> Delta:
    return Delta(msgspec.json.encode([{"type": "text", "text": text}]), index)


async def settle(condition: Callable[[], bool], seconds: float = 60) -> None:
    """Lets time pass until it holds."""
    until = LoopClock().now() + seconds
    while not condition():
        assert LoopClock().now() < until, "it never came to that"
        await asyncio.sleep(0.01)


class Pair:
    """Two hubs on one store."""

    def __init__(self, *, takes_up: bool = False, delay: float | None = None) -> None:
        self.shared = Shared()
        made = [HubStore(self.shared, None if delay is None else lambda: delay) for _ in range(2)]
        self.one = DurableHub(made[0]).runs()
        self.two = DurableHub(made[1], takes_up=takes_up).runs()

    def beside(self) -> DurableHub:
        """A third one, which takes up calls."""
        return DurableHub(HubStore(self.shared), takes_up=True).runs()

    def events(self, id_: str) -> list[CallEvent]:
        return written(self.one, id_)

    def status(self, id_: str) -> str:
        return status(self.one, id_)


def ask(call: DurableCall) -> list[RawJson | RpcError]:
    """Puts a question; where its answer will be."""
    answers: list[RawJson | RpcError] = []
    call.record.ask(Question("elicitation/create", b"{}", answers.append))
    return answers


def held(stream: Stream) -> int:
    """Bytes of committed events in memory."""
    return sum(len(entry.line) for entry in stream._tail or ())
