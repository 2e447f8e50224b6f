"""One server as its owner task, calls and operators share it; logs changes of its state."""

import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Final, Literal, Protocol

import anyio
import msgspec

from mcp_hub.call import Call, CallHandler, Upstream
from mcp_hub.errors import RpcError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.methods import passes
from mcp_hub.notices import Notices
from mcp_hub.protocol import eras
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.types import HANDSHAKE, LAST_OUTPUT, Cause, Era, LogRule, RawJson, RawObject, UpstreamState
from mcp_hub.upstreams.lists.list_reader import CachedList, ListFile, ListLimits
from mcp_hub.upstreams.lists.list_state import ListState
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import CONNECTION_LOST, PeerInfo, ServerLogs
from mcp_hub.upstreams.peer.subscriptions import ServerSubscriptions
from mcp_hub.upstreams.process.stdio import exception_of
from mcp_hub.upstreams.supervision.lifecycle import GAVE_UP, Life, RestartRule
from mcp_hub.upstreams.supervision.turns import Turns
from mcp_hub.wire.base import WireClosed

log = get_logger(__name__)

STOP_REQUESTED: Final = "it was stopped on request"
_PINGS: Final = (0.0, 1.0, 2.0, 4.0)
"""Pauses in seconds before the pings to a server whose requests fail; if all of them fail, its session ends. Some
drop a ping, so that each is followed by a request for the tools."""

Repetition = Literal["safe", "agreed", "never"]
"""Whether the hub may run a tool twice in one call: in any case, if the caller agrees, or never."""


def _by_agreement(tool: str, definition: RawJson) -> Repetition:
    return "agreed"


class SupervisorRules(msgspec.Struct, frozen=True):
    """Limits of one upstream; times in seconds.

    `ready_wait`: for a restart; a call waits for a first start as long as that may take. `lazy`: start when needed.
    `idle_stop`: rest after so long unused; None: never. `part_idle`: end one of many processes. `logs`: for log
    messages without a call. `passthrough`: patterns of methods unknown to the hub. `repetition` takes a tool's name and
    definition.
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
    passthrough: tuple[str, ...] = ()
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
        self.liveness = _LivenessCheck(lambda: self.rules.request_timeout, changes)
        self.log_level: str | None = None
        self.peer: Peer | None = None

    def on_message(self, session: str, frame: bytes) -> None:
        self.changes.tell(session, frame)

    def on_notice(self, method: str, params: RawObject) -> None:
        self.subscriptions.on_notice(method, params)

    def passes(self, method: str) -> bool:
        return passes(self.rules.passthrough, method)

    @property
    def is_wanted(self) -> bool:
        return bool(self.subscriptions.resources.reference_counts) or self.subscriptions.are_asked

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


class _LivenessCheck:
    """Checks whether a server lives. `patience` returns the seconds to wait.

    A call may take long, but a ping must be answered (specification 2025-11-25, basic/utilities/ping).
    """

    def __init__(self, patience: Callable[[], float], changes: Notices) -> None:
        self._patience = patience
        self._changes = changes
        self._raised = anyio.Event()

    def suspect(self) -> None:
        self._raised.set()

    async def follow(self, peer: Peer) -> None:
        """Ends the session if the server hangs after a timeout."""
        while not peer.ending.closed.is_set():
            self._raised = anyio.Event()
            await self._raised.wait()
            seconds = self._patience()
            if not await _lives(peer, seconds) and not peer.ending.closed.is_set():
                reason = f"it hangs: after a call timed out it was silent for {seconds:g} s and did not answer a ping"
                log.warning("upstream_hangs", upstream=peer.name, seconds=seconds)
                peer.ending.explain(Cause("hung", reason))
                peer.wire.close(reason, "hung")

    async def watch(self, peer: Peer) -> None:
        """Ends the session if consecutive requests and then pings fail."""
        while not peer.ending.closed.is_set():
            await peer.signs.doubted()
            for pause in _PINGS:
                await anyio.sleep(pause)
                for method in (_ping_of(peer), "tools/list"):
                    if peer.signs.failures:
                        await self._ask(peer, method)
                self._changes.bump()
                if not peer.signs.failures:
                    break
            else:
                cause = peer.signs.reason or CONNECTION_LOST
                log.warning("upstream_answers_nothing", upstream=peer.name, code=cause.code)
                peer.ending.explain(
                    Cause(cause.code, f"{peer.signs.failures} requests in a row failed: {cause.reason}")
                )
                peer.wire.close(cause.reason, cause.code)

    async def _ask(self, peer: Peer, method: str) -> None:
        seconds = self._patience()
        with anyio.move_on_after(seconds) as limit, suppress(RpcError):
            await peer.answer(peer.send(method), may_cancel=False)
        if limit.cancelled_caught:
            peer.signs.failed(Cause("hung", f"it did not answer {method} in {seconds:g} s"))


class SharedServer(msgspec.Struct, frozen=True):
    """A replaced upstream that stays for its `sessions`. The most used connection is first."""

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
    """State for a successor. `shared`: the predecessor, if its clients stay there."""

    lists: CachedList | None = None
    log_level: str | None = None
    references: tuple[tuple[str, Call], ...] = ()
    shared: SharedServer | None = None


class Lifecycle:
    """Orders of an upstream's owner; a source in the hub only runs its `task`."""

    def __init__(self, task: Callable[[], Awaitable[None]] | None = None) -> None:
        self._task = task

    @property
    def peers(self) -> list[Peer] | None:
        """The open sessions; None for a source in the hub."""
        return None

    async def run(self) -> None:
        """Runs until cancelled, then ends its processes; may return earlier."""
        if self._task is not None:
            await self._task()

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None:
        """Takes no more calls, ends after running ones or `seconds`; stopped until `restart`. Idempotent."""

    def wake(self) -> None:
        """Starts the server if it rests."""

    def restart(self) -> None:
        """Replaces the process at once; calls fail. No effect after `run`."""

    def relist(self) -> None:
        """Notes that its processes list something else than the listed one."""

    def revive(self) -> bool:
        """Lets failed processes of sessions start again; False without any."""
        return False

    def adjust(self, rules: SupervisorRules) -> None:
        """Replaces the rules. Starts a server that may not rest any more."""

    def leave_tasks(self) -> None:
        """From now on cancelled calls leave their tasks to another hub."""

    def hand_over(self, successor: CallHandler) -> Handover:
        """Sends unsendable calls to `successor`; returns the state for it."""
        return Handover()

    def inherit(self, state: Handover) -> None:
        """Takes over from a predecessor, before it runs."""

    async def outlived(self) -> None:
        """Waits until the predecessor has no clients."""


