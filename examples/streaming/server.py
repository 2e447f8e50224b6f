"""An MCP server that streams (docs/specification/streams.md): `python examples/streaming/server.py`.

Copy `EventLog` and `Streams`. They keep streams in memory: to survive restarts, store each event before sending it.
"""

import secrets
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, Final

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from pydantic import BaseModel, ConfigDict, Field

EXTENSION: Final = "dev.mcp-hub/streams"
MOST_STREAMS: Final = 1000
MOST_EVENTS: Final = 10_000
LONGEST_WAIT: Final = 60.0

Context = ServerRequestContext[Any, Any]
Json = dict[str, Any]


class EventLog:
    """The numbered events of one call."""

    def __init__(self, name: str, arguments: str) -> None:
        self.id = f"st_{secrets.token_urlsafe(20)}"
        self.events: list[Json] = []
        self.is_closed = False
        self._news = anyio.Event()
        digest = sha256(arguments.encode()).hexdigest()
        self.add("start", {"server": "streaming", "tool": name, "name": name, "args_sha256": digest, "attempt": 1})

    @property
    def cursor(self) -> str:
        return str(len(self.events))

    def add(self, kind: str, data: Json) -> Json:
        """Appends an event. Raises `ValueError` after the end."""
        if self.is_closed or (len(self.events) >= MOST_EVENTS and kind not in ("end", "error")):
            raise ValueError("the stream takes no more events")
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = {"v": 1, "stream": self.id, "seq": len(self.events) + 1, "ts": time, "type": kind, "data": data}
        self.events.append(event)
        self.is_closed = kind in ("end", "error")
        self._news.set()
        self._news = anyio.Event()
        return event

    def mark(self, status: str) -> Json:
        return {EXTENSION: {"stream": self.id, "cursor": self.cursor, "status": status}}

    async def read(self, after: int, limit: int, seconds: float) -> Json:
        """A page behind a cursor, or a wait for news."""
        if after >= len(self.events) and not self.is_closed:
            with anyio.move_on_after(min(seconds, LONGEST_WAIT)):
                await self._news.wait()
        events = self.events[after : after + min(limit, 1000)]
        cursor = after + len(events)
        closed = self.is_closed and cursor == len(self.events)
        return {"events": events, "cursor": str(cursor), "truncated": False, "closed": closed}


class _ReadParams(types.RequestParams):
    """Parameters of `dev.mcp-hub/streams.read`."""

    model_config = ConfigDict(extra="allow", strict=True)

    stream: str
    cursor: Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,14})$")] | None = None
    minEvents: Annotated[int, Field(ge=1)] = 1
    maxEvents: Annotated[int, Field(ge=1)] = 2**53 - 1
    waitMs: Annotated[int, Field(ge=0)] = 0


class _Page(types.Result):
    """Result of `dev.mcp-hub/streams.read`."""

    model_config = ConfigDict(extra="allow")


class Streams:
    """The latest streams, with a single owner."""

    def __init__(self) -> None:
        self._streams: dict[str, EventLog] = {}

    def open(self, name: str, arguments: str) -> EventLog:
        while len(self._streams) >= MOST_STREAMS:
            del self._streams[next(iter(self._streams))]
        stream = EventLog(name, arguments)
        self._streams[stream.id] = stream
        return stream

    async def read(self, context: Context, params: _ReadParams) -> _Page:
        if not declares(context):
            raise MCPError(types.METHOD_NOT_FOUND, f"Method not found: {EXTENSION}.read")
        if unknown := ", ".join(params.model_extra or {}):  # a misspelt parameter is not ignored
            raise MCPError(types.INVALID_PARAMS, f"unknown parameters: {unknown}", {"code": "invalid_params"})
        if params.minEvents > params.maxEvents:  # if not, what is there is answered: a server need not gather
            raise MCPError(types.INVALID_PARAMS, "minEvents is above maxEvents", {"code": "invalid_params"})
        stream, after = self._streams.get(params.stream), int(params.cursor or 0)
        if stream is None:
            raise MCPError(types.INVALID_PARAMS, "Unknown stream", {"code": "unknown_stream"})
        if after > len(stream.events):
            raise MCPError(types.INVALID_PARAMS, f"cursor {after} is beyond the last event", {"code": "invalid_params"})
        return _Page.model_validate(await stream.read(after, params.maxEvents, params.waitMs / 1000))


