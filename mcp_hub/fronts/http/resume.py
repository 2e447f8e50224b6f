"""Event streams of handshake clients that outlive their connections.

A call's POST gets JSON if the call ends soon, else an event stream whose messages have cursors (stream id and
number). Its `_ClientStream` has a responder, which makes messages, and at most one connection, a `CallWriter`:

    connected   a writer sends messages
    orphaned    no writer; the call continues for a time (`HubPort.leave`)
    released    only the store has the stream

    connected → released    the response was sent, or the call runs elsewhere
    connected → orphaned    the client left, or `close_after` passed
    orphaned  → connected   the client resumes
    orphaned  → released    the call has ended (`_sweep`)

A GET with `Last-Event-ID` resumes at any hub on the store; a *remote* call is read from there. Connections queue at the
stream's `lock`; the newest wins. The response is 200 with what follows the cursor, 204 if nothing can, 400 for a cursor
not given to this session, 410 for lost events, or 503.

Source: specification 2025-11-25, basic/transports "Sending Messages to the Server" 6, "Resumability and Redelivery";
SEP-1699.
"""

from collections import deque
from typing import Final

import anyio
import msgspec

from mcp_hub import aio
from mcp_hub.aio import Bell
from mcp_hub.call import StreamInfo
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy, EventsGone, InvalidParams, StoreError, UnknownStream
from mcp_hub.events import BY_SESSION, cancelled_by_client
from mcp_hub.fronts.http.replay import Origin, cancel_stored
from mcp_hub.fronts.http.request import CallWriter, Housekeeper, HttpRequest, QuickWait
from mcp_hub.fronts.http.response import HttpError, HttpResponse, respond_with, unavailable
from mcp_hub.fronts.mcp.client_requests import ClientRequests
from mcp_hub.fronts.mcp.quick_call import QuickCall
from mcp_hub.fronts.mcp.responder import CallResponder, nobody
from mcp_hub.hub import CallHandle, HubPort, StreamHandle, is_elsewhere
from mcp_hub.logs import get_logger
from mcp_hub.protocol import eras, sse
from mcp_hub.protocol.jsonrpc.envelope import Unset
from mcp_hub.protocol.sse import Cursor
from mcp_hub.sessions.session import Session
from mcp_hub.sessions.stored import StoredSession
from mcp_hub.types import CallId

log = get_logger(__name__)

_RETURN: Final = 30.0
"""Seconds for a polling client to be back, where its calls may not continue without it."""
_MOST_WITHDRAWN: Final = 64
"""Per client: ended calls with unsent withdrawals or that it joined."""
_PRIMED_SINCE: Final = "2025-11-25"
"""Older clients take an event without data for a broken message."""
_RETRY: Final = 5000
"""Milliseconds that a client waits before it comes back."""
_TICK: Final = 1.0
"""Seconds between two sweeps."""


class ClientCalls(msgspec.Struct, eq=False):
    """One session's calls by request id, and its questions.

    A call that starts is None in `requests`, one without messages a `CallHandle`. `withdrawals`: of calls that ended
    meanwhile; `let_go`: calls that a time-out has left; `joined`: its requests to ended
    calls of other sessions.
    """

    stored: StoredSession
    requests: dict[int | str, "_ClientStream | CallHandle | None"] = msgspec.field(default_factory=dict)
    questions: ClientRequests = msgspec.field(default_factory=ClientRequests)
    withdrawals: dict[CallId, list[bytes]] = msgspec.field(default_factory=dict)
    let_go: deque[CallId] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST_WITHDRAWN))
    joined: deque[tuple[CallId, Origin]] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST_WITHDRAWN))
    is_closed: bool = False

    @property
    def session(self) -> Session:
        return self.stored.session

    def has_open(self, key: int | str) -> bool:
        """Whether the id's call has not ended."""
        return key in self.requests and ((request := self.requests[key]) is None or not request.has_ended)

    def origin(self, row: StreamInfo) -> Origin:
        """The session's request to this stream. Raises `UnknownStream`."""
        return dict(self.joined).get(row.id) or Origin.stored(row)

    def add(self, key: int | str, responder: CallResponder) -> "_ClientStream":
        """The stream of a followed call."""
        stream = self.requests[key] = _ClientStream(self, key, responder)
        return stream


