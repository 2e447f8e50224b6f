"""Observes clients, ended calls, watching operators, and on request a server's messages as on the wire, for five
minutes, in memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import anyio.to_thread
import msgspec

from mcp_hub.aio import Timer, call_later
from mcp_hub.app.apply import UpstreamSet
from mcp_hub.app.limits import Current
from mcp_hub.calls.history.recent import RecentCalls
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import Clock, SystemClock, wall_time
from mcp_hub.errors import method_not_found
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.masking import hide_head
from mcp_hub.protocol.rest.overview import RawBody, RawList, RawMessage
from mcp_hub.sessions.clients import ClientsSeen
from mcp_hub.sessions.session import Session
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.types import ClientKind, Era
from mcp_hub.upstreams.supervision.server import Lifecycle
from mcp_hub.wire.base import Tapped, watch

_GRACE: Final = 10.0
"""Seconds for a page to come back after a reload or a lost connection."""


class _Operators:
    """The people who answer for clients that cannot be asked; without any, questions are declined."""

    def __init__(self, under_way: Callable[[], Iterable[CallRecord]], grace: float = _GRACE) -> None:
        self._under_way = under_way
        self._grace = grace
        self._pages = 0
        self._leaving: Timer | None = None

    @property
    def are_there(self) -> bool:
        return self._pages > 0 or self._leaving is not None

    @contextmanager
    def here(self) -> Iterator[None]:
        """Counts one open page in the block."""
        self._pages += 1
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        try:
            yield
        finally:
            self._pages -= 1
            if not self._pages:
                self._leaving = call_later(self._grace, self._decline)

    def _decline(self) -> None:
        self._leaving = None
        for record in list(self._under_way()):
            for key, question in list(record.questions.open.items()):
                if not record.call.asks_client(question.method, question.params):
                    message = f"{question.method}: the client cannot be asked, and the people at the hub have left"
                    record.questions.answer(key, method_not_found(message))


class Seen(msgspec.Struct, frozen=True):
    """Clients, calls and operators, with configuration and approval records."""

    clients: ClientsSeen
    recent: RecentCalls
    operators: _Operators
    config: Path
    records: KeyedFiles

    @classmethod
    def of(
        cls,
        kinds: Callable[[Session], ClientKind],
        config: Path,
        records: KeyedFiles,
        under_way: Callable[[], Iterable[CallRecord]],
        meet: Callable[[Era], object],
    ) -> Self:
        """An empty one. `under_way`: running calls. `meet` gets each new client's era."""
        clients = ClientsSeen(kinds, wall_time, SystemClock().now, meet)
        return cls(
            clients=clients, recent=RecentCalls(), operators=_Operators(under_way), config=config, records=records
        )


SECONDS: Final = 300.0
"""Seconds of a recording, and of each message in it."""
MOST: Final = 1000
"""Messages per server; the oldest goes first."""
_HEAD: Final = 64 << 10
"""Bytes kept of a message."""
_SHOWN: Final = 16 << 10
"""Characters shown of a message; the rest serves to mask secrets that are cut."""
_MOST_BYTES: Final = 4 << 20
"""Bytes per server."""
_MOST_SERVERS: Final = 4
"""Servers recorded at once."""
_PAGE: Final = 100
"""Messages per response."""


class _Taken(msgspec.Struct, frozen=True):
    seq: int
    at: float
    time: float
    is_incoming: bool
    size: int
    head: bytes


class _Recording(msgspec.Struct):
    """One server's messages, as a `Tap`."""

    until: float
    now: Callable[[], float]
    messages: deque[_Taken] = msgspec.field(default_factory=deque)
    stops: list[Callable[[], None]] = []
    bytes_kept: int = 0
    seq: int = 0

    def take(self, is_incoming: bool, message: bytes) -> None:
        time = self.now()
        if time > self.until:
            self.end()
            return
        self.seq += 1
        self.messages.append(
            _Taken(
                seq=self.seq,
                at=wall_time(),
                time=time,
                is_incoming=is_incoming,
                size=len(message),
                head=message[:_HEAD],
            )
        )
        self.bytes_kept += min(len(message), _HEAD)
        while len(self.messages) > MOST or self.bytes_kept > _MOST_BYTES:
            self.bytes_kept -= len(self.messages.popleft().head)

    def end(self) -> None:
        self.until = min(self.until, self.now())
        for stop in self.stops:
            stop()
        self.stops.clear()


class RawMessages:
    """The recordings. Raises `Problem` 404 for an unknown server, 409 without its own connection."""

    def __init__(self, current: Current, upstreams: UpstreamSet, clock: Clock) -> None:
        self._current = current
        self._upstreams = upstreams
        self._clock = clock
        self._recordings: dict[str, _Recording] = {}

    def switch(self, body: RawBody) -> None:
        """Starts or ends a recording. Raises `Problem`."""
        server = self._server(body.server)
        self._forget()
        recording = self._recordings.pop(body.server, None)
        if recording is not None:
            recording.end()
        if body.action == "stop":
            if recording is not None:
                self._recordings[body.server] = recording
            return
        if len(self._recordings) >= _MOST_SERVERS:
            oldest = min(self._recordings, key=lambda name: self._recordings[name].until)
            self._recordings.pop(oldest).end()
        fresh = self._recordings[body.server] = _Recording(self._clock.now() + SECONDS, self._clock.now)
        self._attach(server, fresh)

    async def read(self, name: str, after: int) -> RawList:
        """Masked messages after a number; also begins to record new connections."""
        server = self._server(name)
        self._forget()
        recording = self._recordings.get(name)
        if recording is None:
            return RawList(name, 0.0, [])
        remaining = max(recording.until - self._clock.now(), 0.0)
        if remaining:
            self._attach(server, recording)
        taken = [message for message in recording.messages if message.seq > after][:_PAGE]
        return RawList(name, remaining, await anyio.to_thread.run_sync(lambda: [*map(_raw_message, taken)]))

    def _attach(self, server: Lifecycle, recording: _Recording) -> None:
        for peer in server.peers or ():
            if isinstance(peer.wire, Tapped) and peer.wire.tap != recording.take:
                recording.stops.append(watch(peer.wire, recording.take))

    def _server(self, name: str) -> Lifecycle:
        if name not in self._current.settings.servers:
            raise unknown_server(name, self._current.settings.servers)
        upstream = self._upstreams.upstreams.get(name)
        if upstream is None or upstream.lifecycle.peers is None:
            raise Problem(409, "no_connection", f'Server "{name}" has no connection: it is a part of the hub.')
        return upstream.lifecycle

    def _forget(self) -> None:
        time = self._clock.now()
        for name, recording in list(self._recordings.items()):
            while recording.messages and recording.messages[0].time < time - SECONDS:
                recording.bytes_kept -= len(recording.messages.popleft().head)
            if recording.until <= time:
                recording.end()
                if not recording.messages:
                    del self._recordings[name]


def _raw_message(message: _Taken) -> RawMessage:
    text = hide_head(message.head.rstrip(b"\r\n"), _SHOWN)
    is_cut = len(text) >= _SHOWN or message.size > len(message.head)
    return RawMessage(
        seq=message.seq, at=message.at, incoming=message.is_incoming, size=message.size, text=text, cut=is_cut
    )
