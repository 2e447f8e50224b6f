"""`scope: session`, `call` or `folder`: one process per session, call or client folder (`${client.…}`).

One more process provides the lists. A handshake client is a session. Modern callers share one process per principal, or
have one per connection to a background hub.
"""

import math
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal

import anyio
import anyio.abc
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel, CallerConnection, CallHandler, Gate, Heard, SentCall, Upstream
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy, HubRestarted, RpcError, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.notices import Notices
from mcp_hub.stores.documents import Holdings
from mcp_hub.types import Era, Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.lists.list_reader import ListFile
from mcp_hub.upstreams.lists.list_union import ListUnion
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import EraWish, ServerEras, wish
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.server import STOP_REQUESTED, Handover, Lifecycle, SharedServer, SupervisorRules
from mcp_hub.upstreams.supervision.side_connections import (
    ScopedProcesses,
    SideConnection,
    SideConnections,
    side_notices,
)
from mcp_hub.upstreams.supervision.supervisor import Connection

MOST_PROCESSES: Final = 32
"""Processes of one server besides the listed one; an idle one makes room, else the call is refused."""
_RELIST: Final = 60.0
"""Seconds between two restarts of the listed process because others list something else."""
_SWEEP: Final = 30.0  # seconds between two looks for idle processes, at most


class _ProcessKeys(msgspec.Struct, frozen=True):
    scope: Literal["session", "call", "folder"]
    folder_of: Callable[[str | None], str]

    def process(self, call: Call) -> str:
        if self.scope == "call":
            return call.id
        if self.scope == "folder":
            return f"{call.server_era.value} in {self.folder_of(call.directory)}"
        if call.era is Era.HANDSHAKE:
            return call.session
        if call.directory is not None:  # of one client of a background hub
            return f"{call.session} {call.server_era.value}"
        return f"principal {call.principal}" if call.server_era is Era.MODERN else f"programs of {call.principal}"


class _Predecessor:
    """The replaced upstream, until its clients have left.

    `moved` receives their wanted resources; `changes` are bumped at the end.
    """

    def __init__(self, clock: Clock, changes: Notices, moved: Callable[[str, Call], None]) -> None:
        self._clock = clock
        self._changes = changes
        self._moved = moved
        self._shared: SharedServer | None = None
        self._union = ListUnion()
        self._last_used = 0, clock.now()  # calls there that were over at the last look, and its time

    def upstream(self, call: Call) -> Upstream | None:
        """The predecessor, if it still runs this caller's calls."""
        shared = self._shared
        if shared is None or call.session not in shared.sessions:
            return None
        if not shared.is_up:
            self.leave()
            return None
        return shared.upstream

    @property
    def references(self) -> tuple[tuple[str, Call], ...]:
        return () if self._shared is None else self._shared.references

    def lists_beside(self, listed: Snapshot | None) -> Snapshot | None:
        return self._union.of(listed, None if self._shared is None else self._shared.upstream.snapshot())

    def inherit(self, state: Handover) -> Handover:
        """Lets its clients stay; the state for all others."""
        if (shared := state.shared) is None or not shared.sessions:
            return state
        self._shared = shared
        shared.hand_over(self._move)
        moved = tuple(pair for pair in state.references if pair[1].session not in shared.sessions)
        for uri, call in moved:
            shared.upstream.unsubscribe(uri, call)
        return replace(state, references=moved)

    def take_waiting(self) -> None:
        if self._shared is not None:
            self._shared.connections[0].turns.dismiss(self._shared.sessions)

    def _move(self, session: str) -> None:
        if (shared := self._shared) is None:
            return
        for uri, call in shared.references:
            if call.session == session:
                shared.upstream.unsubscribe(uri, call)
                self._moved(uri, call)
        self.leave(session)

    def leave(self, session: str | None = None) -> None:
        """Gives the predecessor up; with a `session`, if it was the last."""
        if (shared := self._shared) is None:
            return
        if session is not None:
            shared.upstream.session_ended(session)
        if session is None or not shared.sessions:
            self._shared = None
            self._changes.bump()

    def leave_idle(self, seconds: float) -> None:
        """Gives it up after so long without use."""
        if (shared := self._shared) is None:
            return
        over, since = self._last_used
        if shared.calls_over != over or shared.is_used:
            self._last_used = shared.calls_over, self._clock.now()
        elif since < self._clock.now() - seconds:
            self.leave()

    async def until_left(self) -> None:
        while self._shared is not None:
            await self._changes.wait(self._changes.version)


