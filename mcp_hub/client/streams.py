"""The events of one durable call, over any number of connections: no gap, no repeat, one ending."""

from collections import deque
from collections.abc import Callable
from typing import Final, Self

import anyio
import msgspec

from mcp_hub.client.rest import (
    TOO_MANY,
    Answer,
    ConnectionLost,
    RequestRefused,
    RestClient,
    decoded,
    error_for,
    problem_of,
    unreachable,
)
from mcp_hub.client.stream_reader import EventDecoder, Patience
from mcp_hub.errors import UpstreamLost
from mcp_hub.events import CallEvent, Cancelled, Completed, Failed
from mcp_hub.types import JsonObject

_EVENTS: Final = "text/event-stream"
_CLOSING: Final = 2.0
_HELD: Final = 5.0
"""Seconds after which a silent connection counts as working."""

OnPause = Callable[[str], object]
"""Called with the reason for a pause, for people."""


def ignore(reason: str) -> None:
    """An `OnPause` that does nothing."""


class Start(msgspec.Struct, frozen=True):
    """A call to be made: URL, body, and idempotency key."""

    url: str
    body: bytes
    key: str


class _Started(msgspec.Struct):
    stream: str


class StreamInterrupted(UpstreamLost):
    """The hub could not be reached for too long; `HubClient.resume(stream, cursor)` continues.

    Without a `stream` the call may have been made; `key` makes a repeat safe.
    """

    def __init__(self, reason: str, stream: str | None, cursor: int, key: str | None) -> None:
        data: JsonObject = {"stream": stream, "cursor": cursor}
        advice = f"resume {stream} after event {cursor} to have the rest"
        if stream is None:
            data, advice = {"key": key}, f"whether the call was made is unknown (idempotency key {key})"
        super().__init__(f"{reason}; {advice}", data={"outcome": "unknown", **data})
        self.stream = stream
        self.cursor = cursor
        self.key = key


class HubStream:
    """The events of a call, iterated once, inside the block; the last is `Completed`, `Failed` or `Cancelled`.

    A stream that ended at the cursor has no events. Leaving the block only disconnects. Unknown events are skipped.
    `on_pause` gets the reason of each pause.

    Iterating raises `RpcError`, `StreamInterrupted`, and `ConfigError` if this is not a hub or it refuses the client.
    """

    def __init__(
        self,
        api: RestClient,
        patience: Patience,
        start: Start | None,
        stream: str | None = None,
        after: int = 0,
        on_pause: OnPause = ignore,
    ) -> None:
        self.stream = stream
        self.cursor = after
        self._on_pause = on_pause
        self._patience = patience
        self._connector = _Connector(api, start)
        self._events: deque[tuple[int, CallEvent | None]] = deque()
        self._connection: _Connection | None = None
        self._after = after
        self._has_ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._drop()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CallEvent:
        while True:
            while not self._events:
                if self._has_ended:
                    raise StopAsyncIteration
                await self._read()
            self.cursor, event = self._events.popleft()
            if isinstance(event, Completed | Failed | Cancelled):
                self._has_ended = True
                self._events.clear()
            if event is not None:
                return event

    async def cancel(self) -> None:
        """Ends the call, if it was made. Raises what iterating does."""
        if not self._connector.attempts or self._has_ended:
            return
        while self.stream is None:
            await self._read()
        api = self._connector.rest
        await api.send(_Started, "DELETE", api.url("streams", self.stream))

    # -- connections

    async def _read(self) -> None:
        try:
            if self._connection is None:
                self._connection = await self._connector.connect(self.stream, self.cursor)
            reader, chunks = self._connection.reader, self._connection.chunks
            if reader.is_over:
                await self._over(reader)
                return
            chunk = await anext(chunks, None)
        except RequestRefused as refused:
            await self._refused(refused)
        except ConnectionLost as exc:
            await self._reconnect(exc)
        else:
            if chunk is None:
                await self._pause("it ended its answer too early")
            else:
                events = reader.feed(chunk)
                self.stream = reader.stream or self.stream
                if events:
                    self._patience.worked()
                    self._events.extend(events)

    async def _over(self, reader: EventDecoder) -> None:
        endpoint = self._connector.rest.endpoint
        if reader.broken is not None:
            raise UpstreamLost(reader.broken)
        if reader.problem is not None:
            problem = problem_of(reader.problem)
            if problem is None or (problem.status < 500 and problem.status != TOO_MANY):
                raise error_for(endpoint, 400, "", reader.problem)
            await self._pause(problem.detail or problem.code)
        elif reader.is_torn:
            await self._pause(f"events behind {self.cursor} are missing")
        elif self.cursor > self._after:
            raise UpstreamLost(f"{endpoint} ended {self.stream} in a way that this version does not know")
        else:
            self._has_ended = True

    async def _refused(self, refused: RequestRefused) -> None:
        connector = self._connector
        is_of_call = connector.attempts == 1 and connector.start is not None and refused.problem is not None
        if not refused.is_passing or is_of_call:
            raise refused.error from None
        await self._pause(str(refused), refused.wait)

    async def _reconnect(self, exc: ConnectionLost) -> None:
        connector = self._connector
        if connector.attempts == 1 and self._connection is None:
            if not exc.was_made:
                self._has_ended = True
                raise unreachable(connector.rest.endpoint, exc) from None
            if connector.start is None:
                raise UpstreamLost(f"lost the connection to {connector.rest.endpoint}: {exc}") from None
        await self._pause(str(exc))

    async def _pause(self, reason: str, retry_after: float = 0.0) -> None:
        """Raises `StreamInterrupted` after the last attempt."""
        now = anyio.current_time()
        if self._connection is not None and now - self._connection.opened_at >= _HELD:
            self._patience.worked()
        await self._drop()
        seconds = self._patience.pause(now, retry_after)
        if seconds is None:
            start, message = self._connector.start, _lost_message(self._connector.rest, reason, self._patience)
            raise StreamInterrupted(message, self.stream, self.cursor, None if start is None else start.key)
        self._on_pause(f"lost the connection ({reason}), trying again")
        await anyio.sleep(seconds)

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.aclose()