class _ClientStream(msgspec.Struct, eq=False):
    """One call's messages and connection. `cursor`: where that begins; `opened` in seconds of the clock; `resuming`:
    connections at `lock`.
    """

    client: ClientCalls
    key: int | str
    responder: CallResponder
    writer: CallWriter | None = None
    opened: float = 0.0
    cursor: int = 0
    has_cursor: bool = False
    resuming: int = 0
    is_let_go: bool = False
    lock: anyio.Lock | None = None

    @property
    def id(self) -> CallId:
        return self.responder.call.call.id

    @property
    def is_remote(self) -> bool:
        return is_elsewhere(self.responder.call)

    @property
    def has_ended(self) -> bool:
        return self.responder.ended if self.is_remote else self.responder.call.has_ended

    @property
    def can_poll(self) -> bool:
        """Whether the client resumes even before the first message."""
        return self.has_cursor and eras.is_at_least(self.client.session.version, _PRIMED_SINCE)


class Resumption:
    """All handshake clients' streams. `close_after` in seconds."""

    def __init__(self, hub: HubPort, housekeeper: Housekeeper, clock: Clock, close_after: float | None) -> None:
        self.sessions = hub.session_store
        self._hub = hub
        self._housekeeper = housekeeper
        self._clock = clock
        self._close_after = close_after
        self._streams: dict[CallId, _ClientStream] = {}  # orphaned ones, and those whose clients have a cursor
        self._timer: aio.Timer | None = None

    async def answer(
        self, client: ClientCalls, request: HttpRequest, id_: bytes, key: int | str, token: bytes | None,
        handle: CallHandle,
    ) -> None:  # fmt: skip
        """Follows a call to the end of its POST's response."""
        takes_sse = request.takes_sse
        questions = client.questions if takes_sse else None
        quick = QuickWait(QuickCall(
            hub=self._hub, id=id_, session=client.session, call=handle, token=token, asking=questions,
            by_cursor=takes_sse,
        ))  # fmt: skip
        client.requests[key] = handle
        try:
            answer = await quick.answer(self._housekeeper)
        except anyio.get_cancelled_exc_class():  # the hub stops: the client may come back to another
            self._disconnected(client.add(key, quick.follow()))
            raise
        if answer is None:
            await self._follow(client.add(key, quick.follow()), quick, request)
            return
        if client.requests.get(key) is handle:
            del client.requests[key]
        await respond_with(request, answer)

    async def _follow(self, stream: _ClientStream, quick: QuickWait, request: HttpRequest) -> None:
        response, takes_sse = HttpResponse(request.receive, request.send), request.takes_sse
        writer = stream.writer = CallWriter(
            stream.responder, quick.bell, response, can_stream=takes_sse, on_stream=lambda: self._prime(stream)
        )
        await self._run(stream, writer)

    async def _run(self, stream: _ClientStream, writer: CallWriter) -> None:
        try:
            await writer.run()
        finally:
            self._disconnected(stream, is_polling=writer.is_stopped)

    async def _prime(self, stream: _ClientStream) -> bytes:
        """The opening event. Resumed streams repeat it: TypeScript SDK 1.x forgets its cursor."""
        stream.has_cursor = True
        stream.opened = self._clock.now()
        self._track(stream)
        await self.sessions.keep(stream.client.stored, stream.responder.call.seconds)
        return sse.priming(sse.event_id(stream.id, stream.cursor), _RETRY) if stream.can_poll else b""

    # -- the GET ----------------------------------------------------------------------------------------------------

    async def resume(self, client: ClientCalls, last_event_id: str, response: HttpResponse) -> None:
        """Answers a GET with `Last-Event-ID`. Raises `HttpError`."""
        try:
            cursor = Cursor.parse(last_event_id)
            handle = await self._authorized(client, cursor)
            stream, writer = await self._take_over(client, handle, cursor, response)
        except (ValueError, InvalidParams):
            raise HttpError(400, "unknown_event", "unknown event id", id_=Unset) from None
        except EventsGone as gone:
            raise HttpError(410, gone.symbol, "events after this one are no longer kept", id_=Unset) from None
        except (Busy, StoreError) as error:
            raise unavailable(error) from None
        await self._run(stream, writer)

    async def _authorized(self, client: ClientCalls, cursor: Cursor) -> StreamHandle:
        """Raises `UnknownStream` for a foreign cursor."""
        handle = await self._open(client, cursor.stream, cursor.seq)
        row, followed = handle.info, self._streams.get(handle.id)
        # another session may have joined the call
        session = row.session if followed is None else followed.client.session.id
        is_own = session == client.session.id or row.id in dict(client.joined)
        if not is_own or cursor.seq > row.last:
            raise UnknownStream
        if row.id in client.let_go and row.id not in self._streams:
            raise UnknownStream
        stream = client.requests.get(client.origin(row).key)
        if isinstance(stream, _ClientStream) and stream.id == row.id and stream.writer and not stream.has_cursor:
            raise UnknownStream
        return handle

    async def _open(self, client: ClientCalls, stream: CallId, after: int | None = None) -> StreamHandle:
        caller = client.session.caller
        return await self._hub.durable.open(caller.principal, stream, caller.profile, after)

    async def _take_over(
        self, client: ClientCalls, handle: StreamHandle, cursor: Cursor, response: HttpResponse
    ) -> tuple[_ClientStream, CallWriter]:
        """A connection that replaces the older one."""
        stream = self._streams.get(handle.id)
        if stream is None:
            responder = await self._responder(client, handle)
            new = _ClientStream(client, client.origin(handle.info).key, responder, has_cursor=True)
            stream = self._streams.setdefault(handle.id, new)
        stream.lock = stream.lock or anyio.Lock()
        stream.resuming += 1
        try:
            async with stream.lock:
                if stream.writer is not None:
                    await stream.writer.stop().wait()
                await self._rebind(stream, client, cursor.seq)
                writer = await self._connect(stream, cursor.seq, response)
        finally:
            stream.resuming -= 1
            if stream.writer is None:
                self._orphan(stream)
        return stream, writer

    async def _responder(self, client: ClientCalls, handle: StreamHandle) -> CallResponder:
        """Raises `UnknownStream`, `StoreError`."""
        row, call = handle.info, self._hub.running_call(handle)
        origin = client.origin(row)
        if call is None:
            stored, queue = origin.call(row, client.session), client.questions.queue(row.id)
            call = self._hub.remote_call(stored, await handle.questions(), queue, last=row.last)
        return CallResponder(
            hub=self._hub, id_=bytes(origin.id), session=client.session, call=call, token=origin.token, wake=nobody,
            asking=client.questions, withdrawn=client.withdrawals.get(row.id),
        )  # fmt: skip

    async def _rebind(self, stream: _ClientStream, client: ClientCalls, cursor: int) -> None:
        if stream.client is not client:
            stream.responder.close()
            stream.responder = await self._responder(client, await self._open(client, stream.id, cursor))
            stream.client = client

    async def _connect(self, stream: _ClientStream, cursor: int, response: HttpResponse) -> CallWriter:
        handle = await self._open(stream.client, stream.id, cursor)
        bell = Bell()
        stream.responder.follow(bell.ring, handle.follow(bell.ring, cursor))
        writer = CallWriter(
            stream.responder, bell, response, can_stream=True, on_stream=lambda: self._prime(stream), is_resumed=True
        )
        stream.writer, stream.cursor = writer, cursor
        if not handle.info.has_ended:
            stream.client.requests.setdefault(stream.key, stream)
        return writer

    # -- the end of a connection, and of a stream -------------------------------------------------------------------

    def _disconnected(self, stream: _ClientStream, *, is_polling: bool = False) -> None:
        stream.writer = None
        stream.responder.pause()
        stream.responder.drop_answer()
        if not stream.resuming:
            self._orphan(stream, is_polling=is_polling)

    def _orphan(self, stream: _ClientStream, *, is_polling: bool = False) -> None:
        if stream.has_ended or stream.is_remote or stream.responder.detached or stream.is_let_go:
            self._release(stream)
            return
        stream.responder.call.leave(_RETURN if is_polling else None)
        self._track(stream)

    def _track(self, stream: _ClientStream) -> None:
        self._streams[stream.id] = stream
        if self._timer is None:
            self._timer = aio.call_later(_TICK, self._sweep)

    def _sweep(self) -> None:
        """Closes old connections, releases ended streams."""
        now = self._clock.now()
        for stream in list(self._streams.values()):
            if stream.writer is not None:
                if self._close_after is not None and now - stream.opened >= self._close_after and stream.can_poll:
                    stream.writer.stop()
            elif (stream.has_ended or stream.is_remote) and not stream.resuming:
                self._release(stream)
        self._timer = aio.call_later(_TICK, self._sweep) if self._streams else None

    def _release(self, stream: _ClientStream) -> None:
        client = stream.client
        if client.requests.get(stream.key) is stream:
            del client.requests[stream.key]
        if self._streams.get(stream.id) is stream:
            del self._streams[stream.id]
        stream.responder.close()
        if stream.responder.detached or not stream.has_ended:
            return  # its questions may still be answered
        call, withdrawn = stream.responder.call.call, stream.responder.withdrawn()
        if stream.has_cursor and call.session != client.session.id:
            client.joined.append((call.id, Origin.of(stream.responder.id, stream.responder.token, call)))
        if withdrawn and not client.is_closed:
            client.withdrawals[stream.id] = withdrawn
            if len(client.withdrawals) > _MOST_WITHDRAWN:
                del client.withdrawals[next(iter(client.withdrawals))]

    # -- cancellation, answers, the end of a session ------------------------------------------------------------------

    async def cancel(self, client: ClientCalls, key: int | str, reason: str | None = None) -> None:
        """Cancels a call at any hub, for the client's `reason`. After a time-out it may continue."""
        request = client.requests.get(key)
        if isinstance(request, CallHandle):
            request.cancel(reason, is_clients=True)
        elif request is not None and not request.is_remote:
            if request.responder.call.cancel(reason, is_clients=True):
                self._let_go(request)
        elif request is not None or (self._may_be_remote(client) and key not in client.requests):
            await cancel_stored(self._hub, client.session, cancelled_by_client(reason), key)

    def _let_go(self, stream: _ClientStream) -> None:
        """Ends the response to a request whose call continues for an equal one."""
        stream.is_let_go = True
        stream.client.let_go.append(stream.id)
        if stream.writer is None:
            self._release(stream)
        else:
            stream.writer.stop()

    async def cancel_all(self, client: ClientCalls) -> None:
        """Cancels the session's calls at any hub, except those that another joined."""
        for key in list(client.requests):
            await self.cancel(client, key)
        if self._may_be_remote(client):
            await cancel_stored(self._hub, client.session, BY_SESSION)

    def cancel_local(self, client: ClientCalls, reason: str) -> None:
        """Cancels the session's calls at this hub."""
        for request in list(client.requests.values()):
            if request is not None and (isinstance(request, CallHandle) or not request.is_remote):
                (request if isinstance(request, CallHandle) else request.responder.call).cancel(reason)

    def _may_be_remote(self, client: ClientCalls) -> bool:
        return client.stored.was_elsewhere or self._hub.durable.has_replicas

    async def forward_answers(self, client: ClientCalls) -> None:
        """Sends answers to the hubs that run the calls. Raises `HttpError`: who sent one has to repeat it."""
        answers = [*client.questions.answers]
        client.questions.answers.clear()
        problem: StoreError | None = None
        for stream, key, outcome in answers:
            try:
                await (await self._open(client, stream)).answer(key, outcome)
            except (UnknownStream, StoreError) as error:
                log.warning("answer_not_passed_on", stream=stream, reason=str(error))
                problem = error if isinstance(error, StoreError) else problem
        if problem is not None:
            raise unavailable(problem)

    def close(self, client: ClientCalls) -> None:
        """Ends the session at this hub."""
        client.is_closed = True
        client.withdrawals.clear()
        client.questions.close()