class OwnedUpstream(Upstream, Protocol):
    """An upstream with its owner's orders."""

    @property
    def lifecycle(self) -> Lifecycle: ...


def _verbosity(level: str) -> int:
    return eras.LOG_LEVELS.index(level) if level in eras.LOG_LEVELS else 0


def _ping_of(peer: Peer) -> str:
    return "ping" if peer.info.era is Era.HANDSHAKE else "server/discover"


async def _lives(peer: Peer, seconds: float) -> bool:
    """Also asks for tools: some servers drop pings."""
    count = peer.message_count
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:

            async def ask(method: str) -> None:
                with suppress(RpcError):
                    await peer.answer(peer.send(method), may_cancel=False)
                tasks.cancel_scope.cancel()

            tasks.start_soon(ask, _ping_of(peer))
            tasks.start_soon(ask, "tools/list")
        return True
    return peer.message_count != count


LONGEST: Final = 200
"""Characters of a reason in the log; `mcp-hub list` and `doctor` show all of it."""
_BAD: Final = frozenset({UpstreamState.BACKING_OFF, UpstreamState.FAILED, UpstreamState.INCOMPATIBLE})
_NUMBERS: Final = re.compile(r"\d+")


def log_failure(server: str, before: Life, life: Life) -> None:
    """Logs a repeated failure only as the 10th, 100th, … in a row."""
    if life.state not in _BAD:
        return
    reason = brief(life.reason)
    repeats = (life.code, _NUMBERS.sub("", reason)) == (before.code, _NUMBERS.sub("", brief(before.reason)))
    if life.state is UpstreamState.BACKING_OFF and repeats and str(life.streak).strip("0") != "1":
        return
    state = life.state.value
    log.warning("upstream_state", upstream=server, state=state, code=life.code, reason=reason, **_count(life))


def log_ready(server: str, life: Life, info: PeerInfo) -> None:
    log.info("upstream_ready", upstream=server, era=info.era.value, version=info.version, **_count(life))


def _count(life: Life) -> dict[str, int]:
    return {"failures": life.streak} if life.streak > 1 else {}


def brief(reason: str | None) -> str:
    """A reason on one line, with the last line of output if that adds something."""
    text = " ".join((reason or "").split())
    at = text.rfind(GAVE_UP)
    text, end = (text[:at], text[at:]) if at >= 0 else (text, "")
    summary, _, output = text.partition(LAST_OUTPUT)
    last = output.rpartition(" | ")[2]
    if last and last not in summary and exception_of([summary]) is None:
        summary = f"{summary}{LAST_OUTPUT}{last}"
    return hide_head(summary, LONGEST - len(end), "…") + end
