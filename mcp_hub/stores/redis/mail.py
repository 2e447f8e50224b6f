"""Messages to stream owners, stored beside each stream, and bells that announce them."""

from collections.abc import Sequence
from typing import Final

from mcp_hub import aio
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.base import MAX_MESSAGES, Message
from mcp_hub.stores.redis.keys import RedisKeys, instance_id, stream_id
from mcp_hub.stores.redis.link import Command, Link, Reply, script
from mcp_hub.stores.redis.records import Quarantine
from mcp_hub.stores.redis.scripts import POST, TAKE
from mcp_hub.types import CallId

log = get_logger(__name__)

LEAVING: Final = b"left"
"""The reason for which a replica rings that leaves."""
_AT_ONCE: Final = 4096
"""Streams that are asked for messages at once."""


class Mail:
    """Messages of replica `instance`; `news` rings when there may be any."""

    def __init__(self, keys: RedisKeys, instance: str, writer: Link, quarantine: Quarantine) -> None:
        self._keys = keys
        self._instance = instance
        self._writer = writer
        self._quarantine = quarantine
        self._has_news = False
        self._called: set[CallId] = set()
        """Streams that may have messages."""
        self._is_called = False
        """Whether the server may know of more of them."""
        self.news = aio.Bell()
        self.departures = aio.Bell()
        """Rings when another replica leaves."""

    # -- bells

    def rang(self, reason: bytes) -> None:
        """Another replica may have rung."""
        if reason == LEAVING:
            self.departures.ring()
        self._is_called = True
        self.rings()

    def rings(self, stream: CallId | None = None) -> None:
        """Notes that there may be news."""
        self._has_news = True
        self.news.ring()

    def has_news(self) -> bool:
        has_news, self._has_news = self._has_news, False
        return has_news

    def ring(self, instance: str, reason: bytes = b"") -> Command:
        return "XADD", self._keys.bell(instance), "MAXLEN", 1, "*", "n", reason

    async def call(self, owner: str, stream: CallId) -> None:
        """Makes a replica check its stream for messages. Raises `StoreError`."""
        if instance_id(owner.encode("utf-8", "replace")) is None:
            return  # it has no owner, and who claims the stream looks by itself
        if owner == self._instance:
            self._called.add(stream)
            self.rings()
        else:
            await self._writer.ask(("SADD", self._keys.called(owner), stream), self.ring(owner))

    # -- messages

    async def post(self, message: Message) -> bool:
        keys = self._keys.stream(message.stream)
        command = script(POST, [keys.row, keys.messages], message.kind, message.body, MAX_MESSAGES)
        [[outcome, *details]] = await self._writer.ask(command)
        if outcome == b"full":
            raise StoreError(f"stream {message.stream}: {MAX_MESSAGES} messages wait for its owner already")
        if outcome == b"done":
            await self.call(details[0].decode("ascii", "replace"), message.stream)
        return bool(outcome == b"done")

    async def take(self) -> list[Message]:
        """Adds a `lost` for each stream claimed by another replica."""
        if self._is_called:
            self._is_called = False
            try:
                [called] = await self._writer.ask(("SRANDMEMBER", self._keys.called(self._instance), _AT_ONCE))
            except BaseException:  # also for a reader that gives up
                self._is_called = True
                raise
            self._is_called |= len(called) >= _AT_ONCE
            streams = {id_: stream_id(id_) for id_ in called}
            bad = [id_ for id_, stream in streams.items() if stream is None]
            self._quarantine.members(self._keys.called(self._instance), bad, "not the id of a stream")
            self._called |= {stream for stream in streams.values() if stream is not None}
        return await self._taken(list(self._called)) if self._called else []

    async def _taken(self, streams: Sequence[CallId]) -> list[Message]:
        keys = [self._keys.stream(id_) for id_ in streams]
        answered = ("SREM", self._keys.called(self._instance), *streams)  # first: who posts from here on calls again
        takes = [
            script(TAKE, [stream_keys.row, stream_keys.messages], self._instance, MAX_MESSAGES) for stream_keys in keys
        ]
        _, *replies = await self._writer.ask(answered, *takes)
        self._called.difference_update(streams)
        messages: list[Message] = []
        dropped: list[Command] = []
        for id_, stream_keys, (owner, *bodies) in zip(streams, keys, replies, strict=True):
            if bodies:
                # each by itself: one that comes meanwhile stays, also if this is sent twice
                dropped += [("LREM", stream_keys.messages, 1, body) for body in bodies]
                messages += _read(id_, bodies)
            elif owner not in (b"", self._instance.encode()):
                messages.append(Message(id_, "lost", b""))
        if dropped:
            self._writer.submit(dropped, _dropped)
        return messages


def _dropped(replies: list[Reply] | StoreError) -> None:
    if isinstance(replies, StoreError):  # they come once more
        log.debug("messages_not_dropped", reason=str(replies))


def _read(stream: CallId, bodies: Sequence[bytes]) -> list[Message]:
    messages: list[Message] = []
    for text in bodies:
        kind, _, body = text.partition(b"\n")
        match kind:
            case b"cancel":
                messages.append(Message(stream, "cancel", body))
            case b"input":
                messages.append(Message(stream, "input", body))
            case b"touch":
                messages.append(Message(stream, "touch", body))
            case _:
                log.warning("message_dropped", stream=stream, reason="unknown kind")
    return messages
