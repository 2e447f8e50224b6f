"""The interface of connections, and pending requests."""

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Protocol

import msgspec

from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope
from mcp_hub.types import RawJson

_LATE_IDS = 1024
"""Abandoned request ids remembered, so that their late answers are not taken for strays."""
_NOT_AWAITED = frozenset({"subscriptions/listen", "logging/setLevel"})
"""Requests without a waiter: those that stay open, and those whose answer does not matter."""
_STAY_OPEN = frozenset({"subscriptions/listen"})
_GRACE = 0.5
"""Seconds for the answer behind an error that may have been it."""
_MOST_UNNAMED = 16
"""Errors that name no request and wait for their request to become clear; the oldest is dropped."""

Params = RawJson | Callable[[int], RawJson]
"""The params of a request, or a function that makes them of its id, which is its progress token, too."""
Headers = Mapping[str, str]
LateAnswer = Callable[[Envelope], object]
"""Takes the answer to a request that was abandoned."""
Cancellation = Callable[[int], bytes]
"""Makes the notification that cancels the request of this id."""


Tap = Callable[[bool, bytes], object]
"""Gets each message as it is on the wire; the flag says that it came from the peer."""


class WireClosed(Exception):
    """The connection has ended. From `Wire.request`: nothing was sent."""


class NotSent(WireClosed):
    """The peer has not acted on the request: it may be sent elsewhere."""


