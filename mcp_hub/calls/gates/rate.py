"""How many calls of a server or a tool begin in a time, and run at once. Others wait, and then are refused.

A server's waiting calls stand in one queue, at most 256 of a principal and 4,096 in all. Principals take turns; of one
of them the oldest call is next that may begin. A call waits until its deadline, and is `busy` then. `count` calls in
`period` seconds is exact: no time of that length has more.
"""

import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import anyio
import msgspec

from mcp_hub.aio import Timer, call_later
from mcp_hub.call import Call, CallChannel, CallHandler, Sender, SentCall
from mcp_hub.calls.gates.steps import QuickStep, Step
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy, StoreError
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.stores.base import SharedCounts, SharedLimit

log = get_logger(__name__)

_MOST: Final = 4096
"""Waiting calls of a server."""
_MOST_OF_ONE: Final = 256
"""Waiting calls of a principal at a server."""
_EARLY: Final = 0.1
"""Seconds before its deadline at which a waiting call is refused: the deadline would name the server."""
_LONGEST_PAUSE: Final = 0.25
"""Seconds between two looks at the count of all replicas, where a call may end at any time."""
_SHORTEST_PAUSE: Final = 0.01
_AGAIN: Final = 5
"""Seconds after which a refused call may be tried again if nothing better is known."""


class LimitRule(msgspec.Struct, frozen=True):
    """At most `count` calls begin in `period` seconds, and `running` run; 0: any number. `key` is in the settings."""

    key: str
    count: int = 0
    period: float = 0.0
    running: int = 0


LimitRules = Callable[[str, str], tuple[LimitRule | None, LimitRule | None]]
"""The present rules of a server, and of one of its tools."""


class _Limit:
    """One rule with its counts."""

    __slots__ = ("begun", "rule", "running", "tool")

    def __init__(self, rule: LimitRule, tool: str = "") -> None:
        self.rule = rule
        self.tool = tool
        self.running = 0
        self.begun: deque[float] = deque(maxlen=rule.count)

    def use(self, rule: LimitRule) -> None:
        if rule != self.rule:
            self.rule, self.begun = rule, deque(self.begun, maxlen=rule.count)

    def pause(self, now: float) -> float:
        """Seconds until the next call may begin; infinite if another one has to end."""
        rule, begun = self.rule, self.begun
        if rule.running and self.running >= rule.running:
            return math.inf
        if not rule.count or len(begun) < rule.count:
            return 0.0
        return max(begun[0] + rule.period - now, 0.0)

    def take(self, now: float) -> None:
        rule = self.rule
        if rule.count:
            self.begun.append(now)
        if rule.running:
            self.running += 1


class _Waiter(msgspec.Struct, eq=False):
    """A waiting call; `refusal` is why it does not begin."""

    limits: tuple[_Limit, ...]
    principal: str
    tool: str
    number: int
    ready: anyio.Event
    is_admitted: bool = False
    refusal: Busy | None = None


