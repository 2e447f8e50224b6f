"""The common part of all connections to peers: the interface, the table of the hub's requests, the handler."""

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
"""Requests that stay open for as long as the session, and those whose answer is nothing to anybody."""

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
    """The connection is gone; what it was to carry was not sent."""


class NotSent(WireClosed):
    """The peer has certainly not acted on the request, so that it may be sent again elsewhere."""


class Pending(msgspec.Struct, eq=False):
    """A request of ours that is under way; `context` is the sender's own. `doubtful` may have been its answer.

    Its answer is taken by `then`, in place, or awaited by `future`, which is made only then.
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
        """Whether there is an answer, or there will be none."""
        return self.answer is not None or self.failure is not None

    def doubt(self, answer: Envelope) -> None:
        """This may have been the answer. If none follows, it was."""
        self.doubtful = answer

    def dismiss_doubt(self) -> None:
        """There certainly was no answer."""
        self.doubtful = None

    @property
    def future(self) -> "asyncio.Future[Envelope]":
        """Gets the answering `Envelope`, or the reason why there is none."""
        if self._future is None:
            self._future = asyncio.get_running_loop().create_future()
            if self.is_settled:
                self._resolve(self._future)
        return self._future

    def then(self, callback: Callable[[], object]) -> None:
        """Calls `callback` in place, once, when this is settled, in place of a waiter."""
        self._then = callback

    def settle(self, answer: Envelope) -> None:
        """Gives the answer to the waiter; the first one counts."""
        if self.answer is None and self.failure is None:
            self.answer = answer
            if self._future is not None:
                self._notify()
            elif self._then is not None:
                then, self._then = self._then, None
                then()

    def fail(self, error: Exception) -> None:
        """There will be no answer; the first outcome counts."""
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
    """The owner of a connection. Called on the event loop, must not block.

    `source` is the request of ours on whose own stream the message came (HTTP).
    """

    def on_request(self, message: Envelope, source: Pending | None = None) -> None: ...

    def on_notification(self, message: Envelope, source: Pending | None = None) -> None: ...

    def on_bad_line(self, bad: BadMessage, line: bytes, source: Pending | None = None) -> None:
        """A line that is not a message; a pending request whose answer it certainly was is settled already."""

    def on_late_answer(self, id_: int) -> None:
        """A request that was abandoned has been answered after all."""

    def on_writable(self) -> None:
        """The peer reads again after the write buffer was full."""
        return

    def on_closed(self, reason: str, code: str) -> None:
        """The connection has ended. Called once."""


class Requests:
    """The table of requests under way; ids count up from `first` and are never used twice."""

    def __init__(self, first: int = 1) -> None:
        self._first = self._next_id = first
        self._late: dict[int, LateAnswer | None] = {}
        self.pending: dict[int, Pending] = {}

    def expect(self, method: str, context: object = None, number: int | None = None) -> Pending:
        """Registers a request that the caller is about to send under the id it is given: `number`, if that is free."""
        if number is not None and number not in self.pending and number not in self._late:
            id_ = number
        else:
            id_ = self._next_id
            self._next_id = id_ + 1
        pending = Pending(id_, method, context)
        self.pending[id_] = pending
        return pending

    def abandon(self, pending: Pending) -> bool:
        """Forgets a request; its answer, should it come, is counted and dropped. False if it was answered already."""
        if self.pending.pop(pending.id, None) is None:
            return False
        self._late[pending.id] = None
        if len(self._late) > _LATE_IDS:
            del self._late[next(iter(self._late))]
        return True

    def was_asked(self, id_: int) -> bool:
        """Whether a request had this id, answered or not."""
        return self._first <= id_ < self._next_id

    def sole(self) -> Pending | None:
        """The only request whose answer somebody waits for now."""
        awaited = (pending for pending in self.pending.values() if pending.method not in _NOT_AWAITED)
        first_two = list(islice(awaited, 2))
        return first_two[0] if len(first_two) == 1 else None

    def when_late(self, pending: Pending, take: LateAnswer) -> None:
        """From now on `take` gets the answer to this request, which was abandoned."""
        if pending.id in self._late:
            self._late[pending.id] = take

    def take_late(self, id_: int, answer: Envelope) -> bool:
        """Whether this answers a request that was abandoned; true once."""
        if id_ not in self._late:
            return False
        if (late := self._late.pop(id_)) is not None:
            late(answer)
        return True

    def fail_all(self, reason: str) -> None:
        """Nothing will be answered any more."""
        waiting, self.pending = list(self.pending.values()), {}
        for pending in waiting:
            pending.fail(WireClosed(reason))


class Tapped:
    """A connection whose messages a `tap` gets, as long as there is one. It must not raise, nor take long."""

    tap: Tap | None = None

    def watched_by(self, tap: Tap | None) -> None:
        """From now on `tap` gets the messages; None for nobody."""
        self.tap = tap

    def _outgoing(self, message: bytes) -> bytes:
        if self.tap is not None:
            self.tap(False, message)
        return message

    def _incoming(self, message: bytes) -> bytes:
        if self.tap is not None:
            self.tap(True, message)
        return message


class Wire(Protocol):
    """A connection as the session with a server sees it."""

    @property
    def requests(self) -> Requests: ...

    @property
    def is_pipe(self) -> bool:
        """Whether a request is written, and answered, without anything else to wait for."""

    @property
    def can_send(self) -> bool: ...

    @property
    def is_congested(self) -> bool:
        """The peer does not read what was sent; more must wait."""

    def send(self, frame: bytes) -> None:
        """Sends one line: a notification, or an answer to the peer's request."""

    def request(self, method: str, params: Params, context: object = None, headers: Headers | None = None) -> Pending:
        """Sends a request; `headers` go along where the transport has any. Raises `WireClosed`: nothing was sent."""

    async def answer(self, pending: Pending, cancellation: Cancellation | None) -> Envelope:
        """The answer; a waiter that is cancelled tells the peer if there is a `cancellation`. Raises `WireClosed`."""

    def close(self, reason: str = "closed by the hub", code: str = "closed") -> None:
        """Ends the connection and fails what is pending. Idempotent."""
