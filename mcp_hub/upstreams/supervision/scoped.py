"""`scope: session` and `scope: call`: a process of its own for each session, or for each call, of one server.

Scope `folder` is a process for each folder that a client's `${client.…}` stands for.

One more process is only listed: its lists stand for all of them, until the process of a session lists something else,
which its session sees. Subscriptions of a session are at its process. A handshake client is a session. The modern era
does not have sessions, so its callers share one process per principal, unless each has a connection to a background
hub.
"""

import math
import random
from collections.abc import Callable
from functools import partial
from typing import Final, Literal, Protocol, Self

import anyio
import anyio.abc
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel, Gate, SentCall
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy, HubRestarted, RpcError, SessionElsewhere, StoreError, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.notices import Notices
from mcp_hub.types import Era, RawJson, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.lists.list_cache import ListFile
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import EraWish, ServerEras, wish
from mcp_hub.upstreams.supervision.connection import Connection
from mcp_hub.upstreams.supervision.divided import Divided, SideConnection
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.supervisor import SupervisorRules

MOST_PROCESSES: Final = 32
"""Processes of one server besides the listed one; an idle one makes room, else the call is refused."""
_RELIST: Final = 60.0
"""Seconds between two restarts of the listed process because others list something else; all may, each time."""
_SWEEP: Final = 30.0
"""Seconds between two looks for idle processes, at most."""


class _Member(SideConnection, eq=False, kw_only=True):
    """One process, and the scope that ends it; `is_last` if it ends with the calls that it runs."""

    idle_since: float
    busy: int = 0
    is_last: bool = False
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)


class _Members(dict[str, _Member]):
    """The processes by session, principal, call or folder; `holder` and `folder_of` as for `Scoped`.

    `restarts` are those of processes that have ended.
    """

    restarts = 0
    holder: "Holder | None" = None
    folder_of: Callable[[str | None], str]

    def leave(self, key: str) -> _Member | None:
        """Takes one out; any replica may have it from now on."""
        member = self.pop(key, None)
        if member is not None and self.holder is not None:
            self.holder.release(key)
        return member


class Holder(Protocol):
    """Knows which replica of the hub has the process of a session."""

    async def hold(self, what: str) -> bool:
        """Whether this replica has it, from now on if none had. Raises `StoreError`."""

    def release(self, what: str) -> None:
        """Any replica may have it."""


