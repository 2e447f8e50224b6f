"""A hub in virtual time whose one server does what a test says, and modern clients of it over a pipe or HTTP."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

import msgspec
import pytest

from mcp_hub.call import Call, CallChannel, Question, StreamInfo, Upstream
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import CallRules, SessionRules, StreamLimits, TimeLimits
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.events import CallEvent, Completed, Progressed
from mcp_hub.fronts.http.request import Housekeeper, HttpRequest
from mcp_hub.fronts.http.streamable import _ModernHttp
from mcp_hub.fronts.mcp.binding import Binding, modern_session
from mcp_hub.fronts.mcp.bonds import ClientBond
from mcp_hub.fronts.mcp.duplex import Duplex
from mcp_hub.hub import HubPort
from mcp_hub.notices import Notices
from mcp_hub.sessions.session import Caller
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import Era, Kind, RawJson, Snapshot
from mcp_hub.upstreams.peer.input_questions import follow_up
from tests.unit.calls.virtual_time import LoopClock, named_like, run, sleep
from tests.unit.fakes import IdleUpstream, KeptWire, enveloped
from tests.unit.fronts.http_peer import Connection
from tests.unit.fronts.small_hub import catalog_of
from tests.upstreams.messages import PREFIX, modern, rpc

Scenario = Callable[..., Coroutine[Any, Any, None]]

AFTER = 5.0
FRONTS = ("pipe", "http")
TOOLS = ("slow", "always", "required", "never", "kept")
RULES = {name: CallRules(task=name) for name in ("always", "required", "never")} | {"kept": CallRules(orphan=60.0)}
TASKS: Mapping[str, Any] = {"elicitation": {}, "extensions": {PREFIX + "tasks": {}}}


def text(words: str) -> bytes:
    """A tool's result."""
    return json.dumps({"content": [{"type": "text", "text": words}]}).encode()


class Running:
    """A call that the server works on; `ends` or `fails` it."""

    def __init__(self, call: Call, channel: CallChannel) -> None:
        self.call = call
        self.channel = channel
        self.answers: list[RawJson | Exception] = []
        self.is_cancelled = False
        self.outcome: asyncio.Future[Completed] = asyncio.get_running_loop().create_future()

    async def happens(self, *events: CallEvent) -> None:
        for event in events:
            self.channel.send(event)
        await sleep(0.2)

    async def says(self, progress: float, message: str) -> None:
        await self.happens(Progressed(progress, None, {"message": msgspec.Raw(json.dumps(message).encode())}))

    async def ends(self, result: bytes = text("done"), era: Era = Era.HANDSHAKE) -> None:
        self.outcome.set_result(Completed(result, era))
        await sleep(0.2)

    async def fails(self, error: Exception) -> None:
        self.outcome.set_exception(error)
        await sleep(0.2)

    async def asks(self, message: str = "sure?", **more: Any) -> str:
        params = json.dumps({"message": message, "requestedSchema": {"type": "object"}, **more}).encode()
        key = self.channel.ask(Question("elicitation/create", params, self.answers.append))
        await sleep(0.2)
        return key


class Server(IdleUpstream):
    """The upstream; `calls` are those that it got, in order, `tools` the names that it lists."""

    def __init__(self) -> None:
        super().__init__("git")
        self.calls: list[Running] = []
        self.tools = list(TOOLS)

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        return await self.call(call, channel)

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        running = Running(call, channel)
        self.calls.append(running)
        try:
            return await running.outcome
        except asyncio.CancelledError:
            running.is_cancelled = True
            raise

    def snapshot(self) -> Snapshot:
        tools = (json.dumps({"name": name, "inputSchema": {"type": "object"}}).encode() for name in self.tools)
        return Snapshot("git", Era.HANDSHAKE, {Kind.TOOL: tuple(tools)})


class Sent:
    """One request: what came back for it so far. `leave` is how its client gives it up: by closing, or by saying so."""

    def __init__(self, leave: Callable[[], None], received: Callable[[], list[Any]], status: Callable[[], Any]) -> None:
        self.leave = leave
        self._received = received
        self._status = status

    @property
    def messages(self) -> list[Any]:
        return self._received()

    @property
    def status(self) -> Any:
        return self._status()

    @property
    def methods(self) -> list[str]:
        return [message.get("method", "answer") for message in self.messages]

    @property
    def is_answered(self) -> bool:
        return "answer" in self.methods

    @property
    def answer(self) -> Any:
        assert self.is_answered, self.messages
        return self.messages[-1]

    @property
    def result(self) -> Any:
        assert "result" in self.answer, self.answer
        return self.answer["result"]

    @property
    def error(self) -> Any:
        assert "error" in self.answer, self.answer
        return self.answer["error"]


