"""Keeps one server up: its owner task starts, watches, restarts and rests it."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import anyio
import anyio.abc
import msgspec

from mcp_hub.clock import Clock, wall_time
from mcp_hub.errors import StartFailed, UpstreamUnavailable
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide
from mcp_hub.types import Cause, Kind, UpstreamState, UpstreamStatus, condition
from mcp_hub.upstreams.peer.negotiation import AnotherProcess, Incompatible
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import CONNECTION_LOST, Observer
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.lifecycle import Life
from mcp_hub.upstreams.supervision.server import STOP_REQUESTED, ServerState, SupervisorRules, log_failure, log_ready

log = get_logger(__name__)

_SESSION: Final = 1.0
"""Seconds that a session must last for the next to begin at once after its loss."""
_CLOSED: Final = lifecycle.FINAL | {UpstreamState.DRAINING}
"""States in which no call waits."""
_CHECKS: Final = 4
"""Looks at a server within `idle_stop`, all of which have to find nothing."""
_DEFERRED: Final = 1.0
"""Seconds that a server with a list of an earlier process waits for a call: starts would slow down first answers."""
_LOADED: Final = wall_time()
_SILENCE: Final = 10.0
"""Seconds for an optional list at the start; at most half of `start_timeout`."""
NOT_STARTED: Final = Cause("not_started", "it is started when it is needed")
_IDLE: Final = Cause("idle", "it was idle and is started when it is needed")
_ON_DEMAND: Final = "it ended by itself and is started when it is needed"
_WOKEN: Final = Cause("idle", "it was stopped while idle")
_RESTARTED: Final = Cause("restarted", "it was restarted on request")
_STOPPED: Final = Cause("stopped", "it was stopped")
_AT_START: Final = {"crashed": "start_crashed", "ended": "not_mcp", "closed_output": "not_mcp"}
"""Codes of an end that mean something else before the server was ready."""


class Connection(Protocol):
    """A connection, opened and closed once by one task.

    `pid`: the hub's process, if any; `stderr`: its last lines. `can_retry`: another start may succeed. `lost_session`:
    the server forgot the session. `notes`: warnings.
    """

    @property
    def pid(self) -> int | None: ...
    @property
    def stderr(self) -> Iterable[str]: ...
    @property
    def can_retry(self) -> bool: ...
    @property
    def lost_session(self) -> bool: ...
    @property
    def notes(self) -> Sequence[str]: ...

    def successor(self) -> "Connection | None":
        """A connection with the session that replaces a lost one."""

    async def open(self, tasks: anyio.abc.TaskGroup, observer: Observer) -> Peer:
        """Connects and settles the era; `tasks` run while it is open.

        Raises `StartFailed`; `AnotherProcess` is not a failure.
        """

    async def last_words(self, cause: Cause) -> Cause:
        """The cause with all known facts of the end. May wait a moment."""

    async def close(self) -> None:
        """Ends it. Shielded and bounded."""


class _Ended(msgspec.Struct, frozen=True):
    """`hopeless` is the state if no attempt can succeed."""

    cause: Cause
    hopeless: UpstreamState | None = None


class Supervisor:
    """The owner of one server's connections. `connect` makes one for each start.

    Unless it `starts`, it rests until needed. `on_ready` receives each new session.
    """

    def __init__(
        self,
        server: ServerState,
        connect: Callable[[], Connection],
        *,
        clock: Clock,
        jitter: Callable[[], float],
        starts: bool,
        on_ready: Callable[[Peer], None],
    ) -> None:
        self.connected: Peer | None = None  # `server.peer`, and the one that drains
        self.life = Life()
        self._server = server
        self._connect = connect
        self._clock = clock
        self._jitter = jitter
        self._on_ready = on_ready
        if not starts or (server.rules.lazy and server.lists.snapshot is not None):
            self.life = lifecycle.resting(self.life, NOT_STARTED)
        self._connection: Connection | None = None
        self._last_output: tuple[str, ...] = ()  # of the process before this one, until the next is ready
        self._leaves_tasks = False
        self._scope: anyio.CancelScope | None = None  # of the owner task's present step
        self._is_over = False
        self._nudged = anyio.Event()  # by a call before the first start, or by other rules

    # -- operators ----------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether only `restart` can start it again."""
        return self.life.state in lifecycle.FINAL and not self.life.rests

    @property
    def may_get_ready(self) -> bool:
        return self.life.rests or self.life.state in (UpstreamState.STARTING, UpstreamState.READY)

    def status(self) -> UpstreamStatus:
        server, life, last = self._server, self.life, self._server.lists.last
        connection, peer = self._connection, self.connected
        source = peer.info if peer else last
        notes = connection.notes if peer and connection else ()
        state, reason, code, failures = life.state, life.reason, life.code, life.streak
        if peer is not None and peer.signs.is_bad and state is UpstreamState.READY:
            state, failures, bad = UpstreamState.BACKING_OFF, peer.signs.failures, peer.signs.reason
            code, reason = bad if bad is not None else CONNECTION_LOST
        return UpstreamStatus(
            server=server.name,
            state=state,
            reason=reason,
            era=source.era if source else None,
            version=source.version if source else None,
            server_info=source.server_info if source else None,
            restarts=life.restarts,
            pid=connection.pid if peer and connection else None,
            stderr=(tuple(connection.stderr) if connection else ()) or (() if peer else self._last_output),
            warnings=(*map(hide, (*notes, *(last.snapshot.warnings if last else ()))), *server.lists.unsteady),
            unsteady=server.lists.unsteady,
            listed_at=last.at if last else None,
            asks=peer is not None and peer.messages.is_interactive,
            rests=life.rests,
            code=code,
            failures=failures,
            logs=server.logs.flow(),
            noise=peer.callers.strays.summary if peer else None,
        )

    def leave_tasks(self) -> None:
        self._leaves_tasks = True
        if self.connected is not None:
            self.connected.tasks.leave()

    def restart(self) -> None:
        self.order(lifecycle.restarted(self.life), _RESTARTED)

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None:
        self._server.detach()
        self._become(lifecycle.draining(self.life, why))
        self._server.turns.release()
        try:
            if self.life.state is UpstreamState.DRAINING:
                with anyio.move_on_after(seconds):
                    await self._server.turns.empty()
        finally:
            if self.life.state is UpstreamState.DRAINING:
                self.order(self.life, Cause("stopped", why))
        while self.life.state is UpstreamState.DRAINING:
            await self._server.changes.wait(self._server.changes.version)

    def adjust(self, rules: SupervisorRules) -> None:
        self._server.adjust(rules)
        self._nudge()
        if not rules.lazy and rules.idle_stop is None:
            self.wake()

    def _nudge(self) -> None:
        self._nudged.set()
        self._nudged = anyio.Event()

    def wake(self) -> None:
        if self.life.rests:
            self.order(lifecycle.woken(self.life), _WOKEN)

    def order(self, life: Life, why: Cause) -> None:
        """Enters a state from outside and ends the present step."""
        if self._is_over:
            return
        if self.connected is not None and self.connected.ending.cause is None:
            self.connected.ending.explain(why)
        self._server.detach()
        if self._scope is None:  # `run` has not begun yet
            life = lifecycle.drained(life)
        else:
            self._scope.cancel()
        self._become(life)

    # -- callers ------------------------------------------------------------------------------------------------

    async def next_peer(self, patience: float | None) -> Peer:
        """The next peer for calls; waits without limit if `patience` is None.

        Raises `UpstreamUnavailable`.
        """
        with anyio.move_on_after(self._woken(patience)) as scope:
            while True:
                now = anyio.current_time()
                until = now + self._woken(patience) if self.life.rests else scope.deadline  # it may have ended by now
                version = self._server.changes.version
                if self._server.peer is not None and self._server.peer.wire.can_send:
                    return self._server.peer
                if self.life.state in _CLOSED:
                    break
                is_short = patience is not None and not lifecycle.is_first_start(self.life)
                scope.deadline = min(until, now + (patience or 0.0)) if is_short else until
                await self._server.changes.wait(version)
        raise self.unavailable()

    def _woken(self, patience: float | None) -> float:
        self.wake()
        if self.connected is None:
            self._nudge()
        if patience is None:
            return math.inf
        return max(patience, self._server.rules.start_timeout) if lifecycle.is_first_start(self.life) else patience

    def unavailable(self, reason: str | None = None) -> UpstreamUnavailable:
        """The error for a call that cannot be sent."""
        life = self.life
        text = condition(life.state, life.reason, life.streak)
        if life.state is UpstreamState.READY:  # again, which does not explain the failure
            text = "is not reachable" if reason is None else "did not take the request, also over a new connection"
        reason = life.reason or reason or "try again in a moment"
        data = {"server": self._server.name, "state": life.state.value, "reason": reason}
        if life.code is not None:
            data["code"] = life.code
        return UpstreamUnavailable(f'server "{self._server.name}" {text}: {reason}', data={"upstream": data})

    # -- the owner task -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Supervises until cancelled, then ends the process."""
        if self._server.is_wanted:
            self.wake()
        try:
            last = self._server.lists.last
            if self.life.state is UpstreamState.STARTING and last is not None and last.at < _LOADED:
                with anyio.move_on_after(_DEFERRED):
                    await self._nudged.wait()
            while True:
                with anyio.CancelScope() as self._scope:
                    await self._step(self._scope)
                self._become(lifecycle.drained(self.life))
        finally:
            self._is_over = True
            self._become(lifecycle.stopped(self.life))

    async def _step(self, scope: anyio.CancelScope) -> None:
        if self.life.state is UpstreamState.STARTING:
            ended = await self._attempt()
            if ended is not None and not scope.cancel_called:
                self._become(self._after(ended))
        elif self.life.state is UpstreamState.BACKING_OFF:
            await anyio.sleep(self.life.delay)
            self._become(lifecycle.starting(self.life))
        else:
            await anyio.sleep_forever()

    def _after(self, ended: _Ended) -> Life:
        if ended.hopeless is not None:
            return lifecycle.gave_up(self.life, ended.cause, ended.hopeless)
        now, is_ready = self._clock.now(), self.life.state is UpstreamState.READY
        lasted = now - self.life.ready_at if is_ready else 0.0
        if is_ready and lasted >= _SESSION and self._connection and self._connection.lost_session:
            return lifecycle.renewed(self.life, ended.cause)
        if is_ready and ended.cause.code == "ended" and not self._server.is_wanted:
            log.info("upstream_ended", upstream=self._server.name, reason=ended.cause.reason)
            return lifecycle.resting(self.life, Cause("ended", f"{_ON_DEMAND} ({ended.cause.reason})"))
        return lifecycle.died(self.life, self._server.rules.restart, now, ended.cause, self._jitter(), lasted)

    async def _attempt(self) -> _Ended | None:
        """None if another process starts at once."""
        ended: _Ended | None = _Ended(_STOPPED)
        async with anyio.create_task_group() as tasks:
            try:
                renewed = self._connection.successor() if self._connection is not None else None
                connection = self._connection = renewed or self._connect()
                try:
                    ended = _Ended(await self._live(connection, tasks))
                finally:
                    self.connected = None
                    self._server.detach()
                    self._server.changes.bump()
                    self._last_output = tuple(connection.stderr)
                    await connection.close()
            except AnotherProcess as exc:
                log.debug("upstream_started_again", upstream=self._server.name, reason=str(exc))
                self.life = lifecycle.spent(self.life)
                is_too_often = self.life.spent > lifecycle.MOST_SPENT
                ended = _Ended(Cause(_AT_START.get(exc.code, exc.code), str(exc))) if is_too_often else None
            except Incompatible as exc:
                ended = _Ended(exc.cause, UpstreamState.INCOMPATIBLE)
            except StartFailed as exc:
                can_retry = exc.can_retry
                if can_retry is None:
                    can_retry = self._connection is not None and self._connection.can_retry
                cause = Cause(_AT_START.get(exc.code, exc.code), str(exc))
                ended = _Ended(cause, None if can_retry else UpstreamState.FAILED)
            except Exception as exc:
                log.exception("upstream_attempt_crashed", upstream=self._server.name)
                ended = _Ended(Cause("internal_error", hide(f"internal error: {exc}")))
            tasks.cancel_scope.cancel()
        return ended

    async def _live(self, connection: Connection, tasks: anyio.abc.TaskGroup) -> Cause:
        limit = self._server.rules.start_timeout
        with anyio.move_on_after(limit):
            peer = await connection.open(tasks, self._server)
            if self._leaves_tasks:
                peer.tasks.leave()
            await tasks.start(self._server.subscriptions.follow, peer, self._server.rules.request_timeout)
            await self._server.lists.read(peer, set(Kind), min(_SILENCE, limit / 2))
            if self.life.state is not UpstreamState.STARTING:
                return _STOPPED  # it drains already
            self.connected = peer
            self._server.attach(peer)
            self._on_ready(peer)
            self._become(lifecycle.ready(self.life, self._clock.now()))
            log_ready(self._server.name, self.life, peer.info)
        if self.connected is None:
            late = Cause("start_timeout", f"it was not ready within {limit:g} s")
            raise StartFailed(*await connection.last_words(late))
        tasks.start_soon(self._server.lists.keep)
        tasks.start_soon(self._rest_when_idle)
        tasks.start_soon(self._server.liveness.follow, peer)
        tasks.start_soon(self._server.liveness.watch, peer)
        await self._server.lists.follow(peer, self._server.rules.request_timeout)
        return await connection.last_words(peer.ending.cause or CONNECTION_LOST)

    async def _rest_when_idle(self) -> None:
        checks, calls_over = 0, self._server.turns.ended_calls
        while checks < _CHECKS:
            limit, nudged = self._server.rules.idle_stop, self._nudged
            with anyio.move_on_after(math.inf if limit is None else limit / _CHECKS):
                await nudged.wait()
            is_idle = (
                self._server.turns.is_empty
                and self._server.turns.ended_calls == calls_over
                and not self._server.is_wanted
            )
            checks, calls_over = checks + 1 if is_idle and not nudged.is_set() else 0, self._server.turns.ended_calls
        if self.life.state is UpstreamState.READY:
            log.info("upstream_idle", upstream=self._server.name, seconds=self._server.rules.idle_stop)
            self.order(lifecycle.resting(self.life, _IDLE), _WOKEN)

    def _become(self, life: Life) -> None:
        if life != self.life:
            log_failure(self._server.name, self.life, life)
            self.life = life
            self._server.changes.bump()
