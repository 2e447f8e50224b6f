"""Calls of tools over REST.

A call is a durable stream from its start: closing its connection is only a disconnect. Questions of its tool go to the
stream and wait for an answer there.
"""

import re
from contextlib import suppress
from typing import Final

import anyio
import msgspec
from msgspec import UNSET, Raw
from starlette.responses import Response

from mcp_hub.call import StreamInfo
from mcp_hub.errors import EventsGone, InvalidParams
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.rest import idempotency
from mcp_hub.fronts.rest.exchange import EVENT_STREAM, JSON, MOST_WAIT, RestRequest, answer
from mcp_hub.fronts.rest.follow import Closing, Stopping, send_sse
from mcp_hub.fronts.rest.info import info, outcome
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.protocol import eras
from mcp_hub.protocol.capabilities import SUPERSET
from mcp_hub.protocol.extensions import TASKS
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.meta import RequestMeta, take_meta
from mcp_hub.protocol.rest.calls import CallAnswer, CallBody
from mcp_hub.sessions.session import Caller, ClientOffer, Session
from mcp_hub.types import PROGRAM, Era, JsonObject, Kind, RawObject

OF_REST: Final = "rest#"
"""The beginning of the session ids of REST callers."""

_WAIT: Final = 25.0
"""Seconds that a call is waited for unless its caller prefers another time."""
_QUICK: Final = 0.25
"""Seconds in which a call of a caller who takes both forms has to end quietly to be answered with JSON."""
_PREFERRED: Final = re.compile(r"\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*", re.IGNORECASE)
_TOKEN: Final = b'"rest"'
"""Progress is wanted; each upstream is given a token of the hub's own."""
_BATCH: Final = 256
_EMPTY: Final = Raw(b"{}")
_CAPABILITIES: Final[JsonObject] = {**SUPERSET, "extensions": {TASKS: {}}}
"""Everything can be asked, and is asked on the stream, as it is on a task."""


def rest_session(caller: Caller, key: str) -> Session:
    """The client kind of REST callers: programs, which can be asked everything."""
    return Session(
        key, caller, Era.MODERN, eras.LATEST_MODERN, _CAPABILITIES, log_level="info", offer=ClientOffer(PROGRAM, "full")
    )


class RestCalls:
    """Serves calls of `/v1/tools/…`."""

    def __init__(self, hub: HubPort, closing: Closing) -> None:
        self._hub = hub
        self._closing = closing
        self._requests = 0

    async def call_tool(self, request: RestRequest) -> Response | None:
        """JSON when the call is done in time, 202 when it is not, or its events as SSE."""
        forms = request.accepts(JSON, EVENT_STREAM)
        wait = _preferred_wait(request.header("prefer"))
        key = request.header("idempotency-key")
        if key is not None:
            idempotency.check_key(key)
        body = await request.shaped(CallBody)
        name, arguments = request.path["name"], _arguments(body)
        if body.tools is not UNSET:
            for wanted in (name, self._hub.selected(name, arguments)):
                if wanted not in body.tools:
                    raise Problem(404, "unknown_tool", f"Unknown tool: {wanted[:200]} is not among the selected tools")
        self._requests += 1
        session = rest_session(request.caller, f"{OF_REST}{self._requests}")
        stream = await self._stream(session, name, arguments, _meta(body), key)
        try:
            return await self._closing.connected(request, self._answer(request, stream, forms, wait))
        except Stopping:  # its stream is there to come back to: who made the call again would make it twice
            raise _Accepted(self._hub, stream.info) from None
        finally:
            stream.let_go()

    # -- which call

    async def _stream(
        self, session: Session, name: str, arguments: Raw, meta: RequestMeta, key: str | None
    ) -> StreamHandle:
        """The stream of the call, which is a new one unless it may be joined."""
        hub, principal = self._hub, session.caller.principal
        digest = idempotency.digest_of(name, arguments)
        if hub.view(session).find(Kind.TOOL, name) is None:
            await hub.catalog.settled()  # its server may be on its way up: wait as long as a list would
        joined = None
        if self._is_hidden(session, name, arguments):
            key = None  # it names a call of another of the principal's tokens, if any
        elif key is not None:
            joined = await hub.durable.with_key(principal, key, digest)
        elif hub.view(session).find(Kind.TOOL, name) is not None:
            joined = await hub.durable.equal_call(principal, digest)
        if joined is not None:
            if hub.durable.shows(session.caller.profile, joined.info):
                return joined
            key = None  # an equal name of another server
        params: RawObject = {"name": Raw(object_bytes(name)), "arguments": arguments}
        call = hub.call(session, "tools/call", params, meta, in_place=False)
        return await hub.begin_stream(call, key, digest)  # what is acknowledged is not lost

    def _is_hidden(self, session: Session, name: str, arguments: Raw) -> bool:
        """Whether the caller's profile lacks the tool; its other tokens may have called it. Raises `InvalidParams`."""
        view, tool = self._hub.view(session), self._hub.selected(name, arguments)
        return session.caller.profile is not None and view.find(Kind.TOOL, tool) is None

    # -- its answer

    async def _answer(
        self, request: RestRequest, stream: StreamHandle, forms: list[str], wait: float
    ) -> Response | None:
        """None for events, which have been sent. Raises `_Accepted` if the call is not done in time."""
        following = Following(stream, stream.info.first - 1)
        try:
            if forms == [JSON]:
                return await self._json(following, stream, wait)
            lines = [] if forms == [EVENT_STREAM] else await _quick(following)
            if following.closed and following.cursor == len(lines) == 2:  # the start and the ending
                return await _done(stream)
            await send_sse(following, request.streamed(), lines)
            return None
        finally:
            following.close()

    async def _json(self, following: Following, stream: StreamHandle, wait: float) -> Response:
        until = anyio.current_time() + wait
        with suppress(EventsGone):  # so many that they were let go; the ending is not
            while not following.closed and (left := until - anyio.current_time()) > 0:
                await following.lines(_BATCH, left)
        if following.closed or stream.info.has_ended:
            return await _done(stream)
        raise _Accepted(self._hub, stream.info)


