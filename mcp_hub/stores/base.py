"""Where the events of durable streams are kept: rows, chunks of encoded events, letters to owners, sessions.

One interface for every store. A stream has one owner, the hub process that appends to it, and an epoch
that every change of owner raises: what an earlier owner still sends is refused (`Fenced`). Events are opaque lines here
(`protocol.shape.stream_events` knows them); the store sees to order: chunk after chunk without a hole, nothing after
the end. What `append` has confirmed survives the process if the store `is_durable`.
"""

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.types import CallId, Status


class Chunk(msgspec.Struct, frozen=True, gc=False):
    """Consecutive events from number `first` on: `lines` are encoded, one JSON object each without a line break."""

    first: int
    lines: tuple[bytes, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.lines) - 1


class Change(msgspec.Struct, frozen=True):
    """The columns of the row that an append changes, in the same transaction; None leaves a column as it is.

    `frees_key`: the idempotency key is no longer the stream's; another one may have it.
    """

    updated: float
    status: Status | None = None
    message: str | None = None
    continuation: bytes | None = None
    info: bytes | None = None
    ttl: float | None = None
    frees_key: bool = False


class EventPage(msgspec.Struct, frozen=True):
    """Events that follow a place, and the row as it was when they were read."""

    row: StreamInfo
    lines: tuple[bytes, ...]
    first: int


class Letter(msgspec.Struct, frozen=True):
    """For the owner of a stream, from another process: `cancel` (body: the reason), `input` (body: JSON) or `touch`."""

    stream: CallId
    kind: Literal["cancel", "input", "touch"]
    body: bytes


class SessionRow(msgspec.Struct, frozen=True):
    """A handshake session that has a durable stream. `body` is JSON that the front understands."""

    id: str
    principal: str
    body: bytes
    expires: float


Appended = Callable[[StoreError | None], None]
Fetched = Callable[[EventPage | StoreError | None], None]
"""Given the page, None if there is no such stream (any more), or what went wrong."""


class EventStore(Protocol):
    """One store. All methods are called on the event loop and never block it; callbacks come on the event loop, maybe
    before the call returns. An append is only asked for when the one before of the same stream has been confirmed.
    """

    instance: str
    """Id of this hub process, `in_` + 26 characters."""

    @property
    def is_durable(self) -> bool:
        """Whether what is confirmed from now on survives this process."""
        ...

    def survives(self, stream: CallId) -> bool:
        """Whether all that is confirmed of this stream survives this process."""
        ...

    async def open(self) -> None:
        """Makes the store ready. Never raises for a file that cannot be used: see `is_durable`."""
        ...

    async def close(self) -> None:
        """Commits what was asked for, within a bound of 1 s, and lets go of files and locks. Idempotent."""
        ...

    # -- the owner

    def create(self, row: StreamInfo, chunk: Chunk, done: Appended) -> None:
        """Adds a stream with its first events. `KeyTaken` if its key is in use."""
        ...

    def append(self, stream: CallId, epoch: int, chunk: Chunk, change: Change, done: Appended) -> None:
        """Adds events behind the last one, with what they change of the row. An empty chunk changes the row alone.

        `Fenced` if the epoch is not the stream's or it has ended. A status that is an ending sets `expires`.
        """
        ...

    async def inbox(self) -> list[Letter]:
        """Letters for streams of this process, oldest first; each is given out once."""
        ...

    # -- everybody

    def fetch(self, stream: CallId, after: int, most: int, done: Fetched) -> None:
        """At most `most` events (and about 1 MiB, but one at least) from the one behind `after` that is still kept."""
        ...

    async def find(self, stream: CallId) -> StreamInfo | None: ...

    async def find_key(self, principal: str, key: str) -> StreamInfo | None:
        """The principal's stream of this idempotency key."""
        ...

    async def rows(self, principal: str, most: int) -> list[StreamInfo]:
        """The principal's streams, the newest first."""
        ...

    async def post(self, letter: Letter) -> bool:
        """Puts a letter into the inbox of the stream's owner; False if the stream is unknown or has ended."""
        ...

    async def has_news(self) -> bool:
        """Whether another process has written since this was asked last. Cheap."""
        ...

    # -- what an owner left behind

    async def orphans(self) -> list[StreamInfo]:
        """Streams that have not ended and whose owner is gone: its lock can be taken."""
        ...

    async def is_orphan(self, row: StreamInfo) -> bool:
        """Whether the row's owner is gone."""
        ...

    async def claim(self, row: StreamInfo, lines: Sequence[bytes], change: Change) -> StreamInfo | None:
        """Makes this process the owner and appends `lines` behind `row.last`, in one transaction; the new row.

        None, and nothing is done, if the stream is no longer as `row` says (epoch, last) or has ended.
        """
        ...

    async def sweep(self, now: float) -> int:
        """Deletes streams and sessions that have expired, and the oldest ended ones beyond the store's limits."""
        ...

    # -- handshake sessions

    async def put_session(self, session: SessionRow) -> None:
        """Adds or replaces it."""
        ...

    async def session(self, id_: str) -> SessionRow | None: ...

    async def drop_session(self, id_: str) -> None: ...
