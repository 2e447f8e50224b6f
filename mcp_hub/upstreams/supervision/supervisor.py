"""Keeps one server up: its owner task starts it, lists, watches, backs off, starts it again, and lets it rest.

Whoever needs the server waits for it here; whoever is in charge has it drained or restarted. What follows what is
decided in `lifecycle`.
"""

import math
from collections.abc import Callable
from typing import Final

import anyio
import anyio.abc
import msgspec

from mcp_hub.clock import Clock
from mcp_hub.errors import StartFailed, UpstreamUnavailable
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide
from mcp_hub.notices import Notices
from mcp_hub.types import Cause, Kind, UpstreamState
from mcp_hub.upstreams.lists.list_reader import ListLimits
from mcp_hub.upstreams.lists.list_state import ListState
from mcp_hub.upstreams.peer.negotiation import Incompatible
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.subscriptions import ServerSubscriptions
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.connection import Connection
from mcp_hub.upstreams.supervision.lifecycle import Life, RestartRule
from mcp_hub.upstreams.supervision.liveness import LivenessCheck
from mcp_hub.upstreams.supervision.turns import Turns

__all__ = ["Supervisor", "SupervisorRules"]

log = get_logger(__name__)

_SESSION: Final = 1.0
"""Seconds that a session has to last for its loss to be followed by the next one at once."""
_CLOSED: Final = lifecycle.FINAL | {UpstreamState.DRAINING}
"""States in which no call waits."""
_BAD: Final = frozenset({UpstreamState.BACKING_OFF, UpstreamState.FAILED, UpstreamState.INCOMPATIBLE})
_LOOKS: Final = 4
"""Looks at a server within `idle_stop`, all of which have to find nothing."""
_SILENCE: Final = 10.0
"""Seconds that a server may take for a list which is of no need at its start, at most half its `start_timeout`."""
_NOT_STARTED: Final = Cause("not_started", "not started yet: it is when it is needed")
_IDLE: Final = Cause("idle", "idle: it is started when it is needed")
_WOKEN: Final = Cause("idle", "stopped while idle")
_RESTARTED: Final = Cause("restarted", "restarted on request")
_STOPPED: Final = Cause("stopped", "stopped")
_GONE: Final = Cause("connection_lost", "gone")
_AT_START: Final = {"crashed": "start_crashed", "ended": "not_mcp", "closed_output": "not_mcp"}
"""Codes of an end that mean something else before the server was ready."""


class SupervisorRules(msgspec.Struct, frozen=True):
    """Limits of one upstream, in seconds where not said otherwise.

    `ready_wait` is how long a call waits for an upstream that is about to be started again; for its first start it
    waits as long as that may take. `lazy`: not started before it is needed, if it is known what it lists. `idle_stop`:
    seconds without a call or a subscription after which it is stopped until it is needed; None: never.
    """

    start_timeout: float = 60.0
    request_timeout: float = 60.0
    ready_wait: float = 5.0
    restart: RestartRule = RestartRule()
    lists: ListLimits = ListLimits()
    lazy: bool = False
    idle_stop: float | None = None


class _Ended(msgspec.Struct, frozen=True):
    """Why an attempt or a session ended; `hopeless` is the state that follows if another one cannot go better."""

    cause: Cause
    hopeless: UpstreamState | None = None


