"""One client on a two-way connection: stdio, the old SSE transport, in process."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol

import anyio
import msgspec

from mcp_hub.errors import Busy, HubStopping, RpcError
from mcp_hub.fronts import limits
from mcp_hub.fronts.mcp.binding import Binding, Deferred, Settled, uninitialized
from mcp_hub.fronts.mcp.bonds import ClientBond
from mcp_hub.fronts.mcp.client_requests import ClientRequests
from mcp_hub.fronts.mcp.quick_call import QuickCall
from mcp_hub.fronts.mcp.responder import CallResponder
from mcp_hub.fronts.mcp.results import HeldAnswers
from mcp_hub.fronts.mcp.subscriptions import Announcer, Listening, ListenStreams
from mcp_hub.hub import CallHandle, HubPort
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, Frame, Unset, raw_object
from mcp_hub.protocol.jsonrpc.repair import BATCHING, is_array, messages
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST
from mcp_hub.protocol.meta import RequestMeta, take_params
from mcp_hub.protocol.notifications import given_reason
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import Era, RawJson
from mcp_hub.wire.base import Pending, Requests

log = get_logger(__name__)

OnModern = Callable[[RequestMeta], Session]
"""The session of a request with a modern envelope. Raises `RpcError` where modern requests are not served."""


class _ClientWire(Protocol):
    """Carries messages to the client, and from it to the `Duplex`."""

    @property
    def requests(self) -> Requests: ...

    @property
    def is_congested(self) -> bool:
        """The client does not read; deliveries wait for `on_writable`."""

    @property
    def is_closed(self) -> bool: ...

    def send(self, frame: Frame) -> None:
        """Queues a message for this loop pass."""

    def soon(self, callback: Callable[[], object]) -> None:
        """Runs `callback` in the next loop pass."""


class _Later(msgspec.Struct, eq=False):
    id: bytes
    scope: anyio.CancelScope = msgspec.field(default_factory=anyio.CancelScope)

    def cancel(self) -> None:
        self.scope.cancel()


class _Announcements:
    """The messages that answer no request: changes, and listen streams, as far as the client reads."""

    def __init__(self, wire: _ClientWire, streams: ListenStreams) -> None:
        self._wire = wire
        self._streams = streams
        self._room = anyio.Event()

    def take(self, frame: bytes) -> bool:
        """Sends a message at once, unless the client does not read."""
        if is_read := not (self._wire.is_congested or self._wire.is_closed):
            self._wire.send(frame)
        return is_read

    def wake(self) -> None:
        self._room.set()
        self._room = anyio.Event()

    async def writable(self) -> None:
        while self._wire.is_congested and not self._wire.is_closed:
            await self._room.wait()

    async def run(self, source: Announcer | Listening) -> None:
        while True:
            await self.writable()
            for frame in await source.next():
                self._wire.send(frame)
            source.sent()

    async def listen(self, listening: Listening) -> None:
        """A cancelled request gets no response."""
        try:
            with listening.scope:
                await self.run(listening)
        finally:
            self._streams.close(listening)
            if not listening.is_cancelled:
                self._wire.send(listening.completed())


class Duplex:
    """Serves one client until its wire closes, which sets `closed`."""

    def __init__(
        self, hub: HubPort, binding: Binding, caller: Caller, on_modern: OnModern, *, bond: ClientBond | None = None
    ) -> None:
        self.closed = anyio.Event()
        self._hub = hub
        self._binding = binding
        self._caller = caller
        self._on_modern = on_modern
        self._bond = bond if bond is not None else ClientBond()
        self._wire: _ClientWire
        self._asking: ClientRequests
        self._announcements: _Announcements
        self._session: Session | None = None
        self._open: dict[int | str, QuickCall | CallResponder | _Later | Listening] = {}
        self._ready: dict[int | str, QuickCall | CallResponder] = {}
        self._held_answers = HeldAnswers()
        self._settled: anyio.Event | None = None  # set with every request that is settled, once somebody waits for that
        self._tasks: anyio.abc.TaskGroup

    @asynccontextmanager
    async def serving(self, wire: _ClientWire) -> AsyncIterator[anyio.abc.TaskGroup]:
        """Answers over `wire` meanwhile. Cancelling the task group ends the block."""
        self._wire = wire
        self._announcements = _Announcements(wire, self._binding.streams)
        self._asking = ClientRequests(wire.requests, ends_hub=self._bond.ends_hub)
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                yield tasks
                tasks.cancel_scope.cancel()
        finally:
            if self._session is not None:
                self._hub.changes.tell_at_once(self._session.id, None)
                self._hub.end(self._session)
            if self.closed.is_set():
                self._abandon()

    async def answered(self) -> None:
        """Waits for all requests but listen streams."""
        while any(not isinstance(waiting, Listening) for waiting in self._open.values()):
            self._settled = anyio.Event()
            await self._settled.wait()

    @property
    def is_busy(self) -> bool:
        """Whether a request is open."""
        return bool(self._open)

    def _abandon(self) -> None:
        """Keeps nothing: results may be large."""
        requests, self._open, self._ready = self._open, {}, {}
        for followed in requests.values():
            if isinstance(followed, QuickCall | CallResponder):
                followed.close()
                self._bond.on_left(followed.call)

    # -- requests (WireHandler) -----------------------------------------------------------------------------------

    def on_request(self, message: Envelope, source: Pending | None = None) -> None:
        key = message.id_key
        if key is None or message.jsonrpc != "2.0":
            problem = "the id must be a string or an integer" if key is None else 'jsonrpc must be "2.0"'
            self._refuse_broken(message.usable_id, RpcError(f"invalid request: {problem}", code=INVALID_REQUEST))
            return
        id_ = bytes(message.id)
        if (earlier := self._open.get(key)) is not None:
            label = hide_head(id_, 100)
            log.warning("request_id_reused", id=label, method=message.method)
            if id_.startswith(b'"') != earlier.id.startswith(b'"'):
                self._refuse(id_, RpcError(f"invalid request: id {label} is in use", code=INVALID_REQUEST))
            return  # spelled alike, an error would settle the first request of this id
        try:
            self._admit(message)
            self._serve(key, id_, message)
        except RpcError as error:
            self._refuse(id_, error)
        except Exception:
            log.exception("request_crashed", method=message.method)
            self._refuse(id_, RpcError("Internal error of the hub. Its log has the details."))

    def _admit(self, message: Envelope) -> None:
        """Raises `RpcError` over a limit."""
        # each level takes two bytes, so short params are not looked at
        if message.params is not Unset and len(memoryview(message.params)) >= 2 * limits.DEPTH:
            limits.check_depth(message.params)
        if len(self._open) >= limits.OPEN_REQUESTS:
            reason = f"{limits.OPEN_REQUESTS} requests of this client are not answered yet"
            raise Busy.at(reason, "open_requests", limits.OPEN_REQUESTS)

    def _serve(self, key: int | str, id_: bytes, message: Envelope) -> None:
        method, (params, meta) = message.method, take_params(message.params)
        if method == "initialize" and self._session is None:
            self._bond.meet(Era.HANDSHAKE)
            self._session, result = self._binding.initialize(self._caller, params)
            self._hub.durable.connected.add(self._session.id)
            self._hub.changes.tell_at_once(self._session.id, self._announcements.take)
            self._answer(id_, result)
            self._tasks.start_soon(self._announcements.run, Announcer(self._hub, self._session))
            return
        session = self._session if meta.version is None else self._on_modern(meta)
        if session is None:
            self._answer(id_, uninitialized(method))
            return
        if meta.version is not None and method != "server/discover":
            self._bond.meet(Era.MODERN)
        continuation = self._bond.continuation(session, key) if self._bond.streams else None
        reply = self._binding.handle(session, method, params, meta) if continuation is None else continuation
        if isinstance(reply, Coroutine):
            later = self._open[key] = _Later(id_)
            self._tasks.start_soon(self._reply_later, key, later, session, meta, reply)
        else:
            self._reply(key, id_, session, meta, reply)

    def _reply(self, key: int | str, id_: bytes, session: Session, meta: RequestMeta, reply: Settled) -> None:
        if isinstance(reply, bytes):
            self._answer(id_, reply)
            return
        if not isinstance(reply, CallHandle):
            listening = self._open[key] = self._binding.streams.open(session, id_, reply)
            self._tasks.start_soon(self._announcements.listen, listening)
            return
        quick = QuickCall(hub=self._hub, id=id_, session=session, call=reply, token=meta.token, asking=self._asking)
        if quick.is_quick:
            self._open[key] = quick
            reply.watch(partial(self._news, key, quick))
        else:
            self._follow(key, quick)

    def _news(self, key: int | str, quick: QuickCall) -> None:
        if self._open.get(key) is not quick:
            return
        if quick.call.has_ended:
            self._put(key, quick)
        else:
            self._follow(key, quick)

    def _follow(self, key: int | str, quick: QuickCall) -> None:
        if frame := self._bond.followed(quick.id, quick.call):
            self._wire.send(frame)
        responder = self._open[key] = quick.responder(partial(Duplex._wake, self, key))
        if responder.has_more:
            self._put(key, responder)

    async def _reply_later(
        self, key: int | str, later: _Later, session: Session, meta: RequestMeta, reply: Deferred
    ) -> None:
        id_, scope = later.id, later.scope
        with scope:
            try:
                settled = await reply
            except RpcError as error:
                self._refuse(id_, error)
            except anyio.get_cancelled_exc_class():
                if not scope.cancel_called:
                    self._refuse(id_, HubStopping("the hub is stopping"))
                raise
            else:
                del self._open[key]
                self._reply(key, id_, session, meta, settled)
        self._settle(key, later)

    def _answer(self, id_: bytes, result: RawJson) -> None:
        self._wire.send(envelope.result_frame(id_, result))

    def _refuse(self, id_: bytes | None, error: RpcError) -> None:
        self._wire.send(envelope.error_frame(id_, error.encoded()))

    def _refuse_broken(self, id_: bytes | None, error: RpcError) -> None:
        """The id of an open request must not be answered."""
        is_open = id_ is not None and envelope.id_key(id_) in self._open
        self._refuse(None if is_open else id_, error)

    def on_notification(self, message: Envelope, source: Pending | None = None) -> None:
        if message.method != "notifications/cancelled":
            if self._session is not None:
                self._binding.notice(self._session, message)
            return
        params = raw_object(message.params) or {}
        raw = params.get("requestId")
        followed = self._open.pop(envelope.id_key(bytes(raw)), None) if raw is not None else None
        if isinstance(followed, QuickCall | CallResponder):
            followed.close()
            for frame in followed.withdrawn():
                self._wire.send(frame)
            followed.call.cancel(given_reason(params), is_clients=True)
        elif followed is not None:
            followed.cancel()

    def on_bad_line(self, bad: BadMessage, line: bytes, source: Pending | None = None) -> None:
        if self.takes_batches and bad.code == INVALID_REQUEST and is_array(line):
            self.on_batch(line)
        else:
            self._refuse_broken(bad.id, RpcError(bad.reason, code=bad.code))

    @property
    def takes_batches(self) -> bool:
        """Whether the client may send arrays."""
        return self._session is not None and self._session.version in BATCHING

    def on_batch(self, text: bytes) -> None:
        """Takes each message alone."""
        try:
            for message in messages(text, limits.BATCH):
                self.take(message)
        except RpcError as error:
            self._refuse(None, error)

    def take(self, message: Envelope | BadMessage) -> None:
        """Takes a message of a wire that does not match responses."""
        if isinstance(message, BadMessage):
            self._refuse_broken(message.id, RpcError(message.reason, code=message.code))
        elif message.kind == "request":
            self.on_request(message)
        elif message.kind == "notification":
            self.on_notification(message)
        else:
            self._asking.take(message)

    def on_late_answer(self, id_: int) -> None:
        """Ignores responses to withdrawn questions."""

    def on_closed(self, reason: str, code: str) -> None:
        log.info("client_gone", reason=reason, code=code)
        self.closed.set()
        self._announcements.wake()

    def _wake(self, key: int | str) -> None:
        responder = self._open.get(key)
        if type(responder) is CallResponder and self._ready.get(key) is not responder:
            self._put(key, responder)

    def _put(self, key: int | str, responder: QuickCall | CallResponder) -> None:
        is_due = bool(self._ready)
        self._ready[key] = responder
        if not is_due:
            self._wire.soon(self.deliver)

    def on_writable(self) -> None:
        self._announcements.wake()
        self.deliver()

    async def writable(self) -> None:
        """Waits until the client reads, or is gone."""
        await self._announcements.writable()

    def deliver(self) -> None:
        """Moves events to the wire, as far as the client reads."""
        while self._ready and not self._wire.is_congested and not self._wire.is_closed:
            key, responder = next(iter(self._ready.items()))
            del self._ready[key]
            if type(responder) is QuickCall:
                if (answer := responder.answer()) is None:
                    self._follow(key, responder)
                    continue
                self._settle(key, responder)
                self._wire.send(answer)
                continue
            frames = responder.take()
            for frame in frames:
                self._wire.send(frame)
            if frames and responder.token is not None:
                self._held_answers.progressed()
            if responder.ended:
                self._finish(key, responder)

    def _finish(self, key: int | str, responder: CallResponder) -> None:
        if responder.token is None:
            self._end(key, responder)
        else:
            gap = self._hub.views.client_kind(responder.session).result_gap
            self._held_answers.send(gap, partial(self._end, key, responder))

    def _end(self, key: int | str, responder: CallResponder) -> None:
        if self._open.get(key) is not responder:
            return
        self._settle(key, responder)
        responder.close()
        if responder.answer is not None:
            self._wire.send(responder.answer)

    def _settle(self, key: int | str, responder: QuickCall | CallResponder | _Later) -> None:
        if self._settled is not None:
            self._settled.set()
        if self._open.get(key) is responder:
            del self._open[key]
