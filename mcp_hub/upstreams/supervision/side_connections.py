"""A server with several connections: callers list and subscribe where their calls run."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

import anyio
import anyio.abc
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallerConnection, CallHandler
from mcp_hub.clock import Clock
from mcp_hub.errors import AccountNeeded, Busy, StoreError, UpstreamUnavailable
from mcp_hub.notices import Notices, Origin
from mcp_hub.stores.documents import Holdings
from mcp_hub.types import Cause, Snapshot, UpstreamState
from mcp_hub.upstreams.lists.list_union import ListUnion
from mcp_hub.upstreams.peer.wanted import WantedResources
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream, watched
from mcp_hub.upstreams.supervision.server import Handover, OwnedUpstream, SupervisorRules

_SWEEP: Final = 30.0
"""Seconds between two looks for idle connections of principals, at most."""
_SETTLES: Final = 30.0
"""Seconds in which a connection that the server has refused has ended."""
_ENDED: Final = frozenset({UpstreamState.FAILED, UpstreamState.BACKING_OFF})
_REFUSED: Final = frozenset({"login_needed", "not_admitted"})
"""Codes of a server that does not accept an account."""


class _PartNotices(Notices):
    """Notices of a caller's own connection; updates, under `topic`, and messages go to `whole`."""

    def __init__(self, whole: Notices, topic: str) -> None:
        super().__init__()
        self._whole = whole
        self._topic = topic

    def note(self, origin: Origin, uri: str, params: bytes = b"{}") -> None:
        self._whole.note((self._topic, origin[1]), uri, params)

    def tell(self, session: str, frame: bytes) -> None:
        self._whole.tell(session, frame)


class SideConnection(msgspec.Struct, eq=False):
    """A connection beside the listed one, for some callers.

    One process of many has `busy` calls, or none since `idle_since`; `is_last`: it ends with its calls.
    """

    upstream: ManagedUpstream
    idle_since: float = 0.0
    busy: int = 0
    is_last: bool = False
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    union: ListUnion = msgspec.field(default_factory=ListUnion)

    @property
    def resources(self) -> WantedResources:
        return self.upstream.state.subscriptions.resources


def side_notices(name: str, changes: Notices, key: str) -> Notices:
    return _PartNotices(changes, topic_of(name, key))


def topic_of(name: str, key: str) -> str:
    """The topic of a connection's resource updates."""
    return f"{name}\0{key}"


class SideConnections:
    """Lists and subscriptions at the connections beside `listed`.

    `key` returns a caller's connection, None for the listed one; `snapshot` the common lists. `begun` starts one and
    may raise `RpcError`. `resources` are wanted by side callers, also while their connection is down.
    """

    def __init__(
        self,
        listed: ManagedUpstream,
        sides: Mapping[str, SideConnection],
        *,
        key: Callable[[Call], str | None],
        snapshot: Callable[[], Snapshot | None],
        begun: Callable[[Call], Awaitable[SideConnection]] | None = None,
    ) -> None:
        self.resources = WantedResources(listed.name, Notices())
        self._listed = listed
        self._sides = sides
        self._key = key
        self._begun = begun
        self._snapshot = snapshot

    def begin(self, key: str) -> None:
        state = self._listed.state
        references = tuple(pair for pair in self.resources.references if self._key(pair[1]) == key)
        self._sides[key].upstream.state.inherit(Handover(state.lists.last, state.log_level, references))

    async def follow(self, side: SideConnection) -> None:
        """Announces changes of its lists, until cancelled."""
        changes = side.upstream.state.changes
        seen: Snapshot | None = None
        while True:
            version = changes.version
            if (lists := self._lists_of(side)) is not seen:
                seen = lists
                self._listed.state.changes.bump()
            await changes.wait(version)

    def _lists_of(self, side: SideConnection) -> Snapshot | None:
        return side.union.of(self._snapshot(), side.upstream.state.lists.fresh)

    def apart(self, call: Call) -> CallerConnection | None:
        """The side connection of this caller; None for the listed one."""
        key = self._key(call)
        if key is None:
            return None
        side = self._sides.get(key)
        return CallerConnection(topic_of(self._listed.name, key), None if side is None else self._lists_of(side))

    async def subscribe(self, uri: str, call: Call) -> None:
        key = self._key(call)
        if key is None:
            await self._listed.subscribe(uri, call)
            return
        self.resources.want(uri, call)
        if (side := self._sides.get(key)) is not None:
            side.resources.want(uri, call)
        side = self._sides[key] if self._begun is None else await self._begun(call)  # a fresh one has it already
        await watched(side.upstream, uri)

    def unsubscribe(self, uri: str, call: Call) -> None:
        if not self.resources.release(uri, call.session):
            self._listed.unsubscribe(uri, call)
            return
        key = self._key(call)
        if key is not None and (side := self._sides.get(key)) is not None:
            side.resources.release(uri, call.session)

    def inherit(self, state: Handover) -> None:
        apart = [pair for pair in state.references if self._key(pair[1]) is not None]
        listed = tuple(pair for pair in state.references if self._key(pair[1]) is None)
        self._listed.state.inherit(replace(state, references=listed))
        for uri, call in apart:
            self.resources.want(uri, call)


