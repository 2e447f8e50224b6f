"""`era: follow`: a server that speaks both eras has one connection for all callers, in the era of the first one.

The hub translates for callers of the other era. A second connection is made only for what the first one cannot do: in
the modern era, questions of servers that ask over a handshake connection only, as those built with the official SDK do;
in the handshake era, skills.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final, Self

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel, CallHandler, Gate, SentCall
from mcp_hub.clock import Clock
from mcp_hub.errors import RpcError, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.notices import Notices
from mcp_hub.protocol.capabilities import SKILLS
from mcp_hub.protocol.eras import SKILL_METHODS
from mcp_hub.protocol.jsonrpc.envelope import read_as
from mcp_hub.protocol.shape.questions import unasked
from mcp_hub.types import (
    HANDSHAKE,
    MODERN,
    Cause,
    Era,
    Kind,
    RawJson,
    Snapshot,
    UpstreamState,
    UpstreamStatus,
)
from mcp_hub.upstreams.lists.list_cache import ListFile
from mcp_hub.upstreams.peer.input_questions import agrees
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import EraWish, ServerEras
from mcp_hub.upstreams.peer.tasks import taken_up
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.connection import Connection
from mcp_hub.upstreams.supervision.divided import Divided, SideConnection
from mcp_hub.upstreams.supervision.lifecycle import Life
from mcp_hub.upstreams.supervision.managed_upstream import Handover, ManagedUpstream
from mcp_hub.upstreams.supervision.supervisor import NOT_STARTED, SupervisorRules

log = get_logger(__name__)

Connect = Callable[[EraWish], Connection]
_IDLE: Final = 600.0
"""Seconds without a call after which the second connection is closed."""

_MODERN_START: Final = 10.0
"""Seconds that a list of skills waits for a modern connection that is made for it."""

_LEFT: Final = (UpstreamState.STARTING, UpstreamState.READY, UpstreamState.DRAINING)
_SECOND: Final = "second"
_OTHER_ERA: Final = Cause("restarted", "its first caller speaks the other era of the protocol")
_FOR: Final = {HANDSHAKE: "for questions", MODERN: "for skills"}
"""Why there is a second connection, by its era."""

_AGAIN: Final = (
    "{tool} stopped before a question, because the server cannot ask over the connection that ran the call. "
    "mcp-hub can run it again over another one. It then does again what it did before the question. Run it again?"
)


class _Tool(msgspec.Struct):
    name: str


class BothEras(Divided):
    """The connection in the era of the first caller, and a second one for what takes the other era."""

    def __init__(
        self,
        name: str,
        connect: Connect,
        rules: SupervisorRules,
        eras: ServerEras,
        *,
        clock: Clock,
        changes: Notices,
        jitter: Callable[[], float] = random.random,
        lists: ListFile | None = None,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(
            name, partial(connect, EraWish(eras.first)), rules, clock=clock, changes=changes, jitter=jitter,
            lists=lists, gate=gate,
        )  # fmt: skip
        self._eras = eras
        self._last = eras.called  # of the last caller, also of one whose server this one replaces
        self._home: Era | None = None  # of the connection, or of the last one
        self._is_split = False  # whether some callers or requests may need the second connection
        self._with_skills: tuple[Snapshot, Snapshot, Snapshot] | None = None  # the lists, the others, and both
        second = ManagedUpstream(
            name, partial(connect, EraWish(self._second_era, is_only=True)), _spare(rules), clock=clock,
            changes=self._notices(_SECOND), jitter=jitter, gate=gate, starts=False, logs=self._logs,
        )  # fmt: skip
        self._second = SideConnection(second)
        self._sides = {_SECOND: self._second}

    @property
    def _other(self) -> ManagedUpstream:
        return self._second.supervisor

    # -- eras ---------------------------------------------------------------------------------------------------

    async def _second_era(self) -> Era:
        return HANDSHAKE if self._home is MODERN else MODERN

    def _on_ready(self, peer: Peer) -> None:
        super()._on_ready(peer)
        if peer.info.era is not self._home:
            self._home = peer.info.era
            self._other._order(lifecycle.resting(Life(restarts=self._other._life.restarts), NOT_STARTED), _OTHER_ERA)
        if not self._other._lists.is_fresh:
            self._other._lists.inherit(self._lists.last)
        self._eras.see(peer.info)
        self._divide()

    def _divide(self) -> None:
        """Finds out who needs the second connection now; subscriptions go where the calls of their callers go."""
        asks = self._home is MODERN and self._eras.is_interactive and self._eras.known.may(HANDSHAKE)
        self._is_split = asks or (self._home is HANDSHAKE and self._skills is not None)
        if self._eras.is_interactive:
            (self._turns if self._home is HANDSHAKE else self._other._turns).switch_on()
        here, there = self._subscriptions.resources, self._second.resources
        for uri, call in here.references:
            if self._key(call) is not None:
                here.release(uri, call.session)
                self._apart.want(uri, call)
                there.want(uri, call)
        for uri, call in self._apart.references:
            if self._key(call) is None:
                self._apart.release(uri, call.session)
                there.release(uri, call.session)
                here.want(uri, call)
        if there.wanted:
            self._other.wake()

    def _is_for_second(self, call: Call) -> bool:
        """Whether the second connection takes this call."""
        if self._home is HANDSHAKE:
            return call.method in SKILL_METHODS
        return self._key(call) is not None

    def _key(self, call: Call) -> str | None:
        """The second connection for handshake callers of a server that asks, all of them, so that each has one."""
        is_asked = self._is_split and self._home is MODERN and call.server_era is HANDSHAKE
        return _SECOND if is_asked and self._other.may_get_ready else None

    def _part(self, key: str) -> SideConnection:
        return self._second

    async def _begun(self, call: Call) -> SideConnection:
        return self._second

    def _meet(self, call: Call) -> None:
        """Notes the era of a caller: that of the next connection, and of this one if nobody else has used it."""
        is_first, self._last = self._last is None, call.server_era
        self._eras.need(self._last)
        if is_first:
            self._turn_to(self._last)

    @property
    def _is_used(self) -> bool:
        return not self._turns.is_empty or self._turns.left > 0 or bool(self._subscriptions.resources.wanted)

    def _turn_to(self, era: Era) -> None:
        """Begins anew in this era, if the connection is up in the other one and nobody has used it."""
        may_turn = self._connected is not None and era is not self._home and self._eras.known.may(era)
        if may_turn and not self._is_used:
            self._eras.need(era)
            if era is HANDSHAKE and era not in self._eras.known.speaks:
                self._eras.guess(era)  # a process that is probed first would not show it
            self._order(lifecycle.woken(lifecycle.resting(self._life, _OTHER_ERA)), _OTHER_ERA)

    async def _follow_client(self) -> None:
        """Turns to the era of the hub's first client, if that came later than the connection.

        A server that is begun later has the era of its last caller.
        """
        era = await self._eras.client.first()
        while self._connected is None and not self._is_used:
            await self._changes.wait(self._changes.version)
        if self._last in (None, era):
            self._turn_to(era)

    # -- lists --------------------------------------------------------------------------------------------------

    async def _follow_second(self) -> None:
        """Takes note of what becomes of the second connection, until cancelled."""
        changes, seen = self._other._changes, None
        while True:
            version = changes.version
            state = self._other.snapshot(), self._other.may_get_ready
            if state != seen:
                seen = state
                self._divide()
            self._changes.bump()
            await changes.wait(version)

    @property
    def _skills(self) -> Snapshot | None:
        """The lists of a modern second connection that has skills."""
        lists = self._other._lists.fresh
        return lists if lists is not None and lists.era is MODERN and Kind.SKILL in lists.lists else None

    def snapshot(self) -> Snapshot | None:
        """Its last lists, with the skills of a modern second connection."""
        last, skills = super().snapshot(), self._skills
        is_elsewhere = last is not None and skills is not None and self._home is HANDSHAKE
        return self._merged(last, skills) if is_elsewhere else last  # type: ignore[arg-type]

    def _merged(self, last: Snapshot, other: Snapshot) -> Snapshot:
        """The lists with the skills of the other connection; the same object as long as neither changes."""
        known = self._with_skills
        if known is None or known[0] is not last or known[1] is not other:
            skills = {name: {Kind.SKILL: getattr(other, name)[Kind.SKILL]} for name in ("lists", "hints")}
            extensions = {**last.capabilities.get("extensions", {}), SKILLS: other.capabilities["extensions"][SKILLS]}
            both = replace(
                last,
                lists={**last.lists, **skills["lists"]},
                hints={**last.hints, **skills["hints"]},
                capabilities={**last.capabilities, "extensions": extensions},
            )
            known = self._with_skills = last, other, both
        return known[2]

    def _refresh_skills(self) -> Callable[[], Awaitable[None]] | None:
        """The modern connection is made if its skills are not known yet."""
        is_elsewhere = self._home is HANDSHAKE and self._eras.known.may(MODERN) and self._other.may_get_ready
        if not is_elsewhere:
            return super()._refresh_skills()
        return self._meet_modern if self._other._lists.fresh is None else self._other.refresh(Kind.SKILL)

    async def _meet_modern(self) -> None:
        with anyio.move_on_after(_MODERN_START), suppress(UpstreamUnavailable):
            await self._other._next_peer(_MODERN_START)

    # -- the owner task -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Supervises both until cancelled."""
        self._begin_part(_SECOND, self._second)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._other.run)
                tasks.start_soon(self._follow_second)
                tasks.start_soon(self._follow_client)
                await super().run()
        finally:
            self._eras.keep()

    # -- calls --------------------------------------------------------------------------------------------------

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        """As `ManagedUpstream.begin`."""
        if (HANDSHAKE if call.is_program else call.era) is not self._last:
            self._meet(call)
        if self._is_split and self._is_for_second(call):
            if call.directory is not None:
                self._note_session(call.session)
            return self._other.begin(call, channel)
        return super().begin(call, channel)

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """As `ManagedUpstream.call`; by the first connection where the second one cannot be opened."""
        if call.server_era is not self._last:
            self._meet(call)
        if self._connected is None and self._eras.is_interactive:
            await self._first_start()  # whether the call needs the second connection is open
        if self._is_split and self._is_for_second(call):
            if call.directory is not None:
                self._note_session(call.session)
            try:
                return await self._other.call(call, channel)
            except UpstreamUnavailable as exc:  # nothing was sent
                if self._successor is not None and call.session not in (self._sessions or ()):
                    return await self._successor(call, channel)
                log.warning("upstream_era_unavailable", upstream=self.name, reason=str(exc))
        return await super().call(call, channel)

    def _move_after(self, wait: float, moves: Callable[[str], None]) -> None:
        super()._move_after(wait, moves)
        self._other._move_after(wait, moves)

    async def _refused(self, call: Call, channel: CallChannel, error: RpcError) -> Completed:
        """The result of a call that could not ask over the modern connection, by one over which it can.

        Raises `error` if that cannot help, and as `_permit`.
        """
        question = unasked(error) if self._home is MODERN else None
        if question is None:
            raise error
        self._eras.put_interactive()
        self._divide()
        if self._key(call) is None or call.lack(question, b"{}") is not None:
            raise error
        await self._permit(call, channel, question)
        log.info("upstream_asks_by_handshake", upstream=self.name)
        try:
            return await self._other.call(call, channel)
        except UpstreamUnavailable:
            raise error from None

    async def _permit(self, call: Call, channel: CallChannel, question: str) -> None:
        """Returns if the call may begin anew: it is safe to repeat, or its caller agrees. Raises `RpcError`."""
        if call.method != "tools/call":
            return
        name = read_as(call.params.get("name", b""), str) or ""
        lists = self._lists.snapshot
        tools = () if lists is None else lists.lists.get(Kind.TOOL, ())
        definitions = [raw for raw in tools if (tool := read_as(raw, _Tool)) is not None and tool.name == name]
        rules = {self._rules.repetition(name, raw) for raw in definitions or [b""]}
        if rules == {"safe"}:
            return
        about = f'The tool "{hide_head(name, 100)}" of the server "{self.name}"'
        if "never" not in rules and await agrees(call, channel, _AGAIN.format(tool=about)):
            return
        raise RpcError(
            f"{about} stopped before its question ({question}), because the server cannot ask over the connection that "
            "ran the call. What the tool did before that is done. Call it again if that does no harm: from now on "
            "your calls use a connection over which the server can ask.",
            data={"upstream": {"server": self.name, "question": question}, "outcome": "unknown"},
        )

    async def _first_start(self) -> None:
        """Waits until it is known which era the connection has."""
        try:
            await self._next_peer(self._rules.ready_wait)
        except UpstreamUnavailable:
            if self._successor is None:
                raise

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        """As `ManagedUpstream.resume`, by a connection of the era in which the task was made."""
        era = taken_up(call, channel, how).known.era
        if self._home is None:
            self._eras.need(era)
            with suppress(UpstreamUnavailable):
                await self._next_peer(None)
        if self._home is not None and era is not self._home and self._eras.known.may(era):
            return await self._other.resume(call, channel, how)
        return await super().resume(call, channel, how)

    # -- both ---------------------------------------------------------------------------------------------------

    def leave_tasks(self) -> None:
        super().leave_tasks()
        self._other.leave_tasks()

    def restart(self) -> None:
        super().restart()
        if not self._other.rests:
            self._other.restart()

    async def drain(self, seconds: float, why: str = "it was stopped on request") -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(super().drain, seconds, why)
            tasks.start_soon(self._other.drain, seconds, why)

    def use(self, twin: Self) -> None:
        super().use(twin)
        self._other.adjust(_spare(twin._rules))

    def hand_over(self, successor: CallHandler) -> Handover:
        self._other.hand_over(successor)
        return super().hand_over(successor)

    def set_log_level(self, level: str) -> None:
        super().set_log_level(level)
        self._other.set_log_level(level)

    def status(self) -> UpstreamStatus:
        """That of the first connection, or of the second one if only that is left.

        `second` is one that runs beside, with the reason why.
        """
        first, other = super().status(), self._other.status()
        restarts, asks = first.restarts + other.restarts, first.asks or other.asks
        if first.state is UpstreamState.STOPPED and other.state in _LEFT:
            return replace(other, restarts=restarts, warnings=first.warnings, listed_at=first.listed_at)
        second = None if other.rests else other
        if second is not None and second.state is UpstreamState.READY and second.era is not None:
            second = replace(second, reason=_FOR[second.era])
        return replace(first, restarts=restarts, second=second, asks=asks)


def _spare(rules: SupervisorRules) -> SupervisorRules:
    """The rules of a connection that is made only when it is needed."""
    idle = _IDLE if rules.idle_stop is None else min(rules.idle_stop, _IDLE)
    return replace(rules, lazy=True, idle_stop=idle)
