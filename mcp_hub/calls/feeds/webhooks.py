"""Webhooks of clients: subscriptions in the store, each delivered by one hub from its own stored cursor.

A subscription is a durable stream without events: its row has the record, its owner delivers. After the owner's end
another hub sends again what has no stored 2xx. A refresh at another hub reaches the owner as a message.
"""

import base64
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from secrets import token_hex
from typing import Final, NamedTuple

import anyio
import anyio.abc
import msgspec
from cryptography.fernet import Fernet, InvalidToken
from msgspec.structs import replace

from mcp_hub.call import StreamInfo
from mcp_hub.calls.feeds.deliveries import Callbacks, Deliverer, Rights, WebhookDelivery
from mcp_hub.calls.feeds.reading import FeedReader, Topic, mark_line
from mcp_hub.calls.feeds.table import Feeds
from mcp_hub.calls.reading.stored import done_with
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.clock import wall_time
from mcp_hub.errors import Fenced, InvalidParams, KeyTaken, StoreError, StoreUnavailable, UnknownStream
from mcp_hub.ids import new_call_id
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.envelope import read_as
from mcp_hub.protocol.notifications import HOOK
from mcp_hub.protocol.shape.occurrences import exhausted, not_found
from mcp_hub.protocol.shape.webhooks import Webhook, answer_of, secret_key
from mcp_hub.stores.base import Chunk, Message
from mcp_hub.types import CallId
from mcp_hub.wire.responses import origin

log = get_logger(__name__)

_PREFIX: Final = "\x1fhook "
"""Begins the principal of subscriptions' rows; no principal of a client has a control character."""
MOST_OF_PRINCIPAL: Final = 64
MOST: Final = 1024
"""Subscriptions of one principal, and those that one hub delivers."""
_MOST_CHALLENGES: Final = 4
"""Challenges of one principal that wait for their answer."""
_CHALLENGE: Final = "\x1fchallenge "
"""Before a principal, counts its challenges."""
_ROWS: Final = 512
"""Rows of one principal that are looked through, with those that ended within the last minutes."""
_FORMER: Final = 600.0
"""Seconds that a replaced secret signs, too."""
_HEARD: Final = 5.0
_HEARD_LOOK: Final = 0.02
"""Seconds for the owner of a subscription to store a refresh or its end, and between looks."""
_BROKEN: Final = 60.0
"""Seconds until a delivery that has failed unexpectedly is tried again."""
_TRIES: Final = 3
"""Attempts at a subscription that others change meanwhile."""


class _Request(NamedTuple):
    """A client's request: the record without cursor, where events come from, and where it begins."""

    webhook: Webhook
    topic: Topic
    modes: tuple[str, ...]
    after: str | None
    max_age: float | None
    ttl: float | None


class _Note(msgspec.Struct, frozen=True):
    """A message to a subscription's owner: a refresh by this record, or the end."""

    webhook: Webhook | None = None