class _Connector:
    def __init__(self, rest: RestClient, start: Start | None) -> None:
        self.rest = rest
        self.start = start
        self.attempts = 0

    async def connect(self, stream: str | None, cursor: int) -> "_Connection":
        api, start = self.rest, self.start
        self.attempts += 1
        if stream is None:
            assert start is not None
            key = {"idempotency-key": start.key}
            answer = await api.open("POST", start.url, body=start.body, headers=key, media=_EVENTS)
        else:
            answer = await api.open("GET", api.url("streams", stream, "events", after=str(cursor)), media=_EVENTS)
        return _Connection(answer, EventDecoder(api.endpoint, cursor))


class _Connection:
    def __init__(self, answer: Answer, reader: EventDecoder) -> None:
        self.reader = reader
        self.chunks = answer.chunks()
        self.opened_at = anyio.current_time()
        self._answer = answer

    async def aclose(self) -> None:
        with anyio.move_on_after(_CLOSING, shield=True):
            await self.chunks.aclose()
            await self._answer.aclose()


async def started(api: RestClient, start: Start, patience: Patience) -> str:
    """The started call's stream. Raises as `HubStream`."""
    is_first = True
    headers = {"idempotency-key": start.key, "prefer": "wait=0"}
    while True:
        retry_after = 0.0
        try:
            answer = await api.ask("POST", start.url, body=start.body, headers=headers)
            return decoded(start.url, answer, _Started).stream
        except RequestRefused as refused:
            if refused.problem is not None and refused.problem.stream is not None:
                return refused.problem.stream  # it has already failed, as its followers will see
            if not refused.is_passing or (is_first and refused.problem is not None):
                raise refused.error from None
            reason, retry_after = str(refused), refused.wait
        except ConnectionLost as exc:
            if is_first and not exc.was_made:
                raise unreachable(api.endpoint, exc) from None
            reason = str(exc)
        is_first = False
        seconds = patience.pause(anyio.current_time(), retry_after)
        if seconds is None:
            raise StreamInterrupted(_lost_message(api, reason, patience), None, 0, start.key)
        await anyio.sleep(seconds)


def _lost_message(rest: RestClient, reason: str, patience: Patience) -> str:
    return f"lost the connection to {rest.endpoint} ({reason}), for {patience.seconds:g} s"
