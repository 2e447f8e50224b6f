"""An SSE response that carries what belongs to no call: a handshake session's GET stream, a modern listen."""

from typing import Final, Protocol

import anyio

from mcp_hub.fronts.http.response import KEEP_ALIVE, SSE_HEADERS, Receive, Send
from mcp_hub.protocol import sse

_STALLED: Final = 60.0
"""Seconds in which a client has to take what it is sent."""
_LAST: Final = 1.0
"""Seconds to end the response."""


class Source(Protocol):
    """Where the notifications come from; nothing is pulled while the client does not read."""

    async def next(self) -> list[bytes]: ...

    def told(self) -> None: ...


async def stream(source: Source, receive: Receive, send: Send, scope: anyio.CancelScope, last: bytes = b"") -> None:
    """The response: what `source` has until the client is gone or `scope` is cancelled, then the message `last`."""
    with scope:
        await send({"type": "http.response.start", "status": 200, "headers": SSE_HEADERS})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_until_disconnect, receive, tasks.cancel_scope)
            await _pump(source, send)
            tasks.cancel_scope.cancel()
    with anyio.move_on_after(_LAST, shield=True):
        await send({"type": "http.response.body", "body": sse.message(last) if last else b""})


async def _pump(source: Source, send: Send) -> None:
    """Returns when the client takes nothing more."""
    while True:
        body = b""
        with anyio.move_on_after(KEEP_ALIVE):
            body = b"".join(map(sse.message, await source.next()))
        with anyio.move_on_after(_STALLED) as patience:
            await send({"type": "http.response.body", "body": body or sse.COMMENT, "more_body": True})
        if patience.cancelled_caught:
            return
        if body:
            source.told()


async def _until_disconnect(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
