"""The stdio front: one client on stdin and stdout, either era, era decided by each request (protocol.md §2).

While it serves, file descriptors 0 and 1 belong to the wire alone: stray prints go to stderr, children inherit
`/dev/null`.
"""

import os
import sys
from typing import IO

import anyio
import structlog

from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.fronts.announcer import Announcer
from mcp_hub.fronts.asking import Asking
from mcp_hub.fronts.delivery import Delivery
from mcp_hub.fronts.mcp_server import Binding, Deferred, Running, modern_session, uninitialized
from mcp_hub.hub import Facade
from mcp_hub.protocol import envelope
from mcp_hub.protocol.envelope import BadMessage, Envelope, raw_object
from mcp_hub.protocol.meta import RequestMeta, take_meta
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import RawJson, RawObject
from mcp_hub.wire.base import Pending
from mcp_hub.wire.pipe import Pipe

__all__ = ["StdioFront", "take_stdio"]

log = structlog.get_logger(__name__)


def take_stdio() -> tuple[IO[bytes], IO[bytes]]:
    """The wire's own copies of stdin and stdout; what anyone else reads or prints no longer reaches the client."""
    sys.stdout.flush()
    wire_in, wire_out = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return os.fdopen(wire_in, "rb", buffering=0), os.fdopen(wire_out, "wb", buffering=0)


