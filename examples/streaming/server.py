"""An MCP server that streams (docs/specification/streams.md): `python examples/streaming/server.py [--http PORT]`.

Copy `EventLog` and `Streams`. They keep streams in memory: to survive restarts, store each event before sending it.
"""

import json
import re
import sys
from datetime import UTC, datetime
from hashlib import sha256
from secrets import token_urlsafe
from typing import Annotated, Any, Final, Literal

import anyio
import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.lowlevel import NotificationOptions
from mcp.server.models import InitializationOptions
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, Field

EXTENSION: Final = "dev.mcp-hub/streams"
MOST_STREAMS: Final = 1000
MOST_EVENTS: Final = 10_000
MOST_BYTES: Final = 4 << 20
"""Events and bytes that are kept of a stream."""
KEPT_SECONDS: Final = 3600.0
"""How long a stream is kept after its ending."""
MOST_READERS: Final = 16
LONGEST_PAGE: Final = 1000
LONGEST_WAIT: Final = 60.0
LONGEST_ANSWER: Final = 600.0
"""Seconds for the answer to a question."""
_STEP: Final = 1e-6
"""By which the number of a notification is raised: the tool reports none."""
_CURSOR: Final = re.compile("0|[1-9][0-9]{0,14}")
_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
_INFO_AND_BELOW: Final = ("debug", "info")

Context = ServerRequestContext[Any, Any]
Json = dict[str, Any]


class EventLog:
    """The numbered events of one call; the latest `keeps`, within `MOST_BYTES`."""

    def __init__(self, name: str, arguments: Json, keeps: int = MOST_EVENTS) -> None:
        self.id = f"st_{token_urlsafe(20)}"
        self.events: list[Json] = []
        self.is_closed = False
        self.ended_at = float("inf")
        self._bytes = 0
        self._keeps = keeps
        self._dropped = 0
        self._readers = 0
        self._news = anyio.Event()
        digest = sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()
        self.add("start", {"server": "streaming", "tool": name, "name": name, "args_sha256": digest, "attempt": 1})

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._dropped + len(self.events)

    @property
    def cursor(self) -> str:
        return str(self.last)

    def add(self, kind: str, data: Json) -> Json:
        """Appends an event. Raises `ValueError` after the end."""
        if self.is_closed:
            raise ValueError("the stream has ended")
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = {"v": 1, "stream": self.id, "seq": self.last + 1, "ts": time, "type": kind, "data": data}
        self.events.append(event)
        self._bytes += _size(event)
        while len(self.events) > self._keeps or (self._bytes > MOST_BYTES and len(self.events) > 1):
            self._bytes -= _size(self.events.pop(0))
            self._dropped += 1
        if kind in ("end", "error"):
            self.is_closed, self.ended_at = True, anyio.current_time()
        self._news.set()
        self._news = anyio.Event()
        return event

    def mark(self, status: str) -> Json:
        return {EXTENSION: {"stream": self.id, "cursor": self.cursor, "status": status}}

    async def read(self, after: int, limit: int, seconds: float) -> Json:
        """A page after a cursor, or a wait for news. Raises `MCPError` if too many wait."""
        if after >= self.last and not self.is_closed and seconds > 0:
            await self._wait(min(seconds, LONGEST_WAIT))
        first = max(after, self._dropped)
        events = self.events[first - self._dropped :][: min(limit, LONGEST_PAGE)]
        cursor = first + len(events)
        closed = self.is_closed and cursor == self.last
        return {"events": events, "cursor": str(cursor), "truncated": first > after, "closed": closed}

    async def _wait(self, seconds: float) -> None:
        if self._readers >= MOST_READERS:
            raise MCPError(types.INTERNAL_ERROR, "too many readers wait", {"code": "busy", "retryAfter": 1})
        self._readers += 1
        try:
            with anyio.move_on_after(seconds):
                await self._news.wait()
        finally:
            self._readers -= 1


def _size(event: Json) -> int:
    return len(json.dumps(event))


class _ReadParams(types.RequestParams):
    """Parameters of `dev.mcp-hub/streams.read`, which `_wanted` checks."""

    model_config = ConfigDict(extra="allow")


class _Page(types.Result):
    """Result of `dev.mcp-hub/streams.read`."""

    model_config = ConfigDict(extra="allow")


def _wanted(params: Json) -> tuple[str, int, int, int]:
    """The stream, the cursor, events at most, and milliseconds to wait. Raises `MCPError`."""
    if unknown := params.keys() - {"stream", "cursor", "minEvents", "maxEvents", "waitMs"}:
        raise _invalid(f"unknown parameters: {', '.join(sorted(unknown))}")  # a misspelt one is not ignored
    if not isinstance(stream := params.get("stream"), str):
        raise _invalid("stream has to be a string")
    cursor = "0" if params.get("cursor") is None else params["cursor"]
    if not isinstance(cursor, str) or not _CURSOR.fullmatch(cursor):
        raise _invalid("this is not a cursor")
    numbers = {
        name: params.get(name, default) for name, default in (("maxEvents", 2**53), ("minEvents", 1), ("waitMs", 0))
    }
    for name, value in numbers.items():
        if type(value) is not int or value < (name != "waitMs"):
            raise _invalid(f"{name} has to be a whole number, and large enough")
    if numbers["minEvents"] > numbers["maxEvents"]:  # else what is there is answered: a server need not gather
        raise _invalid("minEvents is above maxEvents")
    return stream, int(cursor), numbers["maxEvents"], numbers["waitMs"]


