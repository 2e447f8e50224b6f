"""Waits for a stream's ending for another call, relaying progress and questions.

Source: specification 2026-07-28, basic/patterns/mrtr.
"""

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from mcp_hub.aio import Bell
from mcp_hub.call import Call, CallChannel, CallHandler, Early, Question
from mcp_hub.calls.handle import CallHandle
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.progress import Transcript
from mcp_hub.calls.reading.stored import ending_of
from mcp_hub.calls.reading.stream import StreamReader
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.streams.port import StreamHandle, StreamPort
from mcp_hub.errors import (
    CallCancelled,
    EventsGone,
    InvalidParams,
    RpcError,
    StoreError,
    StoreUnavailable,
    UnknownStream,
)
from mcp_hub.events import (
    BY_CLIENT,
    CallEvent,
    Cancelled,
    Completed,
    Delta,
    Ending,
    Failed,
    InputReceived,
    InputRequired,
    Progressed,
)
from mcp_hub.types import CallId, RawJson, RawObject

Asks = Callable[[str, RawJson], bool]
"""Whether the client can be asked, by method and params."""

_MOST: Final = 16 << 10
"""Bytes of new output in an answer, from its end."""
_FEW: Final = 256
"""Events looked at in one go."""
_DAY: Final = 86400.0
_CANCEL: Final = 1.0
"""Seconds for the call's own replica to hear of the cancellation."""
_LIMITS: Final = TimeLimits(_DAY, _DAY, answer=_DAY)
"""Never reached: the call's own limits hold where it runs."""


