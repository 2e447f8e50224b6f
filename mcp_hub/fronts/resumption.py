"""Event streams of handshake clients over HTTP that outlive their connections: `Last-Event-ID`, orphans, polling.

A response that has become an event stream is known to its client, which may come back for the rest of it: with a GET
that names a place in it, while the call runs and for `KEPT_SECONDS` after its end, from the same session only. A stream
has one connection at a time, the latest. The answer to such a GET is

* 200 and what follows that place, when anything does or still may; the stream is closed behind the response;
* 204 when nothing ever will (the response was sent, or the call cancelled): what tells an event source to stop, where
  an empty 200 would have it come back for ever;
* 400 for a place that this session has not been given, in the same words whoever else may have been;
* 410 for one behind which events were let go already.

A call without a connection goes on, for `ORPHAN_SECONDS` at most. Source: specification 2025-11-25, basic/transports
"Sending Messages to the Server" 6 and "Resumability and Redelivery"; SEP-1699; streams.md §2, §3.
"""

from dataclasses import dataclass, field
from typing import Final

import anyio
import structlog

from mcp_hub.calls import runner
from mcp_hub.calls.cursors import Cursor, place
from mcp_hub.calls.parking import Leg
from mcp_hub.clock import Clock
from mcp_hub.fronts import sse
from mcp_hub.fronts.asking import Asking
from mcp_hub.fronts.delivery import Delivery
from mcp_hub.fronts.exchange import Exchange, Housekeeper, Receive, Send, respond
from mcp_hub.fronts.http_request import HttpRequest
from mcp_hub.hub import Facade
from mcp_hub.protocol import eras
from mcp_hub.protocol.envelope import object_bytes
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST
from mcp_hub.sessions.session import Session
from mcp_hub.types import CallId, Era

__all__ = ["KEPT_SECONDS", "ORPHAN_SECONDS", "Client", "Resumption", "Stream"]

log = structlog.get_logger(__name__)

ORPHAN_SECONDS: Final = 600.0
"""That a call may go on while its client is away (streams.md §3)."""
KEPT_SECONDS: Final = 300.0
"""That a stream stays after the end of its call."""
_MOST_OF_CLIENT: Final = 64
_MOST: Final = 1024
_MOST_BYTES: Final = 128 << 20
"""Of payload. Streams of ended calls, of one client and of all; the one whose call ended first goes first."""
_PRIMED_SINCE: Final = "2025-11-25"
"""Older clients take an event without data for a broken message."""
_RETRY: Final = 5000
"""Milliseconds that a client waits before it comes back."""
_TICK: Final = 1.0
"""Seconds between two looks at what is due."""


def _refusal(status: int, message: str) -> tuple[int, bytes]:
    """A status, and an error response that has no `id`."""
    return status, object_bytes({"jsonrpc": "2.0", "error": {"code": INVALID_REQUEST, "message": message}})


_UNKNOWN: Final = _refusal(400, "unknown event id")
_TRIMMED: Final = _refusal(410, "events after this one are no longer kept")


@dataclass(slots=True, eq=False)
class Client:
    """What one session has under way: its calls by request id, None for one that is starting, and its questions.

    `ended` are streams that it may still come back for.
    """

    session: Session
    requests: dict[int | str, "Stream | None"] = field(default_factory=dict)
    asking: Asking = field(default_factory=Asking)
    ended: dict[CallId, "Stream"] = field(default_factory=dict)
    is_gone: bool = False

    def is_taken(self, key: int | str) -> bool:
        """Whether a request of this id is under way: an id is free as soon as its call has ended."""
        return key in self.requests and ((stream := self.requests[key]) is None or not stream.has_ended)


@dataclass(slots=True, eq=False)
class Stream:
    """A call's messages for the client that made it, and the connection that they go to, if there is one.

    `since` is when that was opened or lost, or the end of the call noticed; `after` where it began.
    """

    client: Client
    key: int | str
    delivery: Delivery
    exchange: Exchange | None
    since: float = 0.0
    after: int = 0
    is_known: bool = False
    size: int = 0
    turns: anyio.Lock | None = None

    @property
    def id(self) -> CallId:
        return self.delivery.record.call.id

    @property
    def has_ended(self) -> bool:
        return self.delivery.record.log.ended

    def refusal(self, cursor: Cursor) -> tuple[int, bytes] | None:
        events = self.delivery.record.log
        if cursor.seq > events.last_seq:
            return _UNKNOWN
        return _TRIMMED if cursor.seq + 1 < events.first_seq else None


