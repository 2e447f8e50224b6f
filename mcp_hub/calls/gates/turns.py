"""Calls that wait for one server: principals take turns, each with its oldest call that may begin.

At most 256 calls of a principal wait, and 4,096 in all.
"""

import math
from collections import deque
from typing import Final

import anyio
import msgspec

from mcp_hub.aio import Timer, call_later
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy
from mcp_hub.stores.documents import LimitRule

_MOST: Final = 4096
"""Waiting calls of a server."""
_MOST_OF_ONE: Final = 256
"""Waiting calls of a principal at a server."""
_AGAIN: Final = 5
"""Seconds after which a refused call may be tried again if nothing better is known."""


class Limit:
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

    def pause(self, time: float) -> float:
        """Seconds until the next call may begin; infinite: one has to end."""
        rule, begun = self.rule, self.begun
        if rule.running and self.running >= rule.running:
            return math.inf
        if not rule.count or len(begun) < rule.count:
            return 0.0
        return max(begun[0] + rule.period - time, 0.0)

    def take(self, time: float) -> None:
        rule = self.rule
        if rule.count:
            self.begun.append(time)
        if rule.running:
            self.running += 1


class _Waiter(msgspec.Struct, eq=False):
    """A waiting call; `refusal` is why it does not begin."""

    limits: tuple[Limit, ...]
    principal: str
    tool: str
    number: int
    ready: anyio.Event
    is_admitted: bool = False
    refusal: Busy | None = None


class TurnQueue:
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

    def enter_at_once(self, limits: tuple[Limit, ...]) -> bool:
        """Counts a call that may begin now."""
        time = self._clock.now()
        if self._count:
            return False
        for limit in limits:
            if limit.pause(time):
                return False
        for limit in limits:
            limit.take(time)
        return True

    def leave(self, limits: tuple[Limit, ...]) -> None:
        for limit in limits:
            if limit.running:
                limit.running -= 1
        if self._count:
            self.dispatch()

    def give_back(self, limits: tuple[Limit, ...]) -> None:
        """Forgets the last counted call, which was not sent."""
        for limit in limits:
            if limit.begun:
                limit.begun.pop()
        self.leave(limits)

    def enter(self, limits: tuple[Limit, ...], principal: str, tool: str) -> _Waiter | None:
        """A waiting call; None: counted already. Raises `Busy` if too many wait."""
        self._make_room(limits, principal)
        self._number += 1
        waiter = _Waiter(limits, principal, tool, number=self._number, ready=anyio.Event())
        self._waiting.setdefault(principal, {}).setdefault(tool, deque()).append(waiter)
        self._count += 1
        self.dispatch()
        return None if waiter.is_admitted else waiter

    def _make_room(self, limits: tuple[Limit, ...], principal: str) -> None:
        """Refuses this call, or the newest one of the principal with the most, if too many wait."""
        sizes = {name: sum(map(len, tools.values())) for name, tools in self._waiting.items()} if self._count else {}
        number = sizes.get(principal, 0)
        if number >= _MOST_OF_ONE:
            raise busy_at(limits, self._clock.now(), f"{number} calls of this client wait for their turn")
        if self._count >= _MOST:
            crowd = max(sizes, key=lambda name: sizes[name])
            if number + 1 >= sizes[crowd]:
                raise busy_at(limits, self._clock.now(), f"{self._count} calls wait for their turn")
            newest = max((line[-1] for line in self._waiting[crowd].values()), key=lambda waiter: waiter.number)
            newest.refusal = busy_at(newest.limits, self._clock.now(), f"{self._count} calls wait for their turn")
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
        time, blocked = self._clock.now(), 0
        while self._count and blocked < len(self._waiting):
            principal = next(iter(self._waiting))
            tools = self._waiting[principal]
            heads = [line[0] for line in tools.values() if not any(limit.pause(time) for limit in line[0].limits)]
            if heads:
                blocked = 0
                waiter = min(heads, key=lambda head: head.number)
                for limit in waiter.limits:
                    limit.take(time)
                self.remove(waiter)
                waiter.is_admitted = True
                waiter.ready.set()
            else:
                blocked += 1
            if principal in self._waiting:  # the next one's turn
                self._waiting[principal] = self._waiting.pop(principal)
        self._wake_later(time)

    def _wake_later(self, time: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pauses = [
            max(limit.pause(time) for limit in line[0].limits)
            for tools in self._waiting.values()
            for line in tools.values()
        ]
        pause = min(pauses, default=math.inf)
        if pause < math.inf:
            self._timer = call_later(max(pause, 0.0), self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.dispatch()


def busy_at(limits: tuple[Limit, ...], time: float, subject: str) -> Busy:
    """The refusal, which names the limit that holds the call up longest."""
    limit = max(limits, key=lambda limit: limit.pause(time))
    rule, pause = limit.rule, limit.pause(time)
    return busy(rule, subject, pause, is_full=bool(rule.running) and pause == math.inf)


def busy(rule: LimitRule, subject: str, pause: float, *, is_full: bool) -> Busy:
    """The refusal of a call that `what` says of; `pause` seconds until the next one may begin."""
    key, value = (f"{rule.key}.concurrency", rule.running) if is_full else (f"{rule.key}.rate", rule.count)
    after = math.ceil(pause) if 0 < pause < math.inf else _AGAIN
    return Busy.at(f"{subject} at {rule.key}", key, value, retry_after=max(after, 1))
