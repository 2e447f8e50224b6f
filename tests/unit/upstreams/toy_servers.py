"""A server without a wire: each start and each answer takes as long as it is told, on whatever clock the loop has."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.abc

from mcp_hub.errors import StartFailed
from mcp_hub.notices import Notices
from mcp_hub.protocol.jsonrpc.envelope import Envelope, decode
from mcp_hub.types import Cause, Era, JsonObject, Kind, RawJson, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.lists.list_reader import ListFile
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import Observer, PeerInfo
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.server import SupervisorRules
from mcp_hub.wire.base import Pending, Requests, WireClosed
from tests.unit.calls.virtual_time import LoopClock
from tests.unit.upstreams.function_calls import Recorder, request
from tests.unit.wire.raw_lines import group

OFFERS: JsonObject = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}

_NO_PAGE = {"code": -32602, "message": "unknown cursor"}


def envelope(**members: object) -> Envelope:
    """The message that has these members."""
    message = decode(json.dumps(members).encode())
    assert isinstance(message, Envelope)
    return message


@dataclass
class Toys:
    """Every start of one server. `fails` has the reasons of the starts that do not work, None for one that does.

    `cursor` is that of the next page of tools, if there is to be one; reading that page fails. `slow` is how long a
    method takes. While it is `frozen` nothing is answered.
    """

    starting: float = 0.5
    calls: float = 0.1
    closing: float = 0.2
    tools: list[str] = field(default_factory=lambda: ["x"])
    cursor: object = None
    slow: dict[str, float] = field(default_factory=dict)
    fails: list[StartFailed | None] = field(default_factory=list)
    starts: int = 0
    alive: int = 0
    most_alive: int = 0
    last: "ToyWire | None" = None
    levels: list[str] = field(default_factory=list)
    frozen: bool = False
    asks: bool = False
    question: str = "elicitation/create"
    """Whether its calls end with a question, which it can put over handshake connections only."""
    annotations: JsonObject = field(default_factory=dict)
    info: PeerInfo = PeerInfo(Era.HANDSHAKE, "2025-11-25", capabilities=OFFERS)
    called: list[Era] = field(default_factory=list)
    """The era of the connection of each call."""

    def connect(self) -> "ToyConnection":
        return ToyConnection(self)

    @property
    def wire(self) -> "ToyWire":
        """That of the last start."""
        assert self.last is not None
        return self.last


class ToyConnection:
    pid = 7
    can_retry = True
    lost_session = False
    notes: Sequence[str] = ()

    def __init__(self, toys: Toys) -> None:
        self.stderr: Iterable[str] = ()
        self._toys = toys
        self._is_open = False
        self._wire: ToyWire | None = None

    def successor(self) -> None:
        """None."""

    async def open(self, tasks: anyio.abc.TaskGroup, observer: Observer) -> Peer:
        toys = self._toys
        toys.starts += 1
        toys.alive += 1
        toys.most_alive = max(toys.most_alive, toys.alive)
        self._is_open = True
        info = toys.info
        await anyio.sleep(toys.starting)
        failure = toys.fails.pop(0) if toys.fails else None
        if failure is not None:
            raise failure
        peer = Peer("toy", lambda messages, peer: ToyWire(peer, toys), info, observer)
        assert isinstance(peer.wire, ToyWire)
        toys.last = self._wire = peer.wire
        return peer

    async def last_words(self, cause: Cause) -> Cause:
        return cause

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            if self._wire is not None:
                self._wire.close()
            await anyio.sleep(self._toys.closing)
            if self._is_open:
                self._toys.alive -= 1


class ToyWire:
    """Answers everything after a while. `die` is what a process does that is killed."""

    is_congested = False

    def __init__(self, peer: Peer, toys: Toys) -> None:
        self.requests = Requests()
        self.can_send = True
        self.is_pipe = False
        self.more: list[str] = []
        """Tools that this process lists besides."""
        self._peer = peer
        self._toys = toys

    def send(self, frame: bytes) -> None:
        pass

    def request(
        self, method: str, params: RawJson | Callable[[int], RawJson], context: object = None, headers: Any = None
    ) -> Pending:
        if not self.can_send:
            raise WireClosed("closed")
        pending = self.requests.expect(method, context)
        if method == "logging/setLevel" and not callable(params):
            self._toys.levels.append(json.loads(params)["level"])
        if context is not None:
            self._toys.called.append(self._peer.info.era)
        if method == "subscriptions/listen" and not callable(params):
            asyncio.get_running_loop().call_soon(self._acknowledge, pending.id, json.loads(params))
            return pending
        form: JsonObject = {"title": "modern"} if self._peer.info.era is Era.MODERN else {}
        if self._toys.annotations:
            form["annotations"] = self._toys.annotations
        tools = [{"name": name, "inputSchema": {"type": "object"}, **form} for name in (*self._toys.tools, *self.more)]
        results = {
            "tools/list": {"tools": tools, "nextCursor": self._toys.cursor},
            "resources/list": {"resources": [{"uri": "toy://r", "name": "r"}]},
            "resources/templates/list": {"resourceTemplates": []},
            "events/list": {"events": [{"name": f"built in {self._peer.info.era.value}", "delivery": ["poll"]}]},
            "events/poll": {"era": self._peer.info.era.value},
        }
        result = results.get(method, {"content": []})
        if self._toys.asks and context is not None and self._peer.info.era is Era.MODERN:
            said = f"Cannot send '{self._toys.question}': this transport context has no back-channel for requests."
            pending.settle(envelope(error={"code": -32600, "message": said}))
            self.requests.pending.pop(pending.id)
            return pending
        delay = self._toys.slow.get(method, self._toys.calls if method == "tools/call" else 0.0)
        is_next_page = method == "tools/list" and not callable(params) and b"cursor" in bytes(params)
        outcome: JsonObject = {"error": _NO_PAGE} if is_next_page else {"result": result}
        answer = envelope(**outcome)
        asyncio.get_running_loop().call_later(delay, self._answered, pending, answer)
        return pending

    def _acknowledge(self, id_: int, params: JsonObject) -> None:
        about = {"_meta": {"io.modelcontextprotocol/subscriptionId": id_}, "notifications": params["notifications"]}
        method = "notifications/subscriptions/acknowledged"
        self._peer.messages.on_notification(envelope(method=method, params=about))

    def updates(self, uri: str) -> None:
        """One of its resources was updated."""
        self._peer.messages.on_notification(envelope(method="notifications/resources/updated", params={"uri": uri}))

    def _answered(self, pending: Pending, answer: Envelope) -> None:
        if not self._toys.frozen and self.requests.pending.pop(pending.id, None) is not None:
            pending.settle(answer)

    async def answer(self, pending: Pending, cancellation: object) -> Envelope:
        try:
            return await pending.future
        except asyncio.CancelledError:
            self.requests.abandon(pending)
            raise

    def close(self, reason: str = "closed by the hub", code: str = "closed") -> None:
        self.can_send = False
        self.requests.fail_all(reason)
        self._peer.messages.on_closed(reason, code)

    @property
    def era(self) -> Era:
        return self._peer.info.era

    def announces(self, kind: Kind) -> None:
        """Its list has changed."""
        self._peer.messages.list_changes.announce([kind])

    def die(self, code: str = "crashed") -> None:
        self._peer.ending.explained.set()
        self.close("killed" if code == "crashed" else "exited with code 0", code)


@dataclass
class Kept:
    """A supervisor that runs, its server, and calls to it."""

    toys: Toys
    supervisor: ManagedUpstream
    tasks: anyio.abc.TaskGroup
    outcomes: list[tuple[float, str]] = field(default_factory=list)
    """When each call was over, in seconds since the start, and what it came to."""
    _began: float = field(default_factory=anyio.current_time)

    @property
    def now(self) -> float:
        return round(anyio.current_time() - self._began, 3)

    @property
    def status(self) -> UpstreamStatus:
        return self.supervisor.status()

    @property
    def state(self) -> UpstreamState:
        return self.status.state

    async def call(self) -> str:
        try:
            await self.supervisor.call(request("x"), Recorder())
            came = "ok"
        except Exception as exc:
            came = str(exc)
        self.outcomes.append((self.now, came))
        return came

    def start_call(self) -> None:
        self.tasks.start_soon(self.call)

    async def until(self, *states: UpstreamState, starts: int = 0) -> None:
        changes = self.supervisor.state.changes
        while self.state not in states or self.toys.starts < starts:
            await changes.wait(changes.version)


@asynccontextmanager
async def kept(toys: Toys | None = None, lists: ListFile | None = None, **rules: Any) -> AsyncIterator[Kept]:
    """A supervised toy server, from its start on. Without jitter."""
    toys = toys or Toys()
    limits = SupervisorRules(**rules)
    supervisor = ManagedUpstream(
        "toy", toys.connect, limits, clock=LoopClock(), changes=Notices(), jitter=lambda: 0.0, lists=lists
    )
    async with group() as tasks:
        tasks.start_soon(supervisor.lifecycle.run)
        yield Kept(toys, supervisor, tasks)
    assert toys.alive == 0 and toys.most_alive <= 1


@asynccontextmanager
async def up(toys: Toys | None = None, **rules: Any) -> AsyncIterator[Kept]:
    """A supervised toy server that is ready."""
    async with kept(toys, **rules) as far:
        await far.until(UpstreamState.READY)
        yield far
