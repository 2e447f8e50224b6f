"""What went out on the handshake era's SSE streams, for a client that comes back with `Last-Event-ID`."""

from collections import deque

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp_types import JSONRPCMessage

KEPT = 1000


class Events(EventStore):
    """The last `KEPT` events of all streams; ids count up."""

    def __init__(self) -> None:
        self._events: deque[tuple[int, str, JSONRPCMessage | None]] = deque(maxlen=KEPT)
        self._last_id = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        self._last_id += 1
        self._events.append((self._last_id, stream_id, message))
        return str(self._last_id)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what the stream of this event had after it; the stream, or None for an event that is not there."""
        after = int(last_event_id)
        stream = next((stream for event, stream, _ in self._events if event == after), None)
        for event, owner, message in list(self._events):
            if owner == stream and event > after and message is not None:
                await send_callback(EventMessage(message, str(event)))
        return stream
