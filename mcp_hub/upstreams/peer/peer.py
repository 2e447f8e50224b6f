"""An MCP session with one server: requests, calls, and the server's messages.

Progress tokens are request ids. Log messages name no call; `callers` attributes them.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import Busy, RpcError, UpstreamLost
from mcp_hub.events import Completed, reason_of_client
from mcp_hub.masking import hide
from mcp_hub.protocol.capabilities import to_modern
from mcp_hub.protocol.definitions.messages import repaired_notice, repaired_params
from mcp_hub.protocol.headers import Mirrors
from mcp_hub.protocol.jsonrpc import envelope, rpc_errors
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, Unset, object_bytes, raw_object
from mcp_hub.protocol.jsonrpc.repair import Placeholder
from mcp_hub.protocol.meta import PROGRESS_TOKEN, STREAMS, declares, modern_meta
from mcp_hub.protocol.notifications import CHANGED_LISTS, ON_LISTEN, ROOTS_CHANGED, plain_progress
from mcp_hub.protocol.shape.questions import QUESTIONS, may_ask
from mcp_hub.protocol.shape.results import begins, is_complete
from mcp_hub.types import HANDSHAKE, MODERN, Cause, JsonObject, RawJson, RawObject
from mcp_hub.upstreams.peer.callers import Callers, completed, context
from mcp_hub.upstreams.peer.input_questions import follow_up
from mcp_hub.upstreams.peer.questions import PARKABLE, RETRY, Asker, Elicitations, OpenRequests, with_retry
from mcp_hub.upstreams.peer.state import (
    CLIENT_INFO,
    NOT_SETTLED,
    ListChanges,
    Observer,
    PeerEnding,
    PeerInfo,
    ServerLogs,
    SignsOfLife,
)
from mcp_hub.upstreams.peer.streams import ServerStreams, unusual_progress
from mcp_hub.upstreams.peer.task_poll import TaskConnection, TaskPoll
from mcp_hub.upstreams.peer.tasks import ServerTasks, as_task, made_task
from mcp_hub.wire.base import Cancellation, NotSent, Pending, Wire, WireClosed, WireHandler

_FINISHED: Final = "notifications/elicitation/complete"


class PeerMessages(WireHandler):
    """Takes the messages of a server over the wire from `connect`: questions, notifications, noise, the end.

    `count` is that of all. `is_interactive`: the server has asked its callers.
    """

    def __init__(
        self, connect: "Callable[[PeerMessages], Wire]", callers: Callers, ending: PeerEnding,
        elicitations: Elicitations, observer: Observer | None, streams: ServerStreams,
    ) -> None:  # fmt: skip
        self.count = 0
        self.is_interactive = False
        self.list_changes = ListChanges()
        self._callers = callers
        self._ending = ending
        self._elicitations = elicitations
        self._observer = observer
        self.streams = streams
        self.wire = connect(self)
        self._open_requests = OpenRequests(
            send=self.wire.send, noted=elicitations.note_question, calls=callers.may_ask, find=callers.asker,
            other_call=callers.other_asker, passes=None if observer is None else observer.passes,
        )  # fmt: skip

    def on_request(self, message: Envelope, source: Pending | None = None) -> None:
        """Takes a question or ping."""
        self.count += 1
        id_ = message.usable_id
        if id_ is None:
            self._take_nameless(message, source)
        if id_ is None or self.wire.is_congested:
            return  # a server that asks without reading gets no answers to pile up
        if message.method == "ping":
            self.wire.send(envelope.result_frame(id_, b"{}"))
            return
        if source is None:  # on a stream of its own a question says whose it is
            self.is_interactive |= self._callers.any_in_flight()
        self._open_requests.take(message, self._callers.asker(message, source), may_wait=source is None)

    def _take_nameless(self, message: Envelope, source: Pending | None) -> None:
        if (refusal := self._callers.strays.nameless(message.method)) is not None and not self.wire.is_congested:
            self.wire.send(envelope.error_frame(None, refusal.encoded()))
        if message.method in QUESTIONS:
            self._callers.suspect(None if source is None else [source])

    def on_notification(self, message: Envelope, source: Pending | None = None) -> None:
        """Takes a notification of any kind."""
        self.count += 1
        method = message.method
        if method == "notifications/progress":
            self._progress(message)
        elif method == "notifications/message":
            self._log_message(message, source)
        elif method == "notifications/cancelled" and isinstance(message.params, msgspec.Raw):
            self._open_requests.withdraw(message.params)
        elif method == _FINISHED and isinstance(message.params, msgspec.Raw):
            if (session := self._elicitations.finished(message.params)) is not None and self._observer is not None:
                params = repaired_notice(_FINISHED, message.params)
                self._observer.on_message(session, envelope.notification_frame(_FINISHED, params))
        elif method in CHANGED_LISTS:
            self.list_changes.announce(CHANGED_LISTS[method])
        elif self._open_requests.passes(method):
            self._callers.passed(message, source)
        if method in ON_LISTEN and self._observer is not None:
            self._observer.on_notice(method, raw_object(message.params) or {})

    def _progress(self, message: Envelope) -> None:
        params = message.params
        plain = plain_progress(params) if isinstance(params, msgspec.Raw) else None
        key, event, part = plain or unusual_progress(params)
        pending = self.wire.requests.pending.get(key) if key is not None else None
        if pending is not None and pending.context is not None:
            pending.dismiss_doubt()
            asker: Asker | None = context(pending)
        else:
            asker = None if key is None else self._callers.tasks.reporter(key)
        if key is None or asker is None:
            return  # an unknown token, or a call that has ended
        if event is not None:
            asker[1].send(event)
        elif part is not None:
            self._callers.logged(key, part[1])
            self.streams.take(pending, asker, part)

    def _log_message(self, message: Envelope, source: Pending | None) -> None:
        if message.params is Unset or not (sent := raw_object(message.params)):
            return
        params = repaired_params(message.method, sent)
        read = message.params if params is sent else msgspec.Raw(envelope.object_bytes(params))
        level = envelope.read_as(params["level"], str) if "level" in params else None
        if level is None or self._callers.log(level, message.with_params(read), source):
            return
        session = self._callers.late_listener(level) if source is None else None
        if session is not None and self._observer is not None:
            self._observer.on_message(session, envelope.notification_frame("notifications/message", read))
        else:
            self._callers.strays.log(level, params)

    def on_late_answer(self, id_: int) -> None:
        self.count += 1
        self._callers.abandoned.answered(id_)

    def on_bad_line(self, bad: BadMessage, line: bytes, source: Pending | None = None) -> None:
        key = envelope.id_key(bad.id) if bad.id is not None else None
        is_of_one = type(key) is int and self.wire.requests.was_asked(key)  # which has its answer
        if self._callers.strays.unreadable(bad, line) and not (is_of_one or bad.is_held):
            self._callers.suspect(None if source is None else [source])

    def on_closed(self, reason: str, code: str) -> None:
        self._ending.close(Cause(code, hide(reason)))
        self._open_requests.close()
        self.list_changes.announce(())


class Peer:
    """The client side of one connection over the wire from `connect`. `info`: the negotiated protocol.

    `is_remote`: tasks outlive the connection, and modern arguments also travel in headers.
    """

    def __init__(
        self, name: str, connect: "Callable[[PeerMessages, Peer], Wire]", info: PeerInfo = NOT_SETTLED,
        observer: Observer | None = None, *, is_remote: bool = False,
    ) -> None:  # fmt: skip
        self.name = name
        self.info = info
        self.ending = PeerEnding(is_explained=is_remote)
        self.signs = SignsOfLife()
        self.tasks = ServerTasks(outlive=is_remote)
        self.mirrors: Mirrors | None = None
        self._answer_count = 0
        self._elicitations = Elicitations()
        self._last_envelope: tuple[JsonObject | None, str | None, PeerInfo | None, RawObject] = None, None, None, {}
        logs = ServerLogs() if observer is None else observer.logs
        self.callers = Callers(
            lambda: self.wire.requests.pending.values(), self.tasks, self.signs, logs, server=name,
            is_ordered=not is_remote,
        )  # fmt: skip
        self.messages = PeerMessages(
            connect=lambda messages: connect(messages, self), callers=self.callers, ending=self.ending,
            elicitations=self._elicitations, observer=observer,
            streams=ServerStreams(self._ask, lambda: declares(self.info.capabilities, self.info.era, STREAMS)),
        )  # fmt: skip
        self.wire = self.messages.wire

    @property
    def message_count(self) -> int:
        return self._answer_count + self.messages.count

    def settle(self, info: PeerInfo) -> PeerInfo:
        self.info = info = replace(info, declares=self.info.declares)
        self.mirrors = Mirrors() if not self.callers.is_ordered and info.era is MODERN else None
        return info

    def send(self, method: str, params: RawObject | None = None, capabilities: JsonObject | None = None) -> Pending:
        """Sends a request of the hub. Raises `UpstreamLost`."""
        params = dict(params or {})
        if self.info.era is MODERN:
            declared = self.info.declares[MODERN] if capabilities is None else capabilities
            params["_meta"] = msgspec.Raw(object_bytes(modern_meta(self.info.version, CLIENT_INFO, declared, None)))
        try:
            return self.wire.request(method, object_bytes(params))
        except WireClosed:
            raise self._gone() from None

    async def answer(self, pending: Pending, *, may_cancel: bool = True) -> RawJson:
        """The result of a sent request; with `may_cancel`, cancellation reaches the server.

        Raises `RpcError`: the server's error, or `UpstreamLost`.
        """
        try:
            message = await self._answer(pending, _cancellation if may_cancel else None)
        except WireClosed:
            raise await self._loss() from None
        return self._result(message)

    async def _ask(self, method: str, params: RawObject, capabilities: JsonObject | None = None) -> RawJson:
        return await self.answer(self.send(method, params, capabilities))

    async def _answer(self, pending: Pending, cancellation: Cancellation | None, call: Call | None = None) -> Envelope:
        try:
            message = await self.wire.answer(pending, cancellation)
        except UpstreamLost as exc:
            self.signs.failed(Cause(str(exc.about_upstream.get("code", "connection_lost")), exc.message))
            raise
        self._answer_count += 1
        self.signs.take(message, call)
        return message

    def _result(self, message: Envelope) -> RawJson:
        if message.kind == "error":
            if type(message) is Placeholder:
                reason = msgspec.json.decode(message.error)["message"]
                raise self._unreadable(f"an answer that cannot be read: {reason}")
            raise rpc_errors.from_wire(message.error)
        if not begins(message.result, b"{"):
            raise self._unreadable("a result that is not an object")
        return message.result

    def _unreadable(self, detail: str) -> UpstreamLost:
        data = {"server": self.name, "code": "unreadable_answer"}
        return UpstreamLost(f'server "{self.name}" sent {detail}', data={"upstream": data, "outcome": "unknown"})

    async def _loss(self) -> UpstreamLost:
        await self.ending.last_words()
        return self._gone()

    def _gone(self) -> UpstreamLost:
        code, reason = self.ending.cause or (None, "the reason is unknown")
        data = {"server": self.name} if code is None else {"server": self.name, "code": code}
        text = f'server "{self.name}" lost its connection: {reason}'
        return UpstreamLost(text, data={"upstream": data, "outcome": "unknown"})

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Relays one call with the server's questions; a `CallHandler`.

        Raises `WireClosed` if nothing was sent, `Busy` while the server does not read.
        """
        if call.is_notice:
            self._check_reading()
            self.wire.send(envelope.notification_frame(call.method, self._params(call, 0)))
            return Completed(b"{}", self.info.era)
        if self.tasks.required and self.tasks.needs_task(call):
            task_call = as_task(call)
            pending = self._send_call(task_call, channel)
            created = await self.finish(task_call, channel, pending, may_follow=False)
            result = await self.tasks.run(task_call, channel, created.result, pending.id, self._line(call))
            return completed(call, result, self.info.era)
        return await self.finish(call, channel, self._send_call(call, channel))

    async def follow(self, task: TaskPoll) -> Completed:
        """Continues any hub's task. Raises `RpcError`."""
        if task.handle.era is not self.info.era:
            raise task.unknown("it speaks another version of the protocol now")
        return completed(task.call, await self.tasks.follow(task, self._line(task.call)), self.info.era)

    def _line(self, call: Call) -> TaskConnection:
        ask = partial(self._ask, capabilities=to_modern(call.answered, self.info.declares))
        return TaskConnection(ask, lambda: self.wire.can_send, self.tasks.outlive, lambda: self.tasks.are_left)

    def can_begin(self, call: Call) -> bool:
        """Whether the request can be written at once."""
        wire = self.wire
        is_open = wire.is_pipe and wire.can_send and not wire.is_congested
        return is_open and not (self.tasks.required and self.tasks.needs_task(call))

    def begin(self, call: Call, channel: CallChannel, headers: Mapping[str, str] | None = None) -> Pending:
        """Sends changed roots, then the request. Raises `WireClosed`."""
        if call.roots_changes and self.info.era is HANDSHAKE and self.callers.has_new_roots(call):
            self.wire.send(envelope.notification_frame(ROOTS_CHANGED))
        return self.wire.request(call.method, partial(self._params, call), (call, channel), headers)

    def result(self, call: Call, pending: Pending) -> Completed | None:
        """The result of a begun call; None if it may not be the end."""
        message, era = pending.answer, self.info.era
        if message is None or message.kind != "result":
            return None
        if not (is_complete(message.result) if era is MODERN else bytes(memoryview(message.result)[:1]) == b"{"):
            return None
        ending, streams = completed(call, message.result, era), self.messages.streams
        may_stream = streams.followed or ending.result is not message.result
        if may_stream and not streams.is_whole(pending, message.result):
            return None
        self._answer_count += 1
        if self.signs.failures:
            self.signs.answered()
        return ending

    def abandon(self, call: Call, pending: Pending) -> None:
        if self.wire.requests.abandon(pending):
            self.wire.send(_cancellation(pending.id, context(pending)[1]))
        self.messages.streams.drop(pending)
        self._give_up(call, pending.id)

    def _give_up(self, call: Call, id_: int) -> None:
        """Over a pipe, a ping shows when the cancellation is read."""
        self.callers.abandon(call, id_)
        if self.callers.is_ordered and self.info.era is HANDSHAKE and call.method in PARKABLE:
            with suppress(WireClosed):
                self.wire.requests.abandon(ping := self.wire.request("ping", b"{}"))  # nobody waits for it
                self.wire.requests.when_late(ping, lambda _: self.callers.abandoned.read(id_))

    async def finish(self, call: Call, channel: CallChannel, pending: Pending, *, may_follow: bool = True) -> Completed:
        """Completes a begun call. `may_follow`: ask the caller its questions."""
        try:
            message = await self._answer(pending, lambda id_: _cancellation(id_, channel), call)
        except BaseException as exc:
            self.messages.streams.drop(pending)
            if isinstance(exc, WireClosed) and not isinstance(exc, NotSent):
                raise await self._loss() from None
            if isinstance(exc, anyio.get_cancelled_exc_class()):
                self._give_up(call, pending.id)
            raise
        if (broken := await self.messages.streams.finish(pending, message)) is not None:
            raise self._unreadable(broken)
        try:
            result = completed(call, self._result(message), self.info.era)
        except RpcError as error:
            self._elicitations.refused(call, error)
            raise
        if self.info.era is HANDSHAKE or is_complete(result.result):
            return result
        if (task := made_task(call, channel, result.result)) is not None:
            return await self.follow(task)
        if may_follow and call.era is HANDSHAKE and call.method in PARKABLE and may_ask(result.result):
            return await follow_up(call, channel, self._relay, result)
        return result

    async def _relay(self, call: Call, channel: CallChannel) -> Completed:
        try:
            return await self.finish(call, channel, self._send_call(call, channel), may_follow=False)
        except WireClosed:  # the server has acted on the call already: it is not begun anew
            raise await self._loss() from None

    def _send_call(self, call: Call, channel: CallChannel) -> Pending:
        self._check_reading()
        headers = self.mirrors.headers(call.params) if self.mirrors and call.method == "tools/call" else None
        return self.begin(call, channel, headers)

    def _check_reading(self) -> None:
        if self.wire.is_congested:
            text = f'server "{self.name}" does not read its input. The call was not sent: try again later.'
            raise Busy(text, data={"upstream": {"server": self.name}})

    def _params(self, call: Call, id_: int) -> bytes:
        params = call.params
        meta: Mapping[str, object] = call.meta
        if self.info.era is MODERN:
            meta = {**meta, **self._envelope(call)}
            is_first = call.input_responses is None and call.request_state is None
            params = params if is_first and params.keys().isdisjoint(RETRY) else with_retry(call)
        if call.wants_progress:
            meta = {**meta, PROGRESS_TOKEN: id_}
        return object_bytes({**params, "_meta": meta} if meta else params)

    def _envelope(self, call: Call) -> RawObject:
        capabilities, level, info, meta = self._last_envelope
        answered = call.answered
        if capabilities is not answered or level != call.log_level or info is not self.info:
            declared = to_modern(answered, self.info.declares)
            meta = modern_meta(self.info.version, CLIENT_INFO, declared, call.log_level)
            self._last_envelope = answered, call.log_level, self.info, meta
        return meta


def _cancellation(id_: int, channel: CallChannel | None = None) -> bytes:
    reason = None if channel is None else reason_of_client(channel.stopping)
    member = b"" if reason is None else b',"reason":' + object_bytes(reason)
    return envelope.notification_frame("notifications/cancelled", b'{"requestId":%d%b}' % (id_, member))
