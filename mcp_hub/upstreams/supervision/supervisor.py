"""Keeps one server up: its owner task starts it, lists, watches, backs off, starts it again, and lets it rest.

`lifecycle` decides each transition.
"""

import math
import random
from collections.abc import Callable
from typing import Final, Literal, Self

import anyio
import anyio.abc
import msgspec

from mcp_hub.call import Gate
from mcp_hub.clock import Clock
from mcp_hub.errors import LookupFailed, StartFailed, UpstreamUnavailable
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide
from mcp_hub.notices import Notices
from mcp_hub.types import Cause, Kind, LogRule, RawJson, UpstreamState, condition
from mcp_hub.upstreams.lists.list_cache import ListFile
from mcp_hub.upstreams.lists.list_reader import ListLimits
from mcp_hub.upstreams.lists.list_state import ListState
from mcp_hub.upstreams.peer.callers import ServerLogs
from mcp_hub.upstreams.peer.negotiation import AnotherProcess, Incompatible
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import CONNECTION_LOST
from mcp_hub.upstreams.peer.subscriptions import ServerSubscriptions
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.connection import Connection
from mcp_hub.upstreams.supervision.lifecycle import Life, RestartRule
from mcp_hub.upstreams.supervision.liveness import LivenessCheck
from mcp_hub.upstreams.supervision.state_log import log_failure, log_ready
from mcp_hub.upstreams.supervision.turns import Turns

log = get_logger(__name__)

_SESSION: Final = 1.0
"""Seconds that a session has to last for its loss to be followed by the next one at once."""
_CLOSED: Final = lifecycle.FINAL | {UpstreamState.DRAINING}
"""States in which no call waits."""
_CHECKS: Final = 4
"""Looks at a server within `idle_stop`, all of which have to find nothing."""
_SILENCE: Final = 10.0
"""Seconds that a server may take for an optional list at its start, at most half its `start_timeout`."""
NOT_STARTED: Final = Cause("not_started", "it is started when it is needed")
_IDLE: Final = Cause("idle", "it was idle and is started when it is needed")
_ON_DEMAND: Final = "it ended by itself and is started when it is needed"
_WOKEN: Final = Cause("idle", "it was stopped while idle")
_RESTARTED: Final = Cause("restarted", "it was restarted on request")
_STOPPED: Final = Cause("stopped", "it was stopped")
_AT_START: Final = {"crashed": "start_crashed", "ended": "not_mcp", "closed_output": "not_mcp"}
"""Codes of an end that mean something else before the server was ready."""


Repetition = Literal["safe", "agreed", "never"]
"""Whether the hub may run a tool twice in one call: in any case, if the caller agrees, or never."""


def _by_agreement(tool: str, definition: RawJson) -> Repetition:
    return "agreed"


class SupervisorRules(msgspec.Struct, frozen=True):
    """Limits of one upstream; times in seconds.

    `ready_wait` is how long a call waits for an upstream that is about to be started again; for its first start it
    waits as long as that may take. `lazy`: not started before it is needed, if its lists are known. `idle_stop`:
    without a call or a subscription for so long it is stopped until it is needed; None: never. `logs` is the rule for
    log messages that name no call. `repetition` takes the name of a tool and its definition.
    """

    start_timeout: float = 60.0
    request_timeout: float = 60.0
    ready_wait: float = 5.0
    restart: RestartRule = RestartRule()
    lists: ListLimits = ListLimits()
    lazy: bool = False
    idle_stop: float | None = None
    logs: LogRule = "hub"
    repetition: Callable[[str, RawJson], Repetition] = _by_agreement


class _Ended(msgspec.Struct, frozen=True):
    """Why an attempt or a session ended; `hopeless` is the state that follows if another one cannot succeed."""

    cause: Cause
    hopeless: UpstreamState | None = None


