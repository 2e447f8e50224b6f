"""The hub's requests to a handshake client; a modern one is asked by a result.

Late and repeated responses are dropped (2025-11-25, basic/index "Responses").
"""

import hashlib
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import RpcError, StoreError, UnknownStream, method_not_found
from mcp_hub.events import InputRequired
from mcp_hub.hub import CallHandle, HubPort, RemoteCall, followed_elsewhere
from mcp_hub.ids import new_session_id
from mcp_hub.protocol.jsonrpc.envelope import Envelope, notification_frame, request_frame
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.protocol.shape import questions
from mcp_hub.sessions.session import Session
from mcp_hub.types import OWN, CallId, RawJson
from mcp_hub.wire.base import Pending, Requests

_MOST_LEFT: Final = 64
"""Questions of one client that are off for now; no answer to the oldest is waited for then."""
_MOST_SEARCHED: Final = 1000
"""The newest streams of a principal, among which is that of an answer."""
_MOST_NUMBERED: Final = 32
"""Questions of one call among which a settled one is known."""
_MOST_BEHIND: Final = 1024
"""Questions of a call that another hub has continued, of which a settled one is known."""
_IDS: Final = 1 << 30
"""Ids stay what clients with 32 bits for them can keep."""
_MOST_ANSWERS: Final = 256
"""Answers that wait to be sent to other hubs."""
_NOTHING: Final[Mapping[str, bytes | None]] = {}


class ClientRequests:
    """Requests to one client; `requests` is its wire's table.

    Without a wire, ids derive from stream and key: every hub recognizes a response. `answers` are then those for calls
    of other hubs, which the front sends. `ends_hub` leaves questions open.
    """

    def __init__(self, requests: Requests | None = None, *, ends_hub: bool = False) -> None:
        self._requests = requests if requests is not None else Requests(1 + secrets.randbelow(_IDS))
        self._has_wire = requests is not None
        self.answers: deque[tuple[CallId, str, RawJson | RpcError]] = deque(maxlen=_MOST_ANSWERS)
        self._ends_hub = ends_hub
        self._open: dict[tuple[CallId, str], Pending] = {}
        self._paused: dict[tuple[CallId, str], None] = {}

    def ask(self, call: CallHandle, question: InputRequired, version: str) -> bytes | None:
        """The request frame, equal for every reading; None if settled."""
        identity = call.call.id, question.key
        if question.key not in call.open_questions:
            return None
        pending = self._open.get(identity)
        if pending is None:
            number = None if self._has_wire else _request_id(*identity)
            pending = self._open[identity] = self._requests.expect(question.method, number=number)
            late = call.open_questions[question.key].late
            pending.then(lambda: self._answered(call, question.key, pending, late))
        params = questions.for_version(question.method, question.params, version, new_session_id())
        return request_frame(pending.id, question.method, params)

    def withdraw(self, call: CallHandle, key: str) -> bytes | None:
        """The cancellation of an open question."""
        pending = self._open.pop((call.call.id, key), None)
        self._paused.pop((call.call.id, key), None)
        if pending is None or not self._requests.abandon(pending):
            return None
        return _cancelled(pending)

    def leave(self, call: CallHandle, key: str) -> bytes | None:
        """A cancellation after which a response still counts."""
        identity = call.call.id, key
        pending = self._open.get(identity)
        if pending is None:
            return None
        self._paused[identity] = None
        if len(self._paused) > _MOST_LEFT:
            oldest = next(iter(self._paused))
            del self._paused[oldest]
            self._requests.abandon(self._open.pop(oldest))
        return _cancelled(pending)

    def take(self, message: Envelope) -> bool:
        """Whether a response from outside the wire was expected."""
        key = message.id_key
        pending = self._requests.pending.pop(key, None) if isinstance(key, int) else None
        if pending is not None:
            pending.settle(message)
        return pending is not None

    def close(self) -> None:
        self._requests.fail_all("the client is gone")

    def queue(self, stream: CallId) -> Callable[[str, RawJson | RpcError], None] | None:
        """Takes answers for a call of another hub; None with a wire."""
        return None if self._has_wire else lambda key, outcome: self.answers.append((stream, key, outcome))

    def _answered(
        self, call: CallHandle, key: str, pending: Pending, late: Callable[[RawJson | RpcError], None] | None
    ) -> None:
        identity = call.call.id, key
        is_paused = identity in self._paused
        self._open.pop(identity, None)
        self._paused.pop(identity, None)
        if pending.answer is not None:
            outcome = _outcome(pending.answer, pending.method)
        elif self._ends_hub:
            return
        else:
            outcome = RpcError(f"{pending.method} was not answered: {pending.failure}")
        if is_paused and (isinstance(outcome, RpcError) or questions.action_of(pending.method, outcome) == "cancel"):
            return  # the client only says that it has heard of the withdrawal
        if not call.answer(key, outcome) and late is not None:
            late(outcome)


