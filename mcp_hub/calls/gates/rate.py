"""Limits on calls of a server or a tool: so many begin in a time, so many run. Others wait until their deadline, and
are `busy` then.

`count` calls in `period` seconds is exact: no such time has more.
"""

import math
from collections.abc import Callable, Mapping
from typing import Final

import anyio

from mcp_hub.call import Call, CallChannel, CallHandler, SentCall
from mcp_hub.calls.gates.steps import QuickStep, Step
from mcp_hub.calls.gates.turns import Limit, TurnQueue, busy, busy_at
from mcp_hub.calls.plan import Sender, TimeLimits
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy, StoreError
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.stores.documents import LimitRule, SharedCounts, SharedLimit

log = get_logger(__name__)

_EARLY: Final = 0.1
"""Seconds before its deadline at which a waiting call is refused: the deadline would name the server."""
_LONGEST_PAUSE: Final = 0.25
"""Seconds between two looks at the count of all replicas, where a call may end at any time."""
_SHORTEST_PAUSE: Final = 0.01


LimitRules = Callable[[str, str], tuple[LimitRule | None, LimitRule | None]]
"""The present rules of a server, and of one of its tools."""


class CallLimits:
    """The limits of one hub: makes the step of a tool (`StepMaker`). `times` are each server's.

    With `shared` counts, those of all replicas hold; the hub's own queue then has one call of a tool at a time ask.
    """

    def __init__(
        self,
        rules: LimitRules,
        times: Mapping[str, tuple[TimeLimits, TimeLimits]],
        clock: Clock,
        shared: SharedCounts | None = None,
        note: Callable[[Call, str], None] = lambda call, rule: None,
    ) -> None:
        self._note = note
        self._rules = rules
        self._times = times
        self._clock = clock
        self._shared = shared
        self._queues: dict[str, TurnQueue] = {}
        self._limits: dict[tuple[str, str], Limit] = {}

    def __call__(self, server: str, tool: str, profile: str | None) -> Step | None:
        of_server, of_tool = self._rules(server, tool)
        limits = [
            self._limit((server, name), rule) for name, rule in (("", of_server), (tool, of_tool)) if rule is not None
        ]
        if not limits:
            return None
        queue = self._queues.get(server)
        if queue is None:
            queue = self._queues[server] = TurnQueue(self._clock)
        step = _LimitStep(queue, tuple(limits), tool, self._patience(server), note=self._note)
        return step if self._shared is None else _SharedStep(step, self._shared, server, self._clock)

    def _limit(self, key: tuple[str, str], rule: LimitRule) -> Limit:
        limit = self._limits.get(key)
        if limit is None:
            limit = self._limits[key] = Limit(rule, key[1])
        limit.use(rule)
        return limit

    def _patience(self, server: str) -> float:
        times = self._times[server][0]
        return max(min(times.silence, times.total) - _EARLY, 0.0)

    def look(self) -> None:
        """Applies the present rules to calls that wait."""
        for (server, tool), limit in list(self._limits.items()):
            rule = self._rules(server, tool)[bool(tool)]
            limit.use(LimitRule(limit.rule.key) if rule is None else rule)
            if rule is None and not limit.running:
                del self._limits[server, tool]
        for queue in self._queues.values():
            queue.dispatch()


class _LimitStep(QuickStep):
    """The step of one tool."""

    __slots__ = ("is_lasting", "limits", "note", "patience", "queue", "tool")

    def __init__(
        self, queue: TurnQueue, limits: tuple[Limit, ...], tool: str, patience: float, note: Callable[[Call, str], None]
    ) -> None:
        self.note = note
        self.is_lasting = any(limit.rule.running for limit in limits)
        """Whether a call counts until its end."""
        self.queue = queue
        self.limits = limits
        self.tool = tool
        self.patience = patience

    async def __call__(self, call: Call, channel: CallChannel, handler: CallHandler) -> Completed:
        if not self.queue.enter_at_once(self.limits):
            await self.wait_noted(call, channel)
        if not self.is_lasting:
            return await handler(call, channel)
        try:
            return await handler(call, channel)
        finally:
            self.queue.leave(self.limits)

    async def wait_noted(self, call: Call, channel: CallChannel) -> None:
        """Waits, and notes a refusal for the audit. Raises `Busy`."""
        try:
            await self.wait(call, channel)
        except Busy as refusal:
            self.note(call, str((refusal.data or {}).get("setting", "")))
            raise

    async def wait(self, call: Call, channel: CallChannel) -> None:
        """Waits until the call is counted. Raises `Busy`."""
        waiter = self.queue.enter(self.limits, call.principal, self.tool)
        if waiter is None:
            return
        channel.times.begin_wait(f"its turn at {self.limits[-1].rule.key}")
        is_cancelled = True
        try:
            with anyio.move_on_after(self.patience):
                await waiter.ready.wait()
            is_cancelled = False
        finally:
            channel.times.end_wait()
            self.queue.remove(waiter)
            if is_cancelled and waiter.is_admitted:  # it was cancelled in the same moment
                self.queue.leave(self.limits)
        if waiter.refusal is not None:
            raise waiter.refusal
        if not waiter.is_admitted:
            raise busy_at(self.limits, self.queue.now, f"a call has waited {self.patience:.0f} s for its turn")
        channel.times.touch()

    def before(self, sender: Sender) -> Sender:
        return _InPlace(self, sender)


