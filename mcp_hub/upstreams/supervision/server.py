"""One server as its owner task, calls and operators share it."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallHandler, Upstream
from mcp_hub.clock import Clock
from mcp_hub.notices import Notices
from mcp_hub.protocol import eras
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.types import HANDSHAKE, LogRule, RawJson, RawObject, Snapshot
from mcp_hub.upstreams.lists.list_cache import CachedList, ListFile
from mcp_hub.upstreams.lists.list_reader import ListLimits
from mcp_hub.upstreams.lists.list_state import ListState
from mcp_hub.upstreams.lists.list_union import ListUnion
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import ServerLogs
from mcp_hub.upstreams.peer.subscriptions import ServerSubscriptions
from mcp_hub.upstreams.supervision.lifecycle import RestartRule
from mcp_hub.upstreams.supervision.liveness import LivenessCheck
from mcp_hub.upstreams.supervision.turns import Turns
from mcp_hub.wire.base import WireClosed

STOP_REQUESTED: Final = "it was stopped on request"

Repetition = Literal["safe", "agreed", "never"]
"""Whether the hub may run a tool twice in one call: in any case, if the caller agrees, or never."""


def _by_agreement(tool: str, definition: RawJson) -> Repetition:
    return "agreed"


class SupervisorRules(msgspec.Struct, frozen=True):
    """Limits of one upstream; times in seconds.

    `ready_wait`: for a restart; a call waits for a first start as long as that may take. `lazy`: start when needed.
    `idle_stop`: rest after so long unused; None: never. `part_idle`: end one of many processes. `logs`: the rule for
    log messages without a call. `repetition` takes a tool's name and definition.
    """

    start_timeout: float = 60.0
    request_timeout: float = 60.0
    ready_wait: float = 5.0
    restart: RestartRule = RestartRule()
    lists: ListLimits = ListLimits()
    lazy: bool = False
    idle_stop: float | None = None
    part_idle: float = 600.0
    logs: LogRule = "hub"
    repetition: Callable[[str, RawJson], Repetition] = _by_agreement


class ServerState:
    """Parts of a server that outlive its connections, and `peer`, its present session.

    `file` has its lists from earlier hubs. `takes_turns`: it is known to ask its callers. Connections of one server
    share `logs`.
    """

    def __init__(
        self,
        name: str,
        rules: SupervisorRules,
        changes: Notices,
        *,
        file: ListFile | None = None,
        takes_turns: bool = False,
        logs: ServerLogs | None = None,
    ) -> None:
        self.name = name
        self.rules = rules
        self.changes = changes
        self.lists = ListState(name, lambda: self.rules.lists, changes, file)
        self.turns = Turns(name, is_on=takes_turns)
        self.logs = logs or ServerLogs(lambda: self.rules.logs)
        self.subscriptions = ServerSubscriptions(name, changes)
        self.liveness = LivenessCheck(lambda: self.rules.request_timeout, changes)
        self.log_level: str | None = None
        self.peer: Peer | None = None

    def on_message(self, session: str, frame: bytes) -> None:
        self.changes.tell(session, frame)

    def on_notice(self, method: str, params: RawObject) -> None:
        self.subscriptions.on_notice(method, params)

    @property
    def is_wanted(self) -> bool:
        return bool(self.subscriptions.resources.reference_counts)

    def adjust(self, rules: SupervisorRules) -> None:
        """Replaces the rules."""
        self.rules = rules
        self.changes.bump()

    def attach(self, peer: Peer) -> None:
        """Sends calls to this session."""
        self.peer = peer
        self._send_log_level(peer)

    def detach(self) -> None:
        self.peer = None

    def set_log_level(self, level: str) -> None:
        """Asks a handshake server for `level` and above; never for less than before."""
        if self.log_level is not None and _verbosity(self.log_level) <= _verbosity(level):
            return
        self.log_level = level
        if self.peer is not None:
            self._send_log_level(self.peer)

    def _send_log_level(self, peer: Peer) -> None:
        if self.log_level and peer.info.era is HANDSHAKE and "logging" in peer.info.capabilities:
            try:
                peer.wire.request("logging/setLevel", object_bytes({"level": self.log_level}))
            except WireClosed:
                return

    def inherit(self, state: "Handover") -> None:
        self.log_level = state.log_level
        self.lists.inherit(state.lists)
        for uri, call in state.references:
            self.subscriptions.resources.want(uri, call)


class SharedServer(msgspec.Struct, frozen=True):
    """A replaced upstream that stays for its `sessions`. The most used of its `connections` is first."""

    upstream: Upstream
    sessions: Collection[str]
    connections: tuple[ServerState, ...]

    @property
    def is_up(self) -> bool:
        return self.connections[0].peer is not None

    @property
    def is_used(self) -> bool:
        """Whether it has calls, subscriptions or a second connection."""
        first = self.connections[0]
        return not first.turns.is_empty or first.is_wanted or self.upstream.status().second is not None

    @property
    def calls_over(self) -> int:
        return self.connections[0].turns.ended_calls

    @property
    def references(self) -> tuple[tuple[str, Call], ...]:
        """Its wanted resources, each with a caller."""
        return tuple(pair for state in self.connections for pair in state.subscriptions.resources.references)

    def hand_over(self, moves: Callable[[str], None]) -> None:
        """Calls `moves` with sessions whose calls have waited long."""
        for state in self.connections:
            state.turns.hand_over(moves)


class Handover(msgspec.Struct, frozen=True):
    """State for an upstream's successor. `shared` is the predecessor if its clients stay there."""

    lists: CachedList | None = None
    log_level: str | None = None
    references: tuple[tuple[str, Call], ...] = ()
    shared: SharedServer | None = None


