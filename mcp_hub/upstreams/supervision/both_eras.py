"""`era: follow`: a server that speaks both eras gets one connection, in the era of its first caller.

A second connection opens only when needed: a handshake one for servers that ask questions only there (the official
SDK), a modern one for skills, and one of the other era for events.
"""

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel, CallerConnection, CallHandler, Gate, Heard, SentCall
from mcp_hub.clock import Clock
from mcp_hub.errors import RpcError, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.protocol.capabilities import KINDS
from mcp_hub.protocol.eras import SKILL_METHODS
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
from mcp_hub.upstreams.lists.list_reader import CachedList, ListFile, list_key
from mcp_hub.upstreams.lists.list_union import with_kinds
from mcp_hub.upstreams.peer.input_questions import may_repeat
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import EraWish, ServerEras
from mcp_hub.upstreams.peer.tasks import taken_up
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.lifecycle import Life
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.server import STOP_REQUESTED, Handover, Lifecycle, SharedServer, SupervisorRules
from mcp_hub.upstreams.supervision.side_connections import SideConnection, SideConnections, side_notices
from mcp_hub.upstreams.supervision.supervisor import NOT_STARTED, Connection

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


class _SideLists:
    """Lists of one connection with kinds of another. `before`: with which the first one was ready last, `read` then."""

    def __init__(self) -> None:
        self.before: CachedList | None = None
        self.read = anyio.Event()
        self._last: tuple[Snapshot, Snapshot, tuple[Kind, ...], Snapshot] | None = None

    def of(self, listed: Snapshot, side: Snapshot, kinds: tuple[Kind, ...]) -> Snapshot:
        last = self._last
        if last is None or last[0] is not listed or last[1] is not side or last[2] != kinds:
            last = self._last = listed, side, kinds, with_kinds(listed, side, kinds)
        return last[3]


