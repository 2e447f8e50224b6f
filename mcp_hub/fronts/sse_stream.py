"""A stream of server-sent events to one client that carries everything the hub has to tell it.

One coroutine writes, all that is queued at once; while it is blocked no more is taken from the logs of calls, so that a
client that does not read holds up nothing but itself.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from mcp_hub.fronts.http.response import KEEP_ALIVE, Receive, Send
from mcp_hub.fronts.mcp.duplex import Duplex
from mcp_hub.protocol import sse
from mcp_hub.protocol.jsonrpc.envelope import Envelope, Unset
from mcp_hub.wire.base import Requests, WireClosed

_CHUNK: Final = 1 << 18
"""Bytes handed over at a time: a reader that is slow but reads is not taken for one that has stopped."""
_CONGESTED: Final = 1 << 20
"""Bytes queued above which calls wait with what they have to say, and the client with what it asks."""
_LAST: Final = 0.5
"""Seconds that a client has to read while the hub stops; the server would cut it off after one."""


class EventStream:
    """One client's stream: the `ClientWire` of a `Duplex`. One that reads nothing for `stalled` s is gone."""

    def __init__(self, duplex: Duplex, stalled: float) -> None:
        self.requests = Requests()
        self.is_closed = False
        self._duplex = duplex
        self._stalled = stalled
        self._patience = anyio.CancelScope()
        self._is_ending = False
        self._due: list[Callable[[], object]] = []
        self._out: list[bytes] = []
        self._writes: deque[bytes] = deque()
        self._queued = 0
        self._work = anyio.Event()

    async def take(self, message: Envelope) -> None:
        """Accepts a message of the client's once it reads what it is sent. Raises `WireClosed`: it is gone."""
        await self._ready()
        if message.method is Unset:
            self._duplex.on_answer(message)
        elif message.id is Unset:
            self._duplex.on_notification(message)
        else:
            self._duplex.on_request(message)

    @property
    def takes_batches(self) -> bool:
        """Whether the client may send an array of messages."""
        return self._duplex.takes_batches

    async def take_batch(self, text: bytes) -> None:
        """Accepts an array of messages. Raises `WireClosed`."""
        await self._ready()
        self._duplex.on_batch(text)

    async def _ready(self) -> None:
        await self._duplex.writable()
        if self.is_closed:
            raise WireClosed("the stream is closed")

    async def run(self, receive: Receive, send: Send, endpoint: str) -> None:
        """Serves the client until either side ends the stream."""
        self._queue(b"event: endpoint\ndata: %s\n\n" % endpoint.encode())
        async with self._duplex.serving(self) as tasks:
            tasks.start_soon(self._watch, receive, tasks.cancel_scope)
            reason = "the client closed its stream"
            try:
                reason = await self._write_all(send)
            finally:
                self._close(reason)

    def end(self) -> None:
        """Ends the stream as soon as nothing is left to answer, or the client does not read."""
        self._is_ending = True
        self._stalled = _LAST
        self._patience.deadline = anyio.current_time() + _LAST
        self._work.set()

    # -- ClientWire -----------------------------------------------------------------------------------------------

    @property
    def is_congested(self) -> bool:
        return self._queued > _CONGESTED

    def send(self, frame: bytes) -> None:
        self._queue(sse.message(frame))

    def flush(self) -> None:
        if self._out:
            self._writes.append(b"".join(self._out))
            self._out.clear()

    def soon(self, callback: Callable[[], object]) -> None:
        self._due.append(callback)
        self._work.set()

    # -- writing --------------------------------------------------------------------------------------------------

    def _queue(self, event: bytes) -> None:
        self._out.append(event)
        self._queued += len(event)
        self._work.set()

    async def _write_all(self, send: Send) -> str:
        """Returns why it stopped."""
        while True:
            due, self._due = self._due, []
            for callback in due:
                callback()
            self.flush()
            if self._writes:
                if not await self._write(self._writes.popleft(), send):
                    return f"the client read nothing for {self._stalled:g} s"
            elif self._is_ending and not self._duplex.is_busy:
                await self._hand_over(b"", send, is_last=True)
                return "the hub is stopping"
            else:
                await self._wait()

    async def _wait(self) -> None:
        """Waits for something to write; after a silence that is a comment."""
        with anyio.move_on_after(KEEP_ALIVE) as silence:
            await self._work.wait()
        if silence.cancelled_caught:
            self._queue(sse.COMMENT)
        self._work = anyio.Event()

    async def _write(self, events: bytes, send: Send) -> bool:
        """False if the client does not read."""
        for start in range(0, len(events), _CHUNK):
            chunk = events[start : start + _CHUNK]
            if not await self._hand_over(chunk, send):
                return False
            was_congested = self.is_congested
            self._queued -= len(chunk)
            if was_congested and not self.is_congested:
                self._duplex.on_writable()
        return True

    async def _hand_over(self, body: bytes, send: Send, *, is_last: bool = False) -> bool:
        with anyio.move_on_after(self._stalled) as self._patience:
            await send({"type": "http.response.body", "body": body, "more_body": not is_last})
        return not self._patience.cancelled_caught

    def _close(self, reason: str) -> None:
        self.is_closed = True
        self.requests.fail_all(reason)
        self._duplex.on_closed(reason, "connection_lost")

    async def _watch(self, receive: Receive, scope: anyio.CancelScope) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        scope.cancel()
