"""Subscriptions by webhook while their store is away."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from mcp_hub.calls.feeds import webhooks
from mcp_hub.calls.feeds.deliveries import Callbacks
from mcp_hub.calls.feeds.webhooks import Webhooks
from mcp_hub.errors import StoreUnavailable
from mcp_hub.protocol.shape.webhooks import Webhook
from mcp_hub.stores.memory import MemoryStore
from tests.interaction.hooked import SECRET, Receiver, receiving
from tests.unit.calls.test_feeds import TOPIC, Server, event, running
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio


def _key() -> bytes:
    return b"k" * 32


@asynccontextmanager
async def hooks(
    store: MemoryStore, server: Server, key: Callable[[], bytes] = _key
) -> AsyncIterator[tuple[Webhooks, Receiver]]:
    async with receiving() as receiver, running(server, store) as feeds, anyio.create_task_group() as tasks:
        running_ = Webhooks(feeds._table, feeds, Callbacks(lambda: ["127.0.0.1"]), lambda _: (TOPIC, ["poll"]), key)
        tasks.start_soon(running_.run)
        yield running_, receiver
        tasks.cancel_scope.cancel()


def webhook_to(receiver: Receiver) -> Webhook:
    return Webhook(
        id="sub_1", principal="alice", url=receiver.url(), name="push", arguments="{}", server="git", key="push",
        secret=SECRET,
    )  # fmt: skip


async def test_refresh_and_end_are_answered_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    store, server = MemoryStore(), Server({"events": [], "cursor": "0"})
    monkeypatch.setattr(webhooks, "_HEARD", 0.1)
    async with hooks(store, server) as (running_, receiver):
        webhook = webhook_to(receiver)

        async def subscribe() -> None:
            await running_.subscribe(webhook, TOPIC, ["poll"], after=None, max_age=None, ttl=60.0)

        await subscribe()
        with monkeypatch.context() as away:
            away.setattr(store.log, "append", lambda *_: None)  # no answer
            for change in (subscribe, lambda: running_.unsubscribe("alice", "sub_1")):
                with pytest.raises(StoreUnavailable, match="Try again"):
                    await change()
        await subscribe()
        server.pages = [{"events": [event("a")], "cursor": "1"}]
        await receiver.until(lambda: len(receiver.of()) == 1)
        await running_.unsubscribe("alice", "sub_1")
        await until(lambda: len(running_) == 0)


async def test_message_waits_while_no_key_can_sign_it_and_a_former_one_that_is_lost_stops_nothing() -> None:
    """As with a secret that was sealed by a hub which did not have the replicas' key."""
    store, server, keys = MemoryStore(), Server({"events": [], "cursor": "0"}), [b"a" * 32]
    async with hooks(store, server, lambda: keys[-1]) as (running_, receiver):
        subscribe = partial(
            running_.subscribe, webhook_to(receiver), TOPIC, ["poll"], after=None, max_age=None, ttl=60.0
        )
        await subscribe()
        keys.append(b"b" * 32)
        server.pages = [{"events": [event("a")], "cursor": "1"}]
        [delivery] = running_._running.values()
        delivery.bell.ring()
        await until(lambda: delivery._reader is None)
        assert receiver.of() == []
        await subscribe()
        await receiver.until(lambda: len(receiver.of()) == 1)
        assert receiver.of()[0].is_signed()


async def test_nothing_is_sealed_or_signed_before_the_key_of_the_replicas_is_known() -> None:
    store, server, problems = MemoryStore(), Server({"events": [], "cursor": "0"}), [StoreUnavailable("not yet")]

    def key() -> bytes:
        if problems:
            raise problems[0]
        return b"k" * 32

    async with hooks(store, server, key) as (running_, receiver):
        subscribe = partial(
            running_.subscribe, webhook_to(receiver), TOPIC, ["poll"], after=None, max_age=None, ttl=60.0
        )
        with pytest.raises(StoreUnavailable, match="not yet"):
            await subscribe()
        assert len(running_) == 0 and receiver.posts == []
        problems.clear()
        await subscribe()
        assert len(running_) == 1
