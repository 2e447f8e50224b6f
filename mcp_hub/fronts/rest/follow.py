"""A durable stream's committed events over REST.

SSE has id (number), event (type) and data (line), and ends with `closed`; NDJSON has the lines; JSON is a page
(long-poll).
"""

from collections.abc import Coroutine, Sequence
from typing import Final, TypeVar

import msgspec

from mcp_hub.aio import Beside, call_later
from mcp_hub.errors import HubError
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.http.response import KEEP_ALIVE, ClientGone, HttpResponse
from mcp_hub.fronts.rest.exchange import RestRequest
from mcp_hub.fronts.rest.problem import Problem, problem_for
from mcp_hub.protocol import sse

T = TypeVar("T")

_BATCH: Final = 256
"""Events that are written at once."""
_LAST_EVENTS: Final = 0.6
"""Seconds for endings to reach their followers while the hub stops; the server allows one."""


class Closing:
    """Ends responses when the hub stops; calls that run here end first."""

    def __init__(self) -> None:
        self._open: set[Beside] = set()
        self._is_over = False

    def close(self) -> None:
        call_later(_LAST_EVENTS, self._end)

    def _end(self) -> None:
        self._is_over = True
        for watched in self._open:
            watched.give_up()

    async def connected(self, request: RestRequest, work: Coroutine[None, None, T]) -> T:
        """Works while the client is there. Raises `ClientGone`, or `Stopping` after `close`."""
        if self._is_over:
            work.close()
            raise Stopping
        watched = Beside(request.watch)
        with watched:
            self._open.add(watched)
            try:
                return await work
            finally:
                self._open.discard(watched)
        raise Stopping if self._is_over else ClientGone


class Stopping(Problem):
    """The hub stopped before the awaited event."""

    def __init__(self) -> None:
        super().__init__(503, "hub_stopped", "the hub is stopping", headers=((b"retry-after", b"5"),))


def kind_of(line: bytes) -> bytes:
    """The type of a stored event."""
    start = line.index(b'"type":"') + 8
    return line[start : line.index(b'"', start)]


async def send_sse(following: Following, response: HttpResponse, lines: Sequence[bytes] = ()) -> None:
    """Sends `lines`, taken last, and the rest of the stream. Raises `ClientGone`."""
    await response.start()
    is_silent = False
    try:
        while not following.closed:
            if lines or is_silent:
                await response.write(_events(following, lines) or sse.COMMENT)
            lines = await following.lines(_BATCH, KEEP_ALIVE)
            is_silent = not lines
    except HubError as error:
        await response.end(b"event: problem\ndata: %b\n\n" % problem_for(error).encoded())
        return
    closed = msgspec.json.encode({"cursor": following.cursor, "status": following.status})
    await response.end(_events(following, lines) + b"event: closed\ndata: %b\n\n" % closed)


def _events(following: Following, lines: Sequence[bytes]) -> bytes:
    first = following.cursor - len(lines) + 1
    numbered = enumerate(lines, first)
    return b"".join(b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, kind_of(line), line) for seq, line in numbered)


async def send_ndjson(following: Following, response: HttpResponse) -> None:
    """Sends the stream; without an ending it is incomplete. Raises `ClientGone`."""
    await response.start()
    try:
        while not following.closed:
            lines = await following.lines(_BATCH, KEEP_ALIVE)
            await response.write(b"".join(b"%b\n" % line for line in lines))
    except HubError:
        pass  # the client sees that the ending is missing, and learns the reason when it asks for it
    await response.end()
