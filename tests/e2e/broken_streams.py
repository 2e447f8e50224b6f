"""The example server in this process: whole, and with one fault, each of which breaks one rule of the specification."""

import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
import uvicorn
from anyio.streams.memory import MemoryObjectSendStream
from mcp.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage

from mcp_hub.conformance.peers import Exchange, RawClient
from mcp_hub.types import Era, JsonObject
from tests.streaming import server as example

Json = dict[str, Any]

FAULTS = {
    "gap": ("EV-4", "events"),
    "two endings": ("EV-6", "events"),
    "local time": ("EV-2", "events"),
    "other result": ("EV-24", "events"),
    "start is sent": ("LV-2", "events"),
    "cursor ahead": ("LV-4", "events"),
    "no mark": ("MK-1", "events"),
    "no reset": ("EV-17", "attempts"),
    "key again": ("EV-22", "asked"),
    "ok with isError": ("EV-25", "tool error"),
    "other error": ("EV-28", "error"),
    "log first": ("LV-12", "logs"),
    "everybody reads": ("NE-7", "undeclared"),
    "skips one": ("RD-1", "paging"),
    "never closed": ("RD-3", "ended"),
    "nothing is gone": ("RD-5", "truncated"),
    "misspelt": ("RD-9", "refusals"),
    "busy without end": ("RD-11", "busy"),
}
"""Fault → the rule that it breaks, and the vector that finds it."""


class BrokenLog(example.EventLog):
    fault = ""

    def add(self, kind: str, data: Json) -> Json:
        if self.fault == "no reset" and kind == "reset":
            return self.events[-1]
        if self.fault == "key again" and kind == "input-required":
            super().add(kind, data)
        if self.fault == "ok with isError" and kind == "end":
            data = {**data, "outcome": "ok"}
        if self.fault == "other error" and kind == "error":
            data = {**data, "jsonrpc": {**data["jsonrpc"], "message": "something else"}}
        if self.fault == "other result" and kind == "end":
            data = {**data, "result": {"content": [], "isError": False}}
        event = super().add(kind, data)
        if self.fault == "local time":
            event["ts"] = event["ts"].replace("Z", "+02:00")
        if self.fault == "two endings" and kind == "end":
            self.events.append({**event, "seq": event["seq"] + 1})
        return event

    @property
    def cursor(self) -> str:
        return str(self.last + (self.fault == "cursor ahead"))

    def mark(self, status: str) -> Json:
        return {} if self.fault == "no mark" else super().mark(status)

    async def read(self, after: int, limit: int, seconds: float) -> Json:
        page = await super().read(after + (self.fault == "skips one" and after > 2), limit, seconds)
        if self.fault == "gap":
            page["events"] = [event for event in page["events"] if event["seq"] != 3]
        if self.fault == "never closed":
            page["closed"] = False
        if self.fault == "nothing is gone":
            page["truncated"] = False
        return page

    async def _wait(self, seconds: float) -> None:
        try:
            await super()._wait(seconds)
        except MCPError as busy:
            if self.fault == "busy without end":
                raise MCPError(busy.error.code, busy.error.message, {"code": "busy"}) from None
            raise


class BrokenSender(example._Sender):
    """Of a fault in what is sent."""

    fault = ""

    async def emit(self, kind: str, data: Json, message: str) -> int:
        if self.fault == "start is sent" and self._stream.last == 1:
            self._stream.events.pop()
            self.fault = ""
            await self.emit("start", {"server": "s", "tool": "t", "name": "t", "args_sha256": "", "attempt": 1}, "x")
        if self.fault == "log first" and kind == "log":
            params = types.LoggingMessageNotificationParams.model_validate(data)
            said = types.LoggingMessageNotification(params=params)
            await self._context.session.send_notification(said, self._context.request_id)
        return await super().emit(kind, data, message)


class BrokenStreams(example.Streams):
    fault = ""

    def __init__(self, fault: str, keeps: int) -> None:
        super().__init__(keeps)
        self.fault = fault

    def open(self, name: str, arguments: Json) -> example.EventLog:
        log = BrokenLog(name, arguments, self._keeps)
        log.fault = self.fault
        self._streams[log.id] = log
        return log

    async def read(self, context: example.Context, params: Any) -> Any:
        if self.fault == "misspelt":
            (params.model_extra or {}).pop("after", None)
        if self.fault == "everybody reads":
            stream, after, most, wait = example._wanted(params.model_extra or {})
            return example._Page.model_validate(await self._streams[stream].read(after, most, wait / 1000))
        return await super().read(context, params)


def server(fault: str = "", keeps: int = example.MOST_EVENTS) -> Server[Any]:
    sender = type("Sender", (BrokenSender,), {"fault": fault})
    return example.StreamingServer(BrokenStreams(fault, keeps), sender).make()


class _Piped(RawClient):
    """A client of a server in this process; the wire is that of stdio."""

    def __init__(self, era: Era, capabilities: JsonObject, name: str, wire: MemoryObjectSendStream[Any]) -> None:
        super().__init__(era, capabilities, name)
        self._wire = wire

    def take(self, message: JsonObject) -> None:
        self._dispatch(message)

    async def _write(self, message: JsonObject, exchange: Exchange | None) -> None:
        await self._wire.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(message)))


@asynccontextmanager
async def piped(
    make: Callable[[], Server[Any]], era: Era, capabilities: JsonObject, name: str
) -> AsyncIterator[RawClient]:
    """A client over pipes within this process."""
    made = make()
    to_server, from_client = anyio.create_memory_object_stream[Any](100)
    to_client, from_server = anyio.create_memory_object_stream[Any](100)
    client = _Piped(era, capabilities, name, to_server)

    async def listen() -> None:
        async for message in from_server:
            client.take(message.message.model_dump(by_alias=True, mode="json", exclude_unset=True))

    options = made.create_initialization_options()
    async with to_server, from_client, to_client, from_server, anyio.create_task_group() as tasks:
        tasks.start_soon(made.run, from_client, to_client, options)
        tasks.start_soon(listen)
        await client.hello()
        yield client
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def over_http(made: Server[Any]) -> AsyncIterator[str]:
    """The server over HTTP, in this process; its URL."""
    config = uvicorn.Config(made.streamable_http_app(), log_level="warning", timeout_graceful_shutdown=1)
    running = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(running.serve, [listening])
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
            running.should_exit = True
