"""A client in the hub's process: JSON text, either era. Messages wait until it fetches them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial

from mcp_hub.fronts.mcp.binding import Binding, modern_session
from mcp_hub.fronts.mcp.duplex import Duplex
from mcp_hub.fronts.mcp.message_queue import MessageQueue
from mcp_hub.hub import HubPort
from mcp_hub.ids import new_session_id
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage
from mcp_hub.sessions.session import Caller
from mcp_hub.wire.base import WireClosed


class InProcessFront:
    """One client."""

    def __init__(self, hub: HubPort, binding: Binding, caller: Caller) -> None:
        modern = partial(modern_session, caller, key=new_session_id(), apps={})
        self._duplex = Duplex(hub, binding, caller, modern)
        self._queue = MessageQueue(self._duplex)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serves the client meanwhile, then cancels its calls."""
        async with self._duplex.serving(self._queue):
            try:
                yield
            finally:
                self.close("the client closed its connection")

    async def take(self, text: bytes) -> None:
        """Accepts a message once the client fetches its own."""
        with suppress(WireClosed):
            await self._queue.writable()
            message = envelope.decode(text)
            if isinstance(message, BadMessage):
                self._duplex.on_bad_line(message, text)
            else:
                self._duplex.take(message)

    async def next(self) -> list[bytes]:
        """Waits for messages; empty once closed."""
        messages = await self._queue.next()
        self._queue.taken(messages)
        return messages

    def close(self, reason: str, code: str = "closed") -> None:
        self._queue.close(reason, code)
