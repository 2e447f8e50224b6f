"""Event streams of handshake clients over HTTP that outlive their connections: `Last-Event-ID`, orphans, polling.

A response that has become an event stream is known to its client, which may come back for the rest of it: with a GET
that names a place in it, for as long as the stream is kept, from the same session only, to whatever hub on the same
store. A stream has one such connection at a time, the latest. The answer to such a GET is

* 200 and what follows that place, when anything does or still may; the stream is closed behind the response;
* 204 when nothing ever will (the response was sent, or the call cancelled): what tells an event source to stop, where
  an empty 200 would have it come back for ever;
* 400 for a place that this session has not been given, in the same words whoever else may have been;
* 410 for one behind which events were let go already;
* 503 when too many follow the stream, or the store cannot say.

A call without a connection goes on, for as long as its tool may (`Facade.leave`). Source: specification 2025-11-25,
basic/transports "Sending Messages to the Server" 6 and "Resumability and Redelivery"; SEP-1699; streams.md §2, §3.
"""

from collections import deque
from typing import Final

import anyio
import anyio.lowlevel
import msgspec
import structlog

from mcp_hub.calls import cursors, runner
from mcp_hub.calls.cursors import Cursor
from mcp_hub.calls.parking import Leg
from mcp_hub.calls.stream import Stream
from mcp_hub.clock import Clock
from mcp_hub.errors import Busy, EventsGone, InvalidParams, RpcError, UnknownStream
from mcp_hub.fronts import sse
from mcp_hub.fronts.asking import Asking
from mcp_hub.fronts.delivery import Delivery
from mcp_hub.fronts.detaching import substitute
from mcp_hub.fronts.exchange import Exchange, Housekeeper, Receive, Send, respond
from mcp_hub.fronts.http_request import HttpRequest
from mcp_hub.fronts.kept_sessions import KeptSession, KeptSessions
from mcp_hub.fronts.replay import Origin, Replay, cancel_kept
from mcp_hub.hub import Facade
from mcp_hub.protocol import eras
from mcp_hub.protocol.envelope import object_bytes
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST
from mcp_hub.sessions.session import Session
from mcp_hub.stores.base import StoreError, StreamRow
from mcp_hub.types import CallId, Era, RawJson

__all__ = ["RETRY_AFTER", "Client", "Line", "Resumption"]

log = structlog.get_logger(__name__)

RETRY_AFTER: Final = [(b"retry-after", b"1")]
"""Header of a refusal for now: what is in the way is short-lived."""
_RETURN: Final = 30.0
"""Seconds in which a client that was told to poll has to be back, where its calls may not go on without it."""
_MOST_UNTOLD: Final = 64
_MOST_LETTERS: Final = 256
"""Of one client: ended calls whose last words it has not heard, answers on their way to other processes."""
_PRIMED_SINCE: Final = "2025-11-25"
"""Older clients take an event without data for a broken message."""
_RETRY: Final = 5000
"""Milliseconds that a client waits before it comes back."""
_TICK: Final = 1.0
"""Seconds between two looks at what is due."""


def _refusal(status: int, message: str, code: int = INVALID_REQUEST) -> tuple[int, bytes]:
    """A status, and an error response that has no `id`."""
    return status, object_bytes({"jsonrpc": "2.0", "error": {"code": code, "message": message}})


_UNKNOWN: Final = _refusal(400, "unknown event id")
_TRIMMED: Final = _refusal(410, "events after this one are no longer kept")


class Client(msgspec.Struct, eq=False):
    """What one session has under way: its calls by request id, None for one that is starting, and its questions.

    `untold` has what ended calls still had to say to it about their questions while it was away, `letters` the answers
    to questions of calls that run elsewhere.
    """

    kept: KeptSession
    requests: dict[int | str, "Line | None"] = msgspec.field(default_factory=dict)
    asking: Asking = msgspec.field(default_factory=Asking)
    untold: dict[CallId, list[bytes]] = msgspec.field(default_factory=dict)
    letters: deque[tuple[CallId, str, RawJson | RpcError]] = msgspec.field(
        default_factory=lambda: deque(maxlen=_MOST_LETTERS)
    )
    is_gone: bool = False

    @property
    def session(self) -> Session:
        return self.kept.session

    def is_taken(self, key: int | str) -> bool:
        """Whether a request of this id is under way: an id is free as soon as its call has ended."""
        return key in self.requests and ((line := self.requests[key]) is None or not line.has_ended)


class Line(msgspec.Struct, eq=False):
    """A call's messages for the client that made it, and the connection that they go to, if there is one.

    `since` is when that became an event stream; `after` where it began. `waiting` counts the connections that are about
    to take its place, one after the other (`turns`).
    """

    client: Client
    key: int | str
    delivery: Delivery
    exchange: Exchange | None
    since: float = 0.0
    after: int = 0
    is_known: bool = False
    waiting: int = 0
    turns: anyio.Lock | None = None

    @property
    def id(self) -> CallId:
        return self.delivery.record.call.id

    @property
    def is_elsewhere(self) -> bool:
        return isinstance(self.delivery, Replay)

    @property
    def has_ended(self) -> bool:
        return self.delivery.record.log.ended or (self.is_elsewhere and self.delivery.ended)