class _InPlace:
    """A sender whose calls are counted when they begin in place; others wait in `_LimitStep`."""

    __slots__ = ("_sender", "_step")

    def __init__(self, step: _LimitStep, sender: Sender) -> None:
        self._step = step
        self._sender = sender

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        step, sent = self._step, None
        if not step.queue.enter_at_once(step.limits):
            return None
        try:
            sent = self._sender.begin(call, channel)
        finally:
            if sent is None:
                step.queue.give_back(step.limits)
        if sent is not None and step.is_lasting:
            return _CountedCall(step, sent)
        return sent

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        return await self._step(call, channel, self._sender.call)


class _CountedCall:
    """A call that was written in place; it is counted until its end."""

    __slots__ = ("_is_counted", "_sent", "_step", "result", "then")

    def __init__(self, step: _LimitStep, sent: SentCall) -> None:
        self._step = step
        self._sent = sent
        self._is_counted = True
        self.then, self.result = sent.then, sent.result

    def _leave(self) -> None:
        if self._is_counted:
            self._is_counted = False
            self._step.queue.leave(self._step.limits)

    def leave(self) -> None:
        self._leave()
        self._sent.leave()

    def abandon(self) -> None:
        self._leave()
        self._sent.abandon()

    async def finish(self) -> Completed:
        try:
            return await self._sent.finish()
        finally:
            self._leave()


class _SharedStep:
    """A step that counts in the store of all replicas, in the hub itself while the store does not answer.

    Of the calls that wait here one at a time asks, so that principals take turns.
    """

    def __init__(self, local: _LimitStep, shared: SharedCounts, server: str, clock: Clock) -> None:
        self._local = local
        self._shared = shared
        self._server = server
        self._clock = clock
        turn = LimitRule(local.limits[-1].rule.key, running=1)
        self._turn = _LimitStep(TurnQueue(clock), (Limit(turn),), local.tool, local.patience, note=local.note)

    async def __call__(self, call: Call, channel: CallChannel, handler: CallHandler) -> Completed:
        turn, until = self._turn, self._clock.now() + self._local.patience
        if not turn.queue.enter_at_once(turn.limits):
            await turn.wait_noted(call, channel)
        try:
            is_taken = await self._take(call, channel, until)
        finally:
            turn.queue.leave(turn.limits)
        if not is_taken:
            return await self._local(call, channel, handler)
        try:
            return await handler(call, channel)
        finally:
            self._shared.leave(self._server, self._shares, call.id)

    @property
    def _rules(self) -> tuple[LimitRule, ...]:
        return tuple(limit.rule for limit in self._local.limits)

    @property
    def _shares(self) -> list[SharedLimit]:
        return [(limit.tool, limit.rule) for limit in self._local.limits]

    async def _take(self, call: Call, channel: CallChannel, until: float) -> bool:
        """Counts the call as soon as it may begin; False if the store does not answer. Raises `Busy`."""
        try:
            while pause := await self._shared.take(self._server, self._shares, call.id):
                time = self._clock.now()
                if time >= until:
                    is_full = pause == math.inf
                    rule = next((rule for rule in self._rules if bool(rule.running) is is_full), self._rules[-1])
                    subject = f"a call has waited {self._local.patience:.0f} s for its turn"
                    refusal = busy(rule, subject, pause, is_full=is_full)
                    self._local.note(call, f"{rule.key}.{'concurrency' if is_full else 'rate'}")
                    raise refusal
                channel.times.begin_wait(f"its turn at {self._rules[-1].key}")
                try:
                    await anyio.sleep(max(min(pause, _LONGEST_PAUSE, until - time), _SHORTEST_PAUSE))
                finally:
                    channel.times.end_wait()
        except StoreError as problem:
            log.debug("limit_not_shared", upstream=self._server, reason=str(problem))
            return False
        channel.times.touch()
        return True
