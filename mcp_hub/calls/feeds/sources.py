"""Subscriptions at servers that have the extension: by polls, and by a stream.

A source runs from a server's cursor on (None: from now) until it fails. `take` stores occurrences with the cursor
behind them, and is awaited before any further request. Its first call: the server has accepted.
"""

import math
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

import anyio
import anyio.abc
import msgspec

from mcp_hub.call import Heard
from mcp_hub.calls.feeds.reading import Topic
from mcp_hub.errors import Busy, DeadlineExceeded, HubError, RpcError
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import METHOD_NOT_FOUND, from_wire
from mcp_hub.protocol.shape.occurrences import UNSUPPORTED, of_server
from mcp_hub.types import RawJson, RawObject

Ask = Callable[[str, RawObject, Heard | None], Awaitable[RawJson]]
"""An `Upstream.ask` with this method and these params."""
Take = Callable[[Sequence[RawObject], str | None, bool], Awaitable[None]]
"""Takes occurrences as sent, the cursor behind them, and whether something may be missing before them."""
Tell = Callable[[RpcError | None], None]
"""Takes the server's trouble, None at its end."""
Source = Callable[[Ask, Topic, str | None, Take, Tell], Awaitable[RpcError | None]]
"""Returns the error with which the server has ended the subscription; None if it only closed it."""

FLOOR: Final = 1.0
_CEILING: Final = 300.0
_USUAL: Final = 5.0
"""Seconds between polls: the least, the most, and without a `nextPollMs`."""
_PAGE: Final = 500
"""Occurrences of one poll."""
_ANSWER: Final = 60.0
"""Seconds for the answer to a poll, and for a stream to begin."""
_SILENCE: Final = 90.0
"""Seconds without a message after which a stream counts as broken; servers send one every 30 s."""
_REFUSED: Final = frozenset({UNSUPPORTED, METHOD_NOT_FOUND})
"""Codes of a server that does not deliver in one way."""
_MOST_HEARD: Final = 4096
_MOST_BYTES: Final = 16 << 20
"""Messages of a stream that wait to be stored; one that is faster is broken off, and begun again from its cursor."""


class _Page(msgspec.Struct):
    """An answer to a poll; null counts as absent."""

    events: list[msgspec.Raw] | None = None
    cursor: str | None = None
    truncated: bool | None = None
    hasMore: bool | None = None
    nextPollMs: float | None = None


async def polled(ask: Ask, topic: Topic, cursor: str | None, take: Take, tell: Tell) -> RpcError | None:
    """Polls without end. Raises `RpcError`, `StoreError`."""
    while True:
        page = _page(await _answered(ask("events/poll", _params(topic, cursor, maxEvents=_PAGE), None)))
        occurrences = [occurrence for raw in page.events or () if (occurrence := raw_object(raw)) is not None]
        await take(occurrences, page.cursor, page.truncated is True)
        tell(None)
        is_moving = page.hasMore is True and bool(occurrences) and page.cursor != cursor
        cursor = page.cursor
        if not is_moving:
            await anyio.sleep(pause_of(page.nextPollMs))


def pause_of(milliseconds: float | None) -> float:
    """Seconds until the next poll."""
    if milliseconds is None or math.isnan(milliseconds):
        return _USUAL
    return min(max(milliseconds / 1000, FLOOR), _CEILING)


async def _answered(answer: Awaitable[RawJson]) -> RawJson:
    with anyio.move_on_after(_ANSWER):
        return await answer
    raise DeadlineExceeded(f"the server did not answer events/poll within {_ANSWER:g} s")


def _page(result: RawJson) -> _Page:
    try:
        return msgspec.json.decode(result, type=_Page)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise RpcError(f"the server's answer to events/poll cannot be read: {problem}") from None


def _params(topic: Topic, cursor: str | None, **more: int) -> RawObject:
    members: Mapping[str, object] = {"name": topic.name, "cursor": cursor, **more}
    params = {name: msgspec.Raw(object_bytes(value)) for name, value in members.items()}
    return {**params, "arguments": msgspec.Raw(topic.arguments)}