def _invalid(why: str, code: str = "invalid_params") -> MCPError:
    return MCPError(types.INVALID_PARAMS, why, {"code": code})


class Streams:
    """The latest streams, with a single owner; each keeps its latest events, and ended ones expire."""

    def __init__(self, keeps: int = MOST_EVENTS) -> None:
        self._streams: dict[str, EventLog] = {}
        self._keeps = keeps

    def open(self, name: str, arguments: Json) -> EventLog:
        while len(self._streams) >= MOST_STREAMS:
            del self._streams[next(iter(self._streams))]
        stream = EventLog(name, arguments, self._keeps)
        self._streams[stream.id] = stream
        return stream

    def known(self, id_: str) -> EventLog | None:
        """The stream, unless there is none any more."""
        now = anyio.current_time()
        self._streams = {name: log for name, log in self._streams.items() if now <= log.ended_at + KEPT_SECONDS}
        return self._streams.get(id_)

    async def read(self, context: Context, params: _ReadParams) -> _Page:
        if not declares(context):
            raise MCPError(types.METHOD_NOT_FOUND, f"Method not found: {EXTENSION}.read")
        id_, after, most, wait = _wanted(params.model_extra or {})
        if (stream := self.known(id_)) is None:
            raise MCPError(types.INVALID_PARAMS, "Unknown stream", {"code": "unknown_stream"})
        if after > stream.last:
            raise _invalid(f"cursor {after} is after the last event", "invalid_cursor")
        return _Page.model_validate(await stream.read(after, most, wait / 1000))


def declares(context: Context) -> bool:
    """Whether the client supports the extension."""
    declared = context.session.client_capabilities
    if declared is None:
        return False
    places = [declared.extensions] if _is_modern(context) else [declared.extensions, declared.experimental]
    return any(isinstance((capabilities or {}).get(EXTENSION), dict) for capabilities in places)


def _is_modern(context: Context) -> bool:
    return context.protocol_version in MODERN_PROTOCOL_VERSIONS


class _Sender:
    """Sends a call's events in progress notifications."""

    def __init__(self, context: Context, stream: EventLog) -> None:
        self._context = context
        self._stream = stream
        self._token = (context.meta or {}).get("progress_token")
        self._is_wanted = self._token is not None and declares(context)
        self._shown = 0.0

    async def emit(self, kind: str, data: Json, message: str) -> int:
        """Appends an event, then sends it. Its number."""
        event = self._stream.add(kind, data)
        number: int = event["seq"]
        self._shown += _STEP
        if self._token is None:
            return number
        part = {"seq": event["seq"], "type": kind, "data": data}
        meta = {EXTENSION: {"stream": self._stream.id, "cursor": self._stream.cursor, "events": [part]}}
        params = types.ProgressNotificationParams(
            progress_token=self._token, progress=self._shown, message=message, _meta=meta if self._is_wanted else None
        )
        notification = types.ProgressNotification(params=params)
        await self._context.session.send_notification(notification, self._context.request_id)
        return number

    async def log(self, text: str) -> None:
        """An event, then the message that MCP has for it, if the client asked for it."""
        data = {"level": "info", "data": text}
        await self.emit("log", data, text)
        if _is_modern(self._context) and (self._context.meta or {}).get(_LOG_LEVEL) not in _INFO_AND_BELOW:
            return
        said = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams.model_validate(data))
        await self._context.session.send_notification(said, self._context.request_id)

    async def ask(self, answers: Json | None) -> types.InputRequiredResult | None:
        """Asks for a title. In the modern era the question is a result, and the answer comes with another call."""
        if answers is not None:
            return None
        schema = {"type": "object", "properties": {"title": {"type": "string"}}}
        params = types.ElicitRequestFormParams(message="Which title?", requested_schema=schema)
        question = types.ElicitRequest(params=params)
        shown = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        await self.emit("input-required", {"key": "title", "method": question.method, "params": shown}, "Which title?")
        if _is_modern(self._context):
            return types.InputRequiredResult(input_requests={"title": question})
        try:
            with anyio.fail_after(LONGEST_ANSWER):
                answer = await self._context.session.elicit_form(params.message, schema, self._context.request_id)
        except TimeoutError:
            raise MCPError(types.INTERNAL_ERROR, "the question was not answered in time") from None
        await self.emit("input-received", {"key": "title", "action": answer.action}, "thank you")
        return None