class Supervisor:
    """The owner of one server's connections, one after the other. `connect` makes a fresh one for every start.

    Who is at the server (`turns`) and what is watched there (`subscriptions`) says whether it is needed. `on_ready` is
    called for each connection when calls can be sent to it.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        rules: SupervisorRules,
        clock: Clock,
        changes: Notices,
        jitter: Callable[[], float],
        lists: ListState,
        turns: Turns,
        subscriptions: ServerSubscriptions,
        on_ready: Callable[[Peer], None],
    ) -> None:
        self.name = lists.name
        self.peer: Peer | None = None
        """The connection that calls are sent to."""
        self.connected: Peer | None = None
        """The same, and the one that drains."""
        self.connection: Connection | None = None
        self.last_output: tuple[str, ...] = ()  # of the process before this one: why it ended, until the next is ready
        self.life = Life()
        if rules.lazy and lists.snapshot is not None:
            self.life = lifecycle.resting(self.life, _NOT_STARTED)
        self._connect = connect
        self._rules = rules
        self._clock = clock
        self._changes = changes
        self._jitter = jitter
        self._lists = lists
        self._turns = turns
        self._subscriptions = subscriptions
        self._on_ready = on_ready
        self.suspicion = LivenessCheck(lambda: self._rules.request_timeout)
        self._ready_at = 0.0
        self._leaves_tasks = False
        self._scope: anyio.CancelScope | None = None  # of what the owner task does now
        self._is_over = False
        self._adjusted = anyio.Event()

    # -- what others ask ----------------------------------------------------------------------------------------

    def leave_tasks(self) -> None:
        """From now on a call that is cancelled leaves its task alone: another hub will go on with it."""
        self._leaves_tasks = True
        if self.connected is not None:
            self.connected.leaves_tasks = True

    def restart(self) -> None:
        """Ends the process, if one runs, and starts a fresh one at once, also where it was given up or stopped.

        Calls that run fail as if it had died; let them end by `drain` before. No effect once `run` has ended.
        """
        self._order(lifecycle.restarted(self.life), _RESTARTED)

    async def drain(self, seconds: float, why: str) -> None:
        """Takes no more calls, lets those that run end within `seconds`, then ends the process, until `restart`.

        Returns when it is stopped, which takes as long as closing the connection more. Idempotent.
        """
        self.peer = None
        self._become(lifecycle.draining(self.life, why))
        try:
            if self.life.state is UpstreamState.DRAINING:
                with anyio.move_on_after(seconds):
                    await self._turns.empty()
        finally:
            if self.life.state is UpstreamState.DRAINING:
                self._order(self.life, Cause("stopped", why))
        while self.life.state is UpstreamState.DRAINING:
            await self._changes.wait(self._changes.version)

    def use(self, rules: SupervisorRules) -> None:
        """Goes by other limits from now on; what waits already waits as long as it was going to.

        What rests and no longer may is started.
        """
        self._rules = rules
        self._adjusted.set()
        self._adjusted = anyio.Event()
        if not rules.lazy and rules.idle_stop is None:
            self.wake()

    def _order(self, life: Life, why: Cause) -> None:
        """Sets the state from now on and ends everything in progress, calls included."""
        if self._is_over:
            return
        if self.connected is not None and self.connected.close_cause is None:
            self.connected.close_cause = why
            self.connected.explained.set()
        self.peer = None
        if self._scope is None:  # nobody has begun yet
            life = lifecycle.drained(life)
        else:
            self._scope.cancel()
        self._become(life)

    def wake(self) -> None:
        """Somebody needs it: it is started if it rests."""
        if self.life.rests:
            self._order(lifecycle.woken(self.life), _WOKEN)

    async def next_peer(self, patience: float | None) -> Peer:
        """The one that calls can be sent to, as soon as there is one; no `patience`: however long it is on its way."""
        self.wake()
        limit = patience
        if patience is not None and lifecycle.is_first_start(self.life):
            limit = max(patience, self._rules.start_timeout)
        with anyio.move_on_after(limit) as scope:
            while True:
                version = self._changes.version
                if self.peer is not None and self.peer.wire.can_send:
                    return self.peer
                if self.life.state in _CLOSED:
                    break
                if patience is not None and not lifecycle.is_first_start(self.life):
                    scope.deadline = min(scope.deadline, anyio.current_time() + patience)
                await self._changes.wait(version)
        raise self.unavailable()

    def unavailable(self, reason: str | None = None) -> UpstreamUnavailable:
        """The error for a call that cannot be sent now, with the state and `reason`."""
        life = self.life
        said = f"is {life.state.value}: "
        if life.state is UpstreamState.READY:  # it was, and is again, which is not why
            said = "is " if reason is None else "did not take the request, nor again over a new connection: "
        reason = life.reason or reason or "not reachable just now"
        about = {"server": self.name, "state": life.state.value, "reason": reason}
        if life.code is not None:
            about["code"] = life.code
        return UpstreamUnavailable(f'upstream "{self.name}" {said}{reason}', data={"upstream": about})

    # -- the owner task -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Supervises until cancelled; then ends the process. Never raises for what the upstream does."""
        if self._subscriptions.is_wanted:
            self.wake()
        try:
            while True:
                with anyio.CancelScope() as self._scope:
                    await self._step(self._scope)
                self._become(lifecycle.drained(self.life))
        finally:
            self._is_over = True
            self._become(lifecycle.stopped(self.life))

    async def _step(self, scope: anyio.CancelScope) -> None:
        """Does what its state requires, until the state changes or an order cancels the `scope`."""
        if self.life.state is UpstreamState.STARTING:
            ended = await self._attempt()
            if not scope.cancel_called:
                self._become(self._after(ended))
        elif self.life.state is UpstreamState.BACKING_OFF:
            await anyio.sleep(self.life.delay)
            self._become(lifecycle.starting(self.life))
        else:
            await anyio.sleep_forever()

    def _after(self, ended: _Ended) -> Life:
        """The state after a session that has ended, or did not begin."""
        if ended.hopeless is not None:
            return lifecycle.gave_up(self.life, ended.cause, ended.hopeless)
        now = self._clock.now()
        lasted = now - self._ready_at if lifecycle.is_ready(self.life) else 0.0
        if lasted >= _SESSION and lifecycle.is_ready(self.life) and self.connection and self.connection.lost_session:
            return lifecycle.renewed(self.life, ended.cause)
        return lifecycle.died(self.life, self._rules.restart, now, ended.cause, self._jitter(), lasted)

    async def _attempt(self) -> _Ended:
        """One process from start to end; says why it ended."""
        ended = _Ended(_STOPPED)
        async with anyio.create_task_group() as tasks:
            try:
                connection = self.connection = self._connect()
                try:
                    ended = _Ended(await self._live(connection, tasks))
                finally:
                    self.peer = self.connected = None
                    self._changes.bump()
                    self.last_output = tuple(connection.stderr)
                    await connection.close()
            except Incompatible as exc:
                ended = _Ended(exc.cause, UpstreamState.INCOMPATIBLE)
            except StartFailed as exc:
                can_retry = self.connection is not None and self.connection.can_retry
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
            peer.tell = self._changes.tell
            peer.leaves_tasks = self._leaves_tasks
            await tasks.start(self._subscriptions.follow, peer)
            await self._lists.read(peer, set(Kind), min(_SILENCE, limit / 2))
            if self.life.state is not UpstreamState.STARTING:
                return _STOPPED  # `drain` was called meanwhile
            self.peer = self.connected = peer
            self._on_ready(peer)
            self._ready_at = self._clock.now()
            self._become(lifecycle.ready(self.life))
            log.info("upstream_ready", upstream=self.name, era=peer.info.era.value, version=peer.info.version)
        if self.connected is None:
            raise StartFailed(*await connection.last_words(Cause("start_timeout", f"not ready within {limit:g} s")))
        tasks.start_soon(self._lists.keep)
        tasks.start_soon(self._rest_when_idle)
        tasks.start_soon(self.suspicion.follow, peer)
        await self._lists.follow(peer, self._rules.request_timeout)
        return await connection.last_words(peer.close_cause or _GONE)

    async def _rest_when_idle(self) -> None:
        """Stops it when nobody has needed it for a while."""
        looks, left = 0, self._turns.left
        while looks < _LOOKS:
            limit, adjusted = self._rules.idle_stop, self._adjusted
            with anyio.move_on_after(math.inf if limit is None else limit / _LOOKS):
                await adjusted.wait()
            is_idle = self._turns.is_empty and self._turns.left == left and not self._subscriptions.is_wanted
            looks, left = looks + 1 if is_idle and not adjusted.is_set() else 0, self._turns.left
        if self.life.state is UpstreamState.READY:
            log.info("upstream_idle", upstream=self.name, seconds=self._rules.idle_stop)
            self._order(lifecycle.resting(self.life, _IDLE), _WOKEN)

    def _become(self, life: Life) -> None:
        if life != self.life:
            if life.state in _BAD:
                log.warning(
                    "upstream_state", upstream=self.name, state=life.state.value, code=life.code, reason=life.reason
                )
            self.life = life
            self._changes.bump()
