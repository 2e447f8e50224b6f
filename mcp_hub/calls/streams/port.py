"""Durable streams for fronts: all (`StreamPort`), one (`StreamHandle`). Foreign streams look absent."""

from collections.abc import Callable, Container, Mapping
from hashlib import sha256
from typing import Final

import msgspec
from anyio import move_on_after

from mcp_hub.aio import call_later
from mcp_hub.call import Call, StreamInfo
from mcp_hub.calls.plan import CallRules
from mcp_hub.calls.reading.stored import PAGE, asked_last, exported_name, fetched, open_questions, own_name
from mcp_hub.calls.reading.stream import Stream, StreamReader
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.owners import unconfirmed_call
from mcp_hub.calls.streams.table import BEGUN, StreamTable
from mcp_hub.calls.streams.writer import StreamWriter
from mcp_hub.calls.timeouts import patience
from mcp_hub.code.tool import RUN_CODE
from mcp_hub.errors import Busy, KeyTaken, Rejected, RpcError, StoreError, UnknownStream
from mcp_hub.events import InputRequired, cancelled_by_client
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.envelope import read_as
from mcp_hub.protocol.notifications import FEED, HOOK, names_timeout
from mcp_hub.stores.base import NO_ANSWER
from mcp_hub.types import OWN, CallId, RawJson

log = get_logger(__name__)

_LOOK: Final = 0.1
"""Seconds between looks."""


class _Caller(msgspec.Struct):
    profile: str | None = None


class _Record(msgspec.Struct):
    call: _Caller


class StreamHandle:
    """One stream of a principal; `info` as of the last known commit."""

    __slots__ = ("_port", "_stream")

    def __init__(self, port: "StreamPort", stream: Stream) -> None:
        self._port = port
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
        writer = self._writer
        return writer is not None and writer.absence.until is not None

    def follow(self, wake: Callable[[], None], after: int) -> StreamReader:
        """Follows after event `after`. Raises `EventsGone`, `InvalidParams`, `Busy`, `StoreError`."""
        return self._port.table.follow(self._stream, wake, after)

    def on_stored(self, ready: Callable[[], None]) -> None:
        """Calls `ready` once replicas can find the first event; never if it cannot be stored."""

        def look() -> None:
            if reader is None or reader.is_closed:
                return
            if self._is_safe:
                ready()
            elif reader.failed is None and not self.info.has_ended:
                if self.info.last:
                    call_later(_LOOK, look)
                return
            reader.close()

        reader: StreamReader | None = None
        if self._is_safe:
            ready()
        else:
            reader = self._stream.reader(look, 0)
            look()

    async def lines(self, after: int, limit: int = PAGE) -> tuple[bytes, ...]:
        """Stored events after `after`; empty at the end. Raises `StoreError`, `UnknownStream`."""
        return await fetched(self._port.table.store.log, self.id, after, limit)

    async def ending(self) -> bytes:
        """An ended stream's last event. Raises `UnknownStream` if expired, `StoreError`."""
        lines = await self.lines(self.info.last - 1, 1)
        if not lines:
            raise UnknownStream
        return lines[-1]

    async def questions(self) -> Mapping[str, InputRequired]:
        """Committed open questions by key, oldest first. Raises `UnknownStream`, `StoreError`."""
        row, record = self.info, self.record
        if record is None or row.status != "input_required":
            return await open_questions(self._port.table.store.log, row)
        questions = await asked_last(self._port.table.store.log, row, record.questions.open.keys())
        return {key: questions[key] for key in list(record.questions.open) if key in questions}

    async def answer(self, key: str, outcome: RawJson | RpcError) -> StreamInfo:
        """Answers an open question. Raises `UnknownStream`, `StoreError`."""
        return await self._port.table.answer(self.info.principal, self.id, key, outcome)

    async def cancel(self, reason: str) -> StreamInfo:
        """Cancels the call. Idempotent. Raises `UnknownStream`, `StoreError`."""
        return await self._port.table.cancel(self.info.principal, self.id, reason)

    def let_go(self, *, was_orphan: bool = False, is_last: bool = False) -> None:
        """A follower has left. `is_last`: unless others follow."""
        writer = self._writer
        if writer is None or (is_last and self._stream.readers):
            return
        if writer.is_detached or was_orphan or self.is_orphan:
            self._port.leave(writer.record)

    @property
    def _is_safe(self) -> bool:
        table = self._port.table
        return self.info.last > 0 and (table.store.replicas is None or table.store.log.survives(self.id))

    @property
    def _writer(self) -> StreamWriter | None:
        return self._port.table.owned(self.id)


