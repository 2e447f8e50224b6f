"""`POST /v1/tools/call`: a model's calls, in its provider's format, followed together and answered in order.

A mistake in one call becomes its result.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final

import anyio
import msgspec
from msgspec import UNSET, Raw
from starlette.responses import Response

from mcp_hub.aio import Bell
from mcp_hub.errors import HubError, HubStopping, Rejected
from mcp_hub.formats.arguments import ArgumentNames
from mcp_hub.formats.calls import argument_names, error_result, read_calls, write_results
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import McpResult, ModelCall
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.http.response import KEEP_ALIVE, HttpResponse
from mcp_hub.fronts.rest.calls import CALL, QUICK, Accepted, RestCalls, digest_of, key_of, preferred_wait, tool_call
from mcp_hub.fronts.rest.exchange import EVENT_STREAM, JSON, MOST_WAIT, RestRequest, answer
from mcp_hub.fronts.rest.formats.tools import ToolSelection, selection, wanted_format
from mcp_hub.fronts.rest.problem import Problem, problem_for, unknown_server
from mcp_hub.fronts.rest.streams import Closing, kind_of, outcome
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.masking import hide_head
from mcp_hub.protocol import sse
from mcp_hub.protocol.rest.calls import CallsAnswer, ModelCallState
from mcp_hub.selection import check_path
from mcp_hub.sessions.session import Session
from mcp_hub.types import JsonObject, Kind

Write = Callable[[Sequence[ModelCall], Mapping[str, McpResult]], list[JsonObject]]
_BATCH: Final = 256
"""Events of all calls that are written at once."""
_KEPT: Final = 2048
"""Tools whose names of parameters are kept."""


class FollowedCall:
    """A call with a stream, or refused with a `problem`."""

    def __init__(self, call: ModelCall, stream: StreamHandle | None, problem: Problem | None) -> None:
        self.call = call
        self.stream = stream
        self.problem = problem
        self.cursor = 0
        self._following: Following | None = None
        self._ending: bytes | None = None

    @property
    def is_followed(self) -> bool:
        """Whether more events may come."""
        return self._following is not None

    def follow(self, bell: Bell) -> None:
        """Begins with the first event."""
        if self.stream is None:
            return
        self.cursor = self.stream.info.first - 1
        try:
            self._following = Following(self.stream, self.cursor, bell)
        except HubError as error:
            self.problem = problem_for(error)

    def next_lines(self, limit: int) -> list[bytes]:
        """The next events without waiting; an early end sets `problem`."""
        following = self._following
        if following is None:
            return []
        try:
            lines = following.next_lines(limit)
        except HubError as error:  # such as events that were let go
            self.problem = problem_for(error)
            self.close()
            return []
        self.cursor = following.cursor
        if following.closed:
            self._ending = lines[-1] if lines else None
            self.close()
        return lines

    def close(self) -> None:
        if self._following is not None:
            self._following.close()
            self._following = None

    async def result(self) -> McpResult | None:
        """The result or error; None while it continues."""
        stream = self.stream
        if stream is not None and stream.info.has_ended:
            try:
                ending = await stream.ending() if self._ending is None else self._ending
                result: McpResult = msgspec.json.decode(outcome(stream.id, ending))
            except HubError as error:
                self.problem = problem_for(error)
            else:
                self.problem = None
                return result
        elif stream is not None:
            return None
        return error_result(str(self.problem))

    def state(self) -> ModelCallState:
        """The call's state, for programs."""
        problem = UNSET if self.problem is None else Raw(self.problem.encoded())
        if self.stream is None:
            return ModelCallState(self.call.id, self.call.name, "refused", problem=problem)
        return ModelCallState(
            id=self.call.id, name=self.call.name, status=self.stream.info.status, stream=self.stream.id, problem=problem
        )


