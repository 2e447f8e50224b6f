"""Webhooks of servers that deliver in no other way: verified before they are parsed, stored before they are answered.

Address and secret follow from the deployment's key and the topic: neither is stored, each replica can verify. A replica
hands a message to the feed's owner, and answers once it is logged.
"""

import hmac
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final, NamedTuple

import anyio
import anyio.abc
import msgspec

from mcp_hub.call import StreamInfo, Upstream
from mcp_hub.calls.feeds.reading import RUNNING, Topic, feed_key, read_line
from mcp_hub.calls.feeds.sources import Ask, Take, Tell
from mcp_hub.calls.reading.stored import fetched
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.clock import wall_time
from mcp_hub.errors import DeadlineExceeded, RpcError, StoreError, UnknownStream
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.protocol.shape.occurrences import occurrence_of, of_server
from mcp_hub.protocol.shape.webhooks import INCOMING, message_problem, secret_of
from mcp_hub.stores.base import Message
from mcp_hub.types import RawObject

log = get_logger(__name__)

_ID: Final = re.compile(r"[0-9a-f]{64}")
_HALF: Final = 32
"""Characters of an id that say which feed it is; the others prove that this hub made it."""
_ROTATION: Final = 86400
"""Seconds that a secret is used; then the next refresh brings another one."""
_TTL: Final = 6 * 3600
"""Seconds that a subscription is asked for."""
_LEAST: Final = 30.0
"""Seconds between two refreshes, at least."""
_ANSWER: Final = 60.0
"""Seconds for the server to accept a subscription: it sends a challenge meanwhile."""
_LEAVE: Final = 10.0
_RESTART_LOOK: Final = 2.0
"""Seconds between looks whether the server has started again."""
_SEEN: Final = 4096
"""Ids of messages of one subscription that are remembered."""
_AT_ONCE: Final = 32
"""Messages that are stored at once, in this hub."""
_FORWARD: Final = 4.0
_LOOK: Final = 0.02
"""Seconds for a feed's owner to store a message, and between looks."""
_RECENT: Final = 256
"""Lines that are looked through for a message that its sender repeats."""
_NULL: Final = msgspec.Raw(b"null")


class _Reply(NamedTuple):
    status: int
    body: bytes = b""
    reason: str = ""


_TAKEN: Final = _Reply(200, b"{}")
_AGAIN: Final = _Reply(503, reason="the message cannot be stored now")


class _Subscribed(msgspec.Struct):
    refreshBefore: str | None = None
    cursor: str | None = None
    truncated: bool | None = None


class _Forwarded(msgspec.Struct):
    feed: str
    id: str
    body: bytes
    at: int


class _Open:
    """A subscription of this hub. `cursor` is behind all that was stored."""

    def __init__(self, name: str, cursor: str | None, take: Take) -> None:
        self.name = name
        self.cursor = cursor
        self.take = take
        self.stands = False
        self.since = wall_time()
        self.turn = anyio.Lock()
        self.seen = OrderedDict[str, None]()
        self.over: RpcError | StoreError | None = None
        self.verdict: RpcError | None = None
        self.news = anyio.Event()

    async def stored(self, body: RawObject, id_: str, at: int) -> _Reply:
        """Stores what a message of this time says, each message once."""
        if "type" in body and at < int(self.since):
            return _TAKEN  # about an earlier subscription, or sent again by somebody else
        async with self.turn:
            if not self.stands or self.over is not None:
                return _AGAIN
            if id_ in self.seen:
                return _TAKEN
            try:
                reply = await self._stored(body)
            except StoreError as problem:
                self.over = problem
                self.news.set()
                return _AGAIN
            if reply is _TAKEN:
                self.seen[id_] = None
                if len(self.seen) > _SEEN:
                    self.seen.popitem(last=False)
            return reply

    async def _stored(self, body: RawObject) -> _Reply:
        kind, cursor = read_as(body.get("type", _NULL), str), read_as(body.get("cursor", _NULL), str)
        if kind == "gap":
            await self.take((), cursor, True)
            self.cursor = cursor
        elif kind == "terminated":
            self.verdict = of_server(from_wire(body.get("error", msgspec.Raw(b"{}"))))
            self.news.set()
        elif kind is not None:
            return _Reply(400, reason="an unknown type of message")
        elif read_as(body.get("name", _NULL), str) != self.name:
            return _Reply(400, reason="another name than that of the subscription")
        else:
            await self.take([body], cursor if cursor is not None else self.cursor, False)
            self.cursor = cursor if cursor is not None else self.cursor
        return _TAKEN


