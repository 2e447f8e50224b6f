"""`/v1/prompted`: a prompt's section of tools, and a model's text as events.

Complete calls begin at once, if wanted.
"""

import codecs
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Final, Literal, cast

import anyio
import anyio.lowlevel
import msgspec
from starlette.responses import Response

from mcp_hub.errors import HubStopping, Rejected
from mcp_hub.formats.calls import MAX_CALLS
from mcp_hub.formats.prompted import FORMATS, PromptedParser, PromptFormat, result_text, tool_section
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import (
    CallFault,
    McpResult,
    ModelCall,
    ModelEvent,
    OutputError,
    ToolCallEnd,
    ToolCallStart,
    as_json,
)
from mcp_hub.fronts.http.response import ClientGone, HttpResponse
from mcp_hub.fronts.rest.calls import Accepted, preferred_wait
from mcp_hub.fronts.rest.exchange import EVENT_STREAM, JSON, Handlers, RestRequest, answer
from mcp_hub.fronts.rest.formats.calls import CallsRequest, FollowedCall, FollowedCalls, FormatCalls
from mcp_hub.fronts.rest.formats.tools import ToolSelection, flag, selection
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.fronts.rest.streams import Closing
from mcp_hub.hub import HubPort
from mcp_hub.masking import hide_head
from mcp_hub.protocol.rest.calls import CallsAnswer, PromptedBody, PromptedSection
from mcp_hub.selection import check_path
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, JsonObject, Kind

PLAIN: Final = "text/plain"
_SLICE: Final = 4096
"""Characters that are parsed at once: other requests have their turn in between."""
_MOST_ANSWERED: Final = 2 * MAX_CALLS
"""Calls and mistakes of one text that are answered; the events have all of them."""
_SHOWN: Final = 50
_STYLES: Final = ("schemas", "signatures")
_ID: Final = "out"
_NO_KEY: Final = (
    "call=1 does not take an Idempotency-Key. For calls that must not be made twice leave out call=1, and make "
    "those that are found with POST /v1/tools/call."
)


class _PromptedTools:
    """Serves models that call by text."""

    def __init__(self, hub: HubPort, calls: FormatCalls, closing: Closing) -> None:
        self._hub = hub
        self._calls = calls
        self._closing = closing

    async def section(self, request: RestRequest) -> Response:
        """A prompt's section of tools. Raises `Problem`, `Rejected`."""
        format, style = _format(request), request.query_params.get("style", _STYLES[0])
        if style not in _STYLES:
            reason = f"style has to be one of {', '.join(_STYLES)}, not {hide_head(style, _SHOWN)!r}"
            raise Problem(400, "invalid_parameter", reason)
        tools = await self._tools(self._calls.session(request), selection(request))
        section = tool_section(format, tools, style=cast(Literal["schemas", "signatures"], style))
        return answer(PromptedSection(format.name, section))

    async def read(self, request: RestRequest) -> Response | None:
        """A text's events, with call=1 its calls' results: JSON, 202, or SSE. A model's mistake becomes a result.

        Raises `Problem`, `Rejected`, `ClientGone`.
        """
        forms, wait = request.accepts(JSON, EVENT_STREAM), preferred_wait(request.header("prefer"))
        format, chosen, session = _format(request), selection(request), self._calls.session(request)
        makes_calls, is_thinking = flag(request, "call"), flag(request, "thinking")
        if makes_calls and request.header("idempotency-key") is not None:
            # what the key would stand for is not known: calls begin before the whole text has come
            raise Problem(400, "idempotency_unsupported", _NO_KEY)
        if (path := request.query_params.get("path")) is not None:
            check_path(path)
        parser = PromptedParser(format, await self._tools(session, chosen), _ID, is_thinking=is_thinking)
        calls_request = CallsRequest(session, Format.MCP, chosen, path=path) if makes_calls else None
        output = _Output(self._calls, calls_request, format)
        response = request.streamed() if forms[0] == EVENT_STREAM else None
        try:
            async for piece in _pieces(request):
                await _take(output, parser.feed(piece), response)
            await _take(output, parser.close(), response)
            followed = FollowedCalls(output.calls, output.messages)
        except BaseException:
            output.let_go()
            raise
        try:
            return await self._closing.connected(request, _ended(output, followed, response, wait))
        except HubStopping:  # the calls have their streams
            raise Accepted(output.answer(await followed.answer())) from None
        finally:
            followed.close()

    async def _tools(self, session: Session, chosen: ToolSelection) -> list[JsonObject]:
        await self._hub.views.settled_for(session.caller)
        listed = self._hub.views.of(session).entries(Kind.TOOL)
        chosen.check([tool.exported for tool in listed], self._hub.catalog.rules(session.caller.profile).servers)
        decoder = msgspec.json.Decoder(JsonObject)
        return [
            decoder.decode(tool.definition(Era.MODERN)) for tool in listed if chosen.has(tool.exported, tool.server)
        ]