class Scoped:
    """An `Upstream` with one listed process, and one for each `scope` that runs calls.

    A process ends after `part_idle` seconds without a call. `connect_in` connects in a client's working directory;
    `folder_of` distinguishes clients by it. With a `holder`, a session's process is at one replica.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[EraWish], Connection],
        rules: SupervisorRules,
        scope: Literal["session", "call", "folder"],
        eras: ServerEras,
        *,
        clock: Clock,
        changes: Notices,
        jitter: Callable[[], float] = random.random,
        lists: ListFile | None = None,
        gate: Gate | None = None,
        connect_in: Callable[[str | None], Callable[[EraWish], Connection]] | None = None,
        folder_of: Callable[[str | None], str] = lambda directory: directory or "",
        holder: Holdings | None = None,
    ) -> None:
        self.name = name
        self.lifecycle = _ScopedLifecycle(self, clock)
        self._connect_in = connect_in if connect_in is not None else lambda directory: connect
        self._make = partial(ManagedUpstream, name, clock=clock, jitter=jitter, gate=gate)
        self._eras = eras
        self._keys = _ProcessKeys(scope, folder_of)
        self._members = ScopedProcesses(name, clock, holder if scope == "session" else None)
        listed = partial(connect, EraWish(self._listed_era))
        self._listed = self._make(listed, rules, changes=changes, lists=lists, on_ready=self._on_ready)
        self._sides = SideConnections(
            self._listed, self._members, key=self._key, begun=self._begun, snapshot=self.snapshot
        )
        self._predecessor = _Predecessor(clock, changes, self._sides.resources.want)

    async def _supervise(self) -> None:
        async with self._members.open() as tasks:
            self._predecessor.take_waiting()
            tasks.start_soon(self._listed.lifecycle.run)
            try:
                while True:
                    await anyio.sleep(min(_SWEEP, self._listed.state.rules.part_idle / 4))
                    idle = self._listed.state.rules.part_idle
                    self._predecessor.leave_idle(idle)
                    self._members.stop_idle(idle)
            finally:
                self._predecessor.leave()

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        shared = self._predecessor.upstream(call)
        return None if shared is None else shared.begin(call, channel)

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Relays a call to its process, started if needed. Raises as `ManagedUpstream.call`."""
        if (shared := self._predecessor.upstream(call)) is not None:
            return await shared.call(call, channel)
        if self._listed.successor is not None:
            return await self._listed.successor(call, channel)
        if not self._listed.state.lists.is_fresh:
            self._listed.lifecycle.wake()  # its known lists may be old
        key = self._keys.process(call)
        member = await self._begun(call)
        try:
            with self._members.call(member, is_last=self._keys.scope == "call"):
                return self._listed.doubts.look_at(call, await member.upstream.call(call, channel))
        except RpcError as refused:
            self._listed.doubts.note(call, refused)
            raise
        finally:
            if member.is_last and not member.busy and self._members.get(key) is member:
                self._members.stop(key)

    async def _begun(self, call: Call) -> SideConnection:
        key = self._keys.process(call)
        if call.era is Era.HANDSHAKE and key not in self._members:
            await self._members.hold(key)
        return self._members.get(key) or self._start(key, call)

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Raises `HubRestarted`: its process ended with the hub."""
        scope = self._keys.scope
        raise HubRestarted(
            f'server "{self.name}" cannot continue the call: its process ended with the hub (scope: {scope}).',
            data={"upstream": {"server": self.name}, "outcome": "unknown"},
        )

    def _key(self, call: Call) -> str | None:
        return None if self._keys.scope == "call" else self._keys.process(call)

    async def _listed_era(self) -> Era:
        last = self._listed.state.lists.last
        return last.era if last is not None else await self._eras.first()

    def _on_ready(self, peer: Peer) -> None:
        self._eras.see(peer.info)

    # -- members ------------------------------------------------------------------------------------------------

    def _start(self, key: str, call: Call) -> SideConnection:
        if self._members.tasks is None:
            raise UpstreamUnavailable(f'server "{self.name}" is stopped.')
        if len(self._members) >= MOST_PROCESSES and not self._members.make_room():
            raise Busy(
                f'server "{self.name}" has {MOST_PROCESSES} busy processes (scope: {self._keys.scope}). '
                "Try again later.",
                data={"upstream": {"server": self.name}, "processes": MOST_PROCESSES},
            )
        changes = side_notices(self.name, self._listed.state.changes, key)
        upstream = self._process_for(call.server_era, changes, call.directory)
        member = self._members.start(key, upstream)
        self._sides.begin(key)
        self._members.tasks.start_soon(self._run, key, member, name=f"upstream {self.name} for {key}")
        return member

    def _process_for(self, era: Era, changes: Notices, directory: str | None = None) -> ManagedUpstream:
        asks = era is Era.HANDSHAKE and self._eras.is_interactive
        connect = partial(self._connect_in(directory), wish(era))
        logs = self._listed.state.logs
        return self._make(connect, self._member_rules, changes=changes, takes_turns=asks, logs=logs)

    @property
    def _member_rules(self) -> SupervisorRules:
        rules = self._listed.state.rules
        return replace(rules, ready_wait=rules.start_timeout, lazy=False, idle_stop=None)

    async def _run(self, key: str, member: SideConnection) -> None:
        with member.scope:
            async with anyio.create_task_group() as tasks:
                if self._keys.scope != "call":
                    tasks.start_soon(self._sides.follow, member)
                await member.upstream.lifecycle.run()
                tasks.cancel_scope.cancel()
        if self._members.get(key) is member:
            self._members.stop(key)

    # -- clients ------------------------------------------------------------------------------------------------

    def session_ended(self, session: str) -> None:
        """Ends the session's process after its calls."""
        self._predecessor.leave(session)
        self._members.stop_after_calls(session)

    def set_log_level(self, level: str) -> None:
        self._listed.set_log_level(level)
        for member in self._members.values():
            member.upstream.set_log_level(level)

    def snapshot(self) -> Snapshot | None:
        return self._listed.snapshot()

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        return self._listed.refresh(kind, is_new=is_new)

    def apart(self, call: Call) -> CallerConnection | None:
        if (shared := self._predecessor.upstream(call)) is not None:
            lists = self._predecessor.lists_beside(self.snapshot())
            return shared.apart(call) or CallerConnection(self.name, lists)
        return self._sides.apart(call)

    async def subscribe(self, uri: str, call: Call) -> None:
        await (self._predecessor.upstream(call) or self._sides).subscribe(uri, call)

    def unsubscribe(self, uri: str, call: Call) -> None:
        (self._predecessor.upstream(call) or self._sides).unsubscribe(uri, call)

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        return await self._listed.ask(call, heard)

    def status(self) -> UpstreamStatus:
        """The listed process's status, with the restarts of all."""
        first, members = self._listed.status(), [member.upstream for member in self._members.values()]
        restarts = first.restarts + self._members.restarts + sum(member.status().restarts for member in members)
        over = [member.status() for member in members if member.supervisor.is_over]
        reason, code = first.reason, first.code
        if over and (first.state is UpstreamState.READY or first.rests):
            failed = f"{len(over)} of {len(members)} {self._keys.scope} processes failed: {over[-1].reason}"
            reason, code = f"{reason}; {failed}" if reason else failed, over[-1].code
        return replace(first, restarts=restarts, reason=reason, code=code, scope=self._keys.scope)


