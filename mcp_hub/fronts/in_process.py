"""The in-process front: one client in the hub's own process, whose messages are handed over as JSON text.

It serves either era, era decided by each request, as the stdio front does. Nothing is delivered inside `take`: what the
hub has to say is fetched with `next`. A client that fetches nothing holds up only itself.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

import anyio

from mcp_hub.fronts.mcp.binding import Binding, modern_session
from mcp_hub.fronts.mcp.duplex import Duplex
from mcp_hub.hub import HubPort
from mcp_hub.ids import new_session_id
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Unset
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.wire.base import Requests

_CONGESTED: Final = 1 << 20
"""Bytes that wait to be fetched, above which calls wait with what they have to say."""


class InProcessFront:
    """One client. It is the `ClientWire` of its `Duplex`."""

    def __init__(self, hub: HubPort, binding: Binding, caller: Caller) -> None:
        self.requests = Requests()
        self.is_closed = False
        self._caller = caller
        self._key = new_session_id()
        self._duplex = Duplex(hub, binding, caller, self._modern)
        self._due: list[Callable[[], object]] = []
        self._out: list[bytes] = []
        self._queued = 0
        self._work = anyio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answers the client meanwhile; afterwards its calls are cancelled."""
        async with self._duplex.serving(self):
            try:
                yield
            finally:
                self.close("the client closed its connection")

    async def take(self, text: bytes) -> None:
        """Accepts a message of the client once it fetches what it is sent. A closed connection drops it."""
        await self._duplex.writable()
        if self.is_closed:
            return
        message = envelope.decode(text)
        if isinstance(message, BadMessage):
            self._duplex.on_bad_line(message, text)
        elif message.method is Unset:
            self._duplex.on_answer(message)
        elif message.id is Unset:
            self._duplex.on_notification(message)
        else:
            self._duplex.on_request(message)

    async def next(self) -> list[bytes]:
        """The messages for the client, one at least; none once the connection is closed."""
        while not self._out and not self.is_closed:
            due, self._due = self._due, []
            for callback in due:
                callback()
            if not self._out and not self._due:
                await self._work.wait()
                self._work = anyio.Event()
        out, self._out = self._out, []
        was_congested, self._queued = self.is_congested, 0
        if was_congested:
            self._duplex.on_writable()
        return out

    def close(self, reason: str, code: str = "closed") -> None:
        """Ends the connection. Idempotent."""
        if not self.is_closed:
            self.is_closed = True
            self.requests.fail_all(reason)
            self._duplex.on_closed(reason, code)
            self._work.set()

    def _modern(self, meta: RequestMeta) -> Session:
        """All requests are one client's."""
        return modern_session(self._caller, meta, self._key)

    # -- ClientWire -----------------------------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        return self._queued > _CONGESTED

    def send(self, frame: bytes) -> None:
        self._out.append(frame)
        self._queued += len(frame)
        self._work.set()

    def flush(self) -> None:
        """Each message is handed over by itself."""

    def soon(self, callback: Callable[[], object]) -> None:
        self._due.append(callback)
        self._work.set()