class BothEras:
    """An `Upstream` with a connection in the first caller's era, and maybe a second one."""

    def __init__(
        self, name: str, connect: Connect, rules: SupervisorRules, eras: ServerEras, *, clock: Clock, changes: Notices,
        jitter: Callable[[], float] = random.random, lists: ListFile | None = None, gate: Gate | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.lifecycle = _BothLifecycle(self)
        self._eras = eras
        self._last = eras.called  # of the last caller, also of one whose server this one replaces
        self._home: Era | None = None  # of the connection, or of the last one
        self._is_split = False  # whether some callers or requests may need the second connection
        self._lists = _SideLists()
        self._first = ManagedUpstream(
            name, partial(connect, EraWish(eras.first)), rules, clock=clock, changes=changes, jitter=jitter,
            lists=lists, gate=gate, on_ready=self._on_ready, refused=self._refused,
        )  # fmt: skip
        self._second = ManagedUpstream(
            name, partial(connect, EraWish(self._second_era, is_only=True)), _spare(rules), clock=clock,
            changes=side_notices(name, changes, _SECOND), jitter=jitter, gate=gate, starts=False,
            logs=self._first.state.logs, on_ready=lambda peer: eras.note_events(peer.info),
            lists=lists and replace(lists, key=list_key(lists.key, _SECOND)),
        )  # fmt: skip
        self._sides = SideConnections(
            self._first, {_SECOND: SideConnection(self._second)}, key=self._key, snapshot=self.snapshot
        )

    # -- eras ---------------------------------------------------------------------------------------------------

    async def _second_era(self) -> Era:
        return HANDSHAKE if self._home is MODERN else MODERN

    def _on_ready(self, peer: Peer) -> None:
        lists, first, before = self._second.state.lists, self._first.state.lists.last, self._lists.before
        if peer.info.era is not self._home:
            if self._home is not None:
                lists.begin_anew(before)
            self._home = peer.info.era
            second = self._second.supervisor
            second.order(lifecycle.resting(Life(restarts=second.life.restarts), NOT_STARTED), _OTHER_ERA)
        if not lists.is_fresh and (lists.last is None or lists.last.era is self._home):
            lists.inherit(first)
        self._lists.before = first
        self._eras.see(peer.info)
        self._eras.note_events(peer.info)
        self._divide()
        self._lists.read.set()
        self._lists.read = anyio.Event()

    def _divide(self) -> None:
        """Decides who needs the second connection."""
        asks = self._home is MODERN and self._eras.is_interactive and self._eras.known_eras.may(HANDSHAKE)
        self._is_split = asks or (self._home is HANDSHAKE and self._skills is not None)
        if self._eras.is_interactive:
            (self._first.state.turns if self._home is HANDSHAKE else self._second.state.turns).switch_on()
        first_resources, there = self._first.state.subscriptions.resources, self._second.state.subscriptions.resources
        for uri, call in first_resources.references:
            if self._key(call) is not None:
                first_resources.release(uri, call.session)
                self._sides.resources.want(uri, call)
                there.want(uri, call)
        for uri, call in self._sides.resources.references:
            if self._key(call) is None:
                self._sides.resources.release(uri, call.session)
                there.release(uri, call.session)
                first_resources.want(uri, call)
        if there.reference_counts or (self._lacks_events and self._second.state.lists.fresh is None):
            self._second.lifecycle.wake()

    def _is_for_second(self, call: Call) -> bool:
        if self._home is HANDSHAKE:
            return call.method in SKILL_METHODS
        return self._key(call) is not None

    def _key(self, call: Call) -> str | None:
        is_asked = self._is_split and self._home is MODERN and call.server_era is HANDSHAKE
        return _SECOND if is_asked and self._second.supervisor.may_get_ready else None

    def _meet(self, call: Call) -> None:
        is_first, self._last = self._last is None, call.server_era
        self._eras.need(self._last)
        if is_first:
            self._turn_to(self._last)

    @property
    def _is_used(self) -> bool:
        state = self._first.state
        return not state.turns.is_empty or state.turns.ended_calls > 0 or state.is_wanted

    def _turn_to(self, era: Era) -> None:
        """Reconnects in this era if unused."""
        may_turn = (
            self._first.supervisor.connected is not None and era is not self._home and self._eras.known_eras.may(era)
        )
        if may_turn and not self._is_used:
            self._eras.need(era)
            if era is HANDSHAKE and era not in self._eras.known_eras.speaks:
                self._eras.guess(era)  # a process that is probed first would not show it
            first = self._first.supervisor
            first.order(lifecycle.woken(lifecycle.resting(first.life, _OTHER_ERA)), _OTHER_ERA)

    async def _follow_client(self) -> None:
        era = await self._eras.client.first()
        while self._first.supervisor.connected is None and not self._is_used:
            await self._lists.read.wait()  # not for any change: each server would look at each of all others
        if self._last in (None, era):
            self._turn_to(era)

    # -- lists --------------------------------------------------------------------------------------------------

    async def _follow_second(self) -> None:
        changes, seen = self._second.state.changes, None
        while True:
            version = changes.version
            state = self._second.snapshot(), self._second.supervisor.may_get_ready
            if state != seen:
                seen = state
                self._divide()
            self._first.state.changes.bump()
            await changes.wait(version)

    @property
    def _skills(self) -> Snapshot | None:
        lists = self._second.state.lists.fresh
        return lists if lists is not None and lists.era is MODERN and Kind.SKILL in lists.lists else None

    @property
    def _lacks_events(self) -> bool:
        """Whether only the other era has events."""
        listed = self._first.snapshot()
        if listed is None or KINDS[Kind.EVENT].is_offered(listed.capabilities):
            return False
        eras = self._eras.cache.events_in(self._eras.key) - {listed.era}
        return bool(eras) and self._second.supervisor.may_get_ready

    def snapshot(self) -> Snapshot | None:
        listed, side = self._first.snapshot(), self._second.snapshot()
        if listed is None or side is None or side.era is listed.era:
            return listed
        are_elsewhere = {Kind.EVENT: self._lacks_events, Kind.SKILL: self._home is HANDSHAKE and self._skills is side}
        kinds = tuple(kind for kind, is_elsewhere in are_elsewhere.items() if is_elsewhere and kind in side.lists)
        return self._lists.of(listed, side, kinds) if kinds else listed

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        if kind is Kind.EVENT and self._lacks_events:
            return self._second.refresh(kind, is_new=is_new)
        is_elsewhere = kind is Kind.SKILL and (
            self._home is HANDSHAKE and self._eras.known_eras.may(MODERN) and self._second.supervisor.may_get_ready
        )
        if not is_elsewhere:
            return self._first.refresh(kind, is_new=is_new)
        return self._meet_modern if self._second.state.lists.fresh is None else self._second.refresh(Kind.SKILL)

    async def _supervise(self) -> None:
        self._sides.begin(_SECOND)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._second.lifecycle.run)
                tasks.start_soon(self._follow_second)
                tasks.start_soon(self._follow_client)
                await self._first.lifecycle.run()
        finally:
            self._eras.cache.keep_needed(self._eras.key)

    async def _meet_modern(self) -> None:
        with anyio.move_on_after(_MODERN_START), suppress(UpstreamUnavailable):
            await self._second.supervisor.next_peer(_MODERN_START)

    # -- calls --------------------------------------------------------------------------------------------------

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        if (HANDSHAKE if call.is_program else call.era) is not self._last:
            self._meet(call)
        if self._is_split and self._is_for_second(call):
            if call.directory is not None:
                self._first.sessions.note(call.session)
            return self._second.begin(call, channel)
        return self._first.begin(call, channel)

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Relays a call; by the first connection if the second cannot open."""
        if call.server_era is not self._last:
            self._meet(call)
        if self._first.supervisor.connected is None and self._eras.is_interactive:
            await self._first_start()  # whether the call needs the second connection is open
        if self._is_split and self._is_for_second(call):
            if call.directory is not None:
                self._first.sessions.note(call.session)
            try:
                return await self._second.call(call, channel)
            except UpstreamUnavailable as exc:  # nothing was sent
                if self._first.successor is not None and call.session not in self._first.sessions:
                    return await self._first.successor(call, channel)
                log.warning("upstream_era_unavailable", upstream=self.name, reason=str(exc))
        return await self._first.call(call, channel)

    async def _refused(self, call: Call, channel: CallChannel, error: RpcError) -> Completed:
        """Repeats a call over a connection that can ask, or raises `error`."""
        question = unasked(error) if self._home is MODERN else None
        if question is None:
            raise error
        self._eras.put_interactive()
        self._divide()
        if self._key(call) is None or call.lack(question, b"{}") is not None:
            raise error
        state = self._first.state
        await may_repeat(call, channel, question, state.lists.snapshot, state.rules.repetition)
        log.info("upstream_asks_by_handshake", upstream=self.name)
        try:
            return await self._second.call(call, channel)
        except UpstreamUnavailable:
            raise error from None

    async def _first_start(self) -> None:
        try:
            await self._first.supervisor.next_peer(self._first.state.rules.ready_wait)
        except UpstreamUnavailable:
            if self._first.successor is None:
                raise

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        era = taken_up(call, channel, state).handle.era
        if self._home is None:
            self._eras.need(era)
            with suppress(UpstreamUnavailable):
                await self._first.supervisor.next_peer(None)
        if self._home is not None and era is not self._home and self._eras.known_eras.may(era):
            return await self._second.resume(call, channel, state)
        return await self._first.resume(call, channel, state)

    def set_log_level(self, level: str) -> None:
        self._first.set_log_level(level)
        self._second.set_log_level(level)

    def session_ended(self, session: str) -> None:
        self._first.session_ended(session)

    def apart(self, call: Call) -> CallerConnection | None:
        return self._sides.apart(call)

    async def subscribe(self, uri: str, call: Call) -> None:
        await self._sides.subscribe(uri, call)

    def unsubscribe(self, uri: str, call: Call) -> None:
        self._sides.unsubscribe(uri, call)

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        if self._first.supervisor.connected is None:
            await self._first_start()  # in which era decides where it has events
        return await (self._second if self._lacks_events else self._first).ask(call, heard)

    def status(self) -> UpstreamStatus:
        """The first connection's status, or the second's if only that is left."""
        first, second_status = self._first.status(), self._second.status()
        restarts, asks = first.restarts + second_status.restarts, first.asks or second_status.asks
        if first.state is UpstreamState.STOPPED and second_status.state in _LEFT:
            return replace(second_status, restarts=restarts, warnings=first.warnings, listed_at=first.listed_at)
        second = None if second_status.rests else second_status
        if second is not None and second.state is UpstreamState.READY and second.era is not None:
            is_for_events = self._lacks_events and not self._is_split
            second = replace(second, reason="for events" if is_for_events else _FOR[second.era])
        return replace(first, restarts=restarts, second=second, asks=asks)


class _BothLifecycle(Lifecycle):
    def __init__(self, upstream: BothEras) -> None:
        super().__init__()
        self._upstream = upstream

    @property
    def _each(self) -> tuple[Lifecycle, Lifecycle]:
        return self._upstream._first.lifecycle, self._upstream._second.lifecycle

    @property
    def peers(self) -> list[Peer]:
        return [peer for life in self._each for peer in life.peers or ()]

    async def run(self) -> None:
        await self._upstream._supervise()

    async def drain(self, seconds: float, why: str = STOP_REQUESTED) -> None:
        async with anyio.create_task_group() as tasks:
            for life in self._each:
                tasks.start_soon(life.drain, seconds, why)

    def wake(self) -> None:
        self._each[0].wake()

    def restart(self) -> None:
        first, second = self._each
        first.restart()
        if not self._upstream._second.supervisor.life.rests:
            second.restart()

    def adjust(self, rules: SupervisorRules) -> None:
        first, second = self._each
        first.adjust(rules)
        second.adjust(_spare(rules))

    def leave_tasks(self) -> None:
        for life in self._each:
            life.leave_tasks()

    def hand_over(self, successor: CallHandler) -> Handover:
        upstream = self._upstream
        first, second = self._each
        second.hand_over(successor)
        state = first.hand_over(successor)
        shared = SharedServer(upstream, upstream._first.sessions, (upstream._first.state, upstream._second.state))
        return replace(state, references=(*state.references, *upstream._sides.resources.references), shared=shared)

    def inherit(self, state: Handover) -> None:
        self._upstream._sides.inherit(state)


def _spare(rules: SupervisorRules) -> SupervisorRules:
    idle = _IDLE if rules.idle_stop is None else min(rules.idle_stop, _IDLE)
    return replace(rules, lazy=True, idle_stop=idle)