class _ScopedLifecycle(Lifecycle):
    def __init__(self, upstream: Scoped, clock: Clock) -> None:
        super().__init__()
        self._upstream = upstream
        self._clock = clock
        self._relisted = -math.inf

    @property
    def _listed(self) -> Lifecycle:
        return self._upstream._listed.lifecycle

    @property
    def peers(self) -> list[Peer]:
        sides = [peer for member in self._upstream._members.values() for peer in member.upstream.lifecycle.peers or ()]
        return [*(self._listed.peers or ()), *sides]

    async def run(self) -> None:
        await self._upstream._supervise()

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None:
        """The processes end with `run`."""
        upstream = self._upstream
        with anyio.move_on_after(seconds):
            await upstream._members.idle()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._listed.drain, 0.0, why)
            for member in upstream._members.values():
                tasks.start_soon(member.upstream.lifecycle.drain, 0.0, why)

    def wake(self) -> None:
        self._listed.wake()

    def restart(self) -> None:
        for key in list(self._upstream._members):
            self._upstream._members.stop(key)
        self._listed.restart()

    def relist(self) -> None:
        now = self._clock.now()
        if now - self._relisted >= _RELIST:
            self._relisted = now
            self._listed.restart()

    def revive(self) -> bool:
        members = self._upstream._members
        over = [key for key, member in members.items() if member.upstream.supervisor.is_over]
        for key in over:
            if members[key].busy:
                members[key].upstream.lifecycle.restart()
            else:
                self._upstream._members.stop(key)
        return bool(over)

    def adjust(self, rules: SupervisorRules) -> None:
        self._listed.adjust(rules)
        for member in self._upstream._members.values():
            member.upstream.lifecycle.adjust(self._upstream._member_rules)

    def leave_tasks(self) -> None:
        self._listed.leave_tasks()

    def hand_over(self, successor: CallHandler) -> Handover:
        upstream, state = self._upstream, self._listed.hand_over(successor)
        references = (*state.references, *upstream._sides.resources.references, *upstream._predecessor.references)
        return replace(state, references=references, shared=None)

    def inherit(self, state: Handover) -> None:
        self._upstream._sides.inherit(self._upstream._predecessor.inherit(state))

    async def outlived(self) -> None:
        await self._upstream._predecessor.until_left()
