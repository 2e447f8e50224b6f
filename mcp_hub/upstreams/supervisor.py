"""Keeps one server alive: start, list, watch, back off, start again; one owner task each.

A bad upstream changes nothing for another: each has its own supervisor, all start at once, and nobody waits for one
but its own callers (product.md, promise 2).
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import anyio
import structlog

from mcp_hub.clock import Clock
from mcp_hub.errors import HubRestarted, RpcError, StartFailed, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.protocol import eras
from mcp_hub.protocol.envelope import object_bytes
from mcp_hub.protocol.rpc_errors import HEADER_MISMATCH
from mcp_hub.types import Era, Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams import lifecycle
from mcp_hub.upstreams.base import Call, CallChannel, CallHandler
from mcp_hub.upstreams.changes import Changes
from mcp_hub.upstreams.connection import Connection
from mcp_hub.upstreams.followed import Followed, TaskLeft, TaskUnknown
from mcp_hub.upstreams.lifecycle import Life, RestartRule
from mcp_hub.upstreams.listing import ListLimits, list_kinds
from mcp_hub.upstreams.peer import Peer
from mcp_hub.upstreams.subscriptions import Subscriptions
from mcp_hub.upstreams.tasks import required_tasks, taken_up
from mcp_hub.upstreams.turns import Turns
from mcp_hub.wire.base import WireClosed

__all__ = ["Supervisor", "SupervisorRules"]

log = structlog.get_logger(__name__)

_SESSION: Final = 1.0
"""Seconds that a session has to last for its loss to be followed by the next one at once."""
_SETTLE: Final = 0.1
"""Seconds to collect `list_changed` notifications before listing again."""


@dataclass(frozen=True, slots=True)
class SupervisorRules:
    """Limits of one upstream, in seconds where not said otherwise.

    `ready_wait` is how long a call waits for an upstream that is starting or about to be started again.
    """

    start_timeout: float = 60.0
    request_timeout: float = 60.0
    ready_wait: float = 5.0
    restart: RestartRule = RestartRule()
    lists: ListLimits = ListLimits()


class Supervisor:
    """An `Upstream` behind a connection that is kept up. `connect` makes a fresh one for every start."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        rules: SupervisorRules,
        *,
        clock: Clock,
        changes: Changes,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self._connect = connect
        self._rules = rules
        self._clock = clock
        self._changes = changes
        self._jitter = jitter
        self._life = Life()
        self._ready_at = 0.0
        self._connection: Connection | None = None
        self._last_output: tuple[str, ...] = ()  # of the process before this one: why it ended, until the next is ready
        self._peer: Peer | None = None
        self._snapshot: Snapshot | None = None
        self._log_level: str | None = None
        self._leaves_tasks = False
        self._turns = Turns(name)
        self._subscriptions = Subscriptions(name, changes, rules.request_timeout)

    # -- what others ask ----------------------------------------------------------------------------------------

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Relays a call, after a short wait if the upstream is on its way up.

        Raises `UpstreamUnavailable` with state and reason, `Busy` when another session keeps it too long, and what
        `Peer.call` raises.
        """
        return await self._in_turn(call, channel, self._call)

    async def _in_turn(self, call: Call, channel: CallChannel, work: CallHandler) -> Completed:
        """Does what the call takes in its turn."""
        if self._peer is not None and self._peer.is_interactive:
            self._turns.is_on = True
        if not self._turns.enter_now(call.session):
            await self._turns.enter(call.session)
        given_up = False
        try:
            if call.log_level is not None:
                self.set_log_level(call.log_level)
            return await work(call, channel)
        except anyio.get_cancelled_exc_class():
            given_up = True
            raise
        finally:
            self._turns.leave(call.session, given_up=given_up)

    async def _call(self, call: Call, channel: CallChannel) -> Completed:
        reason = None
        peer = self._peer
        if peer is None or not peer.wire.can_send:
            peer = await self._next_peer(self._rules.ready_wait)
        for is_retry in (False, True):
            try:
                return await peer.call(call, channel)
            except WireClosed as exc:  # nothing was sent, so trying once more is safe
                reason = str(exc)
                peer = await self._next_peer(self._rules.ready_wait)
            except TaskLeft as left:
                return await self._follow(left.task, left)
            except RpcError as refused:
                if refused.code != HEADER_MISMATCH or peer.mirrors is None or is_retry:
                    raise
                await self._learn_headers(peer, refused)
        raise self._unavailable(reason)

    async def _follow(self, task: Followed, left: RpcError | None = None) -> Completed:
        """Follows a task to its end, over one connection after the other, as long as there will be another one.

        Raises `RpcError`: what `Peer.follow` raises, else `left`, or why nothing could be asked at all.
        """
        while True:
            try:
                peer = await self._next_peer(None)
            except UpstreamUnavailable as gone:
                raise left or gone from None
            try:
                return await peer.follow(task)
            except TaskLeft as again:
                left = again

    async def _learn_headers(self, peer: Peer, refused: RpcError) -> None:
        """The server found the headers of a call wrong: the call is to be repeated with those of its present tools.

        Raises `refused` if they cannot be had. Source: 2026-07-28, basic/transports/streamable-http "Client Behavior".
        """
        try:
            with anyio.move_on_after(self._rules.request_timeout):
                await self._list(peer, {Kind.TOOL})
        except StartFailed:
            raise refused from None

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        """As `Upstream.resume`; waits for a server on its way up as long as the call may take.

        Raises `HubRestarted`, outcome unknown, if the server does not come up or does not know the task of the call.
        """
        task = taken_up(call, channel, how)
        try:
            return await self._in_turn(call, channel, partial(self._take_up, task))
        except (TaskUnknown, UpstreamUnavailable) as lost:
            raise HubRestarted(
                f"the hub was restarted and cannot go on with the call: {lost.message}",
                data=task.about({"outcome": "unknown"}),
            ) from None

    async def _take_up(self, task: Followed, call: Call, channel: CallChannel) -> Completed:
        return await self._follow(task)

    def leave_tasks(self) -> None:
        """From now on a call that is cancelled leaves its task alone: another hub will go on with it."""
        self._leaves_tasks = True
        if self._peer is not None:
            self._peer.leaves_tasks = True

    def status(self) -> UpstreamStatus:
        life, connection, peer = self._life, self._connection, self._peer
        snapshot = self._snapshot
        return UpstreamStatus(
            server=self.name,
            state=life.state,
            reason=life.reason,
            era=peer.info.era if peer else snapshot.era if snapshot else None,
            version=peer.info.version if peer else None,
            server_info=peer.info.server_info if peer else None,
            restarts=life.restarts,
            pid=connection.pid if peer and connection else None,
            stderr=(tuple(connection.stderr) if connection else ()) or (() if peer else self._last_output),
            warnings=snapshot.warnings if snapshot else (),
        )

    def snapshot(self) -> Snapshot | None:
        return self._snapshot

    def set_log_level(self, level: str) -> None:
        """Asks a handshake upstream for messages of `level` and above; never lowered to a less verbose one."""
        if self._log_level is not None and _verbosity(self._log_level) <= _verbosity(level):
            return
        self._log_level = level
        if self._peer is not None:
            self._send_log_level(self._peer)

    def session_ended(self, session: str) -> None:
        """Nothing is kept for one session."""

    async def subscribe(self, uri: str) -> None:
        """As `Upstream.subscribe`, after a short wait if the upstream is on its way up."""
        self._subscriptions.want(uri)
        if self._peer is None or not self._peer.wire.can_send:
            await self._next_peer(self._rules.ready_wait)
        await self._subscriptions.confirmed(uri)

    def unsubscribe(self, uri: str) -> None:
        self._subscriptions.release(uri)

    def _send_log_level(self, peer: Peer) -> None:
        if self._log_level and peer.info.era is Era.HANDSHAKE and "logging" in peer.info.capabilities:
            params = object_bytes({"level": self._log_level})
            peer.wire.request("logging/setLevel", params)

    async def _next_peer(self, patience: float | None) -> Peer:
        """The one that calls can be sent to, as soon as there is one; no `patience`: however long it is on its way."""
        with anyio.move_on_after(patience):
            while True:
                version = self._changes.version
                if self._peer is not None and self._peer.wire.can_send:
                    return self._peer
                if self._life.state in lifecycle.FINAL:
                    break
                await self._changes.wait(version)
        raise self._unavailable()

    def _unavailable(self, reason: str | None = None) -> UpstreamUnavailable:
        life = self._life
        reason = life.reason or reason or "not reachable just now"
        return UpstreamUnavailable(
            f'upstream "{self.name}" is {life.state.value}: {reason}',
            data={"upstream": {"server": self.name, "state": life.state.value, "reason": reason}},
        )

    # -- the owner task -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Supervises until cancelled; then ends the process. Never raises for what the upstream does."""
        try:
            while True:
                reason = await self._attempt()
                if self._life.state is UpstreamState.FAILED:
                    await anyio.sleep_forever()
                self._become(self._after(reason))
                if self._life.state is UpstreamState.BACKING_OFF:
                    await anyio.sleep(self._life.delay)
                    self._become(lifecycle.starting(self._life))
                elif self._life.state is not UpstreamState.STARTING:
                    await anyio.sleep_forever()
        finally:
            self._become(lifecycle.stopped(self._life))

    def _after(self, reason: str) -> Life:
        """What follows a session that has ended, or did not begin."""
        now = self._clock.now()
        was_ready = self._life.state is UpstreamState.READY and now - self._ready_at >= _SESSION
        if was_ready and self._connection is not None and self._connection.lost_session:
            return lifecycle.renewed(self._life, reason)
        return lifecycle.died(self._life, self._rules.restart, now, reason, self._jitter())

    async def _attempt(self) -> str:
        """One process from start to end; returns why it ended."""
        reason = "stopped"
        async with anyio.create_task_group() as tasks:
            try:
                connection = self._connection = self._connect()
                try:
                    reason = await self._live(connection, tasks)
                finally:
                    self._peer = None
                    self._changes.bump()
                    self._last_output = tuple(connection.stderr)
                    await connection.close()
            except StartFailed as exc:
                reason = str(exc)
                if self._connection is None or not self._connection.can_retry:
                    self._become(lifecycle.gave_up(self._life, reason))
            except Exception as exc:
                log.exception("upstream_attempt_crashed", upstream=self.name)
                reason = f"internal error: {exc}"
            tasks.cancel_scope.cancel()
        return reason

    async def _live(self, connection: Connection, tasks: anyio.abc.TaskGroup) -> str:
        """Handshake, first list, then watching until the session ends."""
        limit = self._rules.start_timeout
        with anyio.move_on_after(limit):
            peer = await connection.open(tasks)
            peer.tell = self._changes.tell
            peer.leaves_tasks = self._leaves_tasks
            await tasks.start(self._subscriptions.follow, peer)
            await self._list(peer, set(Kind))
            self._peer = peer
            self._send_log_level(peer)
            self._ready_at = self._clock.now()
            self._become(lifecycle.ready(self._life))
            log.info("upstream_ready", upstream=self.name, era=peer.info.era.value, version=peer.info.version)
        if self._peer is None:
            raise StartFailed(await connection.last_words(f"not ready within {limit:g} s"))
        await self._watch(peer)
        return await connection.last_words(peer.close_reason or "gone")

    async def _watch(self, peer: Peer) -> None:
        """Lists again what the server says has changed, until the session ends."""
        while True:
            await peer.wake.wait()
            if peer.closed.is_set():
                return
            peer.wake = anyio.Event()
            await anyio.sleep(_SETTLE)
            kinds, peer.changed = peer.changed, set()
            with anyio.move_on_after(self._rules.request_timeout) as scope:
                try:
                    await self._list(peer, kinds)
                except StartFailed as exc:
                    log.warning("upstream_list_failed", upstream=self.name, reason=str(exc))
            if scope.cancelled_caught:
                log.warning("upstream_list_failed", upstream=self.name, reason="no answer")

    async def _list(self, peer: Peer, kinds: set[Kind]) -> None:
        found = await list_kinds(peer, kinds, self._rules.lists)
        if peer.mirrors is not None and (tools := found.get(Kind.TOOL)) is not None:
            tools.raws, refused = peer.mirrors.learn(tools.raws)
            tools.warnings += refused
            for problem in refused:
                log.warning("upstream_list", upstream=self.name, kind=Kind.TOOL.value, problem=problem)
        old = self._snapshot
        keep = old is not None and kinds != set(Kind)
        lists = {kind: tuple(listed.raws) for kind, listed in found.items()}
        hints = {kind: listed.hint for kind, listed in found.items()}
        warnings = tuple(f"{kind.value}s: {text}" for kind, listed in found.items() for text in listed.warnings)
        info = peer.info
        fresh = Snapshot(self.name, info.era, lists, hints, info.capabilities, info.instructions, warnings)
        if old is not None and keep:
            fresh = replace(fresh, lists={**old.lists, **lists}, hints={**old.hints, **hints})
        if Kind.TOOL in lists:
            peer.task_tools = required_tasks(info.capabilities, lists[Kind.TOOL])
        if fresh != old:
            self._snapshot = fresh
            self._changes.bump()

    def _become(self, life: Life) -> None:
        if life != self._life:
            if life.state in (UpstreamState.BACKING_OFF, UpstreamState.FAILED):
                log.warning("upstream_state", upstream=self.name, state=life.state.value, reason=life.reason)
            self._life = life
            self._changes.bump()


def _verbosity(level: str) -> int:
    return eras.LOG_LEVELS.index(level) if level in eras.LOG_LEVELS else 0
