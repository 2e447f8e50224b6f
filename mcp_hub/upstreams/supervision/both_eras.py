"""`era: follow`: a server that speaks both eras is called in its caller's, over two connections if need be.

The *listed* connection has the era that the lists of this server come from, always the same one. The other one is made
when a caller of its era comes. Each is stopped when it was idle for long while callers have needed the other one: one
client costs one process, also if it is not of the listed era. The lists are then those of the last time, unless the
other connection lists something else than it did at that time: then the listed one is started to be read again.
Skills belong to the modern era, so their list is that of the modern connection.
"""

import hashlib
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
from mcp_hub.errors import UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.protocol.capabilities import SKILLS
from mcp_hub.types import HANDSHAKE, MODERN, Era, Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.lists.list_cache import ListFile
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import EraWish, ServerEras
from mcp_hub.upstreams.peer.tasks import taken_up
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.connection import Connection
from mcp_hub.upstreams.supervision.managed_upstream import Handover, ManagedUpstream
from mcp_hub.upstreams.supervision.supervisor import NOT_STARTED, SupervisorRules

log = get_logger(__name__)

Connect = Callable[[EraWish], Connection]
_IDLE: Final = 600.0
"""Seconds after which a connection is closed that nobody has used, while the other one was."""

_MODERN_START: Final = 10.0
"""Seconds that a list of skills waits for a modern connection that is made for it."""

_LEFT: Final = (UpstreamState.STARTING, UpstreamState.READY, UpstreamState.DRAINING)