class _Heard:
    """The messages of one stream that are not stored yet, and how it ended."""

    def __init__(self) -> None:
        self.messages: deque[tuple[str, RawObject, int]] = deque()
        self.has_ended = False
        self.error: HubError | None = None
        self._bytes = 0
        self._news = anyio.Event()

    def hear(self, method: str, params: RawObject) -> None:
        size = sum(map(len, params.values()))
        if self.has_ended:
            return
        if len(self.messages) >= _MOST_HEARD or self._bytes + size > _MOST_BYTES:
            self.end(Busy("the server sends events faster than they can be stored"))
            return
        self.messages.append((method.removeprefix("notifications/events/"), params, size))
        self._bytes += size
        self._news.set()

    def end(self, error: HubError | None = None) -> None:
        if not self.has_ended:
            self.has_ended, self.error = True, error
            self._news.set()

    async def next(self) -> list[tuple[str, RawObject]]:
        """Waits for messages; empty at the end. Raises the error that ended it."""
        while not self.messages and not self.has_ended:
            self._news = anyio.Event()
            with anyio.move_on_after(_SILENCE) as silence:
                await self._news.wait()
            if silence.cancelled_caught:
                self.end(DeadlineExceeded(f"the server's stream of events was silent for {_SILENCE:g} s"))
        messages = [(kind, params) for kind, params, _ in self.messages]
        self.messages.clear()
        self._bytes = 0
        if not messages and self.error is not None:
            raise self.error
        return messages


async def streamed(ask: Ask, topic: Topic, cursor: str | None, take: Take, tell: Tell) -> RpcError | None:
    """Holds a stream open until the server ends it. Raises `RpcError`, `StoreError`."""
    heard = _Heard()
    verdict, failure = None, None

    async def hold() -> None:
        try:
            await ask("events/stream", _params(topic, cursor), heard.hear)
        except RpcError as error:
            heard.end(error)
        else:
            heard.end()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold)
        try:
            verdict = await _stored(heard, cursor, take, tell)
        except HubError as error:
            failure = error
        tasks.cancel_scope.cancel()
    if failure is not None:
        raise failure
    return verdict


async def _stored(heard: _Heard, cursor: str | None, take: Take, tell: Tell) -> RpcError | None:
    """Stores messages until the end; returns the server's error, if any.

    The `active` of a server that can replay has a cursor. A later message without one keeps the one before.
    """
    while messages := await heard.next():
        batch: list[RawObject] = []
        for kind, params in messages:
            if kind == "event":
                batch.append(params)
                cursor = _cursor(params, cursor)
            elif kind in ("active", "heartbeat"):
                if batch:
                    await take(batch, cursor, False)
                    batch = []
                cursor = _cursor(params, cursor if kind == "heartbeat" else None)
                await take((), cursor, bytes(params.get("truncated", b"")) == b"true")
                tell(None)
            elif kind == "error":
                tell(_error(params))
            elif kind == "terminated":
                if batch:
                    await take(batch, cursor, False)
                return _error(params)
        if batch:
            await take(batch, cursor, False)
    return None


def _cursor(params: RawObject, before: str | None) -> str | None:
    raw = params.get("cursor")
    return before if raw is None else read_as(raw, str)


def _error(params: RawObject) -> RpcError:
    raw = params.get("error")
    return of_server(from_wire(raw if raw is not None else msgspec.Raw(b"{}")))


def first_of(sources: Sequence[Source]) -> Source:
    """The first source that the server does not refuse. Raises as the last one."""

    async def run(ask: Ask, topic: Topic, cursor: str | None, take: Take, tell: Tell) -> RpcError | None:
        has_stood = False

        async def stored(occurrences: Sequence[RawObject], position: str | None, truncated: bool) -> None:
            nonlocal has_stood
            await take(occurrences, position, truncated)
            has_stood = True

        for source in sources[:-1]:
            try:
                return await source(ask, topic, cursor, stored, tell)
            except RpcError as error:
                if has_stood or of_server(error).code not in _REFUSED:
                    raise
        return await sources[-1](ask, topic, cursor, take, tell)

    return run


SOURCES: Final[Mapping[str, Source]] = {"push": streamed, "poll": polled}
"""By mode of delivery, the best first."""