class _TimedOutCalls:
    """Calls cancelled after a time-out, which equal calls may join."""

    def __init__(self, table: StreamTable, rules: Callable[[Call], CallRules]) -> None:
        self._table = table
        self._rules = rules
        self.running: dict[bytes, CallId] = {}  # by `_likeness`; those that have ended stay until the next one

    def give_up(self, record: CallRecord, reason: str | None) -> bool:
        """The client cancels its call, for a `reason` of its own. Whether the call continues.

        It does after a time-out, for its `orphan` time, if an equal call may join it and the limit of detached calls
        admits it.
        """
        if names_timeout(reason) and self._can_rejoin(record):
            call = record.call
            try:
                writer = self._table.detach(record)
            except Busy as busy:
                log.info("timeout_not_outlived", call_id=call.id, reason=str(busy))
            else:
                policy, is_read_only = self._rules(call).orphan, record.plan.is_read_only(call)
                writer.orphan(patience(policy, is_detached=False, is_read_only=is_read_only))
                running = {key: id_ for key, id_ in self.running.items() if self._table.owned(id_) is not None}
                self.running = {**running, self._likeness(call): call.id}
                return True
        record.cancel(cancelled_by_client(reason))
        return False

    def rejoin(self, call: Call) -> CallRecord | None:
        """The equal call left by a time-out here; the caller becomes its client."""
        is_new = call.input_responses is None and call.request_state is None
        if not self.running or not is_new or call.is_program or call.method != "tools/call":
            return None
        id_ = self.running.pop(self._likeness(call), None)
        writer = None if id_ is None else self._table.owned(id_)
        if writer is None or writer.record.stopping is not None or writer.record.log.ended:
            return None
        writer.absence.join(is_other=call.session != writer.record.call.session)
        return writer.record

    def _can_rejoin(self, record: CallRecord) -> bool:
        call, writer = record.call, self._table.owned(record.call.id)
        if call.method != "tools/call" or _is_quick_tool(record) or call.is_program or writer is None:
            return False
        if record.stopping is not None or record.log.ended:
            return False
        rules = self._rules(call)
        may_join = rules.idempotent or record.plan.is_read_only(call) or bool(record.plan.digest)
        return rules.orphan != "cancel" and may_join

    def _likeness(self, call: Call) -> bytes:
        """A digest of what equal calls have in common: also all of their client that their events depend on."""
        session = call.session if self._rules(call).by_session else ""
        client = call.client_name, call.capabilities, call.directory, call.version, session
        form = call.era.value, call.result_tokens, call.partials, call.wants_progress, call.takes_events, call.must_read
        tool = call.upstream, exported_name(call), call.params, call.path
        return sha256(msgspec.json.encode((call.principal, client, form, tool), order="sorted")).digest()