async def _quick(following: Following) -> list[bytes]:
    """The first events of a call, those of a quick and quiet one to its end."""
    until = anyio.current_time() + _QUICK
    lines: list[bytes] = []
    while not following.closed and len(lines) < 2 and (left := until - anyio.current_time()) > 0:
        lines += await following.lines(_BATCH, left)
    return lines


async def _done(stream: StreamHandle) -> Response:
    """The result of a call that has ended. Raises the `Problem` that it ended with."""
    row = stream.info
    return answer(CallAnswer(row.id, row.status, outcome(row.id, await stream.ending())))


class _Accepted(Problem):
    """No error: where the call, which is not done yet, is to be followed. It is said unless an answer was begun."""

    media = JSON

    def __init__(self, hub: HubPort, row: StreamInfo) -> None:
        location = (b"location", b"/v1/streams/" + row.id.encode())
        super().__init__(202, "accepted", "the call continues", headers=(location,))
        self._info = info(hub, row)

    def encoded(self) -> bytes:
        return msgspec.json.encode(self._info)


def _arguments(body: CallBody) -> Raw:
    arguments = _EMPTY if body.arguments is UNSET else body.arguments
    if raw_object(arguments) is None:
        raise Problem(400, "invalid_body", "the body does not fit: `arguments` has to be an object")
    return Raw(bytes(arguments))


def _meta(body: CallBody) -> RequestMeta:
    """The caller's `_meta` without reserved keys; progress is always asked for. Raises `Problem`."""
    try:
        meta = take_meta({} if body.meta is UNSET else {"_meta": body.meta})
    except InvalidParams as problem:
        raise Problem(400, "invalid_body", f"the body does not fit: {problem}") from None
    return msgspec.structs.replace(meta, token=_TOKEN, takes_events=True)


def _preferred_wait(prefer: str | None) -> float:
    """The seconds of `wait=N` (RFC 7240 §4.3), none for `respond-async` alone; what cannot be read does not count."""
    parts = [] if prefer is None else re.split("[,;]", prefer)
    for part in parts:
        if found := _PREFERRED.fullmatch(part):
            return min(float(found[1]), MOST_WAIT)
    return 0.0 if any(part.strip().lower() == "respond-async" for part in parts) else _WAIT
