"""Subscriptions by webhook while their store is away."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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


@asynccontextmanager
async def hooks(store: MemoryStore, server: Server) -> AsyncIterator[tuple[Webhooks, Receiver]]:
    async with receiving() as receiver, running(server, store) as feeds, anyio.create_task_group() as tasks:
        running_ = Webhooks(
            feeds._table, feeds, Callbacks(lambda: ["127.0.0.1"]), lambda _: (TOPIC, ["poll"]), lambda: b"k" * 32
        )
        tasks.start_soon(running_.run)
        yield running_, receiver
        tasks.cancel_scope.cancel()


async def test_refresh_and_end_are_answered_while_the_store_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    store, server = MemoryStore(), Server({"events": [], "cursor": "0"})
    monkeypatch.setattr(webhooks, "_HEARD", 0.1)
    async with hooks(store, server) as (running_, receiver):
        webhook = Webhook(
            id="sub_1", principal="alice", url=receiver.url(), name="push", arguments="{}", server="git", key="push",
            secret=SECRET,
        )  # fmt: skip

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
