"""One server as its owner task, its calls and operators share it: state, rules, life cycle, and what it hands over."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, Literal, Protocol

import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallHandler, Upstream
from mcp_hub.clock import Clock
from mcp_hub.notices import Notices
from mcp_hub.protocol import eras
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.types import HANDSHAKE, LogRule, RawJson, Snapshot
from mcp_hub.upstreams.lists.list_cache import CachedList, ListFile
from mcp_hub.upstreams.lists.list_reader import ListLimits
from mcp_hub.upstreams.lists.list_state import ListState
from mcp_hub.upstreams.lists.list_union import ListUnion
from mcp_hub.upstreams.peer.callers import ServerLogs
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.subscriptions import ServerSubscriptions
from mcp_hub.upstreams.supervision.lifecycle import RestartRule
from mcp_hub.upstreams.supervision.liveness import LivenessCheck
from mcp_hub.upstreams.supervision.turns import Turns
from mcp_hub.wire.base import WireClosed

_PATIENCE: Final = 10.0
"""Seconds that a call of a client that stayed waits for its turn at the predecessor, until the client leaves it."""
STOP_REQUESTED: Final = "it was stopped on request"

Repetition = Literal["safe", "agreed", "never"]
"""Whether the hub may run a tool twice in one call: in any case, if the caller agrees, or never."""


def _by_agreement(tool: str, definition: RawJson) -> Repetition:
    return "agreed"


class SupervisorRules(msgspec.Struct, frozen=True):
    """Limits of one upstream; times in seconds.

    `ready_wait` is how long a call waits for an upstream that is about to be started again; for its first start it
    waits as long as that may take. `lazy`: not started before it is needed, if its lists are known. `idle_stop`:
    without a call or a subscription for so long it is stopped until it is needed; None: never. `part_idle` is the same
    for one of many processes of a server, which is ended then. `logs` is the rule for log messages that name no call.
    `repetition` takes the name of a tool and its definition.
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
    """The parts of a server that outlive its connections, and `peer`, the session that calls are sent to now.

    `file` is the one in which its lists outlive the hub; its content is offered from the beginning. `takes_turns` if
    it is known to ask its callers questions. Connections of one server count its `logs` together.
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

    @property
    def is_wanted(self) -> bool:
        """Whether clients want updates of its resources."""
        return bool(self.subscriptions.resources.wanted)

    def adjust(self, rules: SupervisorRules) -> None:
        """Goes by these rules from now on; its status shows some of them."""
        self.rules = rules
        self.changes.bump()

    def attach(self, peer: Peer) -> None:
        """Calls are sent to this session from now on; its server gets the log level."""
        self.peer = peer
        self._send_log_level(peer)

    def detach(self) -> None:
        """Calls are not sent to the session any more."""
        self.peer = None

    def set_log_level(self, level: str) -> None:
        """Asks a handshake server for messages of `level` and above; never lowered to a less verbose one."""
        if self.log_level is not None and _verbosity(self.log_level) <= _verbosity(level):
            return
        self.log_level = level
        if self.peer is not None:
            self._send_log_level(self.peer)

    def _send_log_level(self, peer: Peer) -> None:
        """A server that has just died gets the level when it is back: no other call fails with it."""
        if self.log_level and peer.info.era is HANDSHAKE and "logging" in peer.info.capabilities:
            try:
                peer.wire.request("logging/setLevel", object_bytes({"level": self.log_level}))
            except WireClosed:
                return

    def inherit(self, state: "Handover") -> None:
        """Stands in for another one from the beginning, before it runs."""
        self.log_level = state.log_level
        self.lists.inherit(state.lists)
        for uri, call in state.wanted:
            self.subscriptions.resources.want(uri, call)


class SharedServer(msgspec.Struct, frozen=True):
    """An upstream that may stay for the clients that have called it, its `sessions`, when another one replaces it.

    `connections` are the states of its connections, the one of most callers first.
    """

    upstream: Upstream
    sessions: Collection[str]
    connections: tuple[ServerState, ...]

    @property
    def is_up(self) -> bool:
        """Whether calls can be sent to it at once."""
        return self.connections[0].peer is not None

    @property
    def is_used(self) -> bool:
        """Whether calls run or wait there, somebody wants a resource of it, or a second connection is up."""
        first = self.connections[0]
        return not first.turns.is_empty or first.is_wanted or self.upstream.status().second is not None

    @property
    def calls_over(self) -> int:
        """Calls that have been there and are over."""
        return self.connections[0].turns.left

    @property
    def references(self) -> tuple[tuple[str, Call], ...]:
        """The resources that callers want there, each with one of them."""
        return tuple(pair for state in self.connections for pair in state.subscriptions.resources.references)

    def move_after(self, wait: float, moves: Callable[[str], None]) -> None:
        """Calls `moves` with the session of a call that has waited so many seconds there; it goes to the successor."""
        for state in self.connections:
            state.turns.move_after(wait, moves)


class Handover(msgspec.Struct, frozen=True):
    """The lists, the log level and the references to resources with which the successor of an upstream begins.

    A reference is a resource and a call of the session that wants it. `shared` is the predecessor, if clients that have
    called it stay there.
    """

    lists: CachedList | None = None
    log_level: str | None = None
    wanted: tuple[tuple[str, Call], ...] = ()
    shared: SharedServer | None = None


class Predecessor:
    """The upstream that stays for the clients that have called it, until each of them has left it.

    A wanted resource of a client that leaves is given to `moved`. `changes` are bumped when nobody is left.
    """

    def __init__(self, clock: Clock, changes: Notices, moved: Callable[[str, Call], None]) -> None:
        self._clock = clock
        self._changes = changes
        self._moved = moved
        self._shared: SharedServer | None = None
        self._union = ListUnion()
        self._last_used = 0, clock.now()  # calls there that were over at the last look, and its time

    def upstream(self, call: Call) -> Upstream | None:
        """It, if it still runs the calls of this caller. It is left when its process is gone."""
        shared = self._shared
        if shared is None or call.session not in shared.sessions:
            return None
        if not shared.is_up:
            self.leave()
            return None
        return shared.upstream

    @property
    def references(self) -> tuple[tuple[str, Call], ...]:
        """The resources that callers want there, each with one of them."""
        return () if self._shared is None else self._shared.references

    def lists_beside(self, listed: Snapshot | None) -> Snapshot | None:
        """The lists of its clients, where they differ from the `listed` ones, which are those of everybody."""
        return self._union.of(listed, None if self._shared is None else self._shared.upstream.snapshot())

    def inherit(self, state: Handover) -> Handover:
        """Clients that have called a predecessor stay there, with their subscriptions; the state for all others."""
        if (shared := state.shared) is None or not shared.sessions:
            return state
        self._shared = shared
        shared.move_after(_PATIENCE, self._move)
        moved = tuple(pair for pair in state.wanted if pair[1].session not in shared.sessions)
        for uri, call in moved:
            shared.upstream.unsubscribe(uri, call)
        return replace(state, wanted=moved)

    def take_waiting(self) -> None:
        """Calls that wait for their turn there come to the successor, but for those of clients that stay."""
        if self._shared is not None:
            self._shared.connections[0].turns.dismiss(self._shared.sessions)

    def _move(self, session: str) -> None:
        """A client leaves it, with its subscriptions: others keep it too long."""
        if (shared := self._shared) is None:
            return
        for uri, call in shared.references:
            if call.session == session:
                shared.upstream.unsubscribe(uri, call)
                self._moved(uri, call)
        self.leave(session)

    def leave(self, session: str | None = None) -> None:
        """It is not needed any more; with a `session`, if that was the last one there."""
        if (shared := self._shared) is None:
            return
        if session is not None:
            shared.upstream.session_ended(session)
        if session is None or not shared.sessions:
            self._shared = None
            self._changes.bump()

    def leave_idle(self, seconds: float) -> None:
        """Leaves it if nobody has used it for so long."""
        if (shared := self._shared) is None:
            return
        over, since = self._last_used
        if shared.calls_over != over or shared.is_used:
            self._last_used = shared.calls_over, self._clock.now()
        elif since < self._clock.now() - seconds:
            self.leave()

    async def left(self) -> None:
        """Returns when nobody is there."""
        while self._shared is not None:
            await self._changes.wait(self._changes.version)


class Lifecycle(Protocol):
    """The orders of the owner of an upstream, beside the calls of `Upstream`."""

    @property
    def peers(self) -> list[Peer] | None:
        """The sessions with the server that are open now; None for a source that is a part of the hub."""

    async def run(self) -> None:
        """Runs until it is cancelled, then its processes have ended; or returns when there is nothing more to do."""

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None:
        """Takes no more calls, lets those that run end within `seconds`, then ends the process, until `restart`.

        Returns when it is stopped. Idempotent.
        """

    def wake(self) -> None:
        """Starts the server if it rests."""

    def restart(self) -> None:
        """Ends the process, if one runs, and starts a fresh one at once; calls fail. No effect once `run` has ended."""

    def relist(self) -> None:
        """Its processes list something else than the one whose lists stand for all of them."""

    def revive(self) -> bool:
        """Lets processes of its sessions that were given up start again; False if there are none."""

    def adjust(self, rules: SupervisorRules) -> None:
        """Goes by these rules from now on; what runs continues. A server that rests and no longer may is started."""

    def leave_tasks(self) -> None:
        """From now on a call that is cancelled leaves its task at the server: another hub will continue it."""

    def hand_over(self, successor: CallHandler) -> Handover:
        """From now on `successor` takes the calls that this one cannot send; returns its state for the successor."""

    def inherit(self, state: Handover) -> None:
        """Stands in for another one from the beginning, before it runs."""

    async def outlived(self) -> None:
        """Returns when no client is left at its predecessor."""


class HubLifecycle:
    """The `Lifecycle` of a source in the hub, of which at most a `task` runs; nothing else has an effect."""

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
    """An upstream as its owner has it."""

    @property
    def lifecycle(self) -> Lifecycle: ...


def _verbosity(level: str) -> int:
    return eras.LOG_LEVELS.index(level) if level in eras.LOG_LEVELS else 0
