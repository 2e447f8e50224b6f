"""Events of servers over REST: types, and events behind a cursor as JSON, NDJSON or SSE.

SSE has the cursor as id, and the types `active` (the subscription stands; `truncated`: events may be missing), `event`,
`error` (the server does not deliver at present) and `problem` (it is over). NDJSON has them as `type`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from msgspec import Raw
from starlette.responses import Response

from mcp_hub.call import OF_REST
from mcp_hub.errors import (
    Busy,
    DeadlineExceeded,
    HubError,
    InvalidParams,
    RpcError,
    StoreUnavailable,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.fronts.http.response import KEEP_ALIVE, HttpResponse
from mcp_hub.fronts.limits import DEPTH, LISTENS
from mcp_hub.fronts.rest.calls import SOON, preferred_wait, rest_session, started_servers, starting_servers
from mcp_hub.fronts.rest.exchange import EVENT_STREAM, JSON, NDJSON, Handler, RestRequest, answer
from mcp_hub.fronts.rest.problem import Problem, problem_for
from mcp_hub.fronts.rest.streams import Closing
from mcp_hub.hub import HubPort
from mcp_hub.masking import hide_head
from mcp_hub.protocol import sse
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, one_line
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_PARAMS, METHOD_NOT_FOUND, for_others
from mcp_hub.protocol.jsonrpc.unparsed import is_deeper
from mcp_hub.protocol.rest.calls import EventList
from mcp_hub.protocol.shape.occurrences import (
    EXHAUSTED,
    FORBIDDEN,
    NOT_FOUND,
    UNSUPPORTED,
    EventParams,
    delivered,
    event_params,
)
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import Era, Kind, RawObject

if TYPE_CHECKING:
    from mcp_hub.hub import FeedReader

_WAIT: Final = 25.0
_EVENTS, _MOST_EVENTS = 100, 1000
_LONGEST: Final = 16 << 10
"""Bytes of a subscription's arguments."""
_REASON: Final = 500
"""Characters of a server's reason."""
_NDJSON_HEADERS: Final = [(b"content-type", NDJSON.encode()), (b"cache-control", b"no-cache, no-transform")]
_PROBLEMS: Final = {
    NOT_FOUND: (404, "unknown_event_type"),
    METHOD_NOT_FOUND: (404, "unknown_event_type"),
    FORBIDDEN: (403, "event_forbidden"),
    EXHAUSTED: (503, "too_many_subscriptions"),
    UNSUPPORTED: (400, "event_unsupported"),
    INVALID_PARAMS: (400, "invalid_params"),
}
"""By the code of an error of the extension."""

Write = Callable[[str, RawObject, str | None], bytes]
"""A message of a type with these members; its cursor, if a client can continue behind it."""


def events_of(hub: HubPort, closing: Closing) -> Handler:
    """Serves `/v1/events`."""
    return _RestEvents(hub, closing).answer


class _RestEvents:
    def __init__(self, hub: HubPort, closing: Closing) -> None:
        self._hub = hub
        self._closing = closing
        self._open = Counter[str]()

    async def answer(self, request: RestRequest) -> Response | None:
        form = request.accepts(JSON, NDJSON, EVENT_STREAM)[-1]
        session = rest_session(request.caller, f"{OF_REST}events", request.header("x-mcp-hub"))
        name = request.query_params.get("name")
        params = _params(request, name or "")
        wait, limit = request.seconds("wait", _WAIT), request.count("limit", _EVENTS, _MOST_EVENTS)
        if name is None:
            return await self._types(request, session)
        with self._counted(request.caller):
            reader = await self._closing.connected(request, _opened(self._hub, session, params))
            following = _Following(self._hub, session, params, reader)
            try:
                if form == JSON:
                    return await self._closing.connected(request, following.page(limit, wait))
                write, headers = (_ndjson, _NDJSON_HEADERS) if form == NDJSON else (_sse, None)
                response = request.streamed() if headers is None else request.streamed(headers)
                await self._closing.connected(request, following.send(response, write))
                return None
            finally:
                reader.close()

    async def _types(self, request: RestRequest, session: Session) -> Response:
        if wait := preferred_wait(request.header("prefer"), 0.0):
            await self._closing.connected(request, started_servers(self._hub, request.caller.profile, wait))
        else:
            await self._hub.views.settled_for(request.caller)
        server, starting = request.query_params.get("server"), starting_servers(self._hub, request.caller.profile)
        entries = self._hub.views.of(session).entries(Kind.EVENT)
        types = [Raw(entry.definition(Era.MODERN)) for entry in entries if server in (None, entry.server)]
        response = answer(EventList(types, starting=starting))
        response.raw_headers.extend([SOON] if starting else [])
        return response

    @contextmanager
    def _counted(self, caller: Caller) -> Iterator[None]:
        """Counts a subscription meanwhile. Raises `Problem` 503."""
        if self._open[caller.principal] >= LISTENS:
            reason = f"{LISTENS} requests for events are open, the most that one client may have"
            raise Problem(503, "busy", reason, headers=((b"retry-after", b"5"),))
        self._open[caller.principal] += 1
        try:
            yield
        finally:
            self._open -= Counter((caller.principal,))


async def _opened(hub: HubPort, session: Session, params: EventParams) -> "FeedReader":
    """Raises `Problem`."""
    await hub.views.settled_for(session.caller)
    try:
        return await hub.events().open(session, params)
    except RpcError as error:
        raise _problem(error, session.caller) from None