class Supervisor:
    """The owner of one server's connections, one after the other. `connect` makes a fresh one for every start.

    `lists` is the file in which its lists outlive the hub; its content is offered from the beginning. `takes_turns` if
    it is known to ask its callers questions. `gate` checks each call when it is sent, maybe long after it was let in.
    Unless it `starts` it rests until it is needed, also if its lists are not known.
    Connections of one server count its `logs` together.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        rules: SupervisorRules,
        *,
        clock: Clock,
        changes: Notices,
        jitter: Callable[[], float] = random.random,
        lists: ListFile | None = None,
        takes_turns: bool = False,
        gate: Gate | None = None,
        starts: bool = True,
        logs: ServerLogs | None = None,
    ) -> None:
        self.name = name
        self._connect = connect
        self._rules = rules
        self._gate = gate
        self._clock = clock
        self._changes = changes
        self._jitter = jitter
        self._lists = ListState(name, rules.lists, changes, lists)
        self._turns = Turns(name, is_on=takes_turns)
        self._logs = logs or ServerLogs(rules.logs)
        self._subscriptions = ServerSubscriptions(name, changes)
        self._liveness = LivenessCheck(lambda: self._rules.request_timeout, changes)
        self._life = Life()
        if not starts or (rules.lazy and self._lists.snapshot is not None):
            self._life = lifecycle.resting(self._life, NOT_STARTED)
        self._peer: Peer | None = None  # calls are sent to it
        self._connected: Peer | None = None  # the same, and the one that drains
        self._connection: Connection | None = None
        self._last_output: tuple[str, ...] = ()  # of the process before this one, until the next is ready
        self._leaves_tasks = False
        self._scope: anyio.CancelScope | None = None  # of the owner task's present step
        self._is_over = False
        self._adjusted = anyio.Event()

    # -- operators ----------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether it was given up or stopped, so that only `restart` starts it again."""
        return self._life.state in lifecycle.FINAL and not self._life.rests

    @property
    def rests(self) -> bool:
        """Whether it is stopped only until somebody needs it."""
        return self._life.rests

    @property
    def may_get_ready(self) -> bool:
        """Whether it is ready, or on its way up, or is started when it is needed."""
        return self._life.rests or self._life.state in (UpstreamState.STARTING, UpstreamState.READY)

    @property
    def peers(self) -> list[Peer]:
        """The sessions with the server that are open now."""
        return [] if self._connected is None else [self._connected]

    def leave_tasks(self) -> None:
        """From now on a call that is cancelled leaves its task at the server: another hub will continue it."""
        self._leaves_tasks = True
        if self._connected is not None:
            self._connected.tasks.leave()

    def restart(self) -> None:
        """Ends the process, if one runs, and starts a fresh one at once; calls fail. No effect once `run` has ended."""
        self._order(lifecycle.restarted(self._life), _RESTARTED)

    async def drain(self, seconds: float, why: str = "it was stopped on request") -> None:
        """Takes no more calls, lets those that run end within `seconds`, then ends the process, until `restart`.

        Returns when it is stopped. Idempotent.
        """
        self._peer = None
        self._become(lifecycle.draining(self._life, why))
        self._turns.release()
        try:
            if self._life.state is UpstreamState.DRAINING:
                with anyio.move_on_after(seconds):
                    await self._turns.empty()
        finally:
            if self._life.state is UpstreamState.DRAINING:
                self._order(self._life, Cause("stopped", why))
        while self._life.state is UpstreamState.DRAINING:
            await self._changes.wait(self._changes.version)

    def use(self, twin: Self) -> None:
        """Applies the limits of `twin`; the process continues."""
        self.adjust(twin._rules)

    def adjust(self, rules: SupervisorRules) -> None:
        """Goes by these rules from now on. A server that rests and no longer may is started."""
        self._rules = rules
        self._lists.use(rules.lists)
        self._logs.use(rules.logs)
        self._adjusted.set()
        self._adjusted = anyio.Event()
        if not rules.lazy and rules.idle_stop is None:
            self.wake()

    def wake(self) -> None:
        """Starts the server if it rests."""
        if self._life.rests:
            self._order(lifecycle.woken(self._life), _WOKEN)

    def _order(self, life: Life, why: Cause) -> None:
        """Enters a state from outside: the present step ends, calls included."""
        if self._is_over:
            return
        if self._connected is not None and self._connected.ending.cause is None:
            self._connected.ending.explain(why)
        self._peer = None
        if self._scope is None:  # `run` has not begun yet
            life = lifecycle.drained(life)
        else:
            self._scope.cancel()
        self._become(life)

    # -- callers ------------------------------------------------------------------------------------------------

    async def _next_peer(self, patience: float | None) -> Peer:
        """The next peer for calls; without `patience`, as long as one may come. Raises `UpstreamUnavailable`."""
        with anyio.move_on_after(self._woken(patience)) as scope:
            while True:
                now = anyio.current_time()
                until = now + self._woken(patience) if self._life.rests else scope.deadline  # it may have ended by now
                version = self._changes.version
                if self._peer is not None and self._peer.wire.can_send:
                    return self._peer
                if self._life.state in _CLOSED:
                    break
                is_short = patience is not None and not lifecycle.is_first_start(self._life)
                scope.deadline = min(until, now + (patience or 0.0)) if is_short else until
                await self._changes.wait(version)
        raise self._unavailable()

    def _woken(self, patience: float | None) -> float:
        """Starts the server if it rests; the seconds that a call waits for it."""
        self.wake()
        if patience is None:
            return math.inf
        return max(patience, self._rules.start_timeout) if lifecycle.is_first_start(self._life) else patience

    def _unavailable(self, reason: str | None = None) -> UpstreamUnavailable:
        life = self._life
        said = condition(life.state, life.reason, life.streak)
        if life.state is UpstreamState.READY:  # again, which does not explain the failure
            said = "is not reachable" if reason is None else "did not take the request, also over a new connection"
        reason = life.reason or reason or "try again in a moment"
        about = {"server": self.name, "state": life.state.value, "reason": reason}
        if life.code is not None:
            about["code"] = life.code
        return UpstreamUnavailable(f'server "{self.name}" {said}: {reason}', data={"upstream": about})

    # -- the owner task -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Supervises until cancelled; then ends the process. Never raises for what the upstream does."""
        if self._subscriptions.resources.wanted:
            self.wake()
        try:
            while True:
                with anyio.CancelScope() as self._scope:
                    await self._step(self._scope)
                self._become(lifecycle.drained(self._life))
        finally:
            self._is_over = True
            self._become(lifecycle.stopped(self._life))

    async def _step(self, scope: anyio.CancelScope) -> None:
        """Works in the present state until it changes, or an order cancels the `scope`."""
        if self._life.state is UpstreamState.STARTING:
            ended = await self._attempt()
            if ended is not None and not scope.cancel_called:
                self._become(self._after(ended))
        elif self._life.state is UpstreamState.BACKING_OFF:
            await anyio.sleep(self._life.delay)
            self._become(lifecycle.starting(self._life))
        else:
            await anyio.sleep_forever()

    def _after(self, ended: _Ended) -> Life:
        """The state after a session that has ended, or did not begin."""
        if ended.hopeless is not None:
            return lifecycle.gave_up(self._life, ended.cause, ended.hopeless)
        now, is_ready = self._clock.now(), self._life.state is UpstreamState.READY
        lasted = now - self._life.ready_at if is_ready else 0.0
        if is_ready and lasted >= _SESSION and self._connection and self._connection.lost_session:
            return lifecycle.renewed(self._life, ended.cause)
        if is_ready and ended.cause.code == "ended" and not self._subscriptions.resources.wanted:
            log.info("upstream_ended", upstream=self.name, reason=ended.cause.reason)
            return lifecycle.resting(self._life, Cause("ended", f"{_ON_DEMAND} ({ended.cause.reason})"))
        return lifecycle.died(self._life, self._rules.restart, now, ended.cause, self._jitter(), lasted)

    async def _attempt(self) -> _Ended | None:
        """One process from start to end; says why it ended, None for one after which another is started at once.

        Of these at most three follow one another: the next one counts as a failure, with its pause.
        """
        ended: _Ended | None = _Ended(_STOPPED)
        async with anyio.create_task_group() as tasks:
            try:
                renewed = self._connection.successor() if self._connection is not None else None
                connection = self._connection = renewed or self._connect()
                try:
                    ended = _Ended(await self._live(connection, tasks))
                finally:
                    self._peer = self._connected = None
                    self._changes.bump()
                    self._last_output = tuple(connection.stderr)
                    await connection.close()
            except AnotherProcess as exc:
                log.debug("upstream_started_again", upstream=self.name, reason=str(exc))
                self._life = lifecycle.spent(self._life)
                is_too_often = self._life.spent > lifecycle.MOST_SPENT
                ended = _Ended(Cause(_AT_START.get(exc.code, exc.code), str(exc))) if is_too_often else None
            except Incompatible as exc:
                ended = _Ended(exc.cause, UpstreamState.INCOMPATIBLE)
            except StartFailed as exc:
                can_retry = self._connection is not None and self._connection.can_retry
                if isinstance(exc, LookupFailed):
                    can_retry = exc.can_retry
                cause = Cause(_AT_START.get(exc.code, exc.code), str(exc))
                ended = _Ended(cause, None if can_retry else UpstreamState.FAILED)
            except Exception as exc:
                log.exception("upstream_attempt_crashed", upstream=self.name)
                ended = _Ended(Cause("internal_error", hide(f"internal error: {exc}")))
            tasks.cancel_scope.cancel()
        return ended

    async def _live(self, connection: Connection, tasks: anyio.abc.TaskGroup) -> Cause:
        """Handshake, first list, then watching until the session ends."""
        limit = self._rules.start_timeout
        with anyio.move_on_after(limit):
            peer = await connection.open(tasks)
            peer.callers.report_to(self._logs)
            if self._leaves_tasks:
                peer.tasks.leave()
            await tasks.start(self._subscriptions.follow, peer, self._rules.request_timeout)
            await self._lists.read(peer, set(Kind), min(_SILENCE, limit / 2))
            if self._life.state is not UpstreamState.STARTING:
                return _STOPPED  # it drains already
            self._peer = self._connected = peer
            self._on_ready(peer)
            self._become(lifecycle.ready(self._life, self._clock.now()))
            log_ready(self.name, self._life, peer.info)
        if self._connected is None:
            late = Cause("start_timeout", f"it was not ready within {limit:g} s")
            raise StartFailed(*await connection.last_words(late))
        tasks.start_soon(self._lists.keep)
        tasks.start_soon(self._rest_when_idle)
        tasks.start_soon(self._liveness.follow, peer)
        tasks.start_soon(self._liveness.watch, peer)
        await self._lists.follow(peer, self._rules.request_timeout)
        return await connection.last_words(peer.ending.cause or CONNECTION_LOST)

    def _on_ready(self, peer: Peer) -> None:
        """Calls can be sent to a new connection."""

    async def _rest_when_idle(self) -> None:
        """Stops the server when nobody has needed it for a while."""
        checks, left = 0, self._turns.left
        while checks < _CHECKS:
            limit, adjusted = self._rules.idle_stop, self._adjusted
            with anyio.move_on_after(math.inf if limit is None else limit / _CHECKS):
                await adjusted.wait()
            is_idle = self._turns.is_empty and self._turns.left == left and not self._subscriptions.resources.wanted
            checks, left = checks + 1 if is_idle and not adjusted.is_set() else 0, self._turns.left
        if self._life.state is UpstreamState.READY:
            log.info("upstream_idle", upstream=self.name, seconds=self._rules.idle_stop)
            self._order(lifecycle.resting(self._life, _IDLE), _WOKEN)

    def _become(self, life: Life) -> None:
        if life != self._life:
            log_failure(self.name, self._life, life)
            self._life = life
            self._changes.bump()
