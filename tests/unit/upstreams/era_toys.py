"""A toy server that speaks some eras, and the upstream that follows the eras of its callers. On virtual time."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import anyio
import anyio.abc
import msgspec

from mcp_hub.call import Call, Question
from mcp_hub.errors import StartFailed
from mcp_hub.notices import Notices
from mcp_hub.protocol.capabilities import EVENTS, KINDS
from mcp_hub.types import HANDSHAKE, MODERN, Era, JsonObject, Kind, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.lists.list_reader import ListFile
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.negotiation import Incompatible
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import ClientEra, EraWish, ServerEras
from mcp_hub.upstreams.peer.state import Observer
from mcp_hub.upstreams.supervision.both_eras import BothEras
from mcp_hub.upstreams.supervision.server import Handover, SupervisorRules
from tests.unit.calls.virtual_time import LoopClock
from tests.unit.upstreams.function_calls import Recorder, request
from tests.unit.upstreams.toy_servers import OFFERS, ToyConnection, Toys
from tests.unit.wire.raw_lines import group


@dataclass
class EraToys(Toys):
    """Every start of a server that speaks these `eras`. `begun` has the era of each start, `called` that of each call.

    In the modern era it lists its tools in another form.
    """

    eras: set[Era] = field(default_factory=lambda: {HANDSHAKE, MODERN})
    broken: set[Era] = field(default_factory=set)
    """Eras in which it does not start now."""
    events: set[Era] = field(default_factory=set)
    """Eras in which it has events."""
    begun: list[Era] = field(default_factory=list)
    running: list[Era] = field(default_factory=list)

    def connect_as(self, eras: ServerEras, wish: EraWish) -> "EraConnection":
        return EraConnection(self, eras, wish)


class EraConnection(ToyConnection):
    """A connection of the era that is wished for, if the server speaks it."""

    def __init__(self, toys: EraToys, eras: ServerEras, wish: EraWish) -> None:
        super().__init__(toys)
        self._all = toys
        self._eras = eras
        self._wish = wish
        self._era: Era | None = None

    async def open(self, tasks: anyio.abc.TaskGroup, observer: Observer) -> Peer:
        toys, era = self._all, await self._wish.era()
        for one in Era:
            self._eras.learn(one, one in toys.eras)
        if era not in toys.eras:
            if self._wish.is_only:
                raise Incompatible("era_mismatch", "it does not speak that")
            (era,) = toys.eras
        if era in toys.broken:
            toys.starts += 1
            raise StartFailed("crashed", "boom")
        offered: JsonObject = {"extensions": {EVENTS: {}}} if era in toys.events else {}
        toys.info = msgspec.structs.replace(toys.info, era=era, capabilities={**OFFERS, **offered})
        self._era = era
        toys.begun.append(era)
        toys.running.append(era)
        return await super().open(tasks, observer)

    async def close(self) -> None:
        await super().close()
        if self._era is not None:
            self._all.running.remove(self._era)


@dataclass
class Caller(Recorder):
    """Its caller answers questions with an `action`. `asked_params` has the params of each."""

    action: str = "accept"
    asked_params: list[JsonObject] = field(default_factory=list)

    def ask(self, question: Question) -> str:
        self.asked_params.append(msgspec.json.decode(question.params))
        question.answered(msgspec.Raw(msgspec.json.encode({"action": self.action, "content": {}})))
        return "q"


@dataclass
class Followed:
    """The upstream of one hub."""

    toys: EraToys
    upstream: BothEras
    eras: ServerEras
    tasks: anyio.abc.TaskGroup

    async def call(
        self, era: Era, *, is_program: bool = False, session: str = "s", channel: Caller | None = None
    ) -> Era | str:
        """The era of the connection that took it first, or the reason why there is none."""
        call = self.caller(era, is_program=is_program, session=session)
        before = len(self.toys.called)
        try:
            await self.upstream.call(call, channel or Caller())
        except Exception as exc:
            return str(exc)
        return self.toys.called[before]

    def caller(self, era: Era, *, is_program: bool = False, session: str = "s") -> Call:
        """Some call of this caller, which can be asked."""
        capabilities: JsonObject = {"elicitation": {"form": {}}}
        more: JsonObject = {"upstream": "toy", "version": "2025-11-25", "capabilities": capabilities}
        return msgspec.structs.replace(request("x"), era=era, is_program=is_program, session=session, **more)

    def seen(self, era: Era) -> list[str]:
        """The names of the tools that a caller of this era is listed."""
        place = self.upstream.apart(self.caller(era))
        lists = place.lists if place is not None and place.lists is not None else self.upstream.snapshot()
        assert lists is not None
        return [msgspec.json.decode(raw)["name"] for raw in lists.lists[Kind.TOOL]]

    def begin(self, era: Era) -> list[str]:
        """The functions that are called for a call that is begun in place, up to its upstream."""
        call = msgspec.structs.replace(request("x"), era=era)
        steps: list[str] = []

        def step(frame: FrameType, event: str, arg: object) -> None:
            if event == "call" and "mcp_hub" in frame.f_code.co_filename:
                steps.append(frame.f_code.co_name)

        sys.setprofile(step)
        try:
            sent = self.upstream.begin(call, Recorder())
        finally:
            sys.setprofile(None)
        assert sent is not None
        sent.leave()
        return steps

    @property
    def event_types(self) -> list[str]:
        """The names of the event types that clients are listed, if the hub declares events."""
        snapshot = self.upstream.snapshot()
        if snapshot is None or not KINDS[Kind.EVENT].is_offered(snapshot.capabilities):
            return []
        return [msgspec.json.decode(raw)["name"] for raw in snapshot.lists[Kind.EVENT]]

    async def note_events(self, seen: set[str]) -> None:
        """Notes what clients are listed, at each change."""
        changes = self.upstream._first.state.changes
        while True:
            version = changes.version
            seen.add(" ".join(self.event_types))
            await changes.wait(version)

    async def poll(self) -> Era | str:
        """The era of the connection over which events are polled, or the reason why there is none."""
        call = msgspec.structs.replace(request("x"), method="events/poll", era=MODERN, upstream="toy")
        try:
            return Era(msgspec.json.decode(await self.upstream.ask(call))["era"])
        except Exception as exc:
            return str(exc)

    @property
    def status(self) -> UpstreamStatus:
        return self.upstream.status()

    @property
    def tools(self) -> list[bytes]:
        """As they are listed now."""
        snapshot = self.upstream.snapshot()
        return [] if snapshot is None else list(snapshot.lists[Kind.TOOL])

    async def until(self, state: UpstreamState) -> None:
        changes = self.upstream._first.state.changes
        while self.status.state is not state:
            await changes.wait(changes.version)

    def state(self) -> Handover:
        """What the next hub knows of it."""
        return self.upstream.lifecycle.hand_over(self.upstream.call)


@asynccontextmanager
async def following(
    toys: EraToys,
    cache: EraCache | None = None,
    client: ClientEra | None = None,
    known: Handover | None = None,
    lists: ListFile | None = None,
    **rules: Any,
) -> AsyncIterator[Followed]:
    """A hub with this one server, from its start on; `known` is what an earlier one knew of it."""
    eras = ServerEras(cache or EraCache(None), "toy", client or ClientEra())
    limits = SupervisorRules(**rules)
    upstream = BothEras(
        "toy", lambda wish: toys.connect_as(eras, wish), limits, eras, clock=LoopClock(), changes=Notices(),
        jitter=lambda: 0.0, lists=lists,
    )  # fmt: skip
    if known is not None:
        upstream.lifecycle.inherit(known)
    async with group() as tasks:
        tasks.start_soon(upstream.lifecycle.run)
        yield Followed(toys, upstream, eras, tasks)
    assert toys.running == [] and toys.alive == 0
