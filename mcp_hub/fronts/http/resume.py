"""Event streams of handshake clients over HTTP that outlive their connections: `Last-Event-ID`, orphans, polling.

A client that got an event stream may come back for the rest of it: with a GET that names a place in it, from the same
session, to any hub on the same store, as long as the stream is kept. The newest connection of a stream replaces the
older one. The answer to such a GET is

* 200 and what follows that place, when anything does or still may; the stream is closed behind the response;
* 204 when nothing ever will (answered, or cancelled): it stops an event source, which an empty 200 would bring back;
* 400 for a place that this session was not given, in the same words for every reason;
* 410 for a place behind which events are no longer kept;
* 503 when too many follow the stream, or the store cannot be read.

A call without a connection continues as long as its tool may (`HubPort.leave`). Source: specification 2025-11-25,
basic/transports "Sending Messages to the Server" 6 and "Resumability and Redelivery"; SEP-1699.
"""

from collections import deque
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from mcp_hub import aio
from mcp_hub.aio import Bell
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy, EventsGone, InvalidParams, RpcError, StoreError, UnknownStream
from mcp_hub.fronts.http.call_response import CallWriter, Housekeeper, QuickWait
from mcp_hub.fronts.http.replay import Origin, StreamReplay, cancel_stored
from mcp_hub.fronts.http.request import HttpRequest
from mcp_hub.fronts.http.response import HttpError, HttpResponse, respond
from mcp_hub.fronts.mcp.client_requests import ClientRequests
from mcp_hub.fronts.mcp.quick_call import QuickCall
from mcp_hub.fronts.mcp.responder import CallResponder, nobody
from mcp_hub.hub import CallHandle, HubPort, StreamHandle
from mcp_hub.logs import get_logger
from mcp_hub.protocol import cursors, eras, sse
from mcp_hub.protocol.cursors import Cursor
from mcp_hub.protocol.jsonrpc.envelope import Unset
from mcp_hub.sessions.session import Session
from mcp_hub.sessions.stored import StoredSession
from mcp_hub.types import CallId, RawJson

log = get_logger(__name__)

_RETURN: Final = 30.0
"""Seconds for a polling client to be back, where its calls may not continue without it."""
_MOST_WITHDRAWN: Final = 64
_MOST_ANSWERS: Final = 256
"""Of one client: ended calls with withdrawals that it has not got, answers on their way to other processes."""
_PRIMED_SINCE: Final = "2025-11-25"
"""Older clients take an event without data for a broken message."""
_RETRY: Final = 5000
"""Milliseconds that a client waits before it comes back."""
_TICK: Final = 1.0
"""Seconds between two looks at what is due."""


class ClientCalls(msgspec.Struct, eq=False):
    """The calls of one session by request id, and its questions.

    A call in `requests` that is starting is None, and one that has so far nothing for its client just the call.
    `withdrawals` has those of questions whose calls ended while the client was away, `answers` the answers to
    questions of calls that run elsewhere.
    """

    stored: StoredSession
    requests: dict[int | str, "ClientStream | CallHandle | None"] = msgspec.field(default_factory=dict)
    asking: ClientRequests = msgspec.field(default_factory=ClientRequests)
    withdrawals: dict[CallId, list[bytes]] = msgspec.field(default_factory=dict)
    answers: deque[tuple[CallId, str, RawJson | RpcError]] = msgspec.field(
        default_factory=lambda: deque(maxlen=_MOST_ANSWERS)
    )
    is_gone: bool = False

    @property
    def session(self) -> Session:
        return self.stored.session

    def is_taken(self, key: int | str) -> bool:
        """Whether a request of this id is under way: an id is free as soon as its call has ended."""
        return key in self.requests and ((line := self.requests[key]) is None or not line.has_ended)


