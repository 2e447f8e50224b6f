"""Owners of streams at other hubs: messages to them, and takeover of lost ones' streams."""

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
import msgspec

from mcp_hub.call import StreamInfo
from mcp_hub.calls.reading.stored import done_with, last_progress, open_questions
from mcp_hub.calls.reading.stream import Stream
from mcp_hub.calls.runner import LogWriter
from mcp_hub.clock import wall_time
from mcp_hub.errors import HubError, HubRestarted, RpcError, StoreError, StoreUnavailable, owner_lost
from mcp_hub.events import Cancelled, Completed, Ending, Failed, InputReceived, Progressed, is_by_client
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.protocol.notifications import FEED
from mcp_hub.protocol.shape.stream_events import encoded, timestamp
from mcp_hub.stores.base import NO_ANSWER, Change, Chunk, EventPage, EventStore, Message, StreamInbox, StreamLog
from mcp_hub.types import CallId, JsonObject, RawJson

log = get_logger(__name__)

_STORED: Final = 5.0
"""Seconds for the store to confirm what a client waits for."""
_MOST_TOUCHED: Final = 4096
"""Streams that no call writes, and others follow."""
_MOST_OUTGOING: Final = 4096
"""Messages that wait for the store; beyond it the oldest is dropped."""
_HEARD: Final = 0.5
_HEARD_LOOK: Final = 0.01
"""Seconds for an answer to reach its call at another hub, and between looks."""


class Inbox:
    """News of other processes, kept until taken in. `hearers` take messages to streams that no call writes here."""

    def __init__(self, store: StreamInbox) -> None:
        self._store = store
        self._is_behind = False
        self._messages: list[Message] = []
        self._outgoing: deque[Message] = deque(maxlen=_MOST_OUTGOING)
        self._turn = anyio.Lock()  # a message that two take at once is done twice
        self._touched: set[CallId] = set()
        self.hearers: list[Callable[[Message], bool]] = []

    @property
    def is_needed(self) -> bool:
        """Whether messages may come or go without a followed or owned stream."""
        return bool(self.hearers or self._outgoing)

    async def has_news(self) -> bool:
        """Whether something is not taken in yet. Raises `StoreError`."""
        if await self._store.has_news():
            self._is_behind = True
        return self._is_behind or bool(self._messages or self._outgoing)

    def send(self, message: Message) -> None:
        """Sends with the next look, or once the store is back."""
        self._outgoing.append(message)

    def pass_on(self, stream: CallId, stopping: Ending | None) -> None:
        """Sends a client's cancel of a lost call, which its next owner may not know."""
        if isinstance(stopping, Cancelled) and is_by_client(stopping.reason):
            self.send(cancelling(stream, stopping.reason or ""))

    async def post(self) -> None:
        """Posts what is to be sent. What the store does not take now goes behind the rest, which waits, too."""
        for _ in range(len(self._outgoing)):
            message = self._outgoing.popleft()
            try:
                await self._store.post(message)
            except StoreError:
                self._outgoing.append(message)
                return

    async def messages(self) -> list[Message]:
        """Takes messages, each once. Raises `StoreError`."""
        async with self._turn:
            taken = await self._store.take()
            messages, self._messages = [*self._messages, *taken], []
            return messages

    def note(self, message: Message) -> bool:
        """Notes a message to a stream that no call writes here; whether it is settled by that, or taken."""
        if any(hear(message) for hear in self.hearers):
            return True
        if message.kind == "touch" and len(self._touched) < _MOST_TOUCHED:
            self._touched.add(message.stream)
        return message.kind != "cancel"

    def take_touch(self, stream: CallId) -> bool:
        """Whether another hub's client has followed the stream since the last call."""
        is_touched = stream in self._touched
        self._touched.discard(stream)
        return is_touched

    def put_back(self, message: Message) -> None:
        self._messages.append(message)

    def settle(self) -> None:
        self._is_behind = False


class _InputAnswer(msgspec.Struct, frozen=True):
    key: str
    outcome: RawJson | RpcError


class _Body(msgspec.Struct):
    key: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def may_move(row: StreamInfo, instance: str) -> bool:
    """Whether another process may write to the stream: not to a feed that this one writes."""
    return not (row.has_ended or (row.method == FEED and row.owner == instance))