class BothEras(ManagedUpstream):
    """The listed connection of a server, and the one of the other era."""

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
        asks, is_modern = eras.is_interactive, eras.listed(None) is MODERN  # it asks in the handshake era only
        super().__init__(
            name, partial(connect, EraWish(self._listed_era)), rules, clock=clock, changes=changes, jitter=jitter,
            lists=lists, takes_turns=asks and not is_modern, gate=gate, other_lists=self._lists_of_other,
        )  # fmt: skip
        self._eras = eras
        self._whole_rules = rules
        self._needed: Era | None = None  # the era of the last caller, or of the one who is expected
        self._way: tuple[Era | None, bool] = None, False  # of the last call: its era, and whether it was for the other
        self._other_changes = Notices()
        self._with_skills: tuple[Snapshot, Snapshot, Snapshot] | None = None  # the lists, those of the other, and both
        self._announced = 0  # changes of what the other connection lists, while it is up
        self._other = ManagedUpstream(
            name, partial(connect, EraWish(self._other_era, is_only=True)), _spare(rules), clock=clock,
            changes=self._other_changes, jitter=jitter, takes_turns=asks and is_modern,
            gate=None if gate is None else self._check_listed, starts=False, logs=self._logs,
        )  # fmt: skip

    # -- eras ---------------------------------------------------------------------------------------------------

    @property
    def _listed(self) -> Era | None:
        """The era of the lists, as far as it is known yet."""
        return self._connected.info.era if self._connected is not None else self._eras.listed(self._last_era)

    @property
    def _last_era(self) -> Era | None:
        return self._lists.last.era if self._lists.last is not None else None

    async def _listed_era(self) -> Era:
        return self._listed or await self._eras.first()

    async def _other_era(self) -> Era:
        return HANDSHAKE if await self._listed_era() is MODERN else MODERN

    def _is_for_other(self, call: Call) -> bool:
        """Whether the call, and those after it in its era, go to the connection that is not listed."""
        era, listed = call.server_era, self._listed
        if listed is None:
            return False
        is_for_other = era is not listed and self._eras.known.may(era)
        if era is not self._needed and (is_for_other or era is listed):
            self._need(era, listed)
        if is_for_other and not self._other.may_get_ready:
            self._way = None, False  # until it may again
            return False
        self._way = era, is_for_other
        return is_for_other

    def _need(self, era: Era, listed: Era) -> None:
        """Callers of this era are there: its connection goes by the rules of the server, the other one is spare."""
        self._needed = era
        self._eras.need(era)
        self._share_rules(listed)

    def _share_rules(self, listed: Era | None) -> None:
        whole, spare = self._whole_rules, _spare(self._whole_rules)
        is_listed = self._needed is None or self._needed is listed
        self.adjust(whole if is_listed else spare)
        self._other.adjust(spare if is_listed else whole)

    # -- lists --------------------------------------------------------------------------------------------------

    def _on_ready(self, peer: Peer) -> None:
        """The listed connection is there."""
        super()._on_ready(peer)
        self._way = None, False
        self._eras.list_from(peer.info)

    async def _follow_other(self) -> None:
        """Takes note of what becomes of the other connection, until cancelled.

        The lists are read again when it lists something new, and the listed connection is used where it fails.
        """
        seen = None
        while True:
            version = self._other_changes.version
            await self._other_changes.wait(version)
            known, last, listed = self._lists_of_other(), self._lists.last, self._listed
            if known != seen and last is not None and last.other != known:
                self._announced += seen is not None and known is not None
                self._read_again()
            seen = known
            if listed is not None and self._needed is not listed and not self._other.may_get_ready:
                self._need(listed, listed)
            self._changes.bump()

    def _read_again(self) -> None:
        """Has the lists read: a server may announce a change over one of its connections only."""
        if self._connected is None:
            self.wake()
        else:
            self._connected.list_changes.announce(Kind)

    def snapshot(self) -> Snapshot | None:
        """Its last lists. A change that only the other connection shows is announced: its callers asked for it."""
        last, other = super().snapshot(), self._other.snapshot()
        if last is not None and other is not None and other.era is MODERN and Kind.SKILL in other.lists:
            last = self._merged(last, other)
        return last if last is None or not self._announced else replace(last, announced=self._announced)

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
        is_elsewhere = self._listed is HANDSHAKE and self._eras.known.may(MODERN) and self._other.may_get_ready
        if not is_elsewhere:
            return super()._refresh_skills()
        return self._meet_modern if self._other.snapshot() is None else self._other.refresh(Kind.SKILL)

    async def _meet_modern(self) -> None:
        with anyio.move_on_after(_MODERN_START), suppress(UpstreamUnavailable):
            await self._other._next_peer(_MODERN_START)

    def _show(self, kind: Kind, *, is_new: bool) -> None:
        """A list that is old is read again over the connection that is up."""
        if self._peer is not None:
            super()._show(kind, is_new=is_new)
        else:
            self._other.refresh(kind, is_new=is_new)

    def _lists_of_other(self) -> str | None:
        """Distinguishes the lists of the other connection, and the versions of the server."""
        snapshot = self._other.snapshot()
        if snapshot is None:
            return None
        lists = {kind: own for kind, own in snapshot.lists.items() if kind is not Kind.SKILL}
        about = (lists, snapshot.capabilities, snapshot.instructions, self._other.status().server_info)
        return hashlib.sha256(msgspec.json.encode(about, order="deterministic")).hexdigest()

    def _check_listed(self, call: Call, snapshot: Snapshot, own: Snapshot) -> None:
        """The `Gate` of the other connection: what is approved are the lists."""
        if self._gate is not None:
            self._gate(call, self._lists.snapshot or snapshot, own)

    # -- the owner task -----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Supervises both until cancelled."""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._other.run)
                tasks.start_soon(self._follow_other)
                await self._begin()
                await super().run()
        finally:
            self._eras.keep()

    async def _begin(self) -> None:
        """Starts with the connection that is needed first; the lists are known if that is not the listed one."""
        listed = self._listed
        if listed is None or self._lists.last is None or self._life.rests or not self._eras.known.are_both:
            return
        first = await self._eras.first()
        if first is not listed and lifecycle.is_first_start(self._life):
            self._become(lifecycle.resting(self._life, NOT_STARTED))
            self._need(first, listed)
            self._other.wake()

    # -- calls --------------------------------------------------------------------------------------------------

    def begin(self, call: Call, channel: CallChannel) -> SentCall | None:
        """As `ManagedUpstream.begin`."""
        era = HANDSHAKE if call.is_program else call.era
        last, is_for_other = self._way
        if is_for_other if era is last else self._is_for_other(call):
            return self._other.begin(call, channel)
        return super().begin(call, channel)

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """As `ManagedUpstream.call`; by the listed connection where the other one cannot be opened."""
        if self._listed is None:
            await self._first_start()
        if self._is_for_other(call):
            try:
                return await self._other.call(call, channel)
            except UpstreamUnavailable as exc:  # nothing was sent
                log.warning("upstream_era_unavailable", upstream=self.name, reason=str(exc))
        return await super().call(call, channel)

    async def _first_start(self) -> None:
        """Waits until it is known which era the server speaks."""
        try:
            await self._next_peer(self._rules.ready_wait)
        except UpstreamUnavailable:
            if self._successor is None:
                raise

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        """As `ManagedUpstream.resume`, by the connection of the era in which the task was made."""
        era, listed = taken_up(call, channel, how).known.era, self._listed
        if listed is not None and era is not listed and self._eras.known.may(era):
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
        self._whole_rules = twin._whole_rules
        self._share_rules(self._listed)

    def hand_over(self, successor: CallHandler) -> Handover:
        self._other.hand_over(successor)
        return super().hand_over(successor)

    def set_log_level(self, level: str) -> None:
        super().set_log_level(level)
        self._other.set_log_level(level)

    def status(self) -> UpstreamStatus:
        """That of the listed connection, or of the other one if only that is left; `second` is one that runs beside."""
        first, other = super().status(), self._other.status()
        restarts = first.restarts + other.restarts
        if first.state is UpstreamState.STOPPED and other.state in _LEFT:
            return replace(other, restarts=restarts, warnings=first.warnings, listed_at=first.listed_at)
        asks = first.asks or other.asks
        return replace(first, restarts=restarts, second=None if other.rests else other, asks=asks)


def _spare(rules: SupervisorRules) -> SupervisorRules:
    """The rules of a connection that was not needed last."""
    idle = _IDLE if rules.idle_stop is None else min(rules.idle_stop, _IDLE)
    return replace(rules, lazy=True, idle_stop=idle)