class ClientStream(msgspec.Struct, eq=False):
    """A call's messages for its client, and the connection that they go to, if there is one.

    `since` is when that became an event stream, `after` where it began. `waiting` counts connections that are about to
    take its place, one after the other (`turns`).
    """

    client: ClientCalls
    key: int | str
    responder: CallResponder
    http_response: CallWriter | None
    since: float = 0.0
    after: int = 0
    is_known: bool = False
    waiting: int = 0
    turns: anyio.Lock | None = None

    @property
    def id(self) -> CallId:
        return self.responder.call.call.id

    @property
    def is_elsewhere(self) -> bool:
        return isinstance(self.responder, StreamReplay)

    @property
    def has_ended(self) -> bool:
        return self.responder.call.has_ended or (self.is_elsewhere and self.responder.ended)


class Resumption:
    """The streams of all handshake clients, and the one timer that looks after them.

    `close_after`: seconds that a connection stays open to a client that can come back.
    """

    def __init__(self, hub: HubPort, housekeeper: Housekeeper, clock: Clock, close_after: float | None) -> None:
        self.sessions = hub.session_store
        self._hub = hub
        self._housekeeper = housekeeper
        self._clock = clock
        self._close_after = close_after
        self._lines: dict[CallId, ClientStream] = {}  # those that are known or have no connection
        self._timer: aio.Timer | None = None

    async def answer(
        self,
        client: ClientCalls,
        request: HttpRequest,
        id_: bytes,
        key: int | str,
        token: bytes | None,
        call: CallHandle,
    ) -> None:
        """Follows a call to the end of its POST's response; afterwards it may go on, and the client come back."""
        asking, takes_sse = None, request.takes_sse
        if takes_sse:
            asking = client.asking
            made = call.call  # and not the handle, which would make a circle
            call.keep(lambda: Origin.of(id_, token, made).encoded())
        quick = QuickWait(QuickCall(self._hub, id_, client.session, call, token, asking, takes_sse))
        client.requests[key] = call
        try:
            answer = await quick.answer(self._housekeeper)
        except anyio.get_cancelled_exc_class():  # the hub stops: the client may come back to another
            self._left(self._line(client, key, quick.follow()))
            raise
        if answer is None:
            await self._follow(self._line(client, key, quick.follow()), quick, request)
            return
        if client.requests.get(key) is call:
            del client.requests[key]
        await respond(request.send, 200, answer)

    def _line(self, client: ClientCalls, key: int | str, responder: CallResponder) -> ClientStream:
        line = client.requests[key] = ClientStream(client, key, responder, None)
        return line

    async def _follow(self, line: ClientStream, quick: QuickWait, request: HttpRequest) -> None:
        """Responds with all that the call of a POST says."""
        http_response = line.http_response = CallWriter(
            line.responder,
            quick.bell,
            HttpResponse(request.receive, request.send),
            can_stream=request.takes_sse,
            on_stream=lambda: self._opened(line),
        )
        await self._run(line, http_response)

    async def _run(self, line: ClientStream, http_response: CallWriter) -> None:
        try:
            await http_response.run()
        finally:
            self._left(line, is_polling=http_response.is_stopped)

    # -- coming back ----------------------------------------------------------------------------------------------

    async def resume(self, client: ClientCalls, named: str, response: HttpResponse) -> None:
        """Answers a GET of this client with that `Last-Event-ID`. Raises `HttpError`."""
        try:
            cursor = Cursor.parse(named)
            stream = await self._named(client, cursor)
            line, http_response = await self._attached(client, stream, cursor, response)
        except (ValueError, InvalidParams):
            raise HttpError(400, "unknown_event", "unknown event id", id_=Unset) from None
        except EventsGone as gone:
            raise HttpError(410, gone.symbol, "events after this one are no longer kept", id_=Unset) from None
        except (Busy, StoreError) as error:
            raise not_now(error) from None
        await self._run(line, http_response)

    async def _named(self, client: ClientCalls, cursor: Cursor) -> StreamHandle:
        """The stream that is named. Raises `UnknownStream` unless this session has been given that place."""
        stream = await self._open(client, cursor.stream)
        row = stream.info
        if row.session != client.session.id or cursor.seq > row.last:
            raise UnknownStream
        line = client.requests.get(Origin.stored(row).key)
        if (
            isinstance(line, ClientStream)
            and line.id == row.id
            and line.http_response is not None
            and not line.is_known
        ):
            raise UnknownStream
        return stream

    async def _open(self, client: ClientCalls, stream: CallId) -> StreamHandle:
        caller = client.session.caller
        return await self._hub.stream(caller.principal, stream, caller.profile)

    async def _attached(
        self, client: ClientCalls, stream: StreamHandle, cursor: Cursor, response: HttpResponse
    ) -> tuple[ClientStream, CallWriter]:
        """A connection that takes the stream over; the older one is closed first.

        Raises `UnknownStream`, `EventsGone`, `Busy`, `StoreError`.
        """
        line = self._lines.get(stream.id)
        if line is None:
            responder = await self._responder(client, stream)
            new = ClientStream(client, Origin.stored(stream.info).key, responder, None, is_known=True)
            line = self._lines.setdefault(stream.id, new)
        line.turns = line.turns or anyio.Lock()
        line.waiting += 1
        try:
            async with line.turns:
                if line.http_response is not None:
                    await line.http_response.stop().wait()
                await self._refresh(line, client)
                http_response = await self._connect(line, cursor.seq, response)
        finally:
            line.waiting -= 1
            if line.http_response is None:
                self._away(line)
        return line, http_response

    async def _responder(self, client: ClientCalls, stream: StreamHandle) -> CallResponder:
        """The responder for a stream whose client had no connection to this hub.

        Raises `UnknownStream` for one that did not begin with a request of this client, `StoreError`.
        """
        row, call = stream.info, self._hub.running_call(stream)
        if call is not None:
            origin = Origin.stored(row)
            own = bytes(origin.id)
            return CallResponder(self._hub, own, client.session, call, origin.token, nobody, client.asking)
        asked = await stream.questions()

        def pass_on(key: str, outcome: RawJson | RpcError) -> None:
            client.answers.append((row.id, key, outcome))

        replay = StreamReplay(self._hub, client.session, client.asking, row, asked, pass_on)
        replay.remember(client.withdrawals.get(row.id, []))
        return replay

    async def _refresh(self, line: ClientStream, client: ClientCalls) -> None:
        """Sees to it that the line is this client's: its session may have made room and been accepted again."""
        if line.client is not client:
            line.responder.close()
            line.responder = await self._responder(client, await self._open(client, line.id))
            line.client = client

    async def _connect(self, line: ClientStream, after: int, response: HttpResponse) -> CallWriter:
        stream = await self._open(line.client, line.id)
        bell = Bell()
        line.responder.follow(bell.ring, stream.follow(bell.ring, after))
        http_response = CallWriter(
            line.responder, bell, response, can_stream=True, on_stream=lambda: self._opened(line), is_resumed=True
        )
        line.http_response, line.after = http_response, after
        if not stream.info.has_ended:
            line.client.requests.setdefault(line.key, line)
        return http_response

    async def _opened(self, line: ClientStream) -> bytes:
        """The first event, by which the client may resume the stream from there.

        Sent again on a resumed stream: clients forget the place that they came with (TypeScript SDK 1.x).
        """
        line.is_known = True
        line.since = self._clock.now()
        self._watch(line)
        await self.sessions.keep(line.client.stored, line.responder.call.seconds)
        return sse.priming(cursors.place(line.id, line.after), _RETRY) if _can_poll(line) else b""

    # -- going away -----------------------------------------------------------------------------------------------

    def _left(self, line: ClientStream, *, is_polling: bool = False) -> None:
        """The connection is over; nobody follows the call, until another takes the stream over."""
        line.http_response = None
        line.responder.pause()
        line.responder.drop_answer()
        if not line.waiting:
            self._away(line, is_polling=is_polling)

    def _away(self, line: ClientStream, *, is_polling: bool = False) -> None:
        """There is no connection, and none is about to come."""
        if line.has_ended or line.is_elsewhere or line.responder.detached:
            self._settle(line)
            return
        line.responder.call.leave(_RETURN if is_polling else None)
        self._watch(line)

    def _watch(self, line: ClientStream) -> None:
        self._lines[line.id] = line
        if self._timer is None:
            self._timer = aio.call_later(_TICK, self._turn)

    def _turn(self) -> None:
        """Sees to what is due; again in a while, unless nothing is left that could be."""
        now = self._clock.now()
        for line in list(self._lines.values()):
            if line.http_response is not None:
                if self._close_after is not None and now - line.since >= self._close_after and _can_poll(line):
                    line.http_response.stop()
            elif line.has_ended and not line.waiting:
                self._settle(line)
        self._timer = aio.call_later(_TICK, self._turn) if self._lines else None

    def _settle(self, line: ClientStream) -> None:
        """Nothing more is to be done for the line: the request's id is free. The stream itself is kept by the store."""
        client = line.client
        if client.requests.get(line.key) is line:
            del client.requests[line.key]
        if self._lines.get(line.id) is line:
            del self._lines[line.id]
        line.responder.close()
        if line.responder.detached or not line.has_ended:
            return  # what it asks may still be answered
        withdrawn = line.responder.withdrawn()
        if withdrawn and not client.is_gone:
            client.withdrawals[line.id] = withdrawn
            if len(client.withdrawals) > _MOST_WITHDRAWN:
                del client.withdrawals[next(iter(client.withdrawals))]

    # -- what else a client may do ----------------------------------------------------------------------------------

    async def cancel(self, client: ClientCalls, key: int | str, reason: str) -> None:
        """Ends the call of a request, if one is under way, at whichever hub."""
        line = client.requests.get(key)
        if isinstance(line, CallHandle):
            line.cancel(reason)
        elif line is not None and not line.is_elsewhere:
            line.responder.call.cancel(reason)
        elif line is not None or (self._may_be_elsewhere(client) and key not in client.requests):
            await cancel_stored(self._hub, client.session, reason, key)

    async def cancel_all(self, client: ClientCalls, reason: str) -> None:
        """Ends whatever the session still runs."""
        for key in list(client.requests):
            await self.cancel(client, key, reason)
        if self._may_be_elsewhere(client):
            await cancel_stored(self._hub, client.session, reason)

    def cancel_here(self, client: ClientCalls, reason: str) -> None:
        """Ends what the session runs at this hub."""
        for line in list(client.requests.values()):
            if line is not None and (isinstance(line, CallHandle) or not line.is_elsewhere):
                (line if isinstance(line, CallHandle) else line.responder.call).cancel(reason)

    def _may_be_elsewhere(self, client: ClientCalls) -> bool:
        """Whether other hubs may run calls of the session: by round robin, or since it was theirs."""
        return client.stored.was_elsewhere or self._hub.durable.is_shared

    async def pass_on(self, client: ClientCalls) -> None:
        """Sends answers that the client has given to the processes that run the calls."""
        await anyio.lowlevel.checkpoint()  # an answer is handed on in the next pass of the loop
        while client.answers:
            stream, key, outcome = client.answers.popleft()
            try:
                await (await self._open(client, stream)).answer(key, outcome)
            except (UnknownStream, StoreError) as error:
                log.warning("answer_not_passed_on", stream=stream, reason=str(error))

    def forget(self, client: ClientCalls) -> None:
        """Its session is over here: nobody answers its questions."""
        client.is_gone = True
        client.withdrawals.clear()
        client.asking.close()


def not_now(error: Busy | StoreError) -> HttpError:
    """The reason is short-lived: the client may come back soon."""
    said = error.public if isinstance(error, StoreError) else str(error)
    return HttpError(503, Busy.symbol, said, Busy.code, id_=Unset, headers=[(b"retry-after", b"1")])


def _can_poll(line: ClientStream) -> bool:
    """Whether the client is primed: it comes back also when the stream has not yet said anything."""
    return line.is_known and eras.is_at_least(line.client.session.version, _PRIMED_SINCE)