def cancelling(stream: CallId, reason: str) -> Message:
    return Message(stream, "cancel", reason.encode("utf-8", "replace"))


def reason_in(message: Message) -> str:
    return message.body.decode("utf-8", "replace")


def touching(stream: CallId) -> Message:
    return Message(stream, "touch", b"")


def answering(stream: CallId, key: str, outcome: RawJson | RpcError) -> Message:
    """A message with the answer to question `key`."""
    is_error = isinstance(outcome, RpcError)
    value = msgspec.Raw(bytes(outcome.encoded() if isinstance(outcome, RpcError) else outcome))
    return Message(stream, "input", msgspec.json.encode({"key": key, "error" if is_error else "result": value}))


def answer_in(message: Message) -> _InputAnswer:
    """Raises `ValueError` without an answer."""
    try:
        body = msgspec.json.decode(message.body, type=_Body)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ValueError(str(problem)) from None
    if body.error is not msgspec.UNSET:
        return _InputAnswer(body.key, from_wire(body.error, "client"))
    if body.result is msgspec.UNSET:
        raise ValueError("neither result nor error")
    return _InputAnswer(body.key, body.result)


def pass_answer(message: Message, answer: Callable[[str, RawJson | RpcError], object]) -> None:
    """Calls `answer` if the message is readable."""
    try:
        parsed = answer_in(message)
    except ValueError as problem:
        log.warning("message_dropped", stream=message.stream, reason=str(problem))
    else:
        answer(parsed.key, parsed.outcome)


async def until_heard(store: StreamLog, row: StreamInfo) -> None:
    """Waits briefly until the owner closes the question."""
    with anyio.move_on_after(_HEARD):
        while (stored := await store.find(row.id)) and stored.last == row.last:  # noqa: ASYNC110 - not of this process
            await anyio.sleep(_HEARD_LOOK)


def lost_call(server: str, answer: Ending | None = None) -> HubRestarted:
    """The error of a call whose stream another hub has claimed; `answer` is what its server said."""
    reason = "Another hub has taken this call over: this one had lost the store. The outcome of the call is unknown."
    return owner_lost(reason, _unknown(server, answer))


def unconfirmed_call(server: str, answer: Ending | None) -> RpcError:
    """The store has not confirmed the call in time; `answer` is the server's."""
    reason = "The store has not confirmed the call. Its outcome is unknown."
    data = _unknown(server, answer)
    return RpcError(reason, code=StoreUnavailable.code, symbol=StoreUnavailable.symbol, data=data)


def _unknown(server: str, answer: Ending | None) -> JsonObject:
    data: JsonObject = {"upstream": {"server": server}, "outcome": "unknown"}
    if isinstance(answer, Completed):
        data["answer"] = {"result": msgspec.json.decode(answer.result)}
    elif isinstance(answer, Failed):
        data["answer"] = {"error": _error(answer.error)}
    return data


def _error(error: RpcError) -> JsonObject:
    decoded: JsonObject = msgspec.json.decode(error.encoded())
    return decoded


async def until_stored(writer: LogWriter) -> None:
    """Waits until present events are stored. Raises `StoreError` after a while."""
    with anyio.move_on_after(_STORED) as waiting:
        await writer.committed()
    if waiting.cancelled_caught:
        raise StoreError(NO_ANSWER)


GoOn = Callable[[StreamInfo, Progressed | None], Awaitable[None]]
"""Continues the call of a stream that this process owns now, after its last progress. It needs nothing of the store."""
_CONFIRMED: Final = 1.0
"""Seconds for the store to confirm an ending, before other streams are looked after."""
_UNUSABLE = (HubError, msgspec.MsgspecError, ValueError, RecursionError)
"""Errors before a call is continued."""


