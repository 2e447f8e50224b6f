"""Tools that workers register for their principal and run.

A call ends with `executor_lost` when the worker's lease ends or it stays silent.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final
from weakref import ref

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy, InvalidParams, Rejected, RpcError, UnknownEntry, executor_lost
from mcp_hub.events import Completed, Failed, InputRequired, Post
from mcp_hub.ids import ids
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.notices import Notices
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import Era, JsonObject, Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.executors.posts import ExecutorLimits, Production, malformed, read_tools, stale
from mcp_hub.upstreams.executors.registry import CANCELLED, CallOffer, Executor, Offer, Work
from mcp_hub.upstreams.local_source import LocalSource

log = get_logger(__name__)

NextEpoch = Callable[[str, str, int], int]
"""The next epoch of a principal's executor: above the one that it has, and above those before it was removed."""

_fresh: Final = ids(os.urandom)
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_SWEEP: Final = 1.0
"""Seconds between two looks for leases that ran out and workers that are silent."""


class _Posted(msgspec.Struct, frozen=True):
    """A post was taken, now or earlier (`is_duplicate`). Up to `credit` events may follow; 0: wait."""

    credit: int
    is_duplicate: bool = False


class _Workers:
    """All executors with their workers: tools, offers, posts. `run` watches leases and silence."""

    def __init__(
        self, name: str, changes: Notices, clock: Clock, limits: ExecutorLimits, next_epoch: NextEpoch
    ) -> None:
        self._name = name
        self._changes = changes
        self._clock = clock
        self._limits = limits
        self._next_epoch = next_epoch
        self._executors: dict[tuple[str, str], Executor] = {}
        self._works: dict[str, Work] = {}
        self._ended: OrderedDict[str, tuple[Executor, Production, ref[CallChannel]]] = OrderedDict()
        self.snapshot = self._listed()

    @property
    def count(self) -> int:
        return len(self._executors)

    def register(self, principal: str, executor_id: str, tools: Sequence[RawJson], lease: float = 60.0) -> int:
        """Registers a worker for 5 to 3,600 seconds; its epoch. Raises `Rejected`.

        Calls that the previous epoch fetched are lost.
        """
        if not _ID.fullmatch(executor_id):
            raise malformed(
                f"Executor id {hide_head(executor_id, 200)!r} has to be 1 to 128 letters, digits, '_', '-' or '.'."
            )
        if not 5 <= lease <= 3600:
            raise malformed(f"The lease has to be 5 to 3600 seconds, not {lease}.")
        named = read_tools(tools, self._limits.tools, self._limits.definitions)
        executor = self._executor((principal, executor_id), named)
        epoch = self._next_epoch(principal, executor_id, executor.epoch)
        for work in list(executor.fetched.values()):
            self._lose(work, "was registered again")
        executor.register(epoch, named, lease, self._clock.now())
        self._publish()
        log.info("executor_registered", upstream=self._name, executor=executor_id, epoch=epoch)
        return epoch

    def _executor(self, key: tuple[str, str], named: dict[str, bytes]) -> Executor:
        for other_key, executor in self._executors.items():
            if other_key != key and (taken := named.keys() & executor.tools.keys()):
                raise _taken(min(taken), other_key[1] if other_key[0] == key[0] else None)
        other_keys = [owner_key for owner_key in self._executors if owner_key != key]
        mine = [owner_key for owner_key in other_keys if owner_key[0] == key[0]]
        tools = sum(len(self._executors[owner_key].tools) for owner_key in mine) + len(named)
        limits = self._limits
        _check("tools of executors of one principal", "own_tools", tools, limits.own_tools)
        _check("executors of one principal", "own_executors", len(mine) + 1, limits.own_executors)
        _check("executors", "executors", len(other_keys) + 1, limits.executors)
        if key not in self._executors:
            self._executors[key] = Executor(key)
        return self._executors[key]

    def remove(self, principal: str, executor_id: str) -> None:
        """Removes the executor and ends its calls. Raises `Rejected`."""
        self._drop(self._find(principal, executor_id), "was removed")

    async def calls(self, principal: str, executor_id: str, epoch: int, limit: int, wait: float = 30.0) -> list[Offer]:
        """Up to `limit` offers, each once; waits for one up to `wait` seconds or half the lease.

        Raises `Rejected`, also if the executor is removed meanwhile.
        """
        if limit < 1:
            raise malformed(f"The number of offers has to be 1 or more, not {limit}.")
        executor = self._find(principal, executor_id, epoch)
        executor.renew(self._clock.now())
        with anyio.move_on_after(min(wait, executor.lease / 2)):
            while not (offers := executor.take(limit, self._limits.running, self._clock.now())):
                await executor.bell.wait()
                self._find(principal, executor_id, epoch)
            return offers
        return []

    async def post(self, principal: str, tool_call_id: str, post: Post) -> _Posted:
        """Takes a post and returns when it is stored. Raises `Rejected`."""
        await self._catch_up(tool_call_id, len(post.events))
        posted = self._take(principal, tool_call_id, post)
        await self._until_stored(tool_call_id)
        return _Posted(await self._catch_up(tool_call_id, self._limits.window // 2), posted.is_duplicate)

    async def _until_stored(self, id_: str) -> None:
        work, ended = self._works.get(id_), self._ended.get(id_)
        channel = work.channel if work is not None else ended[2]() if ended is not None else None
        if channel is not None:  # else the call is over and written
            with anyio.move_on_after(self._limits.keeping) as waiting:
                await channel.until_stored(whole=work is None)
            if waiting.cancelled_caught:
                seconds = self._limits.keeping
                text = f"The store did not take this within {seconds:g} s. Post it again under the same number."
                raise Rejected("not_kept", text)

    async def _catch_up(self, id_: str, needed: int) -> int:
        """The call's credit; waits for readers if it is below `needed`."""
        work = self._works.get(id_)
        if work is not None and work.production.credit < max(needed, 1):
            with anyio.move_on_after(self._limits.catch_up):
                await work.channel.drained()
                work.production.drained()
        return work.production.credit if work is not None else 0

    def _take(self, principal: str, id_: str, post: Post) -> _Posted:
        work = self._works.get(id_)
        if work is not None and id_ in work.executor.fetched:
            executor, production = work.executor, work.production
        elif id_ in self._ended:
            executor, production, _ = self._ended[id_]
        else:
            raise _unknown(id_)
        if executor.key[0] != principal:
            raise _unknown(id_)
        epoch = self._executors.get(executor.key, executor).epoch  # it may have been removed and registered again
        if work is not None and post.epoch in (None, epoch):
            work.touch(self._clock.now())
        taken = production.receive(post, epoch)
        if taken is None or work is None:
            return _Posted(production.credit, is_duplicate=True)
        work.channel.times.touch()
        for event in taken.events:
            if isinstance(event, InputRequired):
                work.ask(event, self._clock)
            else:
                work.channel.send(event)
        if taken.ending is not None:
            self.finish(work, taken.ending.error if isinstance(taken.ending, Failed) else taken.ending)
        return _Posted(production.credit)

    async def run(self) -> None:
        while True:
            await anyio.sleep(_SWEEP)
            self.sweep()

    def sweep(self) -> None:
        """Ends overdue leases and silent calls."""
        now, silence = self._clock.now(), self._limits.silence
        for executor in list(self._executors.values()):
            if now >= executor.due:
                self._drop(executor, f"was silent for {executor.lease:g} s, its lease")
            for work in list(executor.fetched.values()):
                if not work.asking and now - work.heard >= silence:
                    self._lose(work, f"was silent for {silence:g} s")

    def _find(self, principal: str, executor_id: str, epoch: int | None = None) -> Executor:
        if (executor := self._executors.get((principal, executor_id))) is None:
            text = f'Executor "{hide_head(executor_id, 200)}" is unknown. Register it.'
            raise Rejected("unknown_executor_or_call", text)
        if epoch is not None and epoch != executor.epoch:
            raise stale(epoch, executor.epoch)
        return executor

    def _drop(self, executor: Executor, why: str) -> None:
        log.info("executor_gone", upstream=self._name, executor=executor.key[1], reason=why)
        for work in [*executor.fetched.values(), *executor.waiting.values()]:
            self._lose(work, why)
        del self._executors[executor.key]
        executor.ring()
        self._publish()

    def _publish(self) -> None:
        fresh = self._listed()
        if fresh != self.snapshot:
            self.snapshot = fresh
            self._changes.bump()

    def _listed(self) -> Snapshot:
        ordered = sorted(self._executors.values(), key=lambda executor: executor.key[::-1])
        tools = tuple(tool for executor in ordered for tool in executor.tools.values())
        capabilities: JsonObject = {"tools": {}, "logging": {}} if tools else {"tools": {}}
        return Snapshot(self._name, Era.HANDSHAKE, {Kind.TOOL: tools}, capabilities=capabilities)

    def _lose(self, work: Work, why: str) -> None:
        """A call that was not fetched has certainly not run."""
        id_ = work.executor.key[1]
        outcome = {"outcome": "unknown"} if work.offer.tool_call_id in work.executor.fetched else {}
        data: JsonObject = {"upstream": {"server": self._name}, "executor": id_, **outcome}
        self.finish(work, executor_lost(f'Executor "{id_}" of tool "{work.offer.name}" {why}.', data))

    def finish(self, work: Work, outcome: Completed | RpcError) -> None:
        """Ends a call; a worker that has fetched it may still post, in vain."""
        id_ = work.offer.tool_call_id
        del self._works[id_]
        if work.finish(outcome):
            self._ended[id_] = work.executor, work.production, ref(work.channel)
            if len(self._ended) > self._limits.ended:
                self._ended.popitem(last=False)

    def accept(self, tool: str, call: Call, channel: CallChannel) -> Work:
        """Queues a call for the tool's worker. Raises `UnknownEntry`, `InvalidParams` and `Busy`."""
        executor = next((candidate for candidate in self._executors.values() if tool in candidate.tools), None)
        if executor is None:
            raise UnknownEntry(f'server "{self._name}" does not have a tool "{tool}".')
        arguments = call.params.get("arguments", msgspec.Raw(b"{}"))
        if raw_object(arguments) is None:
            raise InvalidParams(f'The arguments of "{tool}" have to be an object.')
        if len(executor.waiting) >= self._limits.waiting:
            raise Busy(f'{self._limits.waiting} calls already wait for executor "{executor.key[1]}". Try again later.')
        offer = CallOffer(
            tool_call_id="tc_" + next(_fresh),
            name=tool,
            arguments=arguments,
            meta=call.meta,
            credit=self._limits.window,
        )
        work = Work(executor=executor, call=call, channel=channel, offer=offer, production=Production(self._limits))
        self._works[offer.tool_call_id] = work
        executor.add(work)
        channel.times.begin_wait(f'executor "{executor.key[1]}" to fetch it')
        return work


class ExecutorUpstream(LocalSource):
    """The tools of all `workers`."""

    def __init__(
        self, name: str, changes: Notices, clock: Clock, limits: ExecutorLimits, next_epoch: NextEpoch
    ) -> None:
        self.workers = _Workers(name, changes, clock=clock, limits=limits, next_epoch=next_epoch)
        super().__init__(name, self.workers.run)

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Queues the call and waits for its end. Raises `executor_lost` and `Busy`."""
        work = self.workers.accept(self.tool_of(call), call, channel)
        try:
            await work.finished.wait()
        finally:
            if not work.finished.is_set():
                self.workers.finish(work, CANCELLED)
        if isinstance(work.outcome, Completed):
            return work.outcome
        raise work.outcome

    def status(self) -> UpstreamStatus:
        return UpstreamStatus(self.name, UpstreamState.READY, f"executors: {self.workers.count}", Era.HANDSHAKE)

    def snapshot(self) -> Snapshot:
        return self.workers.snapshot


def _unknown(tool_call_id: str) -> Rejected:
    """Hides whether the call is another principal's."""
    return Rejected("unknown_executor_or_call", f'Tool call "{hide_head(tool_call_id, 200)}" is unknown.')


def _check(unit: str, name: str, count: int, maximum: int) -> None:
    if count > maximum:
        text = f"The hub takes at most {maximum} {unit}. Remove one, or try again later."
        raise Rejected("busy", text, limit=name, most=maximum)


def _taken(tool: str, holder: str | None) -> Rejected:
    """`holder` is None for another principal's executor."""
    whose = "an executor of another principal" if holder is None else f'executor "{holder}"'
    members = {} if holder is None else {"holder": holder}
    return Rejected("name_taken", f'Tool "{tool}": {whose} has this name. Use another name.', **members)