class StreamPort:
    """Streams of all principals. A profile's callers see its servers' streams and the hub's, of scripts their own."""

    def __init__(
        self,
        table: StreamTable,
        rules: Callable[[str, str], CallRules],
        servers: Callable[[str], Container[str]] = lambda profile: (),
    ) -> None:
        self.table = table
        self.tool_rules = rules
        self._servers = servers
        self.timed_out = _TimedOutCalls(table, self.rules)
        self.connected: set[str] = set()
        """Sessions of stdio clients, while those are there."""

    @property
    def is_durable(self) -> bool:
        return self.table.store.log.is_durable

    @property
    def has_replicas(self) -> bool:
        return self.table.store.replicas is not None

    def rules(self, call: Call) -> CallRules:
        """The called tool's rules, else defaults."""
        return self.tool_rules(call.upstream, own_name(call)) if call.method == "tools/call" else CallRules()

    async def open(self, principal: str, id_: str, profile: str | None, after: int | None = None) -> StreamHandle:
        """A stream, to be read behind event `after`. Raises `UnknownStream`, also for foreign ones, `StoreError`."""
        stream = StreamHandle(self, await self.table.open(principal, id_, after))
        if not self.shows(profile, stream.info):
            raise UnknownStream
        return stream

    async def newest(self, principal: str, limit: int, profile: str | None) -> list[StreamInfo]:
        """The caller's, of the principal's `limit` newest, newest first. Raises `StoreError`."""
        return [row for row in await self.table.store.log.rows(principal, limit) if self.shows(profile, row)]

    def shows(self, profile: str | None, row: StreamInfo) -> bool:
        """Whether a profile's callers may see the stream; nobody sees those of feeds and webhooks."""
        if row.method in (FEED, HOOK):
            return False
        if profile is None:
            return True
        return self._is_of(profile, row) if row.server == OWN else row.server in self._servers(profile)

    def _is_of(self, profile: str, row: StreamInfo) -> bool:
        """Whether a hub's own stream has results of this profile's tools alone."""
        if row.name != RUN_CODE:
            return True
        writer = self.table.owned(row.id)
        if writer is not None:
            return writer.record.call.profile == profile
        if row.continuation is None:  # it has called nothing
            return True
        record = read_as(row.continuation, _Record)
        return record is not None and record.call.profile == profile

    def survives(self, stream: CallId) -> bool:
        return self.table.store.log.survives(stream)

    # -- making calls durable

    def detach(self, record: CallRecord) -> StreamHandle:
        """Lets the call continue without its client. Raises `Busy`."""
        return StreamHandle(self, self.table.detach(record).stream)

    async def begin(self, record: CallRecord, key: str | None, digest: str) -> StreamHandle:
        """Detaches the call, under an idempotency `key` if given, perhaps to join another hub's.

        Raises `Busy`, `Rejected`, `StoreError`, and an `RpcError` with unknown outcome if the store has not confirmed
        the stream of a sent call.
        """
        try:
            writer = self.table.detach(record, key=key, digest=digest)
        except Busy:
            record.cancel("too many calls without a client")
            raise
        try:
            return await self._settled(writer)
        except StoreError:
            if writer.error is None and key is None:  # with a key, who comes back joins it
                is_unsent, ending = record.is_unsent, record.log.ending if record.log.ended else None
                record.cancel("its stream could not be stored")
                if not is_unsent:
                    raise unconfirmed_call(record.call.upstream, ending) from None
            raise

    async def with_key(self, principal: str, key: str, digest: str) -> StreamHandle | None:
        """The stream with this idempotency key. Raises `Rejected`, `StoreError`."""
        row: StreamInfo | None = None
        writer = self.table.running(principal, key=key)
        if writer is None:
            row = await self.table.store.log.find_key(principal, key)
            writer = self.table.running(principal, key=key)  # it may have begun while the store was asked
        if writer is not None:
            _check_digest(writer.stream.row, digest)
            return await self._settled(writer)
        return None if row is None else await self._joined(row, key, digest)

    async def equal_call(self, principal: str, digest: str) -> StreamHandle | None:
        """The stream of an equal idempotent call that runs here. Raises `StoreError`."""
        writer = self.table.running(principal, digest=digest)
        if writer is None or writer.record.stopping is not None or writer.record.log.ended:
            return None
        return await self._settled(writer) if self.rules(writer.record.call).idempotent else None

    async def _settled(self, writer: StreamWriter) -> StreamHandle:
        with move_on_after(BEGUN) as waiting:
            await writer.settled()
        if waiting.cancelled_caught or not self.table.store.log.is_held(writer.stream.row.id):
            raise StoreError(NO_ANSWER)
        if writer.error is None:
            return StreamHandle(self, writer.stream)
        row = writer.stream.row
        if isinstance(writer.error, KeyTaken) and row.key is not None:
            earlier = await self.table.store.log.find_key(row.principal, row.key)
            joined = None if earlier is None else await self._joined(earlier, row.key, row.digest)
            if joined is not None:
                return joined
        raise writer.error

    async def _joined(self, row: StreamInfo, key: str, digest: str) -> StreamHandle | None:
        _check_digest(row, digest)
        return await self.open(row.principal, row.id, None) if row.key == key else None

    # -- clients that leave

    def leave(self, record: CallRecord, back_within: float | None = None, *, is_final: bool = False) -> None:
        """The `orphan` rule decides.

        `back_within`: seconds before any cancellation. `is_final`: nobody can return, so an unsent call is cancelled
        unless a setting says otherwise.
        """
        if record.log.ended or record.stopping is not None:
            return
        writer, call = self.table.owned(record.call.id), record.call
        policy = self.rules(call).orphan
        if policy == "cancel" and back_within is not None:
            if writer is not None:
                writer.orphan(back_within)
        elif (policy == "cancel" or _is_quick_tool(record) or (is_final and policy is None and record.is_unsent)) and (
            writer is None or not writer.is_detached
        ):
            record.cancel("its client is gone")
        else:
            writer = self.table.begin(record)
            seconds = patience(policy, is_detached=writer.is_detached, is_read_only=record.plan.is_read_only(call))
            writer.orphan(seconds)


def _is_quick_tool(record: CallRecord) -> bool:
    """Whether it is a call of a tool of the hub's own that nobody comes back to."""
    return record.call.upstream == OWN and not (record.plan.may_last or record.plan.resumption)


def _check_digest(row: StreamInfo, digest: str) -> None:
    """Compares the digests of two requests; that of a script stands behind them."""
    if row.digest.partition(" ")[0] != digest.partition(" ")[0]:
        raise Rejected("idempotency_key_reused", "This Idempotency-Key was used for another request. Use a new key.")