class Takeover:
    """`go_on` continues calls, else streams end. `settled` gets ended rows. `deliver` takes messages to owned ones."""

    def __init__(
        self, store: EventStore, go_on: GoOn | None, settled: Callable[[StreamInfo], None],
        deliver: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._log, self._leases, self._replicas = store.log, store.leases, store.replicas
        self._go_on = go_on
        self._settled = settled
        self._deliver = deliver
        self._under_way: dict[CallId, anyio.Event] = {}

    def is_at(self, id_: CallId) -> bool:
        return id_ in self._under_way

    async def take_over(self, row: StreamInfo) -> None:
        """Takes over, or waits for a takeover under way; ignores changed streams. Raises `StoreError`.

        Cancellation does not interrupt it: an owned stream without a writer never ends.
        """
        if (running := self._under_way.get(row.id)) is not None:
            await running.wait()
            return
        finished = self._under_way[row.id] = anyio.Event()
        try:
            with anyio.CancelScope(shield=True):
                await (self._continue(row, self._go_on) if self._go_on and row.continuation else self._close(row))
        finally:
            del self._under_way[row.id]
            finished.set()

    async def _close(self, row: StreamInfo) -> None:
        wall = wall_time()
        line = self._ending(row, wall, "The hub that ran this call is gone. The outcome of the call is unknown.")
        closed = await self._leases.claim(row, [line], Change(wall, "failed"))
        if closed is not None:
            log.warning("stream_closed", stream=row.id, upstream=row.server, reason="its hub is gone")
            self._settled(closed)

    async def _continue(self, row: StreamInfo, go_on: GoOn) -> None:
        wall, progressed = wall_time(), await last_progress(self._log, row)  # first: the store may fail after the claim
        claimed = await self._leases.claim(row, await self._withdrawals(row, wall), Change(wall, "working"))
        if claimed is None:
            return
        try:
            await go_on(claimed, progressed)
        except _UNUSABLE as problem:
            await self._give_up(claimed, problem)
        except Exception as problem:  # whatever is in the record: the stream gets its ending
            log.exception("stream_not_taken_up", stream=row.id)
            await self._give_up(claimed, problem)
        else:
            log.info("stream_taken_up", stream=row.id, upstream=row.server)
            with suppress(StoreError):  # else it comes later
                await self._deliver()  # a cancel before the call does anything

    async def _give_up(self, row: StreamInfo, problem: Exception) -> None:
        log.error("stream_not_taken_up", stream=row.id, upstream=row.server, reason=ascii(str(problem)))
        wall = wall_time()
        reason = f"The hub that ran this call is gone, and this one cannot continue it: {problem}"
        error = problem if isinstance(problem, RpcError) and problem.symbol == "code_not_resumable" else None
        line = self._ending(row, wall, reason, error)
        given_up = anyio.Event()

        def answered(error: StoreError | None) -> None:
            if error is None:
                self._settled(msgspec.structs.replace(row, last=row.last + 1, updated=wall, status="failed"))
            else:
                log.error("stream_not_closed", stream=row.id, reason=str(error))
            given_up.set()

        self._log.append(row.id, row.epoch, Chunk(row.last + 1, (line,)), Change(wall, "failed"), answered)
        with anyio.move_on_after(_CONFIRMED):  # it waits for a store that is away, and who waits here brings it back
            await given_up.wait()

    async def _withdrawals(self, row: StreamInfo, wall: float) -> list[bytes]:
        """Closes open questions: a continued call asks again."""
        when, lines = timestamp(wall), []
        keys = list(await open_questions(self._log, row))
        for number, key in enumerate(keys, 1):
            event = InputReceived(key, len(keys) - number)
            lines.append(encoded(row.id, row.last + number, when, event))
        return lines

    def _ending(self, row: StreamInfo, wall: float, reason: str, error: RpcError | None = None) -> bytes:
        data = {"upstream": {"server": row.server}, "outcome": "unknown"}
        reason = reason.encode("utf-8", "replace").decode()
        restarted = HubRestarted(reason, data=data) if self._replicas is None else owner_lost(reason, data)
        return encoded(row.id, row.last + 1, timestamp(wall), Failed(error or restarted))


async def read_on(stream: Stream) -> StreamInfo | None:
    """Reads on from the store; the present row, or None. Raises `StoreError`."""
    page: EventPage | StoreError | None = await done_with(partial(stream.fetch, stream.row.last))
    if isinstance(page, StoreError):
        raise page
    return None if page is None else page.row