class _Relay:
    """Asks a stream's questions through `channel`.

    `wake` is called for answers to `pass_on`; `asks` selects questions that the client takes.
    """

    def __init__(
        self, stream: StreamHandle, channel: CallChannel, wake: Callable[[], None], asks: Asks,
        answered: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._asks = asks
        self._wake = wake
        self._stream = stream
        self._channel = channel
        self._first_seq = stream.info.last
        self._handled = set(answered)
        self._open: dict[str, str] = {}  # keys of the stream, to those of the channel
        self._answers: list[tuple[str, RawJson | RpcError]] = []

    @property
    def is_asking(self) -> bool:
        return bool(self._open)

    async def begin(self) -> None:
        for question in (await self._stream.questions()).values():
            self._ask(question)

    def take(self, seq: int, event: CallEvent) -> None:
        if isinstance(event, InputReceived):
            self._withdraw(event.key)
        elif isinstance(event, InputRequired) and seq > self._first_seq:
            self._ask(event)

    async def pass_on(self) -> None:
        """Sends answers to the stream. Raises `UnknownStream`, `StoreError`."""
        answers, self._answers = self._answers, []
        for key, outcome in answers:
            await self._stream.answer(key, outcome)

    def _ask(self, question: InputRequired) -> None:
        if question.key in self._handled or not self._asks(question.method, question.params):
            return
        self._handled.add(question.key)
        self._open[question.key] = ""
        answered, late = partial(self._answered, question.key), partial(self._late, question.key)
        channel_key = self._channel.ask(Question(question.method, question.params, answered, late))
        if question.key in self._open:
            self._open[question.key] = channel_key

    def _late(self, key: str, outcome: RawJson | RpcError) -> None:
        if (record := self._stream.record) is not None:
            record.questions.answer(key, outcome)

    def _answered(self, key: str, outcome: RawJson | RpcError) -> None:
        if self._open.pop(key, None) is not None:
            self._answers.append((key, outcome))
            self._wake()

    def _withdraw(self, key: str) -> None:
        channel_key = self._open.pop(key, None)
        if channel_key is not None:
            self._channel.questions.withdraw(channel_key)


class StreamWait:
    """Follows one stream for a waiting call. Raises as `StreamHandle.follow`, but skips lost events.

    `answered` questions are not asked again.
    """

    def __init__(
        self, stream: StreamHandle, after: int, channel: CallChannel, asks: Asks, answered: Collection[str] = ()
    ) -> None:
        self.transcript = Transcript(_MOST)
        self._stream = stream
        self._channel = channel
        self._bell = Bell()
        self._relay = _Relay(stream=stream, channel=channel, wake=self._bell.ring, asks=asks, answered=answered)
        self._reader = self._follow(after)

    @property
    def cursor(self) -> int:
        return self._reader.cursor

    def _follow(self, after: int) -> StreamReader:
        try:
            return self._stream.follow(self._bell.ring, after)
        except EventsGone as gone:
            self.transcript.cut()
            return self._stream.follow(self._bell.ring, gone.earliest - 1)

    async def ending(self, seconds: float, *, is_modern: bool) -> Ending | None:
        """The call's ending; None after `seconds`, which input restarts for modern clients."""
        with anyio.move_on_after(seconds) as patience:
            await self._relay.begin()
            while True:
                for event in self._taken():
                    if isinstance(event, Ending):
                        return event
                    self.transcript.add(event)
                await self._relay.pass_on()
                await self._channel.drained()
                if is_modern and self._relay.is_asking:
                    patience.deadline = math.inf
                elif patience.deadline == math.inf:
                    patience.deadline = anyio.current_time() + seconds
                if self._reader.has_more:
                    await anyio.lowlevel.checkpoint()
                else:
                    await self._bell.wait()
        return None

    def _taken(self) -> list[CallEvent]:
        reader = self._reader
        if reader.skip():
            self.transcript.cut()
        if reader.failed is not None:
            raise reader.failed
        first = reader.cursor + 1
        events = reader.take(_FEW)
        for seq, event in enumerate(events, first):
            self._relay.take(seq, event)
            self._show(event)
        return events

    def _show(self, event: CallEvent) -> None:
        if isinstance(event, Delta):
            self._channel.send(event)
        elif isinstance(event, Progressed) and not event.is_hubs:
            self._channel.send(msgspec.structs.replace(event, progress=event.sent, server_value=msgspec.UNSET))

    def close(self) -> None:
        self._reader.close()


def rejoined(
    registry: CallRegistry, streams: StreamPort, id_: CallId, call: Call, responses: RawObject, early: Early | None
) -> CallHandle:
    """A call for `id_` at another replica. Raises `Busy`."""
    return CallHandle(call, registry.start(call, rejoining(streams, id_, responses), _LIMITS), streams, early=early)


def rejoining(streams: StreamPort, id_: CallId, responses: RawObject) -> CallHandler:
    """Sends the responses and ends as call `id_` does; cancels it when cancelled."""

    async def rejoin(call: Call, channel: CallChannel) -> Completed:
        try:
            stream = await streams.open(call.principal, id_, None)
            if stream.record is not None and stream.info.epoch == 1:  # else another one has given the state
                raise UnknownStream
            return _result(await _ending(stream, call, channel, responses))
        except UnknownStream:
            raise InvalidParams(
                "params.requestState is unknown: it was used, or its call is no longer kept", symbol="unknown_state"
            ) from None
        except StoreError as problem:
            raise StoreUnavailable(f"The call cannot be continued here: {problem.public}") from None

    return rejoin


async def _ending(stream: StreamHandle, call: Call, channel: CallChannel, responses: RawObject) -> Ending:
    if stream.info.has_ended:
        return ending_of(stream.info, await stream.ending())
    wait = StreamWait(stream=stream, after=stream.info.last, channel=channel, asks=call.asks_client, answered=responses)
    try:
        for key, response in responses.items():
            await stream.answer(key, response)
        ending = await wait.ending(math.inf, is_modern=False)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(_CANCEL, shield=True):
            await stream.cancel(BY_CLIENT)
        raise
    finally:
        wait.close()
    assert ending is not None  # it has all the time
    return ending


def _result(ending: Ending) -> Completed:
    match ending:
        case Failed(error):
            raise error
        case Cancelled(reason):
            raise CallCancelled(f"The call was cancelled: {reason or 'no reason was given'}.")
        case _:
            return ending
