"""A `ExecutorUpstream` with one executor, the worker behind it, and clients that call its tool."""

import itertools
import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.errors import Rejected, RpcError
from mcp_hub.events import Completed, Post
from mcp_hub.notices import Notices
from mcp_hub.types import JsonObject, Kind
from mcp_hub.upstreams.executors.posts import ExecutorLimits
from mcp_hub.upstreams.executors.registry import CallOffer
from mcp_hub.upstreams.executors.upstream import ExecutorUpstream, _Posted
from tests.unit.calls.virtual_time import named_like
from tests.unit.fakes import Channel, HandClock
from tests.unit.upstreams.function_calls import request
from tests.unit.wire.raw_lines import group

STEP = b'{"type":"progress","data":{"progress":1}}'
ASK = b'{"type":"input-required","data":{"key":"mine","method":"elicitation/create","params":{"message":"?"}}}'


def tool(name: str, **more: Any) -> bytes:
    return json.dumps({"name": name, "inputSchema": {"type": "object"}, **more}).encode()


@contextmanager
def refusing(code: str, match: str | None = None) -> Iterator[pytest.ExceptionInfo[Rejected]]:
    with pytest.raises(Rejected, match=match) as caught:
        yield caught
    assert caught.value.code == code


class Calls:
    """Calls of a client that run beside the test; what each came to, in the order of their ends."""

    def __init__(self, upstream: ExecutorUpstream, tasks: anyio.abc.TaskGroup) -> None:
        self._upstream, self._tasks = upstream, tasks
        self.ends: list[Completed | RpcError] = []

    async def start(self, name: str = "t", call: Call | None = None) -> tuple[Channel, anyio.CancelScope]:
        channel, scope = Channel(), anyio.CancelScope()

        async def run() -> None:
            with scope:
                try:
                    self.ends.append(await self._upstream.call(call or request(name, {"a": 1}), channel))
                except RpcError as error:
                    self.ends.append(error)

        self._tasks.start_soon(run)
        await anyio.wait_all_tasks_blocked()
        return channel, scope

    async def all_run(self) -> bool:
        await anyio.wait_all_tasks_blocked()
        return not self.ends

    async def end(self) -> Completed | RpcError:
        await anyio.wait_all_tasks_blocked()
        (end,) = self.ends
        return end


@dataclass
class Hub:
    upstream: ExecutorUpstream
    clock: HandClock
    changes: Notices
    calls: Calls

    def sweep(self, time: float) -> None:
        self.clock.time = time
        self.upstream.workers.sweep()

    async def fetch(self, epoch: int = 1, most: int = 10, wait: float = 0, id_: str = "e") -> list[Any]:
        return list(await self.upstream.workers.calls("p", id_, epoch, most, wait))

    async def fetch_one(self, epoch: int = 1) -> str:
        (offer,) = await self.fetch(epoch)
        assert isinstance(offer, CallOffer)
        return offer.tool_call_id

    async def post(self, id_: str, seq: int, *events: bytes, epoch: int = 1, **more: Any) -> _Posted:
        return await self.upstream.workers.post("p", id_, Post(epoch, seq, events, **more))


def played(**limits: Any) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., Awaitable[None]]]:
    """A test of executor `e` of principal `p`, which has tool `t`."""

    def decorate(script: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
        async def test(**given: Any) -> None:
            clock, changes = HandClock(0.0), Notices()
            epochs: dict[tuple[str, str], Iterator[int]] = defaultdict(lambda: itertools.count(1))
            bounds, after = ExecutorLimits(catch_up=0, **limits), lambda *who: next(epochs[who[:2]])
            upstream = ExecutorUpstream("virtual", changes, clock, bounds, after)
            upstream.workers.register("p", "e", [tool("t")])
            with anyio.fail_after(240):
                async with group() as tasks:
                    await script(Hub(upstream, clock, changes, Calls(upstream, tasks)), **given)

        return named_like(script, test)

    return decorate


def listed(hub: Hub) -> tuple[bytes, ...]:
    return hub.upstream.snapshot().lists[Kind.TOOL]


def can_elicit() -> Call:
    capabilities: JsonObject = {"elicitation": {"form": {}}}
    return msgspec.structs.replace(request("t", {}), capabilities=capabilities, version="2025-11-25")
