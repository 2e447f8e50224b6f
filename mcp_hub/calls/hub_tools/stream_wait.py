"""Waits for the ending of a stream on behalf of another call, which is shown its progress and asked its questions."""

import math
from collections.abc import Collection
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from mcp_hub.aio import Bell
from mcp_hub.call import CallChannel
from mcp_hub.calls.hub_tools.relay import Relay
from mcp_hub.calls.hub_tools.transcript import Transcript
from mcp_hub.calls.streams.port import StreamHandle
from mcp_hub.calls.streams.stream import StreamReader
from mcp_hub.errors import EventsGone
from mcp_hub.events import CallEvent, Delta, Ending, Progressed

_MOST: Final = 16 << 10
"""Bytes of new output in one answer: the end of it."""
_FEW: Final = 256
"""Events that are looked at in one go."""


class StreamWait:
    """Follows one stream for a call that waits for it. Raises as `StreamHandle.follow`, but skips lost events.

    Questions that are `answered` are not asked again, though the stream may still have them open.
    """

    def __init__(self, stream: StreamHandle, after: int, channel: CallChannel, answered: Collection[str] = ()) -> None:
        self.said = Transcript(_MOST)
        self._stream = stream
        self._channel = channel
        self._bell = Bell()
        self._relay = Relay(stream, channel, self._bell.ring, answered)
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
