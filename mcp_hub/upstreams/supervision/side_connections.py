"""A server with several connections: callers list and subscribe at the one that runs their calls."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import anyio
import anyio.abc
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallerConnection
from mcp_hub.clock import Clock
from mcp_hub.errors import SessionElsewhere, StoreError, UpstreamUnavailable
from mcp_hub.notices import Notices, Origin
from mcp_hub.stores.base import Holdings
from mcp_hub.types import Snapshot
from mcp_hub.upstreams.lists.list_union import ListUnion
from mcp_hub.upstreams.peer.wanted import WantedResources
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.server import Handover


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
    return _PartNotices(changes, _topic(name, key))


def _topic(name: str, key: str) -> str:
    return f"{name}\0{key}"


class SideConnections:
    """Lists and subscriptions at the connections beside `listed`.

    `key` returns a caller's connection, None for the listed one; `snapshot` the common lists. `begun` starts a caller's
    connection and may raise `RpcError`. `resources` are wanted by side callers, also while their connection is down.
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
        """Announces changes of a side connection's lists, until cancelled."""
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
        return CallerConnection(_topic(self._listed.name, key), None if side is None else self._lists_of(side))

    async def subscribe(self, uri: str, call: Call) -> None:
        key = self._key(call)
        if key is None:
            await self._listed.subscribe(uri, call)
            return
        self.resources.want(uri, call)
        if (side := self._sides.get(key)) is not None:
            side.resources.want(uri, call)
        side = self._sides[key] if self._begun is None else await self._begun(call)  # a fresh one has it already
        await side.upstream.watched(uri)

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
        """Raises `SessionElsewhere` and `UpstreamUnavailable`."""
        if self._holder is None:
            return
        try:
            is_here = await self._holder.hold(session)
        except StoreError as problem:
            raise UpstreamUnavailable(f'server "{self._server}" was not called: {problem.public}') from None
        if not is_here:
            text = f'server "{self._server}" has its process for this session at another replica of the hub '
            text += "(scope: session). Use a balancer with sticky sessions for its clients."
            raise SessionElsewhere(text, data={"upstream": {"server": self._server}})

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
        """Ends the process that was idle longest; False without one."""
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
