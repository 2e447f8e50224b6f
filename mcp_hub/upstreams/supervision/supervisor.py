"""Keeps one server up: its owner task starts it, lists, watches, backs off, starts it again, and lets it rest.

`lifecycle` decides each transition.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import anyio
import anyio.abc
import msgspec

from mcp_hub.clock import Clock
from mcp_hub.errors import LookupFailed, StartFailed, UpstreamUnavailable
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide
from mcp_hub.types import Cause, Kind, UpstreamState, UpstreamStatus, condition
from mcp_hub.upstreams.peer.negotiation import AnotherProcess, Incompatible
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import CONNECTION_LOST
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.lifecycle import Life
from mcp_hub.upstreams.supervision.server import STOP_REQUESTED, ServerState, SupervisorRules
from mcp_hub.upstreams.supervision.state_log import log_failure, log_ready

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


class Connection(Protocol):
    """Opened once and closed once, by the same owner task; a new start makes a new one.

    `pid` is the process behind it, if the hub started one; `stderr` has the last lines that the server wrote for
    people. `can_retry`: whether another start may go better; not, say, when the command does not exist.
    `lost_session`: whether it ended because the server has forgotten the session, and nothing worse. `notes` are
    warnings about an open connection.
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
        """The connection that takes over the session which was begun in place of a lost one, if there is one."""

    async def open(self, tasks: anyio.abc.TaskGroup) -> Peer:
        """Connects and settles the era; `tasks` run while it is open. Raises `StartFailed` with the reason.

        `AnotherProcess` is one of them: another connection is to be opened at once, and that is not a failure.
        """

    async def last_words(self, cause: Cause) -> Cause:
        """`cause`, with what else is known of why the connection ended or was not open in time. May wait a moment."""

    async def close(self) -> None:
        """Ends it. Shielded and bounded."""


class _Ended(msgspec.Struct, frozen=True):
    """Why an attempt or a session ended; `hopeless` is the state that follows if another one cannot succeed."""

    cause: Cause
    hopeless: UpstreamState | None = None


