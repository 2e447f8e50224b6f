"""A listener whose address is in what bad servers say: nobody may ever connect to it."""

from typing import Self

import anyio
import anyio.abc


class Canary:
    """`async with Canary() as canary`: `url` is to be leaked, `seen` has the first bytes of every connection."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.url = ""

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
        self.url = f"http://127.0.0.1:{listener.extra(anyio.abc.SocketAttribute.local_port)}/"
        self._tasks.start_soon(self._serve, listener)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def _serve(self, listener: anyio.abc.Listener[anyio.abc.SocketStream]) -> None:
        async with listener:
            await listener.serve(self._note)

    async def _note(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            self.seen.append((await stream.receive(1000)).decode("latin-1")[:200])