class _Queue:
    """The calls that wait for one server. Principals take turns."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[str, dict[str, deque[_Waiter]]] = {}
        """By principal, and by tool; the principal whose turn it is comes first."""
        self._count = 0
        self._number = 0
        self._timer: Timer | None = None

    @property
    def now(self) -> float:
        return self._clock.now()

    def enter_at_once(self, limits: tuple[_Limit, ...]) -> bool:
        """Counts a call that may begin now."""
        now = self._clock.now()
        if self._count:
            return False
        for limit in limits:
            if limit.pause(now):
                return False
        for limit in limits:
            limit.take(now)
        return True

    def leave(self, limits: tuple[_Limit, ...]) -> None:
        for limit in limits:
            if limit.running:
                limit.running -= 1
        if self._count:
            self.dispatch()

    def give_back(self, limits: tuple[_Limit, ...]) -> None:
        """Forgets the call that was counted last: it was not sent."""
        for limit in limits:
            if limit.begun:
                limit.begun.pop()
        self.leave(limits)

    def enter(self, limits: tuple[_Limit, ...], principal: str, tool: str) -> _Waiter | None:
        """A call that waits; None: it is counted already. Raises `Busy` if too many wait."""
        self._make_room(limits, principal)
        self._number += 1
        waiter = _Waiter(limits, principal, tool, self._number, anyio.Event())
        self._waiting.setdefault(principal, {}).setdefault(tool, deque()).append(waiter)
        self._count += 1
        self.dispatch()
        return None if waiter.is_admitted else waiter

    def _make_room(self, limits: tuple[_Limit, ...], principal: str) -> None:
        """Refuses this call, or the newest one of the principal with the most, if too many wait."""
        sizes = {name: sum(map(len, tools.values())) for name, tools in self._waiting.items()} if self._count else {}
        number = sizes.get(principal, 0)
        if number >= _MOST_OF_ONE:
            raise _busy(limits, self._clock.now(), f"{number} calls of this client wait for")
        if self._count >= _MOST:
            crowd = max(sizes, key=lambda name: sizes[name])
            if number + 1 >= sizes[crowd]:
                raise _busy(limits, self._clock.now(), f"{self._count} calls wait for")
            newest = max((line[-1] for line in self._waiting[crowd].values()), key=lambda waiter: waiter.number)
            newest.refusal = _busy(newest.limits, self._clock.now(), f"{self._count} calls wait for")
            self.remove(newest)
            newest.ready.set()

    def remove(self, waiter: _Waiter) -> None:
        """Takes a call out of the queue. Idempotent."""
        tools = self._waiting.get(waiter.principal, {})
        line = tools.get(waiter.tool)
        if line is None or waiter not in line:
            return
        line.remove(waiter)
        self._count -= 1
        if not line:
            del tools[waiter.tool]
            if not tools:
                del self._waiting[waiter.principal]

    def dispatch(self) -> None:
        """Lets calls begin, as many as may."""
        now, blocked = self._clock.now(), 0
        while self._count and blocked < len(self._waiting):
            principal = next(iter(self._waiting))
            tools = self._waiting[principal]
            heads = [line[0] for line in tools.values() if not any(limit.pause(now) for limit in line[0].limits)]
            if heads:
                blocked = 0
                waiter = min(heads, key=lambda head: head.number)
                for limit in waiter.limits:
                    limit.take(now)
                self.remove(waiter)
                waiter.is_admitted = True
                waiter.ready.set()
            else:
                blocked += 1
            if principal in self._waiting:  # the next one's turn
                self._waiting[principal] = self._waiting.pop(principal)
        self._wake_later(now)

    def _wake_later(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pauses = [
            max(limit.pause(now) for limit in line[0].limits)
            for tools in self._waiting.values()
            for line in tools.values()
        ]
        pause = min(pauses, default=math.inf)
        if pause < math.inf:
            self._timer = call_later(max(pause, 0.0), self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.dispatch()


def _busy(limits: tuple[_Limit, ...], now: float, what: str) -> Busy:
    """The refusal, which names the limit that holds the call up longest."""
    limit = max(limits, key=lambda limit: limit.pause(now))
    rule, pause = limit.rule, limit.pause(now)
    return busy(rule, what, pause, is_full=bool(rule.running) and pause == math.inf)


def busy(rule: LimitRule, what: str, pause: float, *, is_full: bool) -> Busy:
    key, value = (f"{rule.key}.concurrency", rule.running) if is_full else (f"{rule.key}.rate", rule.count)
    after = math.ceil(pause) if 0 < pause < math.inf else _AGAIN
    return Busy.at(f"{what} their turn at {rule.key}", key, value, retry_after=max(after, 1))


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
    ) -> None:
        self._rules = rules
        self._times = times
        self._clock = clock
        self._shared = shared
        self._queues: dict[str, _Queue] = {}
        self._limits: dict[tuple[str, str], _Limit] = {}

    def __call__(self, server: str, tool: str, profile: str | None) -> Step | None:
        of_server, of_tool = self._rules(server, tool)
        limits = [
            self._limit((server, name), rule) for name, rule in (("", of_server), (tool, of_tool)) if rule is not None
        ]
        if not limits:
            return None
        queue = self._queues.get(server)
        if queue is None:
            queue = self._queues[server] = _Queue(self._clock)
        step = _LimitStep(queue, tuple(limits), tool, self._patience(server))
        return step if self._shared is None else _SharedStep(step, self._shared, server, self._clock)

    def _limit(self, key: tuple[str, str], rule: LimitRule) -> _Limit:
        limit = self._limits.get(key)
        if limit is None:
            limit = self._limits[key] = _Limit(rule, key[1])
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

    __slots__ = ("is_lasting", "limits", "patience", "queue", "tool")

    def __init__(self, queue: _Queue, limits: tuple[_Limit, ...], tool: str, patience: float) -> None:
        self.is_lasting = any(limit.rule.running for limit in limits)
        """Whether a call counts until its end."""
        self.queue = queue
        self.limits = limits
        self.tool = tool
        self.patience = patience

    async def __call__(self, call: Call, channel: CallChannel, handler: CallHandler) -> Completed:
        if not self.queue.enter_at_once(self.limits):
            await self.wait(call, channel)
        if not self.is_lasting:
            return await handler(call, channel)
        try:
            return await handler(call, channel)
        finally:
            self.queue.leave(self.limits)

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
            raise _busy(self.limits, self.queue.now, f"a call has waited {self.patience:.0f} s for")
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
        self._turn = _LimitStep(_Queue(clock), (_Limit(turn),), local.tool, local.patience)

    async def __call__(self, call: Call, channel: CallChannel, handler: CallHandler) -> Completed:
        turn, until = self._turn, self._clock.now() + self._local.patience
        if not turn.queue.enter_at_once(turn.limits):
            await turn.wait(call, channel)
        try:
            is_shared = await self._take(call, channel, until)
        finally:
            turn.queue.leave(turn.limits)
        if not is_shared:
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
        rules = [(limit.tool, limit.rule) for limit in self._local.limits]
        return [SharedLimit(tool, rule.count, rule.period, rule.running) for tool, rule in rules]

    async def _take(self, call: Call, channel: CallChannel, until: float) -> bool:
        """Counts the call as soon as it may begin; False if the store does not answer. Raises `Busy`."""
        try:
            while pause := await self._shared.take(self._server, self._shares, call.id):
                now = self._clock.now()
                if now >= until:
                    is_full = pause == math.inf
                    rule = next((rule for rule in self._rules if bool(rule.running) is is_full), self._rules[-1])
                    what = f"a call has waited {self._local.patience:.0f} s for"
                    raise busy(rule, what, pause, is_full=is_full)
                channel.times.begin_wait(f"its turn at {self._rules[-1].key}")
                try:
                    await anyio.sleep(max(min(pause, _LONGEST_PAUSE, until - now), _SHORTEST_PAUSE))
                finally:
                    channel.times.end_wait()
        except StoreError as problem:
            log.debug("limit_not_shared", upstream=self._server, reason=str(problem))
            return False
        channel.times.touch()
        return True