class FollowedCalls:
    """The calls of one request, to be closed. `write` makes messages of ended calls."""

    def __init__(self, calls: Sequence[FollowedCall], write: Write) -> None:
        self._calls = calls
        self._write = write
        self._bell = Bell()
        self._share = max(_BATCH // max(len(calls), 1), 1)
        for followed in calls:
            followed.follow(self._bell)

    @property
    def is_over(self) -> bool:
        return not any(followed.is_followed for followed in self._calls)

    @property
    def is_quiet(self) -> bool:
        """Whether calls have only start and ending."""
        return all(followed.cursor <= (1 if followed.is_followed else 2) for followed in self._calls)

    def close(self) -> None:
        """The calls continue."""
        for followed in self._calls:
            followed.close()
            if followed.stream is not None:
                followed.stream.let_go()

    async def lines(self, seconds: float) -> list[tuple[FollowedCall, list[bytes]]]:
        """The next events; empty after `seconds`, or when over."""
        until = anyio.current_time() + seconds
        while True:
            batches = [(followed, lines) for followed in self._calls if (lines := followed.next_lines(self._share))]
            if batches or self.is_over or not await self._bell.wait(max(until - anyio.current_time(), 0)):
                return batches

    async def answer(self) -> CallsAnswer:
        """Messages of ended calls, and every call's state."""
        results = {
            followed.call.id: result for followed in self._calls if (result := await followed.result()) is not None
        }
        ended = [followed.call for followed in self._calls if followed.call.id in results]
        messages = self._write(ended, results)
        return CallsAnswer(messages, [followed.state() for followed in self._calls])

    async def send(self, response: HttpResponse, lines: Iterable[tuple[FollowedCall, list[bytes]]] = ()) -> None:
        """Sends `lines`, taken last, and the rest of all streams. Raises `ClientGone`."""
        await response.start()
        reported = {followed for followed in self._calls if not followed.is_followed and followed.problem is not None}
        refused = b"".join(_problem(followed) for followed in self._calls if followed in reported)
        events = refused + _events(lines)
        while not self.is_over:
            await response.write(events or sse.COMMENT)
            events = _events(await self.lines(KEEP_ALIVE))
            for followed in self._calls:
                if followed.problem is not None and followed not in reported:
                    reported.add(followed)
                    events += _problem(followed)
        answer = await self.answer()
        await response.end(events + b"event: closed\ndata: %b\n\n" % msgspec.json.encode(answer))


def _events(lines: Iterable[tuple[FollowedCall, list[bytes]]]) -> bytes:
    parts = []
    for followed, call_lines in lines:
        assert followed.stream is not None
        label, stream = msgspec.json.encode(followed.call.id), followed.stream.id.encode()
        first = followed.cursor - len(call_lines) + 1
        for seq, line in enumerate(call_lines, first):
            head = b"id: %b:%d\n" % (stream, seq)
            parts.append(head + _event(kind_of(line), label, line))
    return b"".join(parts)


def _problem(followed: FollowedCall) -> bytes:
    assert followed.problem is not None
    return _event(b"problem", msgspec.json.encode(followed.call.id), followed.problem.encoded())


def _event(kind: bytes, call: bytes, line: bytes) -> bytes:
    return b'event: %b\ndata: {"call":%b,%b\n\n' % (kind, call, line[1:])


class CallsRequest(msgspec.Struct, frozen=True):
    """A parsed request. `digest` covers all that its idempotency key stands for; `wait` in seconds."""

    session: Session
    into: Format
    chosen: ToolSelection
    calls: tuple[ModelCall, ...] = ()
    key: str | None = None
    digest: str | None = None
    path: str | None = None
    wait: float = MOST_WAIT

    def key_of(self, call: ModelCall) -> str | None:
        """One call's key: the first has the request's, others continue it."""
        if self.key is None:
            return None
        at = self.calls.index(call)
        return f"{self.key}\n{at}" if at else self.key


class FormatCalls:
    """Makes calls in the format of a provider."""

    def __init__(self, hub: HubPort, calls: RestCalls, closing: Closing) -> None:
        self._hub = hub
        self._calls = calls
        self._closing = closing

    async def call_tools(self, request: RestRequest) -> Response | None:
        """Responds with JSON, 202 after the wait, or all events as SSE."""
        forms, wait = request.accepts(JSON, EVENT_STREAM), preferred_wait(request.header("prefer"))
        read = await self._read(request)
        followed = FollowedCalls(await self._begun(read), partial(write_results, into=read.into))
        try:
            return await self._closing.connected(request, _answered(request, followed, forms, wait))
        except HubStopping:  # the calls have their streams
            raise Accepted(await followed.answer()) from None
        finally:
            followed.close()

    async def _read(self, request: RestRequest) -> CallsRequest:
        name = request.query_params.get("format")
        if name is None:
            raise Rejected("unknown_format", f"format= is missing. Use one of: {', '.join(Format)}.")
        into, chosen, key = wanted_format(name), selection(request), key_of(request)
        servers = self._hub.catalog.rules(request.caller.profile).servers
        if chosen.server is not None and chosen.server not in servers:
            raise unknown_server(chosen.server, servers)
        body = await request.shaped(Raw)
        calls = read_calls(msgspec.json.decode(body), into)
        if not calls:
            raise Rejected("invalid_calls", f"The body has no calls in the format {into}. Send a model's answer.")
        digest, path = None, request.query_params.get("path")
        if path is not None:
            check_path(path)
        if key is not None:
            subject = f"tools/call {into} {sorted(chosen.tools or ())} {chosen.server}"
            digest = digest_of(subject if path is None else f"{subject} {path}", body)
            # raises `Rejected` before any call is made
            await self._hub.durable.with_key(request.caller.principal, key, digest)
        return CallsRequest(
            session=self._calls.session(request), into=into, chosen=chosen, calls=calls, key=key, digest=digest,
            path=path, wait=preferred_wait(request.header("prefer")),
        )  # fmt: skip

    async def _begun(self, read: CallsRequest) -> Sequence[FollowedCall]:
        """The calls, begun together, in order."""
        if len(read.calls) == 1:
            return [await self.begin(read, read.calls[0])]
        begun: dict[str, FollowedCall] = {}

        async def begin(call: ModelCall) -> None:
            begun[call.id] = await self.begin(read, call)

        async with anyio.create_task_group() as tasks:
            for call in read.calls:
                tasks.start_soon(begin, call)
        return [begun[call.id] for call in read.calls]

    def session(self, request: RestRequest) -> Session:
        return self._calls.session(request)

    async def begin(self, read: CallsRequest, call: ModelCall) -> FollowedCall:
        """A call, made or refused."""
        try:
            arguments = await self._arguments(read, call)
            meta = Raw(msgspec.json.encode(call.extra["_meta"])) if "_meta" in call.extra else UNSET
            mcp_request = tool_call(call.name, arguments, meta, read.digest, path=read.path)
            stream = await self._calls.begin(read.session, mcp_request, read.key_of(call), 0.0)
            return FollowedCall(call, stream, None)
        except HubError as error:
            return FollowedCall(call, None, problem_for(error))

    async def _arguments(self, read: CallsRequest, call: ModelCall) -> Raw:
        """The arguments under the tool's own names."""
        if call.fault is not None:
            raise Problem(413 if call.fault.code == "arguments_too_large" else 400, *call.fault)
        inner = self._hub.selected(call.name, Raw(msgspec.json.encode(call.arguments)))
        await self._calls.settled(read.session, CALL, inner, read.wait)  # its server may be on its way up
        entry = self._hub.views.of(read.session).find(Kind.TOOL, call.name)
        arguments = call.arguments
        if entry is not None and read.into is not Format.MCP:
            arguments = _names(read.into, entry.raw).restored(arguments)
        encoded = Raw(msgspec.json.encode(arguments))
        self._check_selected(read, call.name, encoded)
        return encoded

    def _check_selected(self, read: CallsRequest, name: str, arguments: Raw) -> None:
        """Raises `Problem` for an unselected tool, through `run_tool`, too."""
        chosen, inner = read.chosen, self._hub.selected(name, arguments)
        entry = self._hub.views.of(read.session).find(Kind.TOOL, inner)
        is_listed = chosen.tools is None or {name, inner} <= chosen.tools
        is_of_server = chosen.server is None or (entry is not None and entry.server == chosen.server)
        if not (is_listed and is_of_server):
            raise Problem(404, "unknown_tool", f"Unknown tool: {hide_head(inner, 200)} is not among the selected tools")


@lru_cache(_KEPT)
def _names(into: Format, definition: bytes) -> ArgumentNames:
    return argument_names(into, msgspec.json.decode(definition, type=JsonObject).get("inputSchema"))


async def _answered(request: RestRequest, followed: FollowedCalls, forms: list[str], wait: float) -> Response | None:
    """None once events were sent. Raises `Accepted` after the wait."""
    is_json = forms == [JSON]
    until = anyio.current_time() + (wait if is_json else QUICK)
    taken = []
    while (
        forms != [EVENT_STREAM] and (is_json or followed.is_quiet) and (remaining := until - anyio.current_time()) > 0
    ):
        lines = await followed.lines(remaining)
        taken += [] if is_json else lines
        if followed.is_over:
            break
    if is_json or (followed.is_over and followed.is_quiet and forms != [EVENT_STREAM]):
        calls_answer = await followed.answer()
        if calls_answer.is_done:
            return answer(calls_answer)
        raise Accepted(calls_answer)
    await followed.send(request.streamed(), taken)
    return None