class Incoming:
    """All of them. `public_url`: where servers reach the hub; None: nowhere. `key` as for `Webhooks`.

    `upstreams` is live.
    """

    def __init__(
        self, table: StreamTable, upstreams: Mapping[str, Upstream], public_url: Callable[[], str | None],
        key: Callable[[], bytes],
    ) -> None:  # fmt: skip
        self.refused = 0
        self._upstreams = upstreams
        self._table = table
        self._public_url = public_url
        self._key = key
        self._open: dict[str, _Open] = {}
        self._limiter = anyio.CapacityLimiter(_AT_ONCE)
        self._tasks: anyio.abc.TaskGroup | None = None
        table.inbox.hearers.append(self._hear)

    def __len__(self) -> int:
        return len(self._open)

    async def run(self) -> None:
        """Takes what other replicas hand over, until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            await anyio.sleep_forever()

    # -- at servers -------------------------------------------------------------------------------------------------

    async def source(self, ask: Ask, topic: Topic, cursor: str | None, take: Take, tell: Tell) -> RpcError | None:
        """Subscribes, and refreshes in time. Raises `RpcError`, `StoreError`."""
        feed = _half(topic)
        opened = self._open[feed] = _Open(topic.name, cursor, take)
        has_lapsed = False
        try:
            while True:
                start = self._start_of(topic)
                result = await self._subscribed(ask, topic, opened.cursor)
                is_truncated = result.truncated is True or (has_lapsed and opened.cursor is None)
                if is_truncated or not opened.stands or opened.cursor is None:
                    cursor = result.cursor if result.truncated or opened.cursor is None else opened.cursor
                    await take((), cursor, is_truncated)
                    opened.cursor, opened.stands = cursor, True
                tell(None)
                if await self._has_news(opened, topic, start, _refresh_after(result.refreshBefore, wall_time())):
                    if opened.over is not None:
                        raise opened.over
                    return opened.verdict
                has_lapsed = self._start_of(topic) != start
        finally:
            if self._open.get(feed) is opened:
                del self._open[feed]

    async def _has_news(self, opened: _Open, topic: Topic, start: object, seconds: float) -> bool:
        """Waits for the end of a subscription; False when it is to be refreshed, or its server has started again."""
        due = anyio.current_time() + seconds
        while (remaining := due - anyio.current_time()) > 0 and self._start_of(topic) == start:
            with anyio.move_on_after(min(remaining, _RESTART_LOOK)):
                await opened.news.wait()
                return True
        return False

    def _start_of(self, topic: Topic) -> object:
        """Another value after each start of the server, which may have forgotten the subscription, and at its rest."""
        if (upstream := self._upstreams.get(topic.server)) is None:
            return None
        status = upstream.status()
        return id(upstream), status.restarts, status.pid

    async def leave(self, ask: Ask, topic: Topic) -> None:
        """Ends the subscription at the server, if it answers."""
        with anyio.move_on_after(_LEAVE), suppress(RpcError):
            if (url := self._url(topic)) is None:
                return
            params = {"name": topic.name, "arguments": msgspec.Raw(topic.arguments)}
            await ask("events/unsubscribe", _raw({**params, "delivery": {"mode": "webhook", "url": url}}), None)

    async def _subscribed(self, ask: Ask, topic: Topic, cursor: str | None) -> _Subscribed:
        if (url := self._url(topic)) is None:
            raise RpcError(
                f'server "{topic.server}" delivers these events by webhooks alone, which need hub.http.public_url.'
            )
        secret = secret_of(self._secret(_half(topic), int(wall_time() // _ROTATION)))
        delivery = {"mode": "webhook", "url": url, "secret": secret}
        params = {"name": topic.name, "arguments": msgspec.Raw(topic.arguments), "cursor": cursor}
        answer = None
        with anyio.move_on_after(_ANSWER):
            answer = await ask("events/subscribe", _raw({**params, "delivery": delivery, "ttlMs": _TTL * 1000}), None)
        if answer is None:
            raise DeadlineExceeded(f"the server did not answer events/subscribe within {_ANSWER:g} s")
        result = read_as(answer, _Subscribed)
        if result is None:
            raise RpcError("the server's answer to events/subscribe cannot be read")
        return result

    def _url(self, topic: Topic) -> str | None:
        public = self._public_url()
        half = _half(topic)
        return None if public is None else f"{public.rstrip('/')}{INCOMING}{half}{self._proof(half)}"

    def _proof(self, half: str) -> str:
        return hmac.digest(self._key(), b"webhook\0" + half.encode(), sha256).hex()[:_HALF]

    def _secret(self, half: str, period: int) -> bytes:
        return hmac.digest(self._key(), b"webhook-secret\0%s\0%d" % (half.encode(), period), sha256)

    # -- messages ---------------------------------------------------------------------------------------------------

    def takes(self, id_: str) -> bool:
        """Whether an id is of this deployment. Check before a body is read. Raises `StoreUnavailable`."""
        is_of_hub = _ID.fullmatch(id_) is not None and hmac.compare_digest(id_[_HALF:], self._proof(id_[:_HALF]))
        self.refused += not is_of_hub
        return is_of_hub

    async def receive(self, id_: str, headers: Mapping[bytes, bytes], body: bytes) -> _Reply:
        """Takes one message for an address that it `takes`. Raises nothing."""
        half, period = id_[:_HALF], int(wall_time() // _ROTATION)
        keys = [self._secret(half, each) for each in (period, period - 1, period + 1)]
        if (problem := message_problem(keys, headers, body, wall_time())) is not None:
            return self._refused(_Reply(401, reason=problem))
        members, message = raw_object(msgspec.Raw(body)), headers[b"webhook-id"].decode()
        if members is None:
            return self._refused(_Reply(400, reason="the body is not an object"))
        if read_as(members.get("type", _NULL), str) == "verification":
            challenge = read_as(members.get("challenge", _NULL), str)
            return _Reply(200, object_bytes({"challenge": challenge or ""}))
        try:
            self._limiter.acquire_nowait()
        except anyio.WouldBlock:
            return _AGAIN
        try:
            return await self._taken(half, message, members, body, int(headers[b"webhook-timestamp"]))
        except StoreError:
            return _AGAIN
        finally:
            self._limiter.release()

    def _refused(self, reply: _Reply) -> _Reply:
        self.refused += 1
        return reply

    async def _taken(self, half: str, message: str, members: RawObject, body: bytes, at: int) -> _Reply:
        """Raises `StoreError`."""
        if (opened := self._open.get(half)) is None:
            return await self._forwarded(_Forwarded(half, message, body, at), members)
        return await opened.stored(members, message, at)

    # -- replicas ---------------------------------------------------------------------------------------------------

    async def _forwarded(self, forwarded: _Forwarded, members: RawObject) -> _Reply:
        """Hands a message to the feed's owner, and waits until it is in the log. Raises `StoreError`."""
        row = await self._table.store.log.find_key(feed_key(forwarded.feed), RUNNING)
        if row is None or row.has_ended:
            return self._refused(_Reply(404, reason="this webhook is unknown"))
        if row.owner == self._table.store.log.instance:
            return _AGAIN
        occurrence = None if "type" in members else occurrence_of(members)  # what cannot be used leaves a gap
        event = None if occurrence is None else bytes(occurrence["eventId"])
        if event is not None and await self._is_in_log(row, max(row.first - 1, row.last - _RECENT), event):
            return _TAKEN
        await self._table.store.inbox.post(Message(row.id, "input", msgspec.json.encode(forwarded)))
        if read_as(members.get("type", _NULL), str) == "terminated":
            return _TAKEN  # if it is lost, the next refresh says it, too
        with anyio.move_on_after(_FORWARD):
            while not await self._is_in_log(row, row.last, event):  # noqa: ASYNC110 - not of this process
                await anyio.sleep(_LOOK)
            return _TAKEN
        return _AGAIN

    async def _is_in_log(self, row: StreamInfo, after: int, event: bytes | None) -> bool:
        """Whether the log has an occurrence with this encoded id; None: a gap. Raises `StoreError`."""
        with suppress(UnknownStream):
            while lines := await fetched(self._table.store.log, row.id, after, _RECENT):
                for line in lines:
                    _, occurrence, is_gap = read_line(line)
                    if is_gap if event is None else occurrence is not None and bytes(occurrence["eventId"]) == event:
                        return True
                after += len(lines)
        return False

    def _hear(self, message: Message) -> bool:
        if message.kind != "input" or self._tasks is None:
            return False
        forwarded = read_as(msgspec.Raw(message.body), _Forwarded)
        opened = None if forwarded is None else self._open.get(forwarded.feed)
        if forwarded is None or opened is None:
            return False
        members = raw_object(msgspec.Raw(forwarded.body))
        if members is not None:
            self._tasks.start_soon(opened.stored, members, forwarded.id, forwarded.at)
        return True


def _half(topic: Topic) -> str:
    return topic.key[-_HALF:]


def _raw(members: Mapping[str, object]) -> RawObject:
    return {name: msgspec.Raw(object_bytes(value)) for name, value in members.items()}


def _refresh_after(before: str | None, wall: float) -> float:
    """Seconds until the next refresh: half of what was granted, and soon after the secret changes."""
    until_rotation = _ROTATION - wall % _ROTATION + 1
    try:
        until = None if before is None else datetime.fromisoformat(before)
        until = until if until is None or until.tzinfo is not None else until.replace(tzinfo=UTC)
        granted = float("inf") if until is None else until.timestamp() - wall
    except (ValueError, OverflowError):
        granted = float(_TTL)
    return max(_LEAST, min(granted / 2, until_rotation))