async def report(sender: _Sender, wanted: "_Arguments") -> str:
    """The tool: a line, a pause, a line…"""
    for attempt in range(1, wanted.fails + 1):
        await anyio.sleep(wanted.pause)
        first = await sender.emit("delta", _delta("a line that comes to nothing\n"), "a line that comes to nothing")
        failure = {"attempt": attempt + 1, "reason": "lost"}
        await sender.emit("attempt", {**failure, "after": 0}, "again")
        await sender.emit("reset", {**failure, "discard_from": first}, "again")
    text = ""
    for number in range(1, wanted.lines + 1):
        await anyio.sleep(wanted.pause)
        if wanted.logs:
            await sender.log(f"line {number} is written")
        line = f"line {number} of {wanted.lines}\n"
        text += line
        await sender.emit("delta", _delta(line), line.strip())
    return text


def _delta(text: str) -> Json:
    return {"channel": "content", "index": 0, "content": [{"type": "text", "text": text}]}


TOOL: Final = types.Tool(
    name="report",
    description="Write a report line by line. Partial content arrives while it is written.",
    input_schema={
        "type": "object",
        "properties": {
            "lines": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 5},
            "pause": {"type": "number", "minimum": 0, "maximum": 10, "default": 0.2, "description": "seconds a line"},
            "ends": {"enum": ["result", "tool_error", "error"], "default": "result"},
            "fails": {"type": "integer", "minimum": 0, "maximum": 3, "default": 0, "description": "attempts that fail"},
            "asks": {"type": "boolean", "default": False, "description": "whether to ask for a title"},
            "logs": {"type": "boolean", "default": False, "description": "whether to log each line"},
        },
    },
    annotations=types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
)


class _Arguments(BaseModel):
    """The arguments of `report`."""

    lines: Annotated[int, Field(ge=1, le=1000)] = 5
    pause: Annotated[float, Field(ge=0, le=10)] = 0.2
    ends: Literal["result", "tool_error", "error"] = "result"
    fails: Annotated[int, Field(ge=0, le=3)] = 0
    asks: bool = False
    logs: bool = False


class _ServerOfBothPlaces(Server[Any]):
    """Names the extension under `experimental`, too: clients of the handshake era may know no other place."""

    def create_initialization_options(self, *_: Any, **__: Any) -> InitializationOptions:
        return super().create_initialization_options(NotificationOptions(), {EXTENSION: {}})


class StreamingServer:
    """`make` gives the server, for any transport."""

    def __init__(self, streams: Streams | None = None, sender: type[_Sender] = _Sender) -> None:
        self.streams = streams or Streams()
        self._sender = sender

    def make(self) -> Server[Any]:
        server = _ServerOfBothPlaces("streaming", version="1", on_list_tools=self._list, on_call_tool=self._call)
        server.extensions[EXTENSION] = {}
        server.add_request_handler(f"{EXTENSION}.read", _ReadParams, self.streams.read)
        return server

    async def _list(self, context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[TOOL])

    async def _call(
        self, context: Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        if params.name != TOOL.name:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        arguments = _Arguments.model_validate(params.arguments or {})
        stream = self.streams.open(params.name, params.arguments or {})
        sender = self._sender(context, stream)
        try:
            question = await sender.ask(params.input_responses) if arguments.asks else None
            text = "" if question is not None else await report(sender, arguments)
        except anyio.get_cancelled_exc_class():
            stream.add("end", {"outcome": "cancelled", "reason": "cancelled by the client"})
            raise
        except MCPError as error:
            raise self._failed(stream, error) from None
        except Exception as problem:  # every call has an ending
            raise self._failed(stream, MCPError(types.INTERNAL_ERROR, str(problem))) from problem
        if arguments.ends == "error" and question is None:
            raise self._failed(stream, MCPError(types.INTERNAL_ERROR, "the report burned"))
        is_error = arguments.ends == "tool_error"
        result = question or types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], is_error=is_error
        )
        outcome = "tool_error" if question is None and is_error else "ok"
        shown = result.model_dump(by_alias=True, mode="json", exclude_none=True)
        stream.add("end", {"outcome": outcome, "result": shown} | ({"era": "modern"} if _is_modern(context) else {}))
        return result.model_copy(update={"meta": stream.mark("completed")})

    def _failed(self, stream: EventLog, error: MCPError) -> MCPError:
        """The error, which is the ending. It is the tool's answer, and not repeated."""
        shown = error.error.model_dump(by_alias=True, mode="json", exclude_none=True)
        said = {"code": "tool_error", "class": "tool", "retryable": False, "detail": error.error.message}
        stream.add("error", {**said, "jsonrpc": shown})
        return error


async def over_stdio(server: Server[Any]) -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


if __name__ == "__main__":
    if "--http" in sys.argv:
        import uvicorn

        uvicorn.run(StreamingServer().make().streamable_http_app(), port=int(sys.argv[-1]), log_level="warning")
    else:
        anyio.run(over_stdio, StreamingServer().make())