class Supervisor:
    """The owner of one server's connections, one after the other. `connect` makes a fresh one for every start.

    Unless it `starts` it rests until it is needed, also if its lists are not known. `on_ready` is called with each new
    session, before calls are sent to it.
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
        self._adjusted = anyio.Event()

    # -- operators ----------------------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether it was given up or stopped, so that only `restart` starts it again."""
        return self.life.state in lifecycle.FINAL and not self.life.rests

    @property
    def may_get_ready(self) -> bool:
        """Whether it is ready, or on its way up, or is started when it is needed."""
        return self.life.rests or self.life.state in (UpstreamState.STARTING, UpstreamState.READY)

    def status(self) -> UpstreamStatus:
        """The state of the server, and why it is not ready."""
        server, life, last = self._server, self.life, self._server.lists.last
        connection, peer = self._connection, self.connected
        known = peer.info if peer else last
        notes = connection.notes if peer and connection else ()
        state, reason, code, failures = life.state, life.reason, life.code, life.streak
        if peer is not None and peer.signs.is_bad and state is UpstreamState.READY:
            state, failures, bad = UpstreamState.BACKING_OFF, peer.signs.failures, peer.signs.reason
            code, reason = bad if bad is not None else CONNECTION_LOST
        return UpstreamStatus(
            server=server.name,
            state=state,
            reason=reason,
            era=known.era if known else None,
            version=known.version if known else None,
            server_info=known.server_info if known else None,
            restarts=life.restarts,
            pid=connection.pid if peer and connection else None,
            stderr=(tuple(connection.stderr) if connection else ()) or (() if peer else self._last_output),
            warnings=(*map(hide, (*notes, *(last.snapshot.warnings if last else ()))), *server.lists.unsteady),
            unsteady=server.lists.unsteady,
            listed_at=last.at if last else None,
            asks=peer is not None and peer.is_interactive,
            rests=life.rests,
            code=code,
            failures=failures,
            logs=server.logs.flow(),
            noise=peer.strays.summary if peer else None,
        )

    def leave_tasks(self) -> None:
        """From now on a call that is cancelled leaves its task at the server: another hub will continue it."""
        self._leaves_tasks = True
        if self.connected is not None:
            self.connected.tasks.leave()

    def restart(self) -> None:
        """Ends the process, if one runs, and starts a fresh one at once; calls fail. No effect once `run` has ended."""
        self.order(lifecycle.restarted(self.life), _RESTARTED)

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None:
        """Takes no more calls, lets those that run end within `seconds`, then ends the process, until `restart`.

        Returns when it is stopped. Idempotent.
        """
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
        """Goes by these rules from now on. A server that rests and no longer may is started."""
        self._server.adjust(rules)
        self._adjusted.set()
        self._adjusted = anyio.Event()
        if not rules.lazy and rules.idle_stop is None:
            self.wake()

    def wake(self) -> None:
        """Starts the server if it rests."""
        if self.life.rests:
            self.order(lifecycle.woken(self.life), _WOKEN)

    def order(self, life: Life, why: Cause) -> None:
        """Enters a state from outside: the present step ends, calls included."""
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
        """The next peer for calls; without `patience`, as long as one may come. Raises `UpstreamUnavailable`."""
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
        """Starts the server if it rests; the seconds that a call waits for it."""
        self.wake()
        if patience is None:
            return math.inf
        return max(patience, self._server.rules.start_timeout) if lifecycle.is_first_start(self.life) else patience

    def unavailable(self, reason: str | None = None) -> UpstreamUnavailable:
        """The error for a call that cannot be sent; `reason` is that of the last try."""
        life = self.life
        said = condition(life.state, life.reason, life.streak)
        if life.state is UpstreamState.READY:  # again, which does not explain the failure
            said = "is not reachable" if reason is None else "did not take the request, also over a new connection"
        reason = life.reason or reason or "try again in a moment"
        about = {"server": self._server.name, "state": life.state.value, "reason": reason}
        if life.code is not None:
            about["code"] = life.code
        return UpstreamUnavailable(f'server "{self._server.name}" {said}: {reason}', data={"upstream": about})

    # -- the owner task -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Supervises until cancelled; then ends the process. Never raises for what the upstream does."""
        if self._server.is_wanted:
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
        """Works in the present state until it changes, or an order cancels the `scope`."""
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
        """The state after a session that has ended, or did not begin."""
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
                can_retry = self._connection is not None and self._connection.can_retry
                if isinstance(exc, LookupFailed):
                    can_retry = exc.can_retry
                cause = Cause(_AT_START.get(exc.code, exc.code), str(exc))
                ended = _Ended(cause, None if can_retry else UpstreamState.FAILED)
            except Exception as exc:
                log.exception("upstream_attempt_crashed", upstream=self._server.name)
                ended = _Ended(Cause("internal_error", hide(f"internal error: {exc}")))
            tasks.cancel_scope.cancel()
        return ended

    async def _live(self, connection: Connection, tasks: anyio.abc.TaskGroup) -> Cause:
        """Handshake, first list, then watching until the session ends."""
        limit = self._server.rules.start_timeout
        with anyio.move_on_after(limit):
            peer = await connection.open(tasks)
            peer.callers.report_to(self._server.logs)
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
        """Stops the server when nobody has needed it for a while."""
        checks, left = 0, self._server.turns.left
        while checks < _CHECKS:
            limit, adjusted = self._server.rules.idle_stop, self._adjusted
            with anyio.move_on_after(math.inf if limit is None else limit / _CHECKS):
                await adjusted.wait()
            is_idle = self._server.turns.is_empty and self._server.turns.left == left and not self._server.is_wanted
            checks, left = checks + 1 if is_idle and not adjusted.is_set() else 0, self._server.turns.left
        if self.life.state is UpstreamState.READY:
            log.info("upstream_idle", upstream=self._server.name, seconds=self._server.rules.idle_stop)
            self.order(lifecycle.resting(self.life, _IDLE), _WOKEN)

    def _become(self, life: Life) -> None:
        if life != self.life:
            log_failure(self._server.name, self.life, life)
            self.life = life
            self._server.changes.bump()