class TaskHub:
    """`port` and what it is made of, over a `store` that may be others' as well."""

    def __init__(
        self,
        front: str,
        *,
        bond: Callable[[HubPort], ClientBond] = lambda port: ClientBond(ends_hub=True),
        running: int = 99,
        server: Server | None = None,
        store: EventStore | None = None,
    ) -> None:
        self.front = front
        self._bond = bond
        self.clock = LoopClock()
        self.server = server or Server()
        store = store or MemoryStore()

        async def take_up(row: StreamInfo, last: Progressed | None) -> None:
            await self.port.starter.take_up(row, last)

        self.streams = StreamTable(store, self.clock, StreamLimits(detached=3), take_up)
        self.registry = CallRegistry(self.clock, running, 9, on_durable=self.streams.begin)
        upstreams: dict[str, Upstream] = {"git": self.server}
        changes = Notices()
        limits = TimeLimits(9e9, 9e9)
        self.port = HubPort(
            catalog_of(self.server, changes, self.clock),
            self.registry,
            upstreams,
            {"git": (limits, limits)},
            SessionRules(100, AFTER),
            PendingInput(
                self.clock, 60, self.registry.cancel, lambda: b"k" * 32, has_replicas=store.replicas is not None
            ),
            changes,
            self.streams,
            lambda server, tool: RULES.get(tool, CallRules()),
            follow_up,
        )
        self.binding = Binding(self.port, {"name": "hub", "version": "1"}, lambda profile: None)
        self._housekeeper = Housekeeper()
        self._http = _ModernHttp(self.port, self.binding, self._housekeeper)
        self._pipe = KeptWire()
        self._duplex: Duplex
        self._sent = 0

    async def serve(self, scenario: Callable[["TaskHub"], Coroutine[Any, Any, None]]) -> None:
        self._duplex = Duplex(
            self.port,
            self.binding,
            Caller("me"),
            lambda meta: modern_session(Caller("me"), meta, f"m{self._sent}"),
            bond=self._bond(self.port),
        )
        broken: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, about: broken.append(about))
        background = [asyncio.create_task(each()) for each in (self.streams.run, self._housekeeper.run)]
        try:
            async with self._duplex.serving(self._pipe):
                await scenario(self)
        finally:
            for task in background:
                task.cancel()
        assert not broken

    def close(self) -> None:
        """The client of the pipe goes away."""
        self._pipe.is_closed = True
        self._duplex.on_closed("gone", "connection_lost")

    @property
    def running(self) -> Running:
        return self.server.calls[-1]

    async def send(
        self,
        method: str,
        params: Any,
        *,
        capabilities: Mapping[str, Any] = TASKS,
        token: str | None = None,
        principal: str = "me",
        headers: Mapping[str, str | None] | None = None,
    ) -> Sent:
        """A request, and what comes back for it within a moment."""
        self._sent += 1
        message = rpc(method, modern(params, capabilities=capabilities, token=token), id=self._sent)
        over_http = self.front == "http" or principal != "me"
        sent = self._post(message, principal, headers or {}) if over_http else self._write(message)
        await sleep(0.05)
        return sent

    async def call(self, tool: str, **options: Any) -> Sent:
        return await self.send("tools/call", {"name": tool, "arguments": {}}, **options)

    async def task(self, tool: str = "slow", **options: Any) -> str:
        """The id of a call that has become a task."""
        sent = await self.call(tool, **options)
        await sleep(AFTER)
        assert sent.result["resultType"] == "task", sent.messages
        id_: str = sent.result["taskId"]
        return id_

    async def get(self, id_: str, **options: Any) -> Any:
        return (await self.send("tasks/get", {"taskId": id_}, **options)).result

    def _write(self, message: Any) -> Sent:
        id_, start = message["id"], len(self._pipe.sent)
        self._duplex.on_request(enveloped(message))

        def received() -> list[Any]:
            return [each for each in self._pipe.sent[start:] if "method" in each or each.get("id") == id_]

        def leave() -> None:
            self._duplex.on_notification(enveloped(rpc("notifications/cancelled", {"requestId": id_})))

        return Sent(leave, received, lambda: None)

    def _post(self, message: Any, principal: str, headers: Mapping[str, str | None]) -> Sent:
        connection = Connection()
        named = message["params"].get("taskId", message["params"].get("name"))
        all_headers = {
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": message["method"],
            **({"mcp-name": named} if isinstance(named, str) else {}),
            **headers,
        }
        raw = [(name.encode(), value.encode()) for name, value in all_headers.items() if value is not None]
        scope = {"headers": raw}
        request = HttpRequest(
            scope, dict(raw), Caller(principal), connection.receive, connection.send, enveloped(message), takes_sse=True
        )
        connection.task = asyncio.create_task(self._http.post(request))

        def received() -> list[Any]:
            if connection.body.startswith(b"{"):
                return [json.loads(connection.body)]
            return connection.messages

        return Sent(connection.leave, received, lambda: connection.status)


def on_each_front(scenario: Scenario) -> Callable[..., None]:
    """A test of a client over a pipe and one over HTTP, on a loop whose time passes by itself."""
    test: Callable[..., None] = named_like(scenario, _test(scenario), "front")
    pytest.mark.parametrize("front", FRONTS)(test)
    return test


def over_http(scenario: Scenario) -> Callable[..., None]:
    """A test of a client over HTTP only."""
    return named_like(scenario, _test(scenario, "http"))


def over_the_pipe(scenario: Scenario) -> Callable[..., None]:
    """A test of a client on a pipe only."""
    return named_like(scenario, _test(scenario, "pipe"))


def _test(scenario: Scenario, only: str = "") -> Callable[..., None]:
    def test(front: str = only, **given: Any) -> None:
        async def served() -> None:
            await TaskHub(front).serve(partial(scenario, **given))

        run(served)

    return test
