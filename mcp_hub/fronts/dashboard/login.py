"""`POST /api/login`: a login to a remote server as an event stream."""

from contextlib import suppress
from typing import Final

import anyio
import msgspec

from mcp_hub.fronts.dashboard.ports import Login
from mcp_hub.fronts.http.response import KEEP_ALIVE, ClientGone, HttpResponse
from mcp_hub.protocol import sse
from mcp_hub.protocol.rest.overview import LoginEnded, LoginNews

MOST_LOGINS: Final = 8
"""Logins that wait at once."""


async def send_login(login: Login, response: HttpResponse) -> None:
    """A client that leaves ends the login."""
    give, take = anyio.create_memory_object_stream[LoginNews](2)

    async def run() -> None:
        await give.send(await login(give.send))

    async with anyio.create_task_group() as tasks, give, take:
        tasks.start_soon(run)
        with suppress(ClientGone):
            await response.start()
            while True:
                news: LoginNews | None = None
                with anyio.move_on_after(KEEP_ALIVE):
                    news = await take.receive()
                if news is None:
                    await response.write(sse.COMMENT)
                    continue
                event = b"event: login\ndata: " + msgspec.json.encode(news) + b"\n\n"
                if isinstance(news, LoginEnded):
                    await response.end(event)
                    break
                await response.write(event)
        tasks.cancel_scope.cancel()
