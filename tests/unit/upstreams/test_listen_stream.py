"""The one stream that is open at a modern server, and how it is replaced."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.errors import DeadlineExceeded, InvalidParams, RpcError
from mcp_hub.types import Era, JsonObject, Kind
from mcp_hub.upstreams.peer import subscriptions as module
from tests.unit.upstreams.following import UPDATED, Following, silent
from tests.unit.upstreams.scripted import Script, Server, together

pytestmark = pytest.mark.anyio

LISTEN, CANCELLED = "subscriptions/listen", "notifications/cancelled"
ID = "io.modelcontextprotocol/subscriptionId"
WATCHES: dict[str, Any] = {"resources": {"subscribe": True}}
LISTS: dict[str, Any] = {"tools": {"listChanged": True}}


@pytest.fixture
def one() -> Following:
    return Following(Era.MODERN)


async def listening(server: Server) -> JsonObject:
    return await server.expect(LISTEN)


async def acknowledge(server: Server, request: JsonObject, *uris: str, **flags: bool) -> None:
    granted = {**({"resourceSubscriptions": uris} if uris else {}), **flags}
    params = {"_meta": {ID: request["id"]}, "notifications": granted}
    await server.send(method="notifications/subscriptions/acknowledged", params=params)


async def granting(server: Server) -> JsonObject:
    """Grants everything that is asked next."""
    request = await listening(server)
    asked = request["params"]["notifications"]
    await acknowledge(server, request, *asked.get("resourceSubscriptions", ()))
    return request


def into(seen: list[JsonObject], step: Callable[[Server], Awaitable[JsonObject]]) -> Script:
    """The step of a script, whose request is kept."""

    async def script(server: Server) -> None:
        seen.append(await step(server))

    return script


async def updated(server: Server, uri: str, id_: int) -> None:
    await server.send(method=UPDATED, params={"_meta": {ID: id_}, "uri": uri})


@pytest.mark.parametrize(
    "capabilities", [{}, {"tools": {}, "prompts": None, "resources": {"listChanged": "yes"}}, WATCHES]
)
async def test_no_stream_is_open_where_nothing_is_to_be_heard(one: Following, capabilities: dict[str, Any]) -> None:
    async with one.connected(**capabilities) as server:
        await silent(server)


async def test_a_stream_carries_what_the_server_announces_and_the_envelope_but_is_no_call(one: Following) -> None:
    capabilities = {name: {"listChanged": name != "resources"} for name in ("tools", "prompts", "resources")}
    seen: list[JsonObject] = []
    async with one.connected(into(seen, granting), **capabilities) as server:
        params = seen[0]["params"]
        assert params["notifications"] == {"toolsListChanged": True, "promptsListChanged": True}
        assert params["_meta"]["io.modelcontextprotocol/protocolVersion"] == "2026-07-28"
        assert [pending.context for pending in one.peer.wire.requests.pending.values()] == [None]
        await server.send(method="notifications/tools/list_changed", params={"_meta": {ID: seen[0]["id"]}})
        await silent(server)
        assert one.peer.messages.list_changes.take() == {Kind.TOOL}


async def test_the_next_stream_is_acknowledged_before_the_last_one_ends(one: Following) -> None:
    async with one.connected(**WATCHES) as server, anyio.create_task_group() as tasks:
        await together(granting(server), one.subscribe("x:a"))
        tasks.start_soon(one.subscribe, "x:b")
        second = await listening(server)
        assert second["params"]["notifications"] == {"resourceSubscriptions": ["x:a", "x:b"]}
        await silent(server)
        await updated(server, "x:a", 1)
        await acknowledge(server, second, "x:a", "x:b")
        await updated(server, "x:a", 2)
        assert (await server.expect(CANCELLED))["params"] == {"requestId": 1}
        await silent(server)
        assert one.noted("x:a") == ["x:a"] and one.changes.noted == 2
        one.release("x:a")
        third = await granting(server)
        assert third["params"]["notifications"] == {"resourceSubscriptions": ["x:b"]}
        await server.expect(CANCELLED)
        one.release("x:b")
        assert (await server.expect(CANCELLED))["params"] == {"requestId": 3}
        await silent(server)
        assert not one.peer.wire.requests.pending


async def test_subscriptions_that_come_together_need_one_stream(one: Following) -> None:
    async with one.connected(**WATCHES) as server:
        async with anyio.create_task_group() as tasks:
            for number in range(100):
                tasks.start_soon(one.subscribe, f"x:{number}")
            request = await granting(server)
        assert len(request["params"]["notifications"]["resourceSubscriptions"]) == 100
        await together(silent(server), one.subscribe("x:5"))


async def test_what_the_server_does_not_grant_is_refused_and_asked_for_no_more(one: Following) -> None:
    async with one.connected(**WATCHES) as server:
        await together(granting(server), one.subscribe("x:a"))

        async def script() -> None:
            await acknowledge(server, await listening(server), "x:a")
            await server.expect(CANCELLED)

        with pytest.raises(InvalidParams, match='server "git" does not watch x:b'):
            await together(script(), one.subscribe("x:b"))
        one.release("x:b")
        assert (await granting(server))["params"]["notifications"] == {"resourceSubscriptions": ["x:a"]}
        await server.expect(CANCELLED)
        await silent(server)
        assert one.noted("x:a") == [], "nothing was missed"


async def test_a_stream_that_cannot_be_opened_leaves_the_last_one_as_it_is(one: Following) -> None:
    async with one.connected(**WATCHES) as server:
        await together(granting(server), one.subscribe("x:a"))
        with pytest.raises(RpcError) as caught:
            await together(server.refuse(LISTEN, -32000), one.subscribe("x:b"))
        assert caught.value.code == -32000
        await updated(server, "x:a", 1)
        await silent(server)
        assert one.noted("x:a") == ["x:a"]


async def test_a_server_that_does_not_acknowledge_is_given_up() -> None:
    one = Following(Era.MODERN, timeout=0.05)
    async with one.connected(**WATCHES) as server:
        with pytest.raises(DeadlineExceeded, match="did not acknowledge subscriptions/listen within 0.05 s"):
            await together(listening(server), one.subscribe("x:a"))
        assert (await server.expect(CANCELLED))["params"] == {"requestId": 1}


async def test_a_server_without_the_method_is_asked_once(one: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.0)

    async with one.connected(lambda server: server.refuse(LISTEN, -32601), **LISTS) as server:
        for _ in range(3):
            await silent(server)


@pytest.mark.parametrize("how", ["result", "error", "cancelled"])
async def test_a_stream_that_ends_is_opened_again_and_what_was_missed_counts_as_changed(
    one: Following, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    ends: dict[str, JsonObject] = {
        "result": {"id": 2, "result": {"resultType": "complete", "_meta": {ID: 2}}},
        "error": {"id": 2, "error": {"code": -32603, "message": "broken"}},
        "cancelled": {"method": CANCELLED, "params": {"requestId": 2}},
    }
    async with one.connected(granting, **WATCHES, **LISTS) as server:
        await together(granting(server), one.subscribe("x:a"))
        await server.expect(CANCELLED)
        await silent(server)
        assert one.noted("x:a") == [] and not one.peer.messages.list_changes.take()
        await server.send(**ends[how])
        if how == "cancelled":
            await server.expect(CANCELLED)
        again = await granting(server)
        asked = {"toolsListChanged": True, "resourceSubscriptions": ["x:a"]}
        assert again["id"] == 3 and again["params"]["notifications"] == asked
        await silent(server)
        assert one.noted("x:a") == ["x:a"]
        assert one.peer.messages.list_changes._news.is_set() and one.peer.messages.list_changes.take() == set(Kind)


async def test_a_stream_that_ends_while_the_next_one_is_opened_leaves_a_gap(one: Following) -> None:
    async with one.connected(granting, **WATCHES, **LISTS) as server:
        await together(granting(server), one.subscribe("x:a"))
        await server.expect(CANCELLED)

        async def script() -> None:
            request = await listening(server)
            await server.send(id=2, result={})
            await silent(server)
            await acknowledge(server, request, "x:a", "x:b")

        await together(script(), one.subscribe("x:b"))
        await silent(server)
        assert (one.noted("x:a"), one.noted("x:b")) == (["x:a"], [])
        assert one.peer.messages.list_changes.take() == set(Kind)


async def test_stream_that_ends_at_once_is_opened_more_seldom(one: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PAUSE", 0.01)
    times: list[float] = []

    async def script(server: Server) -> None:
        for _ in range(5):
            request = await granting(server)
            times.append(anyio.current_time())
            await server.send(id=request["id"], result={})

    async with one.connected(**WATCHES) as server:
        await together(script(server), one.subscribe("x:a"))
    pauses = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert all(pause >= 0.01 * 2**number for number, pause in enumerate(pauses)), pauses


async def test_lists_are_read_around_a_late_acknowledgement(one: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST", 0.01)
    seen: list[JsonObject] = []
    async with one.connected(into(seen, listening), **LISTS) as server:
        assert not one.peer.messages.list_changes.take()
        await acknowledge(server, seen[0], toolsListChanged=True)
        await silent(server)
        assert one.peer.messages.list_changes._news.is_set() and one.peer.messages.list_changes.take() == set(Kind)


async def test_after_a_restart_there_is_a_stream_again_and_what_was_wanted_counts_as_updated(one: Following) -> None:
    async with one.connected(**WATCHES) as server:
        await together(granting(server), one.subscribe("x:a"))
        assert one.noted("x:a") == []
    async with one.connected(granting, **WATCHES) as server:
        await silent(server)
        assert one.noted("x:a") == ["x:a"]


@pytest.mark.parametrize(
    "params",
    [
        {"_meta": {ID: 2}, "notifications": {"resourceSubscriptions": ["x:a"]}},
        {"_meta": {ID: "one"}, "notifications": {"resourceSubscriptions": ["x:a"]}},
        {"notifications": {"resourceSubscriptions": ["x:a"]}},
        {"_meta": [], "notifications": {}},
        [],
    ],
)
async def test_an_acknowledgement_of_something_else_is_none(one: Following, params: Any) -> None:
    async with one.connected(**WATCHES) as server, anyio.create_task_group() as tasks:
        tasks.start_soon(one.subscribe, "x:a")
        request = await listening(server)
        await server.send(method="notifications/subscriptions/acknowledged", params=params)
        await silent(server)
        assert not one.subscriptions.resources.watched
        await acknowledge(server, request, "x:a")


@pytest.mark.parametrize("granted", [None, [], {"resourceSubscriptions": "x:a"}, {"resourceSubscriptions": [1]}])
async def test_an_acknowledgement_that_cannot_be_read_grants_nothing(one: Following, granted: Any) -> None:
    async with one.connected(**WATCHES) as server:

        async def script() -> None:
            request = await listening(server)
            params = {"_meta": {ID: str(request["id"])}, "notifications": granted}
            await server.send(method="notifications/subscriptions/acknowledged", params=params)

        with pytest.raises(InvalidParams):
            await together(script(), one.subscribe("x:a"))
