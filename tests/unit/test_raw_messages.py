"""Messages of one server as they are on the wire: on request, bounded, masked, forgotten after five minutes."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.app.dashboard.raw import MOST, SECONDS, RawMessages
from mcp_hub.protocol.rest.overview import RawBody
from mcp_hub.types import Kind
from mcp_hub.wire.base import Tapped, watch
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, problem
from tests.unit.wire.http_server import Reply, Request
from tests.unit.wire.http_wires import wired
from tests.upstreams.child import until
from tests.upstreams.launch import entry

pytestmark = pytest.mark.anyio
SECRET = "Bearer abcdef0123456789"


class Time:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.value = 1000.0

    def now(self) -> float:
        return self.value


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    servers: dict[str, Any] = {"a": {**entry(name="a"), "per_tool": {"echo": {"name": "echoes"}}}}
    async with dashboard_hub(tmp_path, servers=servers, tokens=True) as running:
        await until(lambda: "echoes" in [one.exported for one in running.app.hub.catalog.view(None).entries(Kind.TOOL)])
        yield running


async def echo(peer: DashboardPeer) -> None:
    answer = await peer.post("/v1/tools/echoes/call", {"arguments": {"text": f"é {SECRET}"}})
    assert answer.status == 200, answer.body


@pytest.mark.processes
async def test_messages_are_recorded_on_request_masked_and_for_operators_alone(peer: DashboardPeer) -> None:
    await echo(peer)
    assert await peer.get("/raw?server=a") == {"server": "a", "left": 0.0, "messages": []}
    assert (await peer.post("/raw", {"server": "a", "action": "start"})).status == 204
    await echo(peer)
    first = await peer.get("/raw?server=a")
    assert 0 < first["left"] <= SECONDS
    request, answer = first["messages"]
    assert (request["incoming"], answer["incoming"]) == (False, True)
    assert json.loads(request["text"])["params"]["arguments"] == {"text": "é Bearer ***"} and "***" in answer["text"]
    assert (await peer.get("/raw?server=a&after=1"))["messages"] == [answer]
    assert (await peer.post("/raw", {"server": "a", "action": "stop"})).status == 204
    await echo(peer)
    again = await peer.get("/raw?server=a")
    assert again["left"] == 0 and again["messages"] == first["messages"], "still there, and nothing new"
    for method, path, body in (("GET", "/raw?server=a", None), ("POST", "/raw", {"server": "a", "action": "start"})):
        problem(await peer.page(method, path, body, token=ALICE).ended(), 403, "operator_required")
    problem(await peer.post("/raw", {"server": "none", "action": "start"}), 404, "unknown_server")
    problem(await peer.post("/raw", {"server": "local", "action": "start"}), 409, "no_connection")


@pytest.mark.processes
async def test_messages_are_bounded_and_forgotten_after_five_minutes(peer: DashboardPeer) -> None:
    time = Time()
    raw = RawMessages(peer.app.current, peer.app.upstream_set, time)
    raw.switch(RawBody("a", "start"))
    (wire,) = [one.wire for one in peer.app.upstream_set.upstreams["a"].lifecycle.peers or ()]
    assert isinstance(wire, Tapped) and wire.tap is not None
    for number in range(3 * MOST):
        wire.tap(True, b"%d" % number)
    kept = (await raw.read("a", 0)).messages
    assert [one.text for one in kept[:2]] == ["2000", "2001"] and len(kept) == 100, "the newest, a page of them"
    wire.tap(True, b"Bearer " + b"a" * 300)
    (short,) = (await raw.read("a", 3 * MOST)).messages
    assert short.text == "Bearer ***" and not short.cut, "masked, and whole"
    for _ in range(200):
        wire.tap(False, b"x" * 16_370 + SECRET.encode() + b"y" * 200_000)
    large = (await raw.read("a", 0)).messages
    assert len(large) <= 64 and {one.size for one in large} == {16_370 + len(SECRET) + 200_000}
    assert {one.cut for one in large} == {True} and not any(one.cut for one in kept)
    assert all(len(one.text) <= 16 << 10 and "abcdef" not in one.text for one in large)
    time.value += SECONDS + 1
    await echo(peer)
    assert (await raw.read("a", 0)).messages == [] and (await raw.read("a", 0)).left == 0
    assert wire.tap is None, "nothing is on the way of a message any more"


async def test_wire_of_a_remote_server_has_its_messages_recorded() -> None:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        await stream.progress("t", 1)
        await stream.answer(request.message["id"], {"done": True})
        await stream.end()

    async with wired(script) as talk:
        messages: list[tuple[bool, Any]] = []
        stop = watch(talk.wire, lambda is_incoming, message: messages.append((is_incoming, json.loads(message))))
        await talk.ask()
        stop()
        await talk.ask()
    assert [(is_incoming, one.get("method")) for is_incoming, one in messages] == [
        (False, "tools/call"), (True, "notifications/progress"), (True, None)
    ]  # fmt: skip