class ScopedProcesses(dict[str, SideConnection]):
    """A server's processes by session, principal, call or folder.

    With a `holder`, a session's process is at one replica. `restarts` are of ended processes.
    """

    def __init__(self, server: str, clock: Clock, holder: Holdings | None) -> None:
        super().__init__()
        self.restarts = 0
        self.tasks: anyio.abc.TaskGroup | None = None
        self._emptied = anyio.Event()
        self._server = server
        self._clock = clock
        self._holder = holder

    @asynccontextmanager
    async def open(self) -> AsyncIterator[anyio.abc.TaskGroup]:
        async with anyio.create_task_group() as self.tasks:
            try:
                yield self.tasks
            finally:
                self.tasks = None

    async def hold(self, session: str) -> None:
        """Raises `UpstreamUnavailable`, `session_elsewhere` if another replica runs the process."""
        if self._holder is None:
            return
        try:
            is_here = await self._holder.hold(session)
        except StoreError as problem:
            raise UpstreamUnavailable(f'server "{self._server}" was not called: {problem.public}') from None
        if not is_here:
            text = f'server "{self._server}" has its process for this session at another replica of the hub '
            text += "(scope: session). Use a balancer with sticky sessions for its clients."
            raise UpstreamUnavailable(text, data={"upstream": {"server": self._server}}, symbol="session_elsewhere")

    @contextmanager
    def call(self, member: SideConnection, *, is_last: bool) -> Iterator[None]:
        """Counts a call; a process ends with a call that `is_last`."""
        member.busy += 1
        member.is_last = is_last
        is_over = member.upstream.supervisor.is_over
        try:
            yield
        finally:
            member.busy -= 1
            self._emptied.set()
            if not is_over:  # a refused call does not use it
                member.idle_since = self._clock.now()

    async def idle(self) -> None:
        while any(member.busy for member in self.values()):
            self._emptied = anyio.Event()
            await self._emptied.wait()

    def stop(self, key: str) -> None:
        """Ends a process and releases its session."""
        member = self.pop(key, None)
        if member is None:
            return
        if self._holder is not None:
            self._holder.release(key)
        self.restarts += member.upstream.status().restarts
        member.scope.cancel()

    def stop_after_calls(self, key: str) -> None:
        if (member := self.get(key)) is not None and member.busy:
            member.is_last = True
        else:
            self.stop(key)

    def start(self, key: str, upstream: ManagedUpstream) -> SideConnection:
        """Adds a process that has not begun."""
        process = self[key] = SideConnection(upstream, idle_since=self._clock.now())
        return process

    def make_room(self) -> bool:
        """Ends the longest idle process; False without one."""
        idle = [
            (bool(process.resources.reference_counts), process.idle_since, key)
            for key, process in self.items()
            if not process.busy
        ]
        if idle:
            self.stop(min(idle)[2])
        return bool(idle)

    def stop_idle(self, seconds: float) -> None:
        """Ends processes unused for so long."""
        limit = self._clock.now() - seconds
        for key, process in list(self.items()):
            if not process.busy and process.idle_since < limit and not process.resources.reference_counts:
                self.stop(key)