class _Following:
    """One subscription of a request."""

    def __init__(self, hub: HubPort, session: Session, params: EventParams, reader: "FeedReader") -> None:
        self._hub = hub
        self._session = session
        self._params = params
        self._reader = reader
        self._trouble: RpcError | None = None
        self._cursor = reader.cursor  # behind what was sent

    async def _next(
        self, limit: int, seconds: float, *, takes_trouble: bool = True
    ) -> tuple[list[tuple[RawObject, str]], bool]:
        """Events, and whether some are missing before them; neither after `seconds`, or at news of trouble if the
        caller `takes_trouble`. Raises `Problem` at the end.
        """
        reader = self._reader
        with anyio.move_on_after(seconds):
            while True:
                occurrences, is_truncated = await self._read(limit)
                if occurrences or is_truncated or (takes_trouble and reader.problem is not self._trouble):
                    return occurrences, is_truncated
                if reader.ended is not None:
                    raise _problem(reader.ended, self._session.caller)
                await reader.wait()
        return [], False

    async def _read(self, limit: int) -> tuple[list[tuple[RawObject, str]], bool]:
        """Raises `Problem` also for a type that is no longer allowed."""
        try:
            self._hub.events().check(self._session, self._params.name, self._reader)
        except RpcError as error:
            raise _problem(error, self._session.caller) from None
        return await self._reader.read(limit)

    async def page(self, limit: int, wait: float) -> Response:
        occurrences, is_truncated = await self._read(limit)
        if not occurrences and not is_truncated:
            occurrences, is_truncated = await self._next(limit, wait, takes_trouble=False)
        events = [Raw(object_bytes(delivered(each, self._params.name, cursor))) for each, cursor in occurrences]
        return answer(EventList(events, cursor=self._reader.cursor, truncated=is_truncated))

    async def send(self, response: HttpResponse, write: Write) -> None:
        """Sends events until the client leaves. Raises `ClientGone`."""
        try:
            occurrences, is_truncated = await self._read(_EVENTS)
            await response.start()
            messages = self._active(write, is_truncated=is_truncated)
            while True:
                messages += b"".join(
                    write("event", delivered(each, self._params.name, cursor), cursor) for each, cursor in occurrences
                )
                await response.write(messages + self._troubles(write) or self._alive(write))
                self._cursor = occurrences[-1][1] if occurrences else self._cursor
                occurrences, is_truncated = await self._next(_EVENTS, KEEP_ALIVE)
                messages = self._active(write, is_truncated=True) if is_truncated else b""
        except HubError as error:
            problem = problem_for(error)
            if not response.is_started:
                raise problem from None
            await response.end(write("problem", msgspec.json.decode(problem.encoded(), type=RawObject), None))

    def _active(self, write: Write, *, is_truncated: bool) -> bytes:
        members = {"cursor": self._cursor, "truncated": is_truncated}
        return write("active", _encoded(members), self._cursor)

    def _troubles(self, write: Write) -> bytes:
        if self._reader.problem is self._trouble:
            return b""
        self._trouble = self._reader.problem
        if self._trouble is None:
            return b""
        public = self._trouble if self._session.caller.shows_paths else for_others(self._trouble)
        return write("error", _encoded({"code": public.code, "message": hide_head(public.message, _REASON)}), None)

    def _alive(self, write: Write) -> bytes:
        return sse.COMMENT if write is _sse else write("heartbeat", _encoded({"cursor": self._cursor}), None)


def _encoded(members: dict[str, object]) -> RawObject:
    return {name: Raw(object_bytes(value)) for name, value in members.items()}


def _sse(kind: str, members: RawObject, cursor: str | None) -> bytes:
    head = b"" if cursor is None else b"id: %b\n" % cursor.encode()
    return b"%bevent: %b\ndata: %b\n\n" % (head, kind.encode(), one_line(object_bytes(members)))


def _ndjson(kind: str, members: RawObject, cursor: str | None) -> bytes:
    return one_line(object_bytes({"type": Raw(object_bytes(kind)), **members})) + b"\n"


def _params(request: RestRequest, name: str) -> EventParams:
    """Raises `Problem` 400."""
    text = request.query_params.get("arguments", "{}").encode()
    try:
        if len(text) > _LONGEST or is_deeper(text, DEPTH) or not isinstance(msgspec.json.decode(text), dict):
            raise ValueError
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise Problem(
            400, "invalid_parameter", f"arguments has to be a JSON object of at most {_LONGEST} bytes"
        ) from None
    cursor = request.header("last-event-id") or request.query_params.get("after") or None
    params = event_params({"name": Raw(object_bytes(name)), "arguments": Raw(text)}, "events")
    return msgspec.structs.replace(params, cursor=cursor)


def _problem(error: RpcError, caller: Caller) -> Problem:
    public = error if caller.shows_paths else for_others(error)
    reason = hide_head(public.message, _REASON)
    match public:
        case Busy() | InvalidParams() | StoreUnavailable():
            return problem_for(public)
        case DeadlineExceeded():
            return Problem(504, "deadline_exceeded", reason)
        case UpstreamUnavailable() | UpstreamLost():
            return Problem(503, "upstream_unavailable", reason, headers=((b"retry-after", b"5"),))
    status, code = _PROBLEMS.get(public.code, (502, "event_refused"))
    return Problem(status, code, reason)
