"""Waits for the ending of a stream on behalf of another call, which is shown its progress and asked its questions."""

import math
from collections.abc import Callable, Collection
from functools import partial
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from mcp_hub.aio import Bell
from mcp_hub.call import CallChannel, Question
from mcp_hub.calls.reading.stream import StreamReader
from mcp_hub.calls.reading.transcript import Transcript
from mcp_hub.calls.streams.port import StreamHandle
from mcp_hub.errors import EventsGone, RpcError
from mcp_hub.events import CallEvent, Delta, Ending, InputReceived, InputRequired, Progressed
from mcp_hub.types import RawJson

Asks = Callable[[str, RawJson], bool]
"""Says whether the client can be asked a question, by its method and parameters."""

_MOST: Final = 16 << 10
"""Bytes of new output in one answer: the end of it."""
_FEW: Final = 256
"""Events that are looked at in one go."""


class Relay:
    """Asks the questions of a stream through `channel`, and passes the answers on as long as the waiting call runs.

    `wake` is called when there is an answer to `pass_on`; `asks` says which questions the client can be asked.
    """

    def __init__(
        self, stream: StreamHandle, channel: CallChannel, wake: Callable[[], None], asks: Asks,
        answered: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._asks = asks
        self._wake = wake
        self._stream = stream
        self._channel = channel
        self._known = stream.info.last
        self._asked = set(answered)
        self._open: dict[str, str] = {}  # keys of the stream, to those of the channel
        self._answers: list[tuple[str, RawJson | RpcError]] = []

    @property
    def is_asking(self) -> bool:
        return bool(self._open)

    async def begin(self) -> None:
        """Asks the questions that are open already.

        Where the store does not have those yet that are answered, what it has open is older: answered, too.
        """
        questions = await self._stream.questions()
        if self._asked <= questions.keys():
            for question in questions.values():
                self._ask(question)

    def take(self, seq: int, event: CallEvent) -> None:
        """An event of the stream; questions before the beginning are known."""
        if isinstance(event, InputReceived):
            self._withdraw(event.key)
        elif isinstance(event, InputRequired) and seq > self._known:
            self._ask(event)

    async def pass_on(self) -> None:
        """Hands over what was answered. Raises `UnknownStream`, `StoreError`."""
        answers, self._answers = self._answers, []
        for key, outcome in answers:
            await self._stream.answer(key, outcome)

    def _ask(self, question: InputRequired) -> None:
        if question.key in self._asked or not self._asks(question.method, question.params):
            return
        self._asked.add(question.key)
        self._open[question.key] = ""
        answered, late = partial(self._answered, question.key), partial(self._late, question.key)
        own = self._channel.ask(Question(question.method, question.params, answered, late))
        if question.key in self._open:
            self._open[question.key] = own

    def _late(self, key: str, outcome: RawJson | RpcError) -> None:
        """An answer that comes when nobody waits any more still counts, if the call runs here."""
        if (record := self._stream.record) is not None:
            record.answer(key, outcome)

    def _answered(self, key: str, outcome: RawJson | RpcError) -> None:
        if self._open.pop(key, None) is not None:
            self._answers.append((key, outcome))
            self._wake()

    def _withdraw(self, key: str) -> None:
        own = self._open.pop(key, None)
        if own is not None:
            self._channel.withdraw(own)


class StreamWait:
    """Follows one stream for a call that waits for it. Raises as `StreamHandle.follow`, but skips lost events.

    `asks` says which questions the client can be asked. Those that are `answered` are not asked again, though the
    stream may still have them open.
    """

    def __init__(
        self, stream: StreamHandle, after: int, channel: CallChannel, asks: Asks, answered: Collection[str] = ()
    ) -> None:
        self.said = Transcript(_MOST)
        self._stream = stream
        self._channel = channel
        self._bell = Bell()
        self._relay = Relay(stream, channel, self._bell.ring, asks, answered)
        self._reader = self._follow(after)

    @property
    def cursor(self) -> int:
        return self._reader.cursor

    def _follow(self, after: int) -> StreamReader:
        try:
            return self._stream.follow(self._bell.ring, after)
        except EventsGone as gone:
            self.said.cut()
            return self._stream.follow(self._bell.ring, gone.earliest - 1)

    async def ending(self, seconds: float, *, is_modern: bool) -> Ending | None:
        """The call's ending, if it comes in time.

        A modern client has no request open while it gathers input: its time begins anew then.
        """
        with anyio.move_on_after(seconds) as patience:
            await self._relay.begin()
            while True:
                for event in self._taken():
                    if isinstance(event, Ending):
                        return event
                    self.said.add(event)
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
            self.said.cut()
        if reader.failed is not None:
            raise reader.failed
        first = reader.cursor + 1
        events = reader.take(_FEW)
        for seq, event in enumerate(events, first):
            self._relay.take(seq, event)
            self._show(event)
        return events

    def _show(self, event: CallEvent) -> None:
        """Passes on progress as the server sent it, and partial content: its own client is shown both as by a call."""
        if isinstance(event, Delta):
            self._channel.send(event)
        elif isinstance(event, Progressed) and not event.is_hubs:
            self._channel.send(msgspec.structs.replace(event, progress=event.sent, own=msgspec.UNSET))

    def close(self) -> None:
        self._reader.close()
