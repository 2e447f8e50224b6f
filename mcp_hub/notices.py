"""Notices outside of calls, for readers that pull: versions of states and lists, a bounded ring of resource updates."""

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Final

import anyio

Origin = tuple[str, str]
"""A server and a URI of its own."""

_MOST_RESOURCES: Final = 1024
_MOST_MESSAGES: Final = 256
_MOST_PARTS: Final = 16
"""Parts of one resource; beyond, the whole counts as updated."""
_MOST_BYTES: Final = 4096
"""Bytes of one notice's params, else only the URI stays: 64 MiB in all."""


class SharedLists:
    """Digests of servers' lists, exchanged between replicas."""

    def __init__(self, send: Callable[[str, str], None] = lambda server, digest: None) -> None:
        self._readers: dict[str, list[Callable[[str], None]]] = {}
        self._last: dict[str, str] = {}
        self._send = send

    def changed(self, server: str, digest: str) -> None:
        """Sends a server's new digest."""
        if self._last.get(server) != digest:
            self._last[server] = digest
            self._send(server, digest)

    def heard(self, server: str, digest: str) -> None:
        """Takes another replica's digest."""
        if server in self._readers:
            self._last[server] = digest
        for reader in self._readers.get(server, ()):
            reader(digest)

    @contextmanager
    def following(self, server: str, reader: Callable[[str], None]) -> Iterator[None]:
        """Calls `reader` with each digest of another replica."""
        readers = self._readers.setdefault(server, [])
        readers.append(reader)
        try:
            yield
        finally:
            readers.remove(reader)
            if not readers:
                self._readers.pop(server, None)
                self._last.pop(server, None)


class Notices:
    """Counters for all upstreams: `version` of states and lists, `noted` of notices."""

    def __init__(self, lists: SharedLists | None = None) -> None:
        self.lists = lists if lists is not None else SharedLists()
        self.version = 0
        self.noted = 0
        self._event: anyio.Event | None = None
        self._notices: OrderedDict[Origin, dict[str, tuple[int, bytes]]] = OrderedDict()
        self._forgotten = 0
        self._messages: deque[tuple[int, str, bytes]] = deque(maxlen=_MOST_MESSAGES)
        self._takers: dict[str, Callable[[bytes], bool]] = {}

    def bump(self) -> None:
        """A state or list changed."""
        self.version += 1
        self._wake()

    def note(self, origin: Origin, uri: str, params: bytes = b"{}") -> None:
        """Notes an update of a watched resource or its part `uri`; `params` as sent."""
        self.noted += 1
        parts = self._notices.pop(origin, {})
        parts.pop(uri, None)
        if len(parts) >= _MOST_PARTS:
            parts, uri, params = {}, origin[1], b"{}"
        parts[uri] = self.noted, params if len(params) <= _MOST_BYTES else b"{}"
        self._notices[origin] = parts
        if len(self._notices) > _MOST_RESOURCES:
            _, oldest = self._notices.popitem(last=False)
            self._forgotten = max(number for number, _ in oldest.values())
        self._wake()

    def notices(self, origin: Origin, after: int) -> list[tuple[str, bytes]]:
        """Updates since `noted` was `after`, oldest first; never empty for a reader that fell behind."""
        if after < self._forgotten:
            return [(origin[1], b"{}")]
        return [(uri, params) for uri, (number, params) in self._notices.get(origin, {}).items() if number > after]

    def tell(self, session: str, frame: bytes) -> None:
        """Sends a message to one handshake session."""
        if (take := self._takers.get(session)) is not None and take(frame):
            return
        self.noted += 1
        self._messages.append((self.noted, session, frame))
        self._wake()

    def tell_at_once(self, session: str, take: Callable[[bytes], bool] | None) -> None:
        """`take` gets each message at once (False: keep it for a reader); None: no longer."""
        if take is None:
            self._takers.pop(session, None)
        else:
            self._takers[session] = take

    @property
    def listening(self) -> Collection[str]:
        """Sessions that get messages at once."""
        return self._takers.keys()

    def messages(self, session: str, after: int) -> list[bytes]:
        """Messages since `noted` was `after`, oldest first; old ones may be gone."""
        return [frame for number, whose, frame in self._messages if number > after and whose == session]

    async def wait(self, after: int) -> int:
        """Waits for a version above `after`."""
        while self.version <= after:
            await self._next()
        return self.version

    async def wait_any(self, version: int, noted: int) -> None:
        while self.version <= version and self.noted <= noted:
            await self._next()

    async def _next(self) -> None:
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None
