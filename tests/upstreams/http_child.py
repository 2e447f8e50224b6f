"""The fixture server over HTTP, as a child process of a test."""

from typing import Any, Self

import anyio

from tests.upstreams.child import WAIT, Child, Chunks, PeerClosed
from tests.upstreams.launch import argv


class HttpUpstream(Child):
    """A running fixture server: `async with HttpUpstream("--always-sse", era="modern") as server: server.url`.

    Options as for `argv`; the port is a free one unless `http=PORT` is given. Raises: `PeerClosed`, with its stderr,
    when it does not start.
    """

    def __init__(self, *options: str, **named: Any) -> None:
        super().__init__(argv(*options, **{"http": 0, **named}))
        self._stdout = bytearray()
        self._is_closed = False

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        with anyio.move_on_after(WAIT):
            while b"\n" not in self._stdout and not self._is_closed:
                await self._changed.wait()
        if b"\n" not in self._stdout:
            await self.__aexit__()
            raise PeerClosed(f"{self.argv} did not start:\n{self.stderr}")
        return self

    @property
    def url(self) -> str:
        """Of Streamable HTTP."""
        return self._stdout.partition(b"\n")[0].decode()

    async def _collect_stdout(self) -> None:
        async for chunk in Chunks(self.process.stdout):
            self._stdout += chunk
            self._notice()
        self._is_closed = True
        self._notice()