def declares(context: Context) -> bool:
    """Whether the client supports the extension."""
    declared = context.session.client_capabilities
    places = (declared.extensions, declared.experimental) if declared is not None else ()
    return any(EXTENSION in (capabilities or {}) for capabilities in places)


class _Sender:
    """Sends a call's events in progress notifications."""

    def __init__(self, context: Context, stream: EventLog) -> None:
        self._context = context
        self._stream = stream
        self._token = (context.meta or {}).get("progress_token")
        self._is_wanted = self._token is not None and declares(context)
        self._step = 0

    async def emit(self, kind: str, data: Json, message: str) -> None:
        """Appends an event, then sends it."""
        event = self._stream.add(kind, data)
        self._step += 1
        if self._token is None:
            return
        part = {"seq": event["seq"], "type": kind, "data": data}
        meta = {EXTENSION: {"stream": self._stream.id, "cursor": self._stream.cursor, "events": [part]}}
        params = types.ProgressNotificationParams(
            progress_token=self._token, progress=self._step, message=message, _meta=meta if self._is_wanted else None
        )
        notification = types.ProgressNotification(params=params)
        await self._context.session.send_notification(notification, self._context.request_id)


async def report(sender: _Sender, lines: int, pause: float) -> str:
    """The tool: a line, a pause, a line…"""
    text = ""
    for number in range(1, lines + 1):
        await anyio.sleep(pause)
        line = f"line {number} of {lines}\n"
        text += line
        content = [{"type": "text", "text": line}]
        await sender.emit("delta", {"channel": "content", "index": 0, "content": content}, line.strip())
    return text


TOOL: Final = types.Tool(
    name="report",
    description="Write a report line by line. Partial content arrives while it is written.",
    input_schema={
        "type": "object",
        "properties": {
            "lines": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 5},
            "pause": {"type": "number", "minimum": 0, "maximum": 10, "default": 0.2, "description": "seconds a line"},
        },
    },
    annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
)


class _Arguments(BaseModel):
    """The arguments of `report`."""

    lines: Annotated[int, Field(ge=1, le=1000)] = 5
    pause: Annotated[float, Field(ge=0, le=10)] = 0.2


class StreamingServer:
    """`make` gives the server, for any transport."""

    def __init__(self, streams: Streams | None = None, sender: type[_Sender] = _Sender) -> None:
        self.streams = streams or Streams()
        self._sender = sender

    def make(self) -> Server[Any]:
        server: Server[Any] = Server("streaming", version="1", on_list_tools=self._list, on_call_tool=self._call)
        server.extensions[EXTENSION] = {}
        server.add_request_handler(f"{EXTENSION}.read", _ReadParams, self.streams.read)
        return server

    async def _list(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[TOOL])

    async def _call(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name != TOOL.name:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        arguments = _Arguments.model_validate(params.arguments or {})
        stream = self.streams.open(params.name, arguments.model_dump_json())
        try:
            text = await report(self._sender(context, stream), arguments.lines, arguments.pause)
        except anyio.get_cancelled_exc_class():
            stream.add("end", {"outcome": "cancelled", "reason": "cancelled by the client"})
            raise
        result = types.CallToolResult(content=[types.TextContent(type="text", text=text)])
        stream.add("end", {"outcome": "ok", "result": result.model_dump(by_alias=True, mode="json", exclude_none=True)})
        return result.model_copy(update={"meta": stream.mark("completed")})


async def main() -> None:
    """Runs the server."""
    server = StreamingServer().make()
    options = server.create_initialization_options(NotificationOptions(), {EXTENSION: {}})
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, options)


if __name__ == "__main__":
    anyio.run(main)
