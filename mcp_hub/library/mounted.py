"""The hub's HTTP front as an ASGI application below any mount (`root_path`).

It checks Host, Origin and tokens; without tokens it answers only this machine.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from mcp_hub.errors import HubMisuse
from mcp_hub.fronts.http.auth import is_loopback
from mcp_hub.fronts.http.response import Receive, Scope, Send, respond
from mcp_hub.fronts.prefix import below
from mcp_hub.library.inner import InnerHub


class MountedHub:
    """`running` returns the hub; `owning` makes it the owner of a request's secrets."""

    def __init__(self, running: Callable[[], InnerHub], owning: Callable[[], AbstractContextManager[None]]) -> None:
        self._running = running
        self._owning = owning

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1000})
            case _:
                await _live(receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            inner = self._running()
        except HubMisuse as error:
            await _refuse(send, 503, error.code, str(error))
            return
        if not (inner.is_guarded or _is_local(scope)):
            message = (
                "This hub has no tokens, so only this machine may use it. Set hub.tokens or hub.http.oauth, "
                "or hub.http.allow_public if the host program guards it."
            )
            await _refuse(send, 403, "not_public", message)
            return
        with self._owning():
            await inner.serve_http(*below(scope, receive, send))


def _is_local(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and is_loopback(client[0])


async def _refuse(send: Send, status: int, code: str, detail: str) -> None:
    await respond(send, status, msgspec.json.encode({"code": code, "detail": detail}))


async def _live(receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
