"""Durable streams as fronts see them: all of them (`StreamPort`), and one in its principal's hands (`StreamHandle`).

A handle says what is known of a stream, is followed by cursor, and passes on answers and cancellations, whichever hub
runs the call. A stream of another principal is as unknown as one that never was. Not here: the table itself, which
knows writers and other processes (`table`), and the shapes that fronts give to what they are told.
"""

from collections.abc import Callable, Iterable, Mapping

from mcp_hub.call import Call, StreamInfo
from mcp_hub.calls.remote_call import RemoteCall
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.stored import PAGE, asked_last, fetched, open_questions
from mcp_hub.calls.streams.stream import Stream, StreamReader
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.calls.streams.writer import StreamWriter
from mcp_hub.errors import Busy, KeyReused, KeyTaken, RpcError, UnknownStream
from mcp_hub.events import InputRequired
from mcp_hub.types import CallId, RawJson

__all__ = ["StreamHandle", "StreamPort"]


class StreamHandle:
    """One stream of a principal. `info` is as of the last commit that this process knows of."""

    __slots__ = ("_stream", "_table")

    def __init__(self, table: StreamTable, stream: Stream) -> None:
        self._table = table
        self._stream = stream

    @property
    def info(self) -> StreamInfo:
        return self._stream.row

    @property
    def id(self) -> CallId:
        return self._stream.row.id

    @property
    def record(self) -> CallRecord | None:
        """The call, if it runs here."""
        writer = self._writer
        return None if writer is None else writer.record

    @property
    def is_orphan(self) -> bool:
        """Whether the call runs here, and its client is gone."""
        writer = self._writer
        return writer is not None and writer.orphaned_at is not None

    @property
    def is_detached(self) -> bool:
        """Whether the call runs here, and goes on whatever becomes of its client."""
        writer = self._writer
        return writer is not None and writer.is_detached

    @property
    def is_read(self) -> bool:
        """Whether anybody here reads it."""
        return bool(self._stream.readers)

    def follow(self, wake: Callable[[], None], after: int) -> StreamReader:
        """Reads the events behind `after` for somebody who asked for the stream; the call is not an orphan then.

        Raises `EventsGone` for a place whose events were let go, `InvalidParams` for one beyond the end, `Busy`.
        """
        return self._table.follow(self._stream, wake, after)

    def on_stored(self, ready: Callable[[], None]) -> None:
        """`ready` is called once, maybe at once, when the first event is committed; never if it cannot be."""

        def look() -> None:
            if reader is None or reader.is_closed:
                return
            if self.info.last:
                ready()
            elif reader.failed is None:
                return
            reader.close()

        reader: StreamReader | None = None
        if self.info.last:
            ready()
        else:
            reader = self._stream.reader(look, 0)

    async def lines(self, after: int, most: int = PAGE) -> tuple[bytes, ...]:
        """Stored events behind `after`; empty at the end. Raises `StoreError`, `UnknownStream`."""
        return await fetched(self._table.store, self.id, after, most)

    async def ending(self) -> bytes:
        """The last event of a stream that has ended. Raises `UnknownStream` if it has expired, `StoreError`."""
        lines = await self.lines(self.info.last - 1, 1)
        if not lines:
            raise UnknownStream
        return lines[-1]

    async def questions(self) -> Mapping[str, InputRequired]:
        """Open questions by key, oldest first: those that are committed, without those that were just answered.

        Raises `UnknownStream`, `StoreError`.
        """
        row, record = self.info, self.record
        if record is None or row.status != "input_required":
            return await open_questions(self._table.store, row)
        asked = await asked_last(self._table.store, row, record.open_questions.keys())
        return {key: asked[key] for key in list(record.open_questions) if key in asked}

    async def answer(self, key: str, outcome: RawJson | RpcError) -> StreamInfo:
        """Answers an open question; unknown keys are ignored. Raises `UnknownStream`, `StoreError`."""
        return await self._table.answer(self.info.principal, self.id, key, outcome)

    async def cancel(self, reason: str) -> StreamInfo:
        """Asks for the end of the call. Idempotent. Raises `UnknownStream`, `StoreError`."""
        return await self._table.cancel(self.info.principal, self.id, reason)

    @property
    def _writer(self) -> StreamWriter | None:
        return self._table.owned(self.id)


