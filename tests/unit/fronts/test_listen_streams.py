"""`subscriptions/listen` on a connection that carries everything: what comes first, what comes last, who is slow."""

from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.call import Call
from mcp_hub.errors import Busy
from mcp_hub.fronts.http.response import stream
from mcp_hub.fronts.mcp import subscriptions as module
from mcp_hub.fronts.mcp.binding import Binding, modern_session
from mcp_hub.fronts.mcp.duplex import Duplex
from mcp_hub.fronts.mcp.subscriptions import ListenStreams
from mcp_hub.protocol.notifications import ListenFilter
from mcp_hub.sessions.session import LOCAL, Caller, Session
from mcp_hub.types import Era, Kind
from tests.unit.fronts import test_duplex as duplex
from tests.unit.fronts.local_hub import hello
from tests.unit.fronts.small_hub import Hub
from tests.unit.wire.raw_lines import WAIT
from tests.upstreams.messages import modern

A = ("git", "x:a")


class Wire(duplex.Wire):
    @property
    def methods(self) -> list[str]:
        return [message.get("method", "").rpartition("/")[2] for message in self.sent]

    async def until(self, count: int) -> None:
        """Waits for so many messages."""
        with anyio.fail_after(WAIT):
            while len(self.sent) < count:
                await anyio.lowlevel.checkpoint()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DEBOUNCE", 0.001)


@pytest.fixture
async def hub() -> Hub:
    hub = Hub()
    hub.source.offers(Kind.RESOURCE, "x:a")
    return hub


@asynccontextmanager
async def served(hub: Hub) -> AsyncIterator[Wire]:
    binding = Binding(hub.port, {"name": "hub", "version": "1"}, lambda profile: None)
    wire = Wire(Duplex(hub.port, binding, LOCAL, lambda meta: modern_session(LOCAL, meta, "m")))
    async with wire.duplex.serving(wire):
        yield wire


def listen(wire: Wire, *uris: str, id: Any = "l", **lists: bool) -> None:
    wire.receive("subscriptions/listen", modern({"notifications": {**lists, "resourceSubscriptions": uris}}), id)


async def test_nothing_is_pulled_for_a_client_that_does_not_read(hub: Hub) -> None:
    async with served(hub) as wire:
        listen(wire, "x:a", toolsListChanged=True)
        await wire.until(1)
        wire.is_congested = True
        hub.changes.note(A, "x:a")
        await wire.until(2)  # it was waiting for this one already
        for number in range(1000):
            hub.changes.note(A, "x:a")
            hub.source.offers(Kind.TOOL, f"t{number}")
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.02)
        assert wire.methods == ["acknowledged", "updated"]
        wire.is_congested = False
        wire.duplex.on_writable()
        await wire.until(4)
        assert wire.methods[2:] == ["list_changed", "updated"]


async def test_a_cancelled_listen_is_not_answered_and_its_place_is_free_at_once(hub: Hub) -> None:
    async with served(hub) as wire:
        for number in range(64):
            listen(wire, "x:a", id=number)
        await wire.until(64)
        listen(wire, "x:a", id="more")
        assert wire.sent[-1]["error"]["code"] == Busy.code and "64" in wire.sent[-1]["error"]["message"]
        wire.receive("notifications/cancelled", {"requestId": 7})
        listen(wire, "x:a", id="more")
        await wire.until(64 + 2)
        assert wire.methods[-1] == "acknowledged"
        assert 7 not in [message.get("id") for message in wire.sent]
        assert hub.source.subscribed == ["x:a"] * 64


async def test_when_serving_ends_every_listen_is_answered_and_nothing_stays_subscribed(hub: Hub) -> None:
    async with served(hub) as wire:
        listen(wire, "x:a", id=1)
        listen(wire, id="two")
        await wire.until(2)
    ends = {message["id"]: message["result"] for message in wire.sent[2:]}
    stamp = "io.modelcontextprotocol/subscriptionId"
    assert ends == {id_: {"resultType": "complete", "_meta": {stamp: id_}} for id_ in (1, "two")}
    assert hub.source.subscribed == []


async def test_a_handshake_session_ends_with_its_connection(hub: Hub) -> None:
    async with served(hub) as wire:
        wire.receive("initialize", hello("2025-11-25"), 1)
        wire.receive("resources/subscribe", {"uri": "x:a"}, 2)
        wire.receive("resources/unsubscribe", {"uri": "x:a"}, 3)
        await wire.until(3)
        assert hub.source.subscribed == [], "requests that come together are served in their order"
        wire.receive("resources/subscribe", {"uri": "x:a"}, 4)
        await wire.until(4)
        assert hub.source.subscribed == ["x:a"]
    assert hub.source.subscribed == []


async def test_server_that_accepts_too_late_is_not_acknowledged(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 0.01)

    async def subscribe(uri: str, call: Call) -> None:
        hub.source.subscribed.append(uri)
        await anyio.sleep_forever()

    monkeypatch.setattr(hub.source, "subscribe", subscribe)
    async with served(hub) as wire:
        listen(wire, "x:a", promptsListChanged=True)
        await wire.until(1)
        assert wire.sent[0]["params"]["notifications"] == {"promptsListChanged": True}
        assert hub.source.subscribed == []


async def test_each_principal_has_its_own_limit(hub: Hub) -> None:
    streams = ListenStreams(hub.port)
    alice, bob = (Session("s", Caller(name), Era.MODERN, "") for name in ("alice", "bob"))
    opened = [streams.open(alice, b"1", ListenFilter()) for _ in range(64)]
    with pytest.raises(Busy):
        streams.open(alice, b"1", ListenFilter())
    streams.open(bob, b"1", ListenFilter())
    streams.close(opened[0])
    streams.open(alice, b"1", ListenFilter())


async def test_stream_that_is_opened_while_the_hub_stops_is_answered_and_ends(hub: Hub) -> None:
    streams, sent = ListenStreams(hub.port), list[dict[str, Any]]()
    streams.complete()
    listening = streams.open(Session("s", Caller("alice"), Era.MODERN, ""), b"1", ListenFilter())

    async def send(message: MutableMapping[str, Any]) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(dict(message))

    async def receive() -> MutableMapping[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    with anyio.fail_after(WAIT):
        await stream(listening, receive, send, listening.scope, listening.completed())
    assert [message["type"].rpartition(".")[2] for message in sent] == ["start", "body", "body"]
    assert b'"resultType":"complete"' in sent[1]["body"]
