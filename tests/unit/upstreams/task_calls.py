"""Calls that become tasks at their server, each with the record that its caller would see."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec

from mcp_hub.call import Call, CallHandler
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.runner import CallRecord, new_record
from mcp_hub.clock import SystemClock
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Progressed, Started
from mcp_hub.ids import new_call_id
from mcp_hub.types import Era, JsonObject, RawJson
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from tests.unit.fakes import unused
from tests.unit.upstreams.scripted import Server, talking
from tests.unit.wire.raw_lines import WAIT, group
from tests.upstreams.child import until

ALL: JsonObject = {"roots": {}, "sampling": {}, "elicitation": {}}
META = "io.modelcontextprotocol/"
TASKS = META + "tasks"
BORN = "2026-07-28T10:00:00.123Z"
DONE: JsonObject = {"content": [], "n": 2**70, "x-future": {"a": 1.5}, "_meta": {"mine": 1}, "isError": True}
HANDSHAKE: dict[str, Any] = {"era": Era.HANDSHAKE, "version": "2025-11-25"}
FORM: JsonObject = {"mode": "form", "message": "name?", "requestedSchema": {"type": "object", "properties": {}}}


def state(status: str = "working", **more: Any) -> JsonObject:
    """A task of the modern era as `tasks/get` shows it."""
    shown = {"taskId": "t1", "status": status, "createdAt": BORN, "lastUpdatedAt": BORN, "ttlMs": None}
    return {"resultType": "complete", **shown, **more}


def created(**more: Any) -> JsonObject:
    return {**state(**more), "resultType": "task"}


def asks(*keys: str, method: str = "elicitation/create", params: JsonObject = FORM) -> JsonObject:
    return state("input_required", inputRequests={key: {"method": method, "params": params} for key in keys})


def call(name: str = "x", arguments: JsonObject | None = None, **differs: Any) -> Call:
    params = {"name": name, **({} if arguments is None else {"arguments": arguments})}
    encoded = {key: msgspec.Raw(json.dumps(value).encode()) for key, value in params.items()}
    made = Call(new_call_id(), "far", "tools/call", encoded, {}, "s", "p", Era.MODERN, ALL, "2026-07-28")
    return msgspec.structs.replace(made, **differs)


def record_of(made: Call) -> CallRecord:
    record = new_record(made, unused, TimeLimits(9, 9), SystemClock())
    record.log.append(Started())
    return record


class Running:
    """One call under way. `request` is what its server got, once that has made a task of it."""

    request: JsonObject

    def __init__(self, tasks: anyio.abc.TaskGroup, handler: CallHandler, made: Call) -> None:
        self.record = record_of(made)
        self.scope = anyio.CancelScope()
        self._handler = handler
        self._outcomes: list[Completed | RpcError] = []
        self._progress = self.record.log.reader(lambda: None)
        tasks.start_soon(self._run)

    async def _run(self) -> None:
        with self.scope:
            try:
                self._outcomes.append(await self._handler(self.record.call, self.record))
            except RpcError as error:
                self._outcomes.append(error)

    @property
    def has_ended(self) -> bool:
        return bool(self._outcomes)

    async def outcome(self) -> Completed | RpcError:
        await until(lambda: self._outcomes)
        return self._outcomes[0]

    async def result(self) -> JsonObject:
        outcome = await self.outcome()
        assert isinstance(outcome, Completed), outcome
        decoded: JsonObject = json.loads(bytes(outcome.result))
        return decoded

    async def error(self) -> RpcError:
        outcome = await self.outcome()
        assert isinstance(outcome, RpcError), outcome
        return outcome

    async def asked(self, count: int = 1) -> list[str]:
        """The keys of the questions that are open, once there are so many."""
        await until(lambda: len(self.record.questions.open) >= count)
        return list(self.record.questions.open)

    @property
    def how(self) -> RawJson:
        """What another hub was left."""
        assert self.record.resumption is not None
        return self.record.resumption.state

    @property
    def steps(self) -> list[JsonObject]:
        """The progress that it made."""
        return [
            {"progress": event.progress, **{key: json.loads(bytes(raw)) for key, raw in (event.members or {}).items()}}
            for event in self._progress.take()
            if isinstance(event, Progressed)
        ]


@asynccontextmanager
async def calling(of: Era = Era.HANDSHAKE, /, **differs: Any) -> AsyncIterator[tuple[Peer, Server, Running]]:
    """A call of a caller of the handshake era that is on its way to a server of this one."""
    async with talking(of) as (peer, server), group() as tasks:
        made = Running(tasks, peer.call, call(**{**HANDSHAKE, **differs}))
        await anyio.wait_all_tasks_blocked()
        yield peer, server, made


@asynccontextmanager
async def running(
    first: JsonObject | None = None, of: Era = Era.MODERN, **differs: Any
) -> AsyncIterator[tuple[Peer, Server, Running]]:
    """A call that a server of this era has made a task of."""
    async with talking(of) as (peer, server), group() as tasks:
        is_modern = of is Era.MODERN
        peer.tasks.required = frozenset() if is_modern else frozenset({"x"})
        made = Running(tasks, peer.call, call(**({} if is_modern else HANDSHAKE), **differs))
        made.request = await server.answer("tools/call", first or (created() if is_modern else {"task": state()}))
        yield peer, server, made


async def cancelled(server: Server, *keys: str) -> JsonObject:
    """What `tasks/cancel` names; until then the task asks for these."""
    with anyio.fail_after(WAIT):
        while True:
            message: JsonObject = await server.line()
            if message["method"] == "tasks/cancel":
                await server.send(id=message["id"], result={"resultType": "complete"})
                return {key: value for key, value in message["params"].items() if key != "_meta"}
            if message["method"] == "tasks/get":
                await server.send(id=message["id"], result=asks(*keys))


async def updated(server: Server, *keys: str) -> JsonObject:
    """The answers that the server is given next; until then the task asks for these."""
    with anyio.fail_after(WAIT):
        while (message := await server.line())["method"] != "tasks/update":
            await server.send(id=message["id"], result=asks(*keys))
        await server.send(id=message["id"], result={"resultType": "complete"})
    assert message["params"]["taskId"] == "t1"
    responses: JsonObject = message["params"]["inputResponses"]
    return responses


@asynccontextmanager
async def resumed(far: ManagedUpstream, left: RawJson, **differs: Any) -> AsyncIterator[Running]:
    """A call that another hub left behind."""
    async with group() as tasks:
        yield Running(tasks, lambda made, channel: far.resume(made, channel, left), call(**differs))