class Webhooks:
    """All subscriptions of a hub. `key` returns the deployment's, which seals secrets, or raises `StoreUnavailable`."""

    def __init__(
        self, table: StreamTable, feeds: Feeds, callbacks: Callbacks, rights: Rights, key: Callable[[], bytes]
    ) -> None:
        self.counts = Counter[tuple[str, str]]()
        self._table = table
        self._feeds = feeds
        self.callbacks = callbacks
        self._key = key
        self._deliverer = Deliverer(
            log=table.store.log, callbacks=callbacks, rights=rights, open=self._opened, keys=self._keys,
            counts=self.counts,
        )  # fmt: skip
        self._running: dict[CallId, WebhookDelivery] = {}
        self._creating = Counter[str]()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._runs = anyio.Event()
        table.inbox.hearers.append(self._hear)

    def __len__(self) -> int:
        return len(self._running)

    def outcomes(self, outcome: str) -> dict[str, int]:
        """Messages and attempts since the start, by server."""
        return {server: count for (name, server), count in self.counts.items() if name == outcome}

    async def run(self) -> None:
        """Delivers until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            self._runs.set()
            await anyio.sleep_forever()

    def look(self) -> None:
        """Lets all subscriptions look at their rights, which may have changed."""
        for delivery in self._running.values():
            delivery.bell.ring()

    # -- clients ----------------------------------------------------------------------------------------------------

    async def subscribe(
        self, webhook: Webhook, topic: Topic, modes: Sequence[str], *, after: str | None, max_age: float | None,
        ttl: float | None,
    ) -> bytes:  # fmt: skip
        """The result of `events/subscribe`; the secret of `webhook` is not sealed. `max_age` and `ttl` in seconds.

        Raises `RpcError`, the extension's and the server's.
        """
        request = _Request(webhook=webhook, topic=topic, modes=tuple(modes), after=after, max_age=max_age, ttl=ttl)
        await self._runs.wait()
        try:
            for _ in range(_TRIES):
                row = await self._find(webhook.principal, webhook.id)
                if row is not None and (refreshed := await self._refreshed(row, request)) is not None:
                    return _answer(refreshed, is_truncated=False)
                if row is None:
                    with suppress(KeyTaken):  # the same client has sent it twice
                        return await self._created(request)
        except StoreError as problem:
            raise StoreUnavailable(problem.public) from None
        raise StoreUnavailable("The subscription is being changed by others. Try again.")

    async def unsubscribe(self, principal: str, id_: str) -> None:
        """Ends a subscription. Raises the extension's NotFound, `StoreUnavailable`."""
        try:
            row = await self._find(principal, id_)
            if row is None:
                raise not_found("subscription", "you have no subscription with these values")
            if (delivery := await self._owned(row)) is not None:
                with _patience():
                    await delivery.end()
            else:
                await self._ask_owner(row, _Note())
        except StoreError as problem:
            raise StoreUnavailable(problem.public) from None

    async def _find(self, principal: str, id_: str) -> StreamInfo | None:
        row = await self._table.store.log.find_key(_PREFIX + principal, id_)
        return None if row is None or row.has_ended else row

    async def _owned(self, row: StreamInfo) -> WebhookDelivery | None:
        """The delivery, if it is this hub's, or that of one that is gone."""
        if row.id not in self._running:
            with suppress(UnknownStream):
                await self._table.open(row.principal, row.id)  # takes it over if its hub is gone
        return self._running.get(row.id)

    # -- refresh ----------------------------------------------------------------------------------------------------

    async def _refreshed(self, row: StreamInfo, request: _Request) -> Webhook | None:
        """The refreshed record; None if the subscription has ended meanwhile."""
        webhook = replace(self._sealed(request), stamp=token_hex(8))
        try:
            if (delivery := await self._owned(row)) is None:
                return await self._ask_owner(row, _Note(webhook))
            with _patience():
                await delivery.change(partial(_renewed, request=webhook, is_same_key=self._is_same_key))
            delivery.bell.ring()
            return delivery.webhook
        except Fenced:
            return None

    async def _ask_owner(self, row: StreamInfo, note: _Note) -> Webhook | None:
        """Lets another hub change a subscription; its record then, None at its end."""
        await self._table.store.inbox.post(Message(row.id, "input", msgspec.json.encode(note)))
        with anyio.move_on_after(_HEARD):
            while True:
                present = await self._table.store.log.find(row.id)
                if present is None or present.has_ended:
                    return None
                webhook = _record(present)
                if webhook is not None and note.webhook is not None and webhook.stamp == note.webhook.stamp:
                    return webhook
                await anyio.sleep(_HEARD_LOOK)
        raise StoreUnavailable("The hub that delivers this subscription does not answer. Try again in a moment.")

    def _hear(self, message: Message) -> bool:
        delivery = self._running.get(message.stream)
        if delivery is None or self._tasks is None:
            return False
        if message.kind == "lost":
            delivery.scope.cancel()
        elif message.kind == "input" and (note := read_as(msgspec.Raw(message.body), _Note)) is not None:
            self._tasks.start_soon(self._noted, delivery, note)
        return True

    async def _noted(self, delivery: WebhookDelivery, note: _Note) -> None:
        with suppress(StoreError):
            if note.webhook is None:
                await delivery.end()
            else:
                await delivery.change(partial(_renewed, request=note.webhook, is_same_key=self._is_same_key))
                delivery.bell.ring()

    # -- new subscriptions ------------------------------------------------------------------------------------------

    async def _created(self, request: _Request) -> bytes:
        principal = request.webhook.principal
        self._creating[principal] += 1
        try:
            return await self._checked(request)
        finally:
            self._creating[principal] -= 1
            if not self._creating[principal]:
                del self._creating[principal]

    async def _checked(self, request: _Request) -> bytes:
        webhook = self._sealed(request)
        await self._check_bounds(webhook)
        reader = await self._feeds.open(request.topic, request.modes, request.after, webhook.principal, request.max_age)
        try:
            _, is_truncated = await reader.read(0)
            await self._verify(request)
            webhook = replace(webhook, cursor=reader.cursor)
            row = await self._stored(webhook, request)
        except BaseException:
            reader.close()
            raise
        self._start(WebhookDelivery(self._deliverer, row, webhook, reader))
        log.info("webhook_subscribed", webhook=webhook.id, to=origin(webhook.url), principal=webhook.principal)
        return _answer(webhook, is_truncated=is_truncated)

    async def _check_bounds(self, webhook: Webhook) -> None:
        rows = await self._table.store.log.rows(_PREFIX + webhook.principal, _ROWS)
        count = sum(not row.has_ended for row in rows) + self._creating[webhook.principal]
        if len(rows) >= _ROWS or count > MOST_OF_PRINCIPAL:
            raise exhausted("subscriptions", MOST_OF_PRINCIPAL)
        if len(self._running) + self._creating.total() > MOST:
            raise exhausted("subscriptions of all clients", MOST)

    async def _verify(self, request: _Request) -> None:
        """Sends a challenge, unless this principal has verified the URL for another subscription."""
        webhook = request.webhook
        rows = await self._table.store.log.rows(_PREFIX + webhook.principal, _ROWS)
        records = [_record(row) for row in rows if not row.has_ended]
        if any(record is not None and record.url == webhook.url for record in records):
            return
        if self._creating[_CHALLENGE + webhook.principal] >= _MOST_CHALLENGES:
            raise exhausted("challenges", _MOST_CHALLENGES)
        self._creating[_CHALLENGE + webhook.principal] += 1
        try:
            await self.callbacks.verify(webhook.url, secret_key(webhook.secret), webhook.id)
        finally:
            self._creating[_CHALLENGE + webhook.principal] -= 1
            if not self._creating[_CHALLENGE + webhook.principal]:
                del self._creating[_CHALLENGE + webhook.principal]

    async def _stored(self, webhook: Webhook, request: _Request) -> StreamInfo:
        """Raises `KeyTaken` if there is one, `StoreError`."""
        wall, log_ = wall_time(), self._table.store.log
        row = StreamInfo(
            id=new_call_id(), principal=_PREFIX + webhook.principal, owner=log_.instance, server=request.topic.server,
            method=HOOK, name=webhook.name, created=wall, updated=wall, last=1, key=webhook.id,
            continuation=msgspec.json.encode(webhook),
        )  # fmt: skip
        error: StoreError | None = await done_with(partial(log_.create, row, Chunk(1, (mark_line(wall, gap=False),))))
        if error is not None:
            raise error
        return row

    # -- deliveries -------------------------------------------------------------------------------------------------

    async def adopt(self, row: StreamInfo) -> None:
        """Delivers a subscription of a hub that is gone, which this hub has claimed. Raises `StoreError`."""
        webhook = _record(row)
        if webhook is None:
            raise StoreError(f"webhook {row.id}: its record cannot be read")
        await self._runs.wait()
        if (former := self._running.pop(row.id, None)) is not None:
            former.scope.cancel()
        self._start(WebhookDelivery(self._deliverer, row, webhook, None))

    def _start(self, delivery: WebhookDelivery) -> None:
        assert self._tasks is not None
        self._running[delivery.row.id] = delivery
        self._tasks.start_soon(self._deliver, delivery, name="webhook")

    async def _deliver(self, delivery: WebhookDelivery) -> None:
        with delivery.scope:
            while self._running.get(delivery.row.id) is delivery:
                try:
                    await delivery.run()
                    break
                except StoreError as problem:
                    log.info("webhook_elsewhere", webhook=delivery.webhook.id, reason=str(problem))
                    break
                except Exception:  # whatever is in a record or an answer: it ends no other webhook
                    log.exception("webhook_broken", webhook=delivery.webhook.id)
                    await anyio.sleep(_BROKEN)
        if self._running.get(delivery.row.id) is delivery:
            del self._running[delivery.row.id]

    async def _opened(self, topic: Topic, modes: Sequence[str], webhook: Webhook) -> FeedReader:
        age = None if webhook.since is None else max(0.0, wall_time() - webhook.since)
        return await self._feeds.open(topic, modes, webhook.cursor, webhook.principal, age)

    # -- secrets ----------------------------------------------------------------------------------------------------

    def _cipher(self) -> Fernet:
        return Fernet(base64.urlsafe_b64encode(blake2b(self._key(), digest_size=32, person=b"webhooks").digest()))

    def _sealed(self, request: _Request) -> Webhook:
        wall, webhook = wall_time(), request.webhook
        return replace(
            webhook, secret=self._cipher().encrypt(webhook.secret.encode()).decode(),
            expires=None if request.ttl is None else wall + request.ttl,
            since=None if request.max_age is None or request.after is None else wall - request.max_age,
        )  # fmt: skip

    def _keys(self, webhook: Webhook) -> list[bytes]:
        """Keys that sign at present; empty if that of the latest secret cannot be read."""
        if (key := self._opened_key(webhook.secret)) is None:
            return []
        former = self._opened_key(webhook.former) if webhook.former_until > wall_time() else None
        return [key] if former is None else [key, former]

    def _opened_key(self, sealed: str) -> bytes | None:
        try:
            return secret_key(self._cipher().decrypt(sealed).decode())
        except (InvalidToken, InvalidParams, StoreUnavailable):
            return None

    def _is_same_key(self, present: Webhook, renewed: Webhook) -> bool:
        return self._opened_key(present.secret) == self._opened_key(renewed.secret)


@contextmanager
def _patience() -> Iterator[None]:
    """Raises `StoreUnavailable` if the store is late; it may take the change later."""
    with anyio.move_on_after(_HEARD) as patience:
        yield
    if patience.cancelled_caught:
        raise StoreUnavailable("The store does not answer. Try again in a moment.")


def _record(row: StreamInfo) -> Webhook | None:
    return read_as(msgspec.Raw(row.continuation or b""), Webhook)


def _renewed(present: Webhook, *, request: Webhook, is_same_key: Callable[[Webhook, Webhook], bool]) -> Webhook:
    """The present record after a refresh; a replaced secret signs, too, for a while."""
    renewed = replace(
        present, secret=request.secret, profile=request.profile, claims=request.claims, expires=request.expires,
        stamp=request.stamp, is_active=True, failures=0,
    )  # fmt: skip
    if is_same_key(present, request):
        return renewed
    return replace(renewed, former=present.secret, former_until=wall_time() + _FORMER)


def _answer(webhook: Webhook, *, is_truncated: bool) -> bytes:
    return answer_of(webhook.id, webhook.expires, webhook.cursor, truncated=is_truncated, status=webhook.status)
