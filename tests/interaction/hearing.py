"""How a client of each front and era hears what belongs to none of its calls."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio

from tests.e2e.client import HttpClient, SseStream
from tests.interaction.fronts import HANDSHAKE, Peer
from tests.upstreams.child import WAIT
from tests.upstreams.messages import Id, Message
from tests.upstreams.stdio_client import Conversation

UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
ID = "io.modelcontextprotocol/subscriptionId"
MEANT = ("list_changed", "updated", "acknowledged")


class Ear:
    """What was heard so far, in order. `id` is that of the `subscriptions/listen` that it is heard on."""

    def __init__(self, source: Conversation | SseStream, id: Id | None = None) -> None:
        self.id = id
        self._source = source
        self._start = len(source.transcript) if isinstance(source, Conversation) else 0

    @property
    def heard(self) -> list[Message]:
        """Notifications that belong to no call, of this stream only."""
        if isinstance(self._source, Conversation):
            messages = self._source.transcript[self._start :]
        else:
            messages = [event.message for event in self._source.events if event.data]
        return [message for message in messages if self._is_meant(message)]

    def _is_meant(self, message: Message) -> bool:
        stamp = message.get("params", {}).get("_meta", {}).get(ID)
        return message.get("method", "").endswith(MEANT) and stamp == self.id and type(stamp) is type(self.id)

    async def next(self, method: str, *, after: int = 0, seconds: float = WAIT, **params: Any) -> Message:
        """The first notification of this method and with these params, past ones included but for `after` of them."""

        def fitting() -> list[Message]:
            return [message for message in self.heard if message["method"] == method and _has(message, params)][after:]

        while not (found := fitting()):
            if isinstance(self._source, Conversation):
                count = len(self._source.transcript)
                await self._source.wait_for(self._is_meant, after=count, seconds=seconds)
            else:
                await self._source.next_event(seconds)
        return found[0]

    def updated(self) -> list[str]:
        return [message["params"]["uri"] for message in self.heard if message["method"] == UPDATED]


def _has(message: Message, params: dict[str, Any]) -> bool:
    return bool(params.items() <= message.get("params", {}).items())


@asynccontextmanager
async def hearing(peer: Peer, uris: Sequence[str] = (), *lists: str, id: Id = "ear") -> AsyncIterator[Ear]:
    """Subscribes to `uris`; a modern client listens to `lists` (`tools` and so on), too, a handshake one to all."""
    wire = peer.wire
    if peer.era == HANDSHAKE:
        for uri in uris:
            assert (await peer.request("resources/subscribe", {"uri": uri})).result == {}
        if isinstance(wire, Conversation):
            yield Ear(wire)
        else:
            async with wire.listen() as stream:
                yield Ear(stream)
        for uri in uris:
            assert (await peer.request("resources/unsubscribe", {"uri": uri})).result == {}
        return
    wanted = {**{f"{name}ListChanged": True for name in lists}, "resourceSubscriptions": list(uris)}
    async with listening(wire, peer.params({"notifications": wanted}), id) as ear:
        await ear.next(ACKNOWLEDGED)
        yield ear


@asynccontextmanager
async def listening(wire: Conversation | HttpClient, params: Message, id: Id) -> AsyncIterator[Ear]:
    """A `subscriptions/listen` with these params; what it is acknowledged with is the first to be heard."""
    if isinstance(wire, Conversation):
        ear = Ear(wire, id)
        await wire.send_request("subscriptions/listen", params, id=id)
        try:
            yield ear
        finally:
            with anyio.CancelScope(shield=True):
                await wire.notify("notifications/cancelled", {"requestId": id})
    else:
        async with wire.stream(wire.message("subscriptions/listen", params, id=id)) as stream:
            yield Ear(stream, id)