class Predecessor:
    """The replaced upstream, until its clients have left.

    `moved` receives wanted resources of leaving clients; `changes` are bumped at the end.
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
        """Its lists, where they differ from the `listed` ones."""
        return self._union.of(listed, None if self._shared is None else self._shared.upstream.snapshot())

    def inherit(self, state: Handover) -> Handover:
        """Lets its clients stay; returns the state for all others."""
        if (shared := state.shared) is None or not shared.sessions:
            return state
        self._shared = shared
        shared.hand_over(self._move)
        moved = tuple(pair for pair in state.references if pair[1].session not in shared.sessions)
        for uri, call in moved:
            shared.upstream.unsubscribe(uri, call)
        return replace(state, references=moved)

    def take_waiting(self) -> None:
        """Dismisses calls that wait there, except of staying clients."""
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


class Lifecycle(Protocol):
    """Orders of an upstream's owner."""

    @property
    def peers(self) -> list[Peer] | None:
        """The open sessions with the server; None for a source in the hub."""

    async def run(self) -> None:
        """Runs until cancelled, then ends its processes; may return earlier."""

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None:
        """Takes no more calls, ends after the running ones or `seconds`; stopped until `restart`. Idempotent."""

    def wake(self) -> None:
        """Starts the server if it rests."""

    def restart(self) -> None:
        """Replaces the process at once; calls fail. No effect after `run`."""

    def relist(self) -> None:
        """Notes that its processes list something else than the listed one."""

    def revive(self) -> bool:
        """Lets failed processes of sessions start again; False without any."""

    def adjust(self, rules: SupervisorRules) -> None:
        """Replaces the rules. Starts a server that may not rest any more."""

    def leave_tasks(self) -> None:
        """From now on cancelled calls leave their tasks to another hub."""

    def hand_over(self, successor: CallHandler) -> Handover:
        """Sends unsendable calls to `successor`; returns the state for it."""

    def inherit(self, state: Handover) -> None:
        """Takes over from a predecessor, before it runs."""

    async def outlived(self) -> None:
        """Waits until no client is left at the predecessor."""


class HubLifecycle:
    """The `Lifecycle` of a source in the hub: only runs its `task`."""

    def __init__(self, task: Callable[[], Awaitable[None]] | None = None) -> None:
        self._task = task

    @property
    def peers(self) -> list[Peer] | None:
        return None

    async def run(self) -> None:
        if self._task is not None:
            await self._task()

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None: ...
    def wake(self) -> None: ...
    def restart(self) -> None: ...
    def relist(self) -> None: ...
    def revive(self) -> bool:
        return False

    def adjust(self, rules: SupervisorRules) -> None: ...
    def leave_tasks(self) -> None: ...
    def hand_over(self, successor: CallHandler) -> Handover:
        return Handover()

    def inherit(self, state: Handover) -> None: ...
    async def outlived(self) -> None: ...


class OwnedUpstream(Upstream, Protocol):
    """An upstream with its owner's orders."""

    @property
    def lifecycle(self) -> Lifecycle: ...


def _verbosity(level: str) -> int:
    return eras.LOG_LEVELS.index(level) if level in eras.LOG_LEVELS else 0