class Resumption:
    """The streams of all handshake clients, and the one timer that looks after them.

    `close_after`, in seconds, is for how long a connection stays open to a client that can be told to come back.
    """

    def __init__(self, hub: Facade, keeper: Housekeeper, clock: Clock, close_after: float | None) -> None:
        self.sessions = KeptSessions(hub.streams.store, hub.streams.retention)
        self._hub = hub
        self._keeper = keeper
        self._clock = clock
        self._close_after = close_after
        self._lines: dict[CallId, Line] = {}  # those that are known or have no connection
        self._timer: runner.Timer | None = None

    async def answer(
        self, client: Client, request: HttpRequest, id_: bytes, key: int | str, token: bytes | None, leg: Leg
    ) -> None:
        """Follows a call to the end of its POST's response; afterwards it may go on, and the client come back."""
        record = leg.record
        exchange = Exchange(
            Era.HANDSHAKE,
            request.receive,
            request.send,
            can_stream=request.takes_sse,
            on_stream=lambda: self._opened(line),
        )
        asking = None
        if request.takes_sse:
            asking = client.asking
            call = record.call
            record.info = lambda: Origin.of(id_, token, call).encoded()
        exchange.delivery = Delivery(
            self._hub,
            id_,
            client.session,
            record,
            token,
            exchange.wake,
            asking,
            leg.after,
            by_cursor=request.takes_sse,
            instead=substitute(self._hub, client.session, record),
        )
        line = client.requests[key] = Line(client, key, exchange.delivery, exchange)
        self._keeper.add(exchange)
        try:
            await exchange.run()
        finally:
            self._keeper.discard(exchange)
            self._left(line, exchange)

    # -- coming back ----------------------------------------------------------------------------------------------

    async def resume(self, client: Client, named: str, receive: Receive, send: Send) -> None:
        """Answers a GET of this client with that `Last-Event-ID`."""
        try:
            cursor = Cursor.parse(named)
            row = await self._row(client, cursor)
            line, exchange = await self._attached(client, row, cursor, receive, send)
        except (ValueError, InvalidParams):
            await respond(send, *_UNKNOWN)
        except EventsGone:
            await respond(send, *_TRIMMED)
        except (Busy, StoreError) as error:
            await respond(send, *_refusal(503, str(error), Busy.code), RETRY_AFTER)
        else:
            try:
                await exchange.run()
            finally:
                self._left(line, exchange)

    async def _row(self, client: Client, cursor: Cursor) -> StreamRow:
        """The stream that is named. Raises `UnknownStream` unless this session has been given that place."""
        row = (await self._open(client, cursor.stream)).row
        if row.session != client.session.id or cursor.seq > row.last:
            raise UnknownStream
        line = client.requests.get(Origin.kept(row).key)
        if line is not None and line.id == row.id and line.exchange is not None and not line.is_known:
            raise UnknownStream
        return row

    async def _open(self, client: Client, stream: CallId) -> Stream:
        return await self._hub.streams.open(client.session.caller.principal, stream)

    async def _attached(
        self, client: Client, row: StreamRow, cursor: Cursor, receive: Receive, send: Send
    ) -> tuple[Line, Exchange]:
        """A connection that takes the stream over; the older one is closed first.

        Raises `UnknownStream`, `EventsGone`, `Busy`, `StoreError`.
        """
        line = self._lines.get(row.id)
        if line is None:
            delivery = await self._delivery(client, row)
            new = Line(client, Origin.kept(row).key, delivery, None, is_known=True)
            line = self._lines.setdefault(row.id, new)
        line.turns = line.turns or anyio.Lock()
        line.waiting += 1
        try:
            async with line.turns:
                if line.exchange is not None:
                    await line.exchange.stop().wait()
                await self._refresh(line, client)
                exchange = await self._connect(line, cursor.seq, receive, send)
        finally:
            line.waiting -= 1
            if line.exchange is None:
                self._away(line)
        return line, exchange

    async def _delivery(self, client: Client, row: StreamRow) -> Delivery:
        """What shapes the events of a stream for its client, which had no connection to this hub. Raises `StoreError`.

        Raises `UnknownStream` for one that did not begin with a request of this client's.
        """
        writer = self._hub.streams.owned(row.id)
        if writer is not None:
            origin = Origin.kept(row)
            own = bytes(origin.id)
            return Delivery(self._hub, own, client.session, writer.record, origin.token, _nobody, client.asking)
        asked = await self._hub.streams.questions(row)

        def pass_on(key: str, outcome: RawJson | RpcError) -> None:
            client.letters.append((row.id, key, outcome))

        replay = Replay(self._hub, client.session, client.asking, row, self._clock, asked, pass_on)
        replay.remember(client.untold.get(row.id, []))
        return replay

    async def _refresh(self, line: Line, client: Client) -> None:
        """Sees to it that the line is this client's: its session may have made room and been accepted again."""
        if line.client is not client:
            line.delivery.close()
            line.delivery = await self._delivery(client, (await self._open(client, line.id)).row)
            line.client = client

    async def _connect(self, line: Line, after: int, receive: Receive, send: Send) -> Exchange:
        stream = await self._open(line.client, line.id)
        exchange = Exchange(
            Era.HANDSHAKE,
            receive,
            send,
            can_stream=True,
            on_stream=lambda: self._opened(line),
            is_resumed=True,
        )
        line.delivery.follow(exchange.wake, self._hub.streams.follow(stream, exchange.wake, after))
        exchange.delivery = line.delivery
        line.exchange, line.after = exchange, after
        if not stream.row.has_ended:
            line.client.requests.setdefault(line.key, line)
        return exchange

    async def _opened(self, line: Line) -> bytes:
        """The response has become an event stream; what goes first tells the client from where it may resume it.

        Over again on a resumed one: clients forget the place that they came with (TypeScript SDK 1.x). A call that
        still waits for its turn has no stream yet, and nothing to be resumed.
        """
        record = line.delivery.record
        if record.stream is None and not line.is_elsewhere:
            return b""
        line.is_known = True
        line.since = self._clock.now()
        self._watch(line)
        await self.sessions.keep(line.client.kept, record.limits.total)
        return sse.priming(cursors.place(line.id, line.after), _RETRY) if _can_poll(line) else b""

    # -- going away -----------------------------------------------------------------------------------------------

    def _left(self, line: Line, exchange: Exchange) -> None:
        """The connection is over; nobody follows the call, until another takes the stream over."""
        line.exchange = None
        line.delivery.pause()
        line.delivery.answer = None  # it is in the stream, for who comes back
        if not line.waiting:
            self._away(line, is_polling=exchange.is_stopped)

    def _away(self, line: Line, *, is_polling: bool = False) -> None:
        """There is no connection, and none is about to come."""
        if line.has_ended or line.is_elsewhere or line.delivery.detached:
            self._settle(line)
            return
        record = line.delivery.record
        if is_polling and self._hub.rules(record).orphan == "cancel":
            self._hub.streams.orphan(record, _RETURN)
        else:
            self._hub.leave(line.client.session, record)
        self._watch(line)

    def _watch(self, line: Line) -> None:
        self._lines[line.id] = line
        if self._timer is None:
            self._timer = runner.call_later(_TICK, self._turn)

    def _turn(self) -> None:
        """Sees to what is due; again in a while, unless nothing is left that could be."""
        now = self._clock.now()
        for line in list(self._lines.values()):
            if line.exchange is not None:
                if self._close_after is not None and now - line.since >= self._close_after and _can_poll(line):
                    line.exchange.stop()
            elif line.has_ended and not line.waiting:
                self._settle(line)
        self._timer = runner.call_later(_TICK, self._turn) if self._lines else None

    def _settle(self, line: Line) -> None:
        """Nothing more is to be done for the line: the request's id is free. The stream itself is kept by the store."""
        client = line.client
        if client.requests.get(line.key) is line:
            del client.requests[line.key]
        if self._lines.get(line.id) is line:
            del self._lines[line.id]
        line.delivery.close()
        if line.delivery.detached or not line.has_ended:
            return  # what it asks may still be answered
        last_words = line.delivery.withdrawn()
        if last_words and not client.is_gone:
            client.untold[line.id] = last_words
            if len(client.untold) > _MOST_UNTOLD:
                del client.untold[next(iter(client.untold))]

    # -- what else a client may do ----------------------------------------------------------------------------------

    async def cancel(self, client: Client, key: int | str, reason: str) -> None:
        """Ends the call of a request, if one is under way, at whichever hub."""
        line = client.requests.get(key)
        if line is not None and not line.is_elsewhere:
            self._hub.cancel(line.delivery.record, reason)
        elif line is not None or (client.kept.was_elsewhere and key not in client.requests):
            await cancel_kept(self._hub.streams, client.session, reason, key)

    async def cancel_all(self, client: Client, reason: str) -> None:
        """Ends whatever the session still runs."""
        for key in list(client.requests):
            await self.cancel(client, key, reason)
        if client.kept.was_elsewhere:
            await cancel_kept(self._hub.streams, client.session, reason)

    async def pass_on(self, client: Client) -> None:
        """Sends answers that the client has given to the processes that run the calls."""
        await anyio.lowlevel.checkpoint()  # an answer is handed on in the next pass of the loop
        while client.letters:
            stream, key, outcome = client.letters.popleft()
            try:
                await self._hub.streams.answer(client.session.caller.principal, stream, key, outcome)
            except (UnknownStream, StoreError) as error:
                log.warning("answer_not_passed_on", stream=stream, reason=str(error))

    def forget(self, client: Client) -> None:
        """Its session is over here: nobody answers its questions."""
        client.is_gone = True
        client.untold.clear()
        client.asking.close()


def _can_poll(line: Line) -> bool:
    """Whether the client is primed: it comes back also when the stream has not yet said anything."""
    return line.is_known and eras.is_at_least(line.client.session.version, _PRIMED_SINCE)


def _nobody() -> None:
    """Nobody follows yet."""