class Scoped(Divided):
    """The listed process of a server, and the processes that run its calls, one for each `scope`.

    `idle` is after how many seconds without a call a process is ended; the next call of its session starts another.
    `connect_in` connects in the working directory of a client, or, for None, as `connect`. `folder_of` tells clients
    apart by theirs. With a `holder` a session has its process at one replica only: calls of it that come to another
    are refused.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[EraWish], Connection],
        rules: SupervisorRules,
        scope: Literal["session", "call", "folder"],
        idle: float,
        eras: ServerEras,
        *,
        clock: Clock,
        changes: Notices,
        jitter: Callable[[], float] = random.random,
        lists: ListFile | None = None,
        gate: Gate | None = None,
        connect_in: Callable[[str | None], Callable[[EraWish], Connection]] | None = None,
        folder_of: Callable[[str | None], str] = lambda directory: directory or "",
        holder: Holder | None = None,
    ) -> None:
        listed = partial(connect, EraWish(self._listed_era))
        super().__init__(name, listed, rules, clock=clock, changes=changes, jitter=jitter, lists=lists, gate=gate)
        self._connect_in = connect_in if connect_in is not None else lambda directory: connect
        self._eras = eras
        self._of_each = scope
        self._idle = idle
        self._sides = self._members = _Members()
        self._members.folder_of = folder_of
        self._members.holder = holder if scope == "session" else None
        self._tasks: anyio.abc.TaskGroup | None = None
        self._relisted = -math.inf
        self._emptied: anyio.Event | None = None

    async def run(self) -> None:
        """Supervises all processes until cancelled."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            self._take_waiting()
            tasks.start_soon(super().run)
            try:
                while True:
                    await anyio.sleep(min(_SWEEP, self._idle / 4))
                    self._sweep()
            finally:
                self._tasks = None
                self._leave_shared()

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        """In place at the shared process only: another one may have to be started."""
        shared = self._shared(call)
        return None if shared is None else shared.begin(call, channel)

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Relays a call to its own process, started if need be.

        Raises `Busy`, `SessionElsewhere`, and as `ManagedUpstream.call`.
        """
        if (shared := self._shared(call)) is not None:
            return await shared.call(call, channel)
        if self._successor is not None:
            return await self._successor(call, channel)
        if not self._lists.is_fresh:
            self.wake()  # its known lists may be old
        key = self._process(call)
        member = await self._begun(call)
        member.busy += 1
        member.is_last = self._of_each == "call"  # a session that was thought to be over is not
        is_over = member.supervisor.is_over
        try:
            return self._looked_at(call, await member.supervisor.call(call, channel))
        except RpcError as refused:
            self._doubt(call, refused)
            raise
        finally:
            member.busy -= 1
            if self._emptied is not None:
                self._emptied.set()
            if not is_over:  # a refused call does not use it
                member.idle_since = self._clock.now()
            if member.is_last and not member.busy and self._members.get(key) is member:
                self._stop(key)

    async def _begun(self, call: Call) -> _Member:
        """The process for a call. Raises `SessionElsewhere`, `Busy`."""
        key = self._process(call)
        if self._members.holder is not None and call.era is Era.HANDSHAKE and key not in self._members:
            await self._hold(self._members.holder, key)
        return self._members.get(key) or self._start(key, call)

    def _part(self, key: str) -> _Member | None:
        return self._members.get(key)

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        """Raises `HubRestarted`: the process of a session or a call ends with its hub, and all that ran in it."""
        raise HubRestarted(
            f'server "{self.name}" cannot continue the call: its process ended with the hub (scope: {self._of_each}).',
            data={"upstream": {"server": self.name}, "outcome": "unknown"},
        )

    def _key(self, call: Call) -> str | None:
        """None where each call has a process: what is between calls is at the listed one."""
        return None if self._of_each == "call" else self._process(call)

    def _process(self, call: Call) -> str:
        if self._of_each == "call":
            return call.id
        if self._of_each == "folder":
            return f"{call.server_era.value} in {self._members.folder_of(call.directory)}"
        if call.era is Era.HANDSHAKE:
            return call.session
        if call.directory is not None:  # of one client of a background hub
            return f"{call.session} {call.server_era.value}"
        return f"principal {call.principal}" if call.server_era is Era.MODERN else f"programs of {call.principal}"

    async def _listed_era(self) -> Era:
        last = self._lists.last
        return last.era if last is not None else await self._eras.first()

    def _on_ready(self, peer: Peer) -> None:
        super()._on_ready(peer)
        self._eras.see(peer.info)

    async def _hold(self, holder: Holder, session: str) -> None:
        """Raises `SessionElsewhere`."""
        try:
            is_here = await holder.hold(session)
        except StoreError as problem:
            raise UpstreamUnavailable(f'server "{self.name}" was not called: {problem.public}') from None
        if not is_here:
            said = f'server "{self.name}" has its process for this session at another replica of the hub '
            said += "(scope: session). Use a balancer with sticky sessions for its clients."
            raise SessionElsewhere(said, data={"upstream": {"server": self.name}})

    # -- members ------------------------------------------------------------------------------------------------

    def _start(self, key: str, call: Call) -> _Member:
        if self._tasks is None:
            raise UpstreamUnavailable(f'server "{self.name}" is stopped.')
        if len(self._members) >= MOST_PROCESSES:
            self._make_room()
        supervisor = self._supervisor(call.server_era, self._notices(key), call.directory)
        member = self._members[key] = _Member(supervisor, idle_since=self._clock.now())
        self._begin_part(key, member)
        self._tasks.start_soon(self._run, key, member, name=f"upstream {self.name} for {key}")
        return member

    def _supervisor(self, era: Era, changes: Notices, directory: str | None = None) -> ManagedUpstream:
        """A member's: its callers wait for it to start, and nobody else is notified of its changes."""
        rules = replace(self._rules, ready_wait=self._rules.start_timeout, lazy=False, idle_stop=None)
        asks = era is Era.HANDSHAKE and self._eras.is_interactive
        return ManagedUpstream(
            self.name, partial(self._connect_in(directory), wish(era)), rules, clock=self._clock, changes=changes,
            jitter=self._jitter, takes_turns=asks, gate=self._gate, logs=self._logs,
        )  # fmt: skip

    async def _run(self, key: str, member: _Member) -> None:
        with member.scope:
            async with anyio.create_task_group() as tasks:
                if self._of_each != "call":
                    tasks.start_soon(self._follow_part, member)
                await member.supervisor.run()
                tasks.cancel_scope.cancel()
        if self._members.get(key) is member:
            self._stop(key)

    def _make_room(self) -> None:
        idle = [
            (bool(member.resources.wanted), member.idle_since, key)
            for key, member in self._members.items()
            if not member.busy
        ]
        if not idle:
            raise Busy(
                f'server "{self.name}" has {MOST_PROCESSES} busy processes (scope: {self._of_each}). Try again later.',
                data={"upstream": {"server": self.name}, "processes": MOST_PROCESSES},
            )
        self._stop(min(idle)[2])

    def _sweep(self) -> None:
        limit = self._clock.now() - self._idle
        self._leave_idle(limit)
        for key, member in list(self._members.items()):
            if not member.busy and member.idle_since < limit and not member.resources.wanted:
                self._stop(key)

    def _stop(self, key: str) -> None:
        member = self._members.leave(key)
        if member is not None:
            self._members.restarts += member.supervisor.status().restarts
            member.scope.cancel()

    # -- operators ----------------------------------------------------------------------------------------------

    async def drain(self, seconds: float, why: str = "it was stopped on request") -> None:
        """As `ManagedUpstream.drain`; the processes end with `run`."""
        with anyio.move_on_after(seconds):
            while any(member.busy for member in self._members.values()):
                self._emptied = anyio.Event()
                await self._emptied.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(super().drain, 0.0, why)
            for member in self._members.values():
                tasks.start_soon(member.supervisor.drain, 0.0, why)

    def restart(self) -> None:
        """Ends all processes and starts the listed one anew; calls start theirs."""
        for key in list(self._members):
            self._stop(key)
        super().restart()

    def relist(self) -> None:
        """Starts a fresh process to be listed, once in a while: the others list something else now."""
        if self._clock.now() - self._relisted >= _RELIST:
            self._relisted = self._clock.now()
            super().restart()

    def use(self, twin: Self) -> None:
        """Applies the limits of `twin` from now on, to all processes that run."""
        super().use(twin)
        self._connect, self._connect_in, self._idle = twin._connect, twin._connect_in, twin._idle
        limits = self._supervisor(Era.MODERN, Notices())
        for member in self._members.values():
            member.supervisor.use(limits)

    def revive(self) -> bool:
        """Sessions whose process was given up get a fresh one with their next call; False if there are none."""
        over = [key for key, member in self._members.items() if member.supervisor.is_over]
        for key in over:
            if self._members[key].busy:
                self._members[key].supervisor.restart()
            else:
                self._stop(key)
        return bool(over)

    # -- clients ------------------------------------------------------------------------------------------------

    def session_ended(self, session: str) -> None:
        """Its process ends, once the calls that it runs have; the shared one with the last session."""
        self._leave_shared(session)
        if (member := self._members.get(session)) is not None and member.busy:
            member.is_last = True
        else:
            self._stop(session)

    def set_log_level(self, level: str) -> None:
        super().set_log_level(level)
        for member in self._members.values():
            member.supervisor.set_log_level(level)

    def status(self) -> UpstreamStatus:
        """The status of the listed process, with the restarts of all, and the reason of those that were given up."""
        first, members = super().status(), [member.supervisor for member in self._members.values()]
        restarts = first.restarts + self._members.restarts + sum(member.status().restarts for member in members)
        over = [member.status() for member in members if member.is_over]
        reason, code = first.reason, first.code
        if over and (first.state is UpstreamState.READY or first.rests):
            failed = f"{len(over)} of {len(members)} {self._of_each} processes failed: {over[-1].reason}"
            reason, code = f"{reason}; {failed}" if reason else failed, over[-1].code
        return replace(first, restarts=restarts, reason=reason, code=code, scope=self._of_each)