def prompted_handlers(hub: HubPort, calls: FormatCalls, closing: Closing) -> Handlers:
    """`/v1/prompted`."""
    served = _PromptedTools(hub, calls, closing)
    return {"promptTools": served.section, "readPrompted": served.read}


class _Output:
    """A text's events and calls. Without `calls_request` no call is made."""

    def __init__(self, maker: FormatCalls, calls_request: CallsRequest | None, format: PromptFormat) -> None:
        self._maker = maker
        self._calls_request = calls_request
        self._format = format
        self._names: dict[str, str] = {}
        self._places: dict[str, int] = {}
        self.events: list[JsonObject] = []
        self.calls: list[FollowedCall] = []

    async def take(self, event: ModelEvent) -> None:
        """Makes a call that is complete."""
        if isinstance(event, ToolCallStart):
            self._places[event.id] = len(self._places)
            self._names[event.id] = event.name
        if self._calls_request is None or len(self.calls) >= _MOST_ANSWERED:
            return
        if isinstance(event, ToolCallEnd):
            call = ModelCall(event.id, self._names[event.id], msgspec.json.decode(event.arguments))
            if len(self.calls) >= MAX_CALLS:
                reason = f"Only {MAX_CALLS} calls can be made at once. Make this one in the next turn."
                call = msgspec.structs.replace(call, fault=CallFault("too_many_calls", reason))
            self.calls.append(await self._maker.begin(self._calls_request, call))
        elif isinstance(event, OutputError):
            id_ = event.id or f"{_ID}_error_{len(self.calls) + 1}"
            call = ModelCall(id_, self._names.get(id_, "unknown"), {}, fault=CallFault(event.code, event.message))
            self.calls.append(await self._maker.begin(self._calls_request, call))

    def messages(self, calls: Sequence[ModelCall], results: Mapping[str, McpResult]) -> list[JsonObject]:
        """Results as text for the model."""
        return [
            {
                "id": call.id,
                "name": call.name,
                "text": result_text(self._format, call.name, results[call.id], self._places.get(call.id, 0)),
            }
            for call in calls
        ]

    def answer(self, calls_answer: CallsAnswer) -> CallsAnswer:
        return msgspec.structs.replace(calls_answer, events=self.events)

    def let_go(self) -> None:
        for call in self.calls:
            if call.stream is not None:
                call.stream.let_go()


async def _take(output: _Output, events: Sequence[ModelEvent], response: HttpResponse | None) -> None:
    encoded = [as_json(event) for event in events]
    if response is None:
        output.events += encoded
    elif encoded:
        await response.write(b"".join(b"event: output\ndata: %b\n\n" % msgspec.json.encode(item) for item in encoded))
    for event in events:
        await output.take(event)


async def _ended(
    output: _Output, followed: FollowedCalls, response: HttpResponse | None, wait: float
) -> Response | None:
    """None once events were sent. Raises `Accepted` after the wait."""
    if response is not None:
        await followed.send(response)
        return None
    until = anyio.current_time() + wait
    while not followed.is_over and (remaining := until - anyio.current_time()) > 0:
        await followed.lines(remaining)
    calls_answer = await followed.answer()
    if not calls_answer.is_done:
        raise Accepted(output.answer(calls_answer))
    return answer(output.answer(calls_answer))


def _format(request: RestRequest) -> PromptFormat:
    name = request.query_params.get("format", "")
    if name not in FORMATS:
        reason = f'unknown format "{hide_head(name, _SHOWN)}"' if name else "format= is missing"
        raise Rejected("unknown_format", f"{reason}. Use one of: {', '.join(FORMATS)}.")
    return FORMATS[name]


async def _pieces(request: RestRequest) -> AsyncIterator[str]:
    """The text in slices; plain text as it comes."""
    if request.media != PLAIN:
        async for piece in _sliced((await request.shaped(PromptedBody)).text):
            yield piece
        return
    size, decoder = 0, codecs.getincrementaldecoder("utf-8")("replace")
    while True:
        event = await request.receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        part, is_last = event.get("body", b""), not event.get("more_body")
        size += len(part)
        if size > request.max_body:
            close = ((b"connection", b"close"),)
            raise Problem(413, "body_too_large", f"text over the limit of {request.max_body} bytes", headers=close)
        async for piece in _sliced(decoder.decode(part, final=is_last)):
            yield piece
        if is_last:
            return


async def _sliced(text: str) -> AsyncIterator[str]:
    for start in range(0, len(text), _SLICE):
        yield text[start : start + _SLICE]
        await anyio.lowlevel.checkpoint()