class StdioFront:
    """Serves one pipe until the client closes it. A `WireHandler`."""

    def __init__(self, hub: Facade, binding: Binding, caller: Caller) -> None:
        self._hub = hub
        self._binding = binding
        self._caller = caller
        self._pipe: Pipe
        self._asking: Asking
        self._session: Session | None = None
        self._requests = 0
        self._open: dict[int | str, Delivery | anyio.CancelScope] = {}
        self._ready: dict[int | str, Delivery] = {}
        self._deliver_due = False
        self._closed = anyio.Event()
        self._tasks: anyio.abc.TaskGroup

    async def serve(self, read: IO[bytes], write: IO[bytes], line_limit: int) -> None:
        """Returns when the client has closed its side."""
        self._pipe = Pipe(self, line_limit=line_limit, couples=True)
        self._asking = Asking(self._pipe.requests)
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            await self._pipe.open(read, write)
            tasks.start_soon(self._announce_changes)
            await self._closed.wait()
            tasks.cancel_scope.cancel()
        for followed in list(self._open.values()):
            if isinstance(followed, Delivery):
                self._hub.cancel(followed.record, "the client is gone")

    def close(self) -> None:
        """Delivers what has ended, then closes the wire."""
        self._deliver()
        self._pipe.close()

    # -- requests (WireHandler) -----------------------------------------------------------------------------------

    def on_request(self, message: Envelope, source: Pending | None = None) -> None:
        id_ = envelope.usable_id(message.id)
        if id_ is None or message.jsonrpc != "2.0":
            what = "the id must be a string or an integer" if id_ is None else 'jsonrpc must be "2.0"'
            self._refuse(id_, RpcError(f"invalid request: {what}", code=INVALID_REQUEST))
            return
        key = envelope.id_key(id_)
        if key in self._open:
            # an error would settle the first request of this id
            log.warning("request_id_reused", id=id_.decode("utf-8", "replace")[:100], method=message.method)
            return
        try:
            self._serve(key, id_, str(message.method), message)
        except RpcError as error:
            self._refuse(id_, error)
        except Exception:
            log.exception("request_crashed", method=message.method)
            self._refuse(id_, RpcError("internal error of the hub; its log has the details"))

    def _serve(self, key: int | str, id_: bytes, method: str, message: Envelope) -> None:
        params = raw_object(message.params)
        if params is None:
            raise InvalidParams("params must be an object")
        meta = take_meta(params)
        if method == "initialize" and self._session is None:
            self._session, result = self._binding.initialize(self._caller, params)
            self._answer(id_, result)
            return
        session = self._session_of(meta)
        if session is None:
            self._answer(id_, uninitialized(method))
            return
        self._dispatch(key, id_, session, method, params, meta)

    def _session_of(self, meta: RequestMeta) -> Session | None:
        if meta.is_modern:
            self._requests += 1
            return modern_session(self._caller, meta, f"stdio#{self._requests}")
        return self._session

    def _dispatch(
        self, key: int | str, id_: bytes, session: Session, method: str, params: RawObject, meta: RequestMeta
    ) -> None:
        reply = self._binding.handle(session, method, params, meta)
        if isinstance(reply, Deferred):
            scope = self._open[key] = anyio.CancelScope()
            self._tasks.start_soon(self._reply_later, key, id_, session, meta, reply, scope)
        else:
            self._reply(key, id_, session, meta, reply)

    def _reply(self, key: int | str, id_: bytes, session: Session, meta: RequestMeta, reply: bytes | Running) -> None:
        if isinstance(reply, bytes):
            self._answer(id_, reply)
            return
        delivery = Delivery(
            self._hub, id_, session, reply.record, meta.token, lambda: self._wake(key), self._asking, reply.after
        )
        self._open[key] = delivery
        if delivery.has_more:
            self._wake(key)

    async def _reply_later(
        self, key: int | str, id_: bytes, session: Session, meta: RequestMeta, reply: Deferred, scope: anyio.CancelScope
    ) -> None:
        with scope:
            try:
                settled = await reply.reply
            except RpcError as error:
                self._refuse(id_, error)
            else:
                del self._open[key]
                self._reply(key, id_, session, meta, settled)
        if self._open.get(key) is scope:
            del self._open[key]

    def _answer(self, id_: bytes, result: RawJson) -> None:
        self._pipe.send(envelope.result_frame(id_, result))

    def _refuse(self, id_: bytes | None, error: RpcError) -> None:
        self._pipe.send(envelope.error_frame(id_, error.encoded()))

    def on_notification(self, message: Envelope, source: Pending | None = None) -> None:
        if message.method != "notifications/cancelled":
            return
        params = raw_object(message.params) or {}
        raw = params.get("requestId")
        followed = self._open.pop(envelope.id_key(bytes(raw)), None) if raw is not None else None
        if isinstance(followed, Delivery):
            followed.close()
            for frame in followed.withdrawn():
                self._pipe.send(frame)
            self._hub.cancel(followed.record, "cancelled by the client")
        elif followed is not None:
            followed.cancel()

    def on_bad_line(self, bad: BadMessage, line: bytes) -> None:
        self._refuse(bad.id, RpcError(bad.reason, code=bad.code))

    def on_late_answer(self, id_: int) -> None:
        """An answer to a question that was withdrawn."""

    def on_closed(self, reason: str) -> None:
        log.info("client_gone", reason=reason)
        self._closed.set()

    # -- delivery -------------------------------------------------------------------------------------------------

    def _wake(self, key: int | str) -> None:
        delivery = self._open.get(key)
        if isinstance(delivery, Delivery):
            self._ready[key] = delivery
            if not self._deliver_due:
                self._deliver_due = True
                self._pipe.soon(self._deliver)

    def on_writable(self) -> None:
        self._deliver()

    def _deliver(self) -> None:
        """Moves events from the logs to the wire, as far as the client reads."""
        self._deliver_due = False
        while self._ready and not self._pipe.is_congested and not self._pipe.is_closed:
            key, delivery = next(iter(self._ready.items()))
            del self._ready[key]
            frames = delivery.take()
            for frame in frames:
                self._pipe.send(frame)
            if delivery.ended:
                self._finish(key, delivery, bool(frames))

    def _finish(self, key: int | str, delivery: Delivery, notified: bool) -> None:
        if self._open.get(key) is delivery:
            del self._open[key]
        delivery.close()
        if delivery.answer is not None:
            if notified:
                self._pipe.flush()  # some clients lose a notification that shares a read with the result
            self._pipe.send(delivery.answer)

    # -- changes --------------------------------------------------------------------------------------------------

    async def _announce_changes(self) -> None:
        announcer = Announcer(self._hub, self._caller.profile)
        while True:
            for frame in await announcer.next():
                if self._session is not None:
                    self._pipe.send(frame)
