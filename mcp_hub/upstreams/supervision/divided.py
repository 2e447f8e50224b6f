"""A server with several connections: callers read, list and subscribe at the one that runs their calls.

One connection is listed for everybody; each other one is a `SideConnection`, for some callers. The subclass says for
whom, and when it is made.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallerConnection, CallHandler, Gate
from mcp_hub.clock import Clock
from mcp_hub.notices import Notices, PartNotices
from mcp_hub.types import Snapshot
from mcp_hub.upstreams.lists.list_cache import ListFile
from mcp_hub.upstreams.lists.list_union import ListUnion
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.wanted import WantedResources
from mcp_hub.upstreams.supervision.connection import Connection
from mcp_hub.upstreams.supervision.managed_upstream import Handover, ManagedUpstream
from mcp_hub.upstreams.supervision.supervisor import SupervisorRules

_PATIENCE: Final = 10.0
"""Seconds that a call of a client that stayed waits for its turn at the predecessor, until the client leaves it."""


class SideConnection(msgspec.Struct, eq=False):
    """A connection beside the listed one; `union` makes what its callers are listed."""

    supervisor: ManagedUpstream
    union: ListUnion = msgspec.field(default_factory=ListUnion)

    @property
    def resources(self) -> WantedResources:
        """The resources that are wanted there."""
        return self.supervisor._subscriptions.resources


class Divided(ManagedUpstream):
    """The listed connection, and the parts. A part begins with the lists that are known, and keeps their bytes."""

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        rules: SupervisorRules,
        *,
        clock: Clock,
        changes: Notices,
        jitter: Callable[[], float],
        lists: ListFile | None,
        gate: Gate | None,
    ) -> None:
        super().__init__(name, connect, rules, clock=clock, changes=changes, jitter=jitter, lists=lists, gate=gate)
        self._apart = WantedResources(name, Notices())
        """Resources wanted by callers whose calls run elsewhere, also while that connection is down."""
        self._predecessor: ManagedUpstream | None = None
        self._sides: Mapping[str, SideConnection] = {}
        self._shared_lists = ListUnion()
        self._last_used = 0, clock.now()  # calls at the predecessor that were over at the last look, and its time

    @property
    def peers(self) -> list[Peer]:
        """The sessions with the server that are open now, those of its parts, too."""
        sides = [peer for side in self._sides.values() for peer in side.supervisor.peers]
        return [*super().peers, *sides]

    @abstractmethod
    def _key(self, call: Call) -> str | None:
        """The part that runs the calls of this caller; None for the listed connection."""

    @abstractmethod
    def _part(self, key: str) -> SideConnection | None:
        """The part, if there is one now."""

    @abstractmethod
    async def _begun(self, call: Call) -> SideConnection:
        """The part that runs the calls of this caller, started if need be. Raises `RpcError`."""

    def _shared(self, call: Call) -> ManagedUpstream | None:
        """The predecessor that still runs the calls of this caller, if there is one. Without its process it is left."""
        shared = self._predecessor
        if shared is None or shared._sessions is None or call.session not in shared._sessions:
            return None
        if shared._peer is None:
            self._leave_shared()
            return None
        return shared

    def _take_waiting(self) -> None:
        """Calls that wait for their turn at the predecessor come here, but for those of clients that stay there."""
        if (shared := self._predecessor) is not None:
            shared._turns.dismiss(shared._sessions or ())

    def _move(self, session: str) -> None:
        """A client that stayed at the predecessor leaves it, with its subscriptions: others keep it too long."""
        if (shared := self._predecessor) is None:
            return
        for uri, call in _references(shared):
            if call.session == session:
                shared.unsubscribe(uri, call)
                self._apart.want(uri, call)
        self._leave_shared(session)

    def _leave_shared(self, session: str | None = None) -> None:
        """The predecessor is not needed any more; with a `session`, if that was the last one there."""
        if (shared := self._predecessor) is None:
            return
        if session is not None:
            shared.session_ended(session)
        if session is None or not shared._sessions:
            self._predecessor = None
            self._changes.bump()

    def _leave_idle(self, limit: float) -> None:
        """Leaves a predecessor that nobody has used since `limit`, a time of the clock."""
        if (shared := self._predecessor) is None:
            return
        left, since = self._last_used
        is_used = not shared._turns.is_empty or shared._subscriptions.resources.wanted or shared.status().second
        if shared._turns.left != left or is_used:
            self._last_used = shared._turns.left, self._clock.now()
        elif since < limit:
            self._leave_shared()

    async def outlived(self) -> None:
        """Returns when nobody is left at the predecessor."""
        while self._predecessor is not None:
            await self._changes.wait(self._changes.version)

    def _topic(self, key: str) -> str:
        return f"{self.name}\0{key}"

    def _notices(self, key: str) -> Notices:
        """For the supervisor of a part."""
        return PartNotices(self._changes, self._topic(key))

    def _begin_part(self, key: str, part: SideConnection) -> None:
        """The state with which a part begins."""
        wanted = tuple(pair for pair in self._apart.references if self._key(pair[1]) == key)
        part.supervisor.inherit(Handover(self._lists.last, self._log_level, wanted))

    async def _follow_part(self, part: SideConnection) -> None:
        """Has the lists of its callers looked at again whenever they change, until cancelled."""
        changes = part.supervisor._changes
        seen: Snapshot | None = None
        while True:
            version = changes.version
            if (lists := self._lists_of(part)) is not seen:
                seen = lists
                self._changes.bump()
            await changes.wait(version)

    def _lists_of(self, part: SideConnection) -> Snapshot | None:
        """The lists of its callers, where they differ from those of everybody."""
        return part.union.of(self.snapshot(), part.supervisor._lists.fresh)

    def apart(self, call: Call) -> CallerConnection | None:
        """As `Upstream.apart`."""
        if (shared := self._shared(call)) is not None:
            lists = self._shared_lists.of(self.snapshot(), shared.snapshot())
            return shared.apart(call) or CallerConnection(self.name, lists)
        key = self._key(call)
        if key is None:
            return None
        part = self._part(key)
        return CallerConnection(self._topic(key), None if part is None else self._lists_of(part))

    async def subscribe(self, uri: str, call: Call) -> None:
        """As `ManagedUpstream.subscribe`, at the connection that runs the calls of this caller."""
        if (shared := self._shared(call)) is not None:
            await shared.subscribe(uri, call)
            return
        key = self._key(call)
        if key is None:
            await super().subscribe(uri, call)
            return
        self._apart.want(uri, call)
        if (part := self._part(key)) is not None:
            part.resources.want(uri, call)
        part = await self._begun(call)  # a fresh one has it already
        await part.supervisor._watched(uri)

    def unsubscribe(self, uri: str, call: Call) -> None:
        """Wherever it was subscribed."""
        if (shared := self._shared(call)) is not None:
            shared.unsubscribe(uri, call)
            return
        if not self._apart.release(uri, call.session):
            super().unsubscribe(uri, call)
            return
        key = self._key(call)
        if key is not None and (part := self._part(key)) is not None:
            part.resources.release(uri, call.session)

    def hand_over(self, successor: CallHandler) -> Handover:
        state, shared = super().hand_over(successor), self._predecessor
        left = () if shared is None else _references(shared)
        return replace(state, wanted=(*state.wanted, *self._apart.references, *left))

    def inherit(self, state: Handover) -> None:
        """As `ManagedUpstream.inherit`; a part watches what its callers want as soon as it runs.

        Clients that have called a predecessor which is `shared` stay there, with their subscriptions.
        """
        if (shared := state.shared) is not None and shared._sessions:
            self._predecessor = shared
            shared._move_after(_PATIENCE, self._move)
            moved = tuple(pair for pair in state.wanted if pair[1].session not in shared._sessions)
            for uri, call in moved:
                shared.unsubscribe(uri, call)
            state = replace(state, wanted=moved)
        apart = [pair for pair in state.wanted if self._key(pair[1]) is not None]
        super().inherit(replace(state, wanted=tuple(pair for pair in state.wanted if self._key(pair[1]) is None)))
        for uri, call in apart:
            self._apart.want(uri, call)


def _references(upstream: ManagedUpstream) -> tuple[tuple[str, Call], ...]:
    """The resources that callers want there, each with one of them."""
    apart = upstream._apart.references if isinstance(upstream, Divided) else ()
    return (*upstream._subscriptions.resources.references, *apart)
