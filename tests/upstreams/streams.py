"""Sessions over HTTP and their streams, kept so that a connection that breaks can be followed by another."""

import re
import threading
import uuid
from collections import deque
from typing import Any

from tests.upstreams.eras import Request
from tests.upstreams.instance import Instance, Session
from tests.upstreams.wire import encode

MAX_EVENTS = 100_000
"""Events that a stream keeps; the oldest go first, as nobody is made to wait for a client that does not read."""
MAX_STREAMS = 1000
"""Answers to POSTs that a session keeps for who resumes them; the oldest go first."""


class Stream:
    """A channel of numbered messages for one connection at a time. One that `ends` is complete with its response."""

    def __init__(self, *, ends: bool) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.ends = ends
        self.is_complete = False
        self.delivered = 0
        """Number of the last event that was written to a connection."""
        self._events: deque[tuple[int, bytes]] = deque(maxlen=MAX_EVENTS)
        self._last = 0
        self._follower = 0
        self._changed = threading.Condition()

    def send(self, message: dict[str, Any], answered: Request | None = None) -> None:
        with self._changed:
            if self.is_complete:
                return
            self._last += 1
            self._events.append((self._last, encode(message)))
            self.is_complete = self.ends and "method" not in message
            self._changed.notify_all()

    def raw(self, data: bytes) -> None:
        """Bytes in place of the answer."""
        with self._changed:
            self._last += 1
            self._events.append((self._last, data))
            self.is_complete = self.is_complete or self.ends
            self._changed.notify_all()

    def complete(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self.is_complete = True
            self._changed.notify_all()

    def follow(self) -> int:
        """Begin to follow: the number for `after`. Whoever followed before is done."""
        with self._changed:
            self._follower += 1
            self._changed.notify_all()
            return self._follower

    def after(self, number: int, follower: int, seconds: float) -> list[tuple[int, bytes]] | None:
        """The events after this one, none if none came in time; None where nothing more will come to this follower."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_over(number, follower) or self._last > number, seconds)
            if self.is_over(number, follower):
                return None
            return [event for event in self._events if event[0] > number]

    def is_over(self, number: int, follower: int) -> bool:
        """Whether nothing will come after this event, to this follower."""
        return self._follower != follower or (self.is_complete and self._last <= number)


def frame(data: bytes, *, id: str | None = None, event: str | None = None, retry: int | None = None) -> bytes:
    """One server-sent event; line breaks in the data become lines of their own."""
    fields = {"event": event, "id": id, "retry": retry}
    head = "".join(f"{name}: {value}\n" for name, value in fields.items() if value is not None)
    lines = re.split(rb"\r\n|\r|\n", data)
    return head.encode() + b"".join(b"data: %s\n" % line for line in lines) + b"\n"


class HttpSession(Session):
    """A session of Streamable HTTP: the stream for what belongs to no request, and those of its POSTs by id."""

    def __init__(self, instance: Instance) -> None:
        self.id = uuid.uuid4().hex
        self.own = Stream(ends=False)
        self.streams = {self.own.id: self.own}
        super().__init__(instance, self.own)

    def stream(self) -> Stream:
        """The stream for the answer to a POST."""
        stream = Stream(ends=True)
        self.streams[stream.id] = stream
        if len(self.streams) > MAX_STREAMS:
            del self.streams[next(key for key in self.streams if key != self.own.id)]
        return stream

    def close(self) -> None:
        super().close()
        self.own.complete()


class Sessions:
    """The sessions by id."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._by_id: dict[str | None, HttpSession] = {}

    def open(self) -> HttpSession:
        """The session of an `initialize`."""
        session = HttpSession(self._instance)
        self._by_id[session.id] = session
        return session

    def find(self, session_id: str | None) -> HttpSession | None:
        return self._by_id.get(session_id)

    def close(self, session: HttpSession) -> None:
        self._by_id.pop(session.id, None)
        session.close()
