"""Followers of durable streams over REST: the committed events of one stream, as they are stored, in three forms.

SSE has an event for each (id: its number, event: its type, data: its line) and ends with `event: closed`; NDJSON is the
lines themselves; JSON is a page of them, to be asked for again (long-poll). A follower that goes is only disconnected.
"""

from collections.abc import Coroutine, Sequence
from typing import Final

import anyio
import msgspec

from mcp_hub.calls.runner import Bell, Beside, call_later
from mcp_hub.calls.stream import Stream
from mcp_hub.errors import HubError
from mcp_hub.fronts import sse
from mcp_hub.fronts.exchange import KEEP_ALIVE, SSE_HEADERS, Send
from mcp_hub.fronts.rest_http import NDJSON, ClientGone, RestRequest, Writer
from mcp_hub.fronts.rest_problem import Problem, problem_for
from mcp_hub.hub import Facade
from mcp_hub.sessions.session import Session
from mcp_hub.types import CallId

__all__ = ["Closing", "Following", "Stopping", "kind_of", "let_go", "send_ndjson", "send_sse"]

_BATCH: Final = 256
"""Events that are written at once."""
_FEW: Final = 8
"""Events between two looks at how large a page has become."""
_PAGE_BYTES: Final = 1 << 20
"""Of events in one JSON page, the last one aside."""
_FETCH: Final = 10.0
"""Seconds that events which are there already may take to come from the store."""
_LAST_EVENTS: Final = 0.6
"""Seconds for the endings of calls to reach their followers while the hub stops; the server would cut them at one."""


class Following:
    """A place in a stream. Raises what `Streams.follow` raises."""

    __slots__ = ("_bell", "_reader", "_stream")

    def __init__(self, hub: Facade, stream: Stream, after: int) -> None:
        self._bell = Bell()
        self._stream = stream
        self._reader = hub.streams.follow(stream, self._bell.ring, after)

    @property
    def stream(self) -> CallId:
        return self._stream.row.id

    @property
    def cursor(self) -> int:
        """The number of the last event that was taken."""
        return self._reader.cursor

    @property
    def closed(self) -> bool:
        """Whether there will be nothing more: the ending was taken."""
        return self._reader.at_end

    @property
    def status(self) -> str:
        return self._stream.row.status

    async def lines(self, most: int, seconds: float) -> list[bytes]:
        """The next events, one at least unless none comes in that time or the stream is `closed`.

        Raises the `HubError` for which there will be no more.
        """
        reader = self._reader
        until = anyio.current_time() + seconds
        while not (reader.has_more or self.closed):
            if reader.failed is not None:
                raise reader.failed
            is_there = self.cursor < self._stream.row.last
            patience = max(until - anyio.current_time(), _FETCH if is_there else 0)
            if not await self._bell.wait(max(patience, 0)):
                return []
        return [entry.line for entry in reader.take_entries(most)]

    async def page(self, most: int, seconds: float) -> list[bytes]:
        """The same, and what else is there already, of a size that an answer can have."""
        page = await self.lines(min(most, _FEW), seconds)
        size = sum(map(len, page))
        while page and len(page) < most and size < _PAGE_BYTES and self.cursor < self._stream.row.last:
            more = await self.lines(min(most - len(page), _FEW), 0)
            if not more:
                break
            page += more
            size += sum(map(len, more))
        return page

    def close(self) -> None:
        """Idempotent."""
        self._reader.close()


def let_go(hub: Facade, session: Session, id_: CallId, *, was_alone: bool = False) -> None:
    """A caller that asked after the stream has its answer, or has left.

    Unless somebody else reads it, its call goes on alone for a while from now on; `was_alone` if it did before. A call
    that runs here for a client of another front is that client's.
    """
    writer = hub.streams.owned(id_)
    if writer is not None and (writer.is_detached or was_alone or writer.orphaned_at is not None):
        hub.leave(session, writer.record)


class Closing:
    """Ends what would not end by itself when the hub stops; a call that runs here gets its ending through before."""

    def __init__(self) -> None:
        self._open: set[Beside] = set()
        self._is_over = False

    def close(self) -> None:
        call_later(_LAST_EVENTS, self._end)

    def _end(self) -> None:
        self._is_over = True
        for watched in self._open:
            watched.give_up()

    async def connected(self, request: RestRequest, work: Coroutine[None, None, None]) -> None:
        """Does the work as long as the client is there.

        It is given up when that leaves, which raises `ClientGone`, and shortly after `close`, which raises `Stopping`.
        """
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
    """What was waited for has not come before the hub stopped; nothing was done."""

    def __init__(self) -> None:
        super().__init__(503, "hub_stopped", "the hub is stopping", headers=((b"retry-after", b"5"),))


def kind_of(line: bytes) -> bytes:
    """The type of a stored event; what stands before it in the line is the hub's own."""
    start = line.index(b'"type":"') + 8
    return line[start : line.index(b'"', start)]


async def send_sse(following: Following, send: Send, lines: Sequence[bytes] = ()) -> None:
    """Events from `lines`, which were taken last, to the end of the stream. Raises `ClientGone`."""
    writer = Writer(send, SSE_HEADERS)
    await writer.start()
    seq = following.cursor - len(lines)
    is_silent = False
    try:
        while not following.closed:
            body = b"".join(_event(number, line) for number, line in enumerate(lines, seq + 1))
            seq += len(lines)
            if body or is_silent:
                await writer.write(body or sse.COMMENT)
            lines = await following.lines(_BATCH, KEEP_ALIVE)
            is_silent = not lines
    except HubError as error:
        await writer.end(b"event: problem\ndata: %b\n\n" % problem_for(error).encoded())
        return
    body = b"".join(_event(number, line) for number, line in enumerate(lines, seq + 1))
    closed = msgspec.json.encode({"cursor": following.cursor, "status": following.status})
    await writer.end(body + b"event: closed\ndata: %b\n\n" % closed)


def _event(seq: int, line: bytes) -> bytes:
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (seq, kind_of(line), line)


async def send_ndjson(following: Following, send: Send) -> None:
    """One event a line to the end of the stream; it is complete if the last one is the ending. Raises `ClientGone`."""
    writer = Writer(send, [(b"content-type", NDJSON.encode()), (b"cache-control", b"no-cache, no-transform")])
    await writer.start()
    try:
        while not following.closed:
            lines = await following.lines(_BATCH, KEEP_ALIVE)
            await writer.write(b"".join(b"%b\n" % line for line in lines))
    except HubError:
        pass  # the client sees that the ending is missing, and is told why when it asks for it
    await writer.end()