class Pending(msgspec.Struct, eq=False):
    """A request under way; `doubtful` may have been its answer.

    The answer goes to `then`, in place, or to `future`.
    """

    id: int
    method: str
    context: object
    answer: Envelope | None = None
    failure: Exception | None = None
    doubtful: Envelope | None = None
    _then: Callable[[], object] | None = None
    _future: asyncio.Future[Envelope] | None = None

    @property
    def is_settled(self) -> bool:
        return self.answer is not None or self.failure is not None

    def doubt(self, answer: Envelope) -> None:
        """Keeps an answer that counts if no other follows."""
        if not self.is_settled:
            self.doubtful = answer

    def dismiss_doubt(self) -> None:
        self.doubtful = None

    @property
    def future(self) -> "asyncio.Future[Envelope]":
        """Gets the answer or the failure."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
            if self.is_settled:
                self._resolve(self._future)
        return self._future

    def then(self, callback: Callable[[], object]) -> None:
        """Calls `callback` in place, once: at the outcome, or now if there is one."""
        if self.answer is None and self.failure is None:
            self._then = callback
        else:
            callback()

    def settle(self, answer: Envelope) -> None:
        """Sets the answer, unless there is an outcome."""
        if self.answer is None and self.failure is None:
            self.answer = answer
            if self._future is not None:
                self._notify()
            elif self._then is not None:
                then, self._then = self._then, None
                then()

    def fail(self, error: Exception) -> None:
        """Sets the failure, unless there is an outcome."""
        if self.answer is None and self.failure is None:
            self.failure = error
            self._notify()

    def _notify(self) -> None:
        then, self._then = self._then, None
        if self._future is not None and not self._future.done():
            self._resolve(self._future)
        if then is not None:
            then()

    def _resolve(self, future: "asyncio.Future[Envelope]") -> None:
        if self.failure is not None:
            future.set_exception(self.failure)
            future.exception()  # retrieved here: the waiter may be gone already
        elif self.answer is not None:
            future.set_result(self.answer)


class WireHandler(Protocol):
    """The owner of a connection; must not block the event loop.

    `source`: the request on whose HTTP stream the message came.
    """

    def on_request(self, message: Envelope, source: Pending | None = None) -> None: ...

    def on_notification(self, message: Envelope, source: Pending | None = None) -> None: ...

    def on_bad_line(self, bad: BadMessage, line: bytes, source: Pending | None = None) -> None:
        """Takes a line that is not a message; its request is settled."""

    def on_late_answer(self, id_: int) -> None:
        """An abandoned request was answered."""

    def on_writable(self) -> None:
        """The peer reads again."""
        return

    def on_closed(self, reason: str, code: str) -> None:
        """Called once."""


class _Unnamed(msgspec.Struct, eq=False):
    """An error that names no request, but is the answer to one of `ids`; `answer` makes it that of a request."""

    ids: set[int]
    answer: Callable[[Pending], Envelope]


class Requests:
    """The requests under way; ids count up from `first`, without reuse."""

    def __init__(self, first: int = 1) -> None:
        self._first = self._next_id = first
        self._late: dict[int, LateAnswer | None] = {}
        self.unnamed: list[_Unnamed] = []  # errors that name no request
        self.pending: dict[int, Pending] = {}

    def expect(self, method: str, context: object = None, number: int | None = None) -> Pending:
        """Registers a request under `number` if free, or the next id."""
        if number is not None and number not in self.pending and number not in self._late:
            id_ = number
        else:
            id_ = self._next_id
            self._next_id = id_ + 1
        pending = Pending(id_, method, context)
        self.pending[id_] = pending
        return pending

    def abandon(self, pending: Pending) -> bool:
        """Forgets a request and drops its answer. False if it was answered."""
        if self.pending.pop(pending.id, None) is None:
            return False
        self._late[pending.id] = None
        if len(self._late) > _LATE_IDS:
            del self._late[next(iter(self._late))]
        return True

    def was_asked(self, id_: int) -> bool:
        return self._first <= id_ < self._next_id

    def sole(self) -> Pending | None:
        """The only request with a waiter, or None."""
        awaited = (pending for pending in self.pending.values() if pending.method not in _NOT_AWAITED)
        first_two = list(islice(awaited, 2))
        return first_two[0] if len(first_two) == 1 else None

    def hold(self, answer: Callable[[Pending], Envelope]) -> bool:
        """Keeps an error without a request id for the last request in flight that gets no answer of its own.

        False if no request waits.
        """
        ids = {pending.id for pending in self.pending.values() if pending.method not in _STAY_OPEN}
        if ids:
            self.unnamed.append(_Unnamed(ids, answer))
            del self.unnamed[:-_MOST_UNNAMED]
            self._settle_unnamed()
        return bool(ids)

    def answered(self, id_: int) -> None:
        """Notes an answer, by which it may become clear whose an error is that names no request."""
        for error in self.unnamed:
            error.ids.discard(id_)
        self._settle_unnamed()

    def doubt(self, pending: Pending, answer: Envelope) -> None:
        """Takes this for the answer if no other one follows at once."""
        pending.doubt(answer)
        asyncio.get_running_loop().call_later(_GRACE, self._settle_doubtful, pending)

    def _settle_doubtful(self, pending: Pending) -> None:
        if pending.doubtful is not None and self.abandon(pending):
            pending.settle(pending.doubtful)

    def _settle_unnamed(self) -> None:
        """One of the requests that was abandoned may have been meant, until its answer comes."""
        self.unnamed = [error for error in self.unnamed if not error.ids.isdisjoint(self.pending)]
        for unnamed in list(self.unnamed):
            alike = [equal for equal in self.unnamed if equal.ids == unnamed.ids]
            if unnamed in self.unnamed and len(alike) >= len(unnamed.ids):
                self.unnamed = [error for error in self.unnamed if error not in alike]
                for id_, error in zip(sorted(unnamed.ids), alike, strict=False):
                    if (pending := self.pending.get(id_)) is not None:
                        self.doubt(pending, error.answer(pending))

    def when_late(self, pending: Pending, take: LateAnswer) -> None:
        if pending.id in self._late:
            self._late[pending.id] = take

    def take_late(self, id_: int, answer: Envelope) -> bool:
        """Whether it answers an abandoned request; true once."""
        if id_ not in self._late:
            return False
        if (late := self._late.pop(id_)) is not None:
            late(answer)
        return True

    def fail_all(self, reason: str) -> None:
        """Fails with `WireClosed`."""
        waiting, self.pending, self.unnamed = list(self.pending.values()), {}, []
        for pending in waiting:
            if pending.doubtful is not None and pending.context is not None:
                pending.settle(pending.doubtful)  # the last words about this call
            pending.fail(WireClosed(reason))


class Tapped:
    """A connection whose messages `tap` gets, which must be fast and not raise."""

    tap: Tap | None = None

    def _outgoing(self, message: bytes) -> bytes:
        if self.tap is not None:
            self.tap(False, message)
        return message

    def _incoming(self, message: bytes) -> bytes:
        if self.tap is not None:
            self.tap(True, message)
        return message


def watch(wire: Tapped, tap: Tap) -> Callable[[], None]:
    """Passes each message of `wire` to `tap` instead of an earlier one, until the result is called."""

    def stop() -> None:
        if wire.tap == tap:
            wire.tap = None

    wire.tap = tap
    return stop


class Wire(Protocol):
    """A connection to a server."""

    @property
    def requests(self) -> Requests: ...

    @property
    def is_pipe(self) -> bool:
        """Whether a request is written at once, without waiting for a connection."""

    @property
    def can_send(self) -> bool: ...

    @property
    def is_congested(self) -> bool:
        """Whether the peer does not read."""

    def send(self, frame: bytes) -> None:
        """Sends a notification, or an answer."""

    def request(self, method: str, params: Params, context: object = None, headers: Headers | None = None) -> Pending:
        """Sends a request; a pipe drops `headers`. Raises `WireClosed`: nothing was sent."""

    async def answer(self, pending: Pending, cancellation: Cancellation | None) -> Envelope:
        """The answer. A cancelled waiter sends the `cancellation`. Raises `WireClosed`."""

    def close(self, reason: str = "closed by the hub", code: str = "closed") -> None:
        """Fails pending requests. Idempotent."""