class Resumption:
    """The streams of all handshake clients, and the one timer that looks after them.

    `close_after`, in seconds, is for how long a connection stays open to a client that can be told to come back.
    """

    def __init__(self, hub: Facade, keeper: Housekeeper, clock: Clock, close_after: float | None) -> None:
        self._hub = hub
        self._keeper = keeper
        self._clock = clock
        self._close_after = close_after
        self._running: dict[CallId, Stream] = {}  # those that are known or have no connection
        self._ended: dict[CallId, Stream] = {}  # the first to end first
        self._bytes = 0
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
            on_stream=lambda: self._opened(stream),
        )
        asking = None
        if request.takes_sse:
            record.log.keep()
            asking = client.asking
        exchange.delivery = Delivery(self._hub, id_, client.session, record, token, exchange.wake, asking, leg.after)
        stream = client.requests[key] = Stream(client, key, exchange.delivery, exchange)
        self._keeper.add(exchange)
        try:
            await exchange.run()
        finally:
            self._keeper.discard(exchange)
            self._left(stream)

    async def resume(self, client: Client, named: str, receive: Receive, send: Send) -> None:
        """Answers a GET of this client with that `Last-Event-ID`."""
        try:
            cursor = Cursor.parse(named)
        except ValueError:
            await respond(send, *_UNKNOWN)
            return
        stream = self._running.get(cursor.stream) or self._ended.get(cursor.stream)
        if stream is None or stream.client is not client or not stream.is_known:
            await respond(send, *_UNKNOWN)
            return
        refusal = stream.refusal(cursor)
        if refusal is None:
            if stream.turns is None:
                stream.turns = anyio.Lock()
            async with stream.turns:
                if stream.exchange is not None:
                    await stream.exchange.stop().wait()
                refusal = stream.refusal(cursor)
                if refusal is None:
                    exchange = self._attached(stream, cursor.seq, receive, send)
        if refusal is not None:
            await respond(send, *refusal)
            return
        try:
            await exchange.run()
        finally:
            self._left(stream)

    def forget(self, client: Client) -> None:
        """Its session is over: nobody comes back for its streams or answers its questions."""
        client.is_gone = True
        client.asking.close()
        for stream in list(client.ended.values()):
            self._drop(stream)

    def _attached(self, stream: Stream, after: int, receive: Receive, send: Send) -> Exchange:
        """A connection that takes the stream over."""
        exchange = stream.exchange = Exchange(
            Era.HANDSHAKE,
            receive,
            send,
            can_stream=True,
            on_stream=lambda: self._opened(stream),
            is_resumed=True,
        )
        exchange.delivery = stream.delivery
        stream.delivery.follow(exchange.wake, after)
        stream.after = after
        return exchange

    def _opened(self, stream: Stream) -> bytes:
        """The response has become an event stream; what goes first tells the client from where it may resume it.

        Over again on a resumed one: clients forget the place that they came with (TypeScript SDK 1.x).
        """
        stream.is_known = True
        if stream.id not in self._ended:
            stream.since = self._clock.now()
            self._watch(stream)
        return sse.priming(place(stream.id, stream.after), _RETRY) if _can_poll(stream) else b""

    def _left(self, stream: Stream) -> None:
        """The connection is over; nobody follows the call, until another takes the stream over."""
        stream.exchange = None
        stream.delivery.close()
        stream.delivery.answer = None  # it is in the log, for who comes back
        if stream.has_ended:
            self._settle(stream)
        else:
            stream.since = self._clock.now()
            self._watch(stream)

    def _watch(self, stream: Stream) -> None:
        self._running[stream.id] = stream
        if self._timer is None:
            self._timer = runner.call_later(_TICK, self._turn)

    def _turn(self) -> None:
        """Sees to what is due; again in a while, unless nothing is left that could be."""
        now = self._clock.now()
        for stream in list(self._running.values()):
            if stream.exchange is not None:
                if self._close_after is not None and now - stream.since >= self._close_after and _can_poll(stream):
                    stream.exchange.stop()
            elif stream.has_ended:
                self._settle(stream)
            elif now - stream.since >= ORPHAN_SECONDS and stream.delivery.record.stopping is None:
                log.info("call_orphaned", call_id=stream.id, upstream=stream.delivery.record.call.upstream)
                self._hub.cancel(stream.delivery.record, "its client did not come back")
        while self._ended and now - (oldest := next(iter(self._ended.values()))).since >= KEPT_SECONDS:
            self._drop(oldest)
        self._timer = runner.call_later(_TICK, self._turn) if self._running or self._ended else None

    def _settle(self, stream: Stream) -> None:
        """The call has ended and no connection is left: the request's id is free, the stream stays for a while."""
        client = stream.client
        if client.requests.get(stream.key) is stream:
            del client.requests[stream.key]
        if self._running.pop(stream.id, None) is None:
            return  # it never became a stream, or has been here before
        if not stream.is_known or client.is_gone:
            return
        record = stream.delivery.record
        stream.size = record.log.size + sum(map(len, record.call.params.values()))
        stream.since = self._clock.now()
        self._ended[stream.id] = client.ended[stream.id] = stream
        self._bytes += stream.size
        if len(client.ended) > _MOST_OF_CLIENT:
            self._drop(next(iter(client.ended.values())))
        while len(self._ended) > _MOST or self._bytes > _MOST_BYTES:
            self._drop(next(iter(self._ended.values())))

    def _drop(self, stream: Stream) -> None:
        del self._ended[stream.id], stream.client.ended[stream.id]
        self._bytes -= stream.size
        stream.delivery.withdrawn()  # nobody will tell the client, but nothing waits for it any more


def _can_poll(stream: Stream) -> bool:
    """Whether the client is primed: it comes back also when the stream has not yet said anything."""
    return eras.is_at_least(stream.client.session.version, _PRIMED_SINCE)