class PrincipalConnection(msgspec.Struct, eq=False):
    """A principal's upstream; it has `busy` calls, or none since `idle_since`."""

    upstream: OwnedUpstream
    changes: Notices
    idle_since: float
    busy: int = 0
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)
    lists: tuple[Snapshot, Snapshot] | None = None

    def take(self, lists: Snapshot, put: Callable[[Snapshot], Snapshot]) -> bool:
        """Notes its lists by `put`; False for the same lists."""
        if self.lists is not None and self.lists[0] is lists:
            return False
        self.lists = lists, put(lists)
        return True

    @property
    def is_starting(self) -> bool:
        """Whether its first lists are on their way."""
        status = self.upstream.status()
        return self.upstream.snapshot() is None and status.state is UpstreamState.STARTING and not status.failures

    def refusal(self, principal: str) -> AccountNeeded | None:
        """The error for an account that the server does not accept."""
        status = self.upstream.status()
        if status.state not in _ENDED or status.code not in _REFUSED:
            return None
        return AccountNeeded(status.server, principal, why=f"your login is not accepted: {status.reason}")

    async def settled(self) -> None:
        """Waits until a refused connection has ended."""
        with anyio.move_on_after(_SETTLES):
            while self._is_unsettled:
                await self.changes.wait(self.changes.version)

    @property
    def _is_unsettled(self) -> bool:
        match self.upstream.status().state:
            case UpstreamState.READY:
                peers = self.upstream.lifecycle.peers or ()
                return not peers or any(peer.ending.closed.is_set() for peer in peers)
            case state:
                return state in (UpstreamState.STARTING, UpstreamState.DRAINING)


class PrincipalConnections(dict[str, PrincipalConnection]):
    """Connections by principal, at most `limit`. `restarts` are of ended ones."""

    def __init__(self, server: str, limit: int, *, rules: SupervisorRules, clock: Clock, changes: Notices) -> None:
        super().__init__()
        self.rules = rules
        self.clock = clock
        self.changes = changes
        self.log_level: str | None = None
        self.restarts = 0
        self.tasks: anyio.abc.TaskGroup | None = None
        self.successor: CallHandler | None = None
        self._server = server
        self._limit = limit
        self._emptied = anyio.Event()

    def set_log_level(self, level: str | None) -> None:
        """For connections from now on, and those that are open."""
        self.log_level = level
        if level is not None:
            for member in self.values():
                member.upstream.set_log_level(level)

    def adjust(self, rules: SupervisorRules) -> None:
        """Replaces the rules of all."""
        self.rules = rules
        for member in self.values():
            member.upstream.lifecycle.adjust(member_rules(rules))

    def hand_over(self, successor: CallHandler) -> None:
        """Sends unsent and all further calls to `successor`."""
        self.successor = successor
        for member in self.values():
            member.upstream.lifecycle.hand_over(successor)

    async def run(self, resources: WantedResources) -> None:
        async with anyio.create_task_group() as self.tasks:
            self.changes.bump()
            try:
                while True:
                    await anyio.sleep(min(_SWEEP, self.rules.part_idle / 4))
                    limit = self.clock.now() - self.rules.part_idle
                    watching = {call.principal for _, call in resources.references}
                    for principal, member in list(self.items()):
                        if not member.busy and member.idle_since < limit and principal not in watching:
                            self.stop(principal)
            finally:
                self.tasks = None

    def begin(self, principal: str, upstream: OwnedUpstream, changes: Notices) -> PrincipalConnection:
        """Adds a connection that has not begun. Raises `Busy`, `UpstreamUnavailable`."""
        if self.tasks is None:
            raise UpstreamUnavailable(f'server "{self._server}" is stopped.')
        if len(self) >= self._limit:
            idle = [(member.idle_since, name) for name, member in self.items() if not member.busy]
            if not idle:
                subject = f'server "{self._server}" has {self._limit} connections of principals in use'
                raise Busy.at(subject, "hub.accounts.connections", self._limit)
            self.stop(min(idle)[1])
        member = self[principal] = PrincipalConnection(upstream, changes, self.clock.now())
        return member

    def stop(self, principal: str, cause: Cause | None = None) -> None:
        """Ends a connection; with a `cause`, its calls at once."""
        if (member := self.pop(principal, None)) is None:
            return
        if cause is not None:
            for peer in member.upstream.lifecycle.peers or ():
                peer.ending.explain(cause)
                peer.wire.close(cause.reason, cause.code)
        self.restarts += member.upstream.status().restarts
        member.scope.cancel()

    @contextmanager
    def call(self, member: PrincipalConnection) -> Iterator[None]:
        member.busy += 1
        try:
            yield
        finally:
            member.busy -= 1
            member.idle_since = self.clock.now()
            self._emptied.set()

    async def idle(self) -> None:
        while any(member.busy for member in self.values()):
            self._emptied = anyio.Event()
            await self._emptied.wait()


def member_rules(rules: SupervisorRules) -> SupervisorRules:
    """The rules of one principal's connection, which somebody waits for."""
    return replace(rules, ready_wait=rules.start_timeout, lazy=False, idle_stop=None)