class CallQuestions:
    """One call's questions. Without `asking` the client takes no requests."""

    __slots__ = ("_frames", "_asking", "_call", "_withdrawn", "_version")

    def __init__(
        self, call: CallHandle, asking: ClientRequests | None, version: str, withdrawn: list[bytes] | None = None
    ) -> None:
        self._call = call
        self._asking = asking
        self._version = version
        self._frames = _NOTHING  # most calls ask nothing
        self._withdrawn = withdrawn

    def ask(self, question: InputRequired) -> bytes | None:
        """The request frame, if the client is asked."""
        if not self._call.call.asks_client(question.method, question.params):
            return None  # people answer it
        if self._asking is None:
            reason = f"{question.method}: this client takes no event stream and cannot be asked"
            self._call.answer(question.key, method_not_found(reason))
            return None
        frame = self._asking.ask(self._call, question, self._version)
        if frame is not None:
            self._frames = {**self._frames, question.key: self._frames.get(question.key)}
        return frame

    def moved(self) -> RemoteCall:
        """The call, which another hub has now; its answers go there."""
        pass_on = None if self._asking is None else self._asking.queue(self._call.call.id)
        self._call = remote = followed_elsewhere(self._call, pass_on)
        return remote

    def answered(self, key: str) -> bytes | None:
        """The cancellation of a question that somebody else answered."""
        if key in self._frames and self._frames[key] is None:
            self._frames = {**self._frames, key: self._withdraw(key)}
        return self._frames.get(key)

    def withdrawn(self) -> list[bytes]:
        """The cancellations of all questions, equal each time; after a hub tool, its call's questions stay open."""
        if self._withdrawn is None and self._frames:
            is_open = self._call.call.upstream == OWN and not self._call.record.plan.may_last
            off = self._leave if is_open else self._withdraw
            self._withdrawn = [frame for key in self._frames if (frame := off(key)) is not None]
        return self._withdrawn or []

    def paused(self) -> list[bytes]:
        """The cancellations for a call that continues."""
        frames = [frame for key in self._frames if (frame := self._leave(key)) is not None]
        self._frames = _NOTHING
        return frames

    def _leave(self, key: str) -> bytes | None:
        return self._asking.leave(self._call, key) if self._asking is not None else None

    def _withdraw(self, key: str) -> bytes | None:
        return self._asking.withdraw(self._call, key) if self._asking is not None else None


async def answered_elsewhere(hub: HubPort, session: Session, message: Envelope) -> None:
    """Hands a response to the hub that asked. Raises `StoreError`, also if no stored call can have asked that: it may
    not be stored yet.
    """
    caller = session.caller
    rows = await hub.durable.newest(caller.principal, _MOST_SEARCHED, caller.profile)
    rows = [row for row in rows if row.session == session.id]
    for row in rows:
        if row.status != "input_required":
            continue
        try:
            stream = await hub.durable.open(caller.principal, row.id, caller.profile)
            for key, question in (await stream.questions()).items():
                if _request_id(row.id, key) == message.id_key:
                    await stream.answer(key, _outcome(message, question.method))
                    return
        except UnknownStream:  # it has expired meanwhile
            continue
    if not any(_may_have_asked(row, message.id_key) for row in rows):
        raise StoreError("No call in the store has asked this. Try again in a moment.")


def _may_have_asked(row: StreamInfo, id_: int | str | None) -> bool:
    """Whether the id is of a stream's first questions, which may be settled.

    Later owners number theirs behind the events of the earlier one.
    """
    limit = _MOST_NUMBERED if row.epoch == 1 else min(_MOST_NUMBERED + row.last, _MOST_BEHIND)
    return any(_request_id(row.id, f"q{number}") == id_ for number in range(1, limit))


def _request_id(stream: CallId, key: str) -> int:
    digest = hashlib.blake2b(f"{stream}\n{key}".encode(), digest_size=8).digest()
    return 1 + int.from_bytes(digest) % (_IDS - 1)


def _cancelled(pending: Pending) -> bytes:
    return notification_frame("notifications/cancelled", b'{"requestId":%d}' % pending.id)


def _outcome(message: Envelope, method: str) -> RawJson | RpcError:
    if message.kind == "error":
        return from_wire(message.error, "client")
    if bytes(memoryview(message.result)[:1]) != b"{":
        return RpcError(f"the client answered {method} with something that is not a result")
    return msgspec.Raw(bytes(message.result))
