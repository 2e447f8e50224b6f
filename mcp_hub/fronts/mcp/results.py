"""A call's result for one client, and its events in progress notifications: URIs, marks and cursors, era."""

import math
from collections import deque
from collections.abc import Callable
from typing import Final

import anyio
import msgspec

from mcp_hub import aio
from mcp_hub.call import Call
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Completed, Delta, Ending, Progressed, Started
from mcp_hub.hub import HubPort
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.meta import STREAMS, with_mark
from mcp_hub.protocol.notifications import ProgressGuard
from mcp_hub.protocol.shape import questions, results
from mcp_hub.sessions.session import Session
from mcp_hub.types import HANDSHAKE, MODERN, CallId, RawJson

_MESSAGE: Final = 200
"""Characters of a message that the hub makes."""
_ASKS: Final = msgspec.Raw(b'"input_required"')


_STEP: Final = 0.000001
"""At most so much larger is each value of a notification without progress."""


class Partials:
    """Makes one request's notifications, with progress values of its own, above those of `after` earlier events."""

    __slots__ = ("_guard", "_last", "_stream", "_token")

    def __init__(self, token: bytes, stream: CallId, after: int = 0, newest: Progressed | None = None) -> None:
        self._token = token
        self._stream = stream
        self._last = (0.0 if newest is None else newest.progress) + after * _STEP
        self._guard = ProgressGuard(Progressed(self._last) if after else None)

    def frame(self, seq: int, line: bytes, event: CallEvent) -> bytes | None:
        """An event's notification; None for the first and the last event."""
        if isinstance(event, Started | Ending):
            return None
        progress = event if isinstance(event, Progressed) else Progressed(self._last, None, _message(event))
        admitted = self._guard.admit(progress)
        if admitted is None:  # as far as progress goes: no event is left out for it
            admitted = msgspec.structs.replace(progress, progress=math.nextafter(self._last, math.inf), total=None)
        self._last = admitted.progress
        members = dict(admitted.members or {})
        meta = raw_object(members.get("_meta", msgspec.UNSET)) or {}
        meta[STREAMS] = msgspec.Raw(self._events(seq, line))
        members["_meta"] = msgspec.Raw(object_bytes(meta))
        return results.progress_frame(self._token, msgspec.structs.replace(admitted, members=members))

    def _events(self, seq: int, line: bytes) -> bytes:
        kind = line.index(b'"type":')  # in the head, which is the hub's own
        return b'{"stream":"%b","cursor":"%d","events":[{"seq":%d,%b]}' % (
            self._stream.encode(), seq, seq, line[kind:],
        )  # fmt: skip


def _message(event: CallEvent) -> dict[str, msgspec.Raw] | None:
    if not isinstance(event, Delta):
        return None
    try:
        blocks = msgspec.json.decode(event.content, type=list[_Block])
    except (msgspec.DecodeError, RecursionError):
        return None
    text = " ".join("".join(block.text for block in blocks).split())
    return {"message": msgspec.Raw(msgspec.json.encode(text[:_MESSAGE]))} if text else None


class _Block(msgspec.Struct):
    text: str = ""


def marked(completed: Completed, stream: CallId, cursor: int, status: str) -> Completed:
    """The result with the mark of its stream."""
    return Completed(with_mark(completed.result, stream, cursor, status), completed.era)


def result_for(
    hub: HubPort, session: Session, call: Call, completed: Completed, *, cursor: int | None = None, shared: bool = False
) -> tuple[RawJson | memoryview, ...]:
    """The encoded result, in parts. `cursor`: the client's in the durable stream.

    Raises `RpcError` for a result without a form in the era.
    """
    if completed.is_plain and cursor is None and completed.era is session.era is HANDSHAKE:
        return (completed.result,)
    if not completed.is_plain:  # texts alone have no URIs
        result = hub.exported(session, call, completed.result)
        if result is not completed.result:
            completed = Completed(result, completed.era)
    if cursor is not None:
        completed = marked(completed, call.id, cursor, "completed")
    if completed.era is session.era is MODERN and not completed.is_plain and questions.may_ask(completed.result):
        completed = _with_own_state(hub, call, completed)
    return results.call_result(call.method, completed, session.era, shared=shared)


def _with_own_state(hub: HubPort, call: Call, completed: Completed) -> Completed:
    """Raises `RpcError` unless the state is text."""
    members = raw_object(completed.result) or {}
    state = members.get("requestState")
    if state is None or members.get("resultType") != _ASKS:
        return completed
    try:
        text = msgspec.json.decode(state, type=str)
    except (msgspec.DecodeError, RecursionError):
        raise RpcError("the server asked for input in an unreadable way: requestState must be a string") from None
    return Completed(object_bytes({**members, "requestState": hub.mark_state(call, text)}), completed.era)


class HeldAnswers:
    """One connection's responses that wait briefly after progress, in order: clients of the TypeScript SDKs lose
    progress that they read with the result.
    """

    def __init__(self) -> None:
        self._progressed = -1.0
        self._waiting: Final = deque[tuple[float, Callable[[], None]]]()

    def progressed(self) -> None:
        """Progress was just written."""
        self._progressed = anyio.current_time()

    def send(self, gap: float, send: Callable[[], None]) -> None:
        """Calls `send` `gap` seconds after the last progress."""
        wait = self._progressed + gap - anyio.current_time()
        if not self._waiting and wait <= 0:
            send()
            return
        self._waiting.append((self._progressed + gap, send))
        if len(self._waiting) == 1:
            aio.call_later(wait, self._release)

    def _release(self) -> None:
        while self._waiting:
            due, send = self._waiting[0]
            if (wait := due - anyio.current_time()) > 0:
                aio.call_later(wait, self._release)
                return
            self._waiting.popleft()
            send()
