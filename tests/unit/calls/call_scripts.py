"""Calls, and handlers that behave as they are told; for virtual time."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

from mcp_hub.call import Call, CallChannel, CallHandler, Early
from mcp_hub.calls.handle import CallHandle
from mcp_hub.calls.plan import WITHOUT_PLAN, CallPlan, CallRules, StreamLimits, TimeLimits
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.runner import CallOwner, CallRecord, new_record
from mcp_hub.calls.streams.port import StreamPort
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Completed, Ending, Progressed, Started
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import CallId, Era
from tests.unit.calls.virtual_time import LoopClock, sleep

GRACE, TICK = 5.0, 0.05
DONE = Completed(b'{"content":[]}')
LONG = TimeLimits(1000, 1000)
_numbers = count(1)


def new_call(principal: str = "p", method: str = "tools/call") -> Call:
    """By a hub where somebody may answer in place of clients, as every hub over HTTP is."""
    id_ = CallId(f"st_{next(_numbers)}")
    return Call(id_, "git", method, {}, {}, "s", principal, Era.HANDSHAKE, {}, people=lambda: False)


class LoneOwner(CallOwner):
    """The owner of calls without a registry."""

    def __init__(self, streams: StreamTable | None = None) -> None:
        self._streams = streams
        self._records: list[CallRecord] = []

    def record(self, call: Call, limits: TimeLimits = LONG, plan: CallPlan = WITHOUT_PLAN) -> CallRecord:
        record = new_record(call, never, limits, LoopClock(), plan, self)
        self._records.append(record)
        return record

    def reschedule(self, due: float) -> None:
        asyncio.get_running_loop().call_at(due, self._look)

    def _look(self) -> None:
        for record in self._records:
            record.look(LoopClock().now())

    def becomes_durable(self, record: CallRecord) -> None:
        if self._streams is not None:
            self._streams.begin(record)


def handle_of(
    record: CallRecord, streams: StreamTable | None = None, after: int = 0, early: Early | None = None
) -> CallHandle:
    """The call in its client's hands."""
    table = streams or StreamTable(MemoryStore(), LoopClock(), StreamLimits())
    return CallHandle(record.call, record, StreamPort(table, lambda server, tool: CallRules()), after, early)


async def at_once(call: Call, channel: CallChannel) -> Completed:
    return DONE


async def never(call: Call, channel: CallChannel) -> Completed:
    await sleep(1_000_000)
    return DONE


def after(seconds: float) -> CallHandler:
    async def handler(call: Call, channel: CallChannel) -> Completed:
        await sleep(seconds)
        return DONE

    return handler


def raising(error: BaseException, seconds: float = 0) -> CallHandler:
    async def handler(call: Call, channel: CallChannel) -> Completed:
        await sleep(seconds)
        raise error

    return handler


def talking(every: float, times: int) -> CallHandler:
    """Says something again and again, then ends."""

    async def handler(call: Call, channel: CallChannel) -> Completed:
        for number in range(times):
            await sleep(every)
            channel.send(Progressed(number))
        return DONE

    return handler


def stubborn(seconds: float) -> CallHandler:
    """Takes this long whatever it is told."""

    async def handler(call: Call, channel: CallChannel) -> Completed:
        end = LoopClock().now() + seconds
        while (left := end - LoopClock().now()) > 0:
            try:
                await sleep(left)
            except asyncio.CancelledError:
                pass
        return DONE

    return handler


HANDLERS: Sequence[Callable[[float], CallHandler]] = (
    after,
    lambda seconds: raising(RpcError("refused"), seconds),
    lambda seconds: raising(ZeroDivisionError("a bug"), seconds),
    lambda seconds: talking(seconds, 3),
    stubborn,
    lambda seconds: never,
)


@dataclass
class Watched:
    """A call with a reader from its first event on."""

    record: CallRecord
    began: float
    events: list[CallEvent] = field(default_factory=list)
    ended_at: float | None = None

    def __post_init__(self) -> None:
        self.reader = self.record.log.reader(self.note)
        self.note()

    def note(self) -> None:
        self.events += self.reader.take()
        if self.ended_at is None and self.record.log.ended:
            self.ended_at = LoopClock().now()

    def finish(self) -> list[CallEvent]:
        while taken := self.reader.take():
            self.events += taken
        return self.events

    @property
    def endings(self) -> list[Ending]:
        return [event for event in self.finish() if isinstance(event, Ending)]

    @property
    def ending(self) -> Ending:
        (ending,) = self.endings
        assert self.finish()[-1] is ending and self.finish()[0] == Started()
        return ending


def new_registry(running: int = 10, waiting: int = 10) -> CallRegistry:
    return CallRegistry(LoopClock(), running, waiting)


def watch(registry: CallRegistry, handler: CallHandler, limits: TimeLimits = LONG, principal: str = "p") -> Watched:
    return Watched(registry.start(new_call(principal), handler, limits), LoopClock().now())
