"""The sessions of the fixture server over HTTP."""

import uuid

from tests.upstreams.instance import Instance, Session
from tests.upstreams.streams import Stream

MAX_STREAMS = 1000
"""Answers to POSTs that a session keeps for who resumes them; the oldest go first."""


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