class StreamPort:
    """The streams of all principals. `is_idempotent`: the configuration lets an equal call join a running one."""

    def __init__(self, table: StreamTable, is_idempotent: Callable[[CallRecord], bool]) -> None:
        self._table = table
        self._is_idempotent = is_idempotent

    async def open(self, principal: str, id_: str) -> StreamHandle:
        """A principal's stream. Raises `UnknownStream`, the same for a foreign one; `StoreError`."""
        return self._handle(await self._table.open(principal, id_))

    async def newest(self, principal: str, most: int) -> list[StreamInfo]:
        """The principal's streams, the newest first. Raises `StoreError`."""
        return await self._table.store.rows(principal, most)

    def survives(self, stream: CallId) -> bool:
        """Whether all that is committed of the stream survives this process."""
        return self._table.store.survives(stream)

    # -- making calls durable

    def detach(self, record: CallRecord) -> StreamHandle:
        """The call goes on whatever becomes of its client. Raises `Busy` when its principal has too many such."""
        return self._handle(self._table.detach(record).stream)

    async def begin(self, record: CallRecord, key: str | None, digest: str) -> StreamHandle:
        """Makes a call that has just been started durable, and detaches it; returns when the store has its stream.

        The stream is that of another hub where that was sooner with the same key. Raises `Busy`, and then nothing of
        the call is left; `KeyReused`, `StoreError`.
        """
        try:
            writer = self._table.detach(record, key=key, digest=digest)
        except Busy:
            self._table.cancel_call(record, "too many calls without a client")
            raise
        return await self._settled(writer)

    async def with_key(self, principal: str, key: str, digest: str) -> StreamHandle | None:
        """The stream of the call that has this idempotency key. Raises `KeyReused`, `StoreError`."""
        row: StreamInfo | None = None
        writer = self._table.running(principal, key=key)
        if writer is None:
            row = await self._table.store.find_key(principal, key)
            writer = self._table.running(principal, key=key)  # it may have begun while the store was asked
        if writer is not None:
            _check_digest(writer.stream.row, digest)
            return await self._settled(writer)
        return None if row is None else await self._joined(row, digest)

    async def equal_call(self, principal: str, digest: str) -> StreamHandle | None:
        """The stream of an equal call that runs here, if it may be joined without a key. Raises `StoreError`."""
        writer = self._table.running(principal, digest=digest)
        if writer is None or writer.record.stopping is not None or writer.record.log.ended:
            return None
        return await self._settled(writer) if self._is_idempotent(writer.record) else None

    async def _settled(self, writer: StreamWriter) -> StreamHandle:
        await self._table.settled(writer)
        if writer.error is None:
            return self._handle(writer.stream)
        row = writer.stream.row
        if isinstance(writer.error, KeyTaken) and row.key is not None:
            sooner = await self._table.store.find_key(row.principal, row.key)
            if sooner is not None:
                return await self._joined(sooner, row.digest)
        raise writer.error

    async def _joined(self, row: StreamInfo, digest: str) -> StreamHandle:
        _check_digest(row, digest)
        return await self.open(row.principal, row.id)

    # -- clients that come back

    def orphan(self, record: CallRecord, seconds: float) -> None:
        """The call's client is away: the call goes on for at most that long, unless somebody follows it again."""
        self._table.orphan(record, seconds)

    def call_elsewhere(
        self, call: Call, asked: Iterable[str], pass_on: Callable[[str, RawJson | RpcError], None]
    ) -> RemoteCall:
        """A call that does not run here, for those who shape its events; `asked` are the keys of open questions."""
        return RemoteCall(call, self._table.clock, asked, pass_on)

    def _handle(self, stream: Stream) -> StreamHandle:
        return StreamHandle(self._table, stream)


def _check_digest(row: StreamInfo, digest: str) -> None:
    if row.digest != digest:
        raise KeyReused("this Idempotency-Key was used for another request")
