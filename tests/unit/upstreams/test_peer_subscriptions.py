"""What clients want of a handshake server's resources, and what the server is asked for that."""

from typing import Any

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.errors import DeadlineExceeded, RpcError, UpstreamLost
from mcp_hub.types import Era
from mcp_hub.upstreams.peer import subscriptions as module
from tests.unit.upstreams.following import UPDATED, Following, silent
from tests.unit.upstreams.function_calls import request
from tests.unit.upstreams.scripted import together

pytestmark = pytest.mark.anyio

SUBSCRIBE, UNSUBSCRIBE = "resources/subscribe", "resources/unsubscribe"
CAN: dict[str, Any] = {"resources": {"subscribe": True}}


@pytest.fixture
def one() -> Following:
    return Following(Era.HANDSHAKE)


async def test_the_first_subscriber_subscribes_and_the_last_one_gone_unsubscribes(one: Following) -> None:
    async with one.connected(**CAN) as server:
        await together(server.answer(SUBSCRIBE, {}), one.subscribe("x:a"))
        await together(silent(server), one.subscribe("x:a"))
        one.release("x:a")
        await silent(server)
        one.release("x:a")
        assert (await server.answer(UNSUBSCRIBE, {}))["params"] == {"uri": "x:a"}
        await together(server.answer(SUBSCRIBE, {}), one.subscribe("x:a"))


async def test_subscribers_of_one_resource_at_once_share_one_request_and_its_outcome(one: Following) -> None:
    errors: list[int] = []

    async def refused() -> None:
        with pytest.raises(RpcError) as caught:
            await one.subscribe("x:a")
        one.release("x:a")
        errors.append(caught.value.code)

    async with one.connected(**CAN) as server:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refused)
            tasks.start_soon(refused)
            assert (await server.refuse(SUBSCRIBE, -32099))["params"] == {"uri": "x:a"}
        assert errors == [-32099, -32099]
        await silent(server)  # what was refused is not given back
        await together(server.answer(SUBSCRIBE, {}), one.subscribe("x:a"))


@pytest.mark.parametrize("capabilities", [{}, {"subscribe": False}, {"subscribe": 1}, None, []])
async def test_a_server_without_subscriptions_is_named_and_asked_nothing(one: Following, capabilities: object) -> None:
    async with one.connected(resources=capabilities) as server:
        with pytest.raises(RpcError, check=lambda error: error.code == -32601, match='server "git"') as caught:
            await one.subscribe("x:a")
        assert caught.value.code == -32601
        one.release("x:a")
        await silent(server)


async def test_a_subscription_that_is_withdrawn_before_the_answer_is_undone_after_it(one: Following) -> None:
    async with one.connected(**CAN) as server, anyio.create_task_group() as tasks:
        tasks.start_soon(one.subscribe, "x:a")
        request = await server.expect(SUBSCRIBE)
        one.release("x:a")
        await silent(server)
        await server.send(id=request["id"], result={})
        undo = await server.expect(UNSUBSCRIBE)
        tasks.start_soon(one.subscribe, "x:a")  # and once more while that is under way
        await silent(server)
        await server.send(id=undo["id"], result={})
        await server.answer(SUBSCRIBE, {})
        one.release("x:a")
        await server.answer(UNSUBSCRIBE, {})


async def test_a_subscription_whose_first_caller_is_gone_is_made_for_the_others(one: Following) -> None:
    async with one.connected(**CAN) as server, anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def leave() -> None:
            with scope:
                await one.subscribe("x:a")
            one.release("x:a")

        tasks.start_soon(leave)
        tasks.start_soon(one.subscribe, "x:a")
        request = await server.expect(SUBSCRIBE)
        scope.cancel()
        await silent(server)
        await server.send(id=request["id"], result={})
    assert one.wanted == {"x:a"}


async def test_a_server_that_does_not_answer_is_given_up_and_asked_to_undo_it() -> None:
    one = Following(Era.HANDSHAKE, timeout=0.05)
    async with one.connected(**CAN) as server:
        with pytest.raises(DeadlineExceeded, match='server "git" did not answer resources/subscribe within 0.05 s'):
            await together(server.expect(SUBSCRIBE), one.subscribe("x:a"))
        await server.expect("notifications/cancelled")
        one.release("x:a")
        await server.answer(UNSUBSCRIBE, {})


async def test_a_few_requests_are_under_way_at_a_time(one: Following) -> None:
    count = module._AT_ONCE + 3
    async with one.connected(**CAN) as server, anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(one.subscribe, f"x:{number}")
        first = [await server.expect(SUBSCRIBE) for _ in range(module._AT_ONCE)]
        await silent(server)
        for request in first:
            await server.send(id=request["id"], result={})
        for _ in range(3):
            await server.answer(SUBSCRIBE, {})


async def test_after_a_restart_everything_is_asked_for_again_and_counts_as_updated_once(one: Following) -> None:
    async with one.connected(**CAN) as server:
        await together(server.answer(SUBSCRIBE, {}), one.subscribe("x:a"))
        await together(server.answer(SUBSCRIBE, {}), one.subscribe("x:gone"))
    one.release("x:gone")
    one.subscriptions.resources.want("x:new", request("x"))
    with pytest.raises(UpstreamLost, match='server "git"'):
        await one.subscriptions.confirmed("x:new")
    assert one.noted("x:a") == []
    async with one.connected(**CAN) as server:
        asked = [await server.answer(SUBSCRIBE, {}) for _ in range(2)]
        assert {request["params"]["uri"] for request in asked} == {"x:a", "x:new"}
        await silent(server)
        assert (one.noted("x:a"), one.noted("x:new")) == (["x:a"], [])
        place = one.changes.noted
        one.release("x:a")
        await server.answer(UNSUBSCRIBE, {})
        await together(server.answer(SUBSCRIBE, {}), one.subscribe("x:a"))
        assert one.noted("x:a", place) == []


async def test_subscription_refused_at_a_restart_is_retried(one: Following, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY", 0.01)
    async with one.connected(**CAN) as server:
        await together(server.answer(SUBSCRIBE, {}), one.subscribe("x:a"))
    async with one.connected(**CAN) as server:
        await server.refuse(SUBSCRIBE, -32002)
        await server.answer(SUBSCRIBE, {})
        await silent(server)
        assert one.noted("x:a") == ["x:a"]


@pytest.mark.parametrize(("era", "method"), [(Era.HANDSHAKE, SUBSCRIBE), (Era.MODERN, "subscriptions/listen")])
async def test_a_connection_that_ends_fails_those_who_wait(era: Era, method: str) -> None:
    one = Following(era)
    async with anyio.create_task_group() as tasks:

        async def lost() -> None:
            with pytest.raises(UpstreamLost):
                await one.subscribe("x:a")

        async with one.connected(**CAN) as server:
            tasks.start_soon(lost)
            await server.expect(method)


async def test_an_update_of_what_is_wanted_is_noted_as_it_was_sent(one: Following) -> None:
    async with one.connected(**CAN) as server:
        await together(server.answer(SUBSCRIBE, {}), one.subscribe("x:a"))
        others = ('{"uri":"x:b"}', '{"uri":7}', "{}", "[]", "null", '{"uri":"x:\\u0041"}')
        for params in ('{"uri":"x:a", "n":1.10}', *others):
            await server.write(f'{{"jsonrpc":"2.0","method":"{UPDATED}","params":{params}}}\n'.encode())
        await silent(server)
        assert one.changes.notices(("git", "x:a"), 0) == [("x:a", b'{"uri":"x:a","n":1.10}')]
        assert one.changes.noted == 1


async def test_an_update_of_a_part_is_noted_for_every_whole_that_is_wanted(one: Following) -> None:
    wanted = ["file:///d", "file:///d/", "file:///d/e", "file:///d/e/f.txt", "file:///d/e/f.txt#l", "file:///d/e/f"]
    async with one.connected(**CAN) as server:
        for uri in wanted:
            await together(server.answer(SUBSCRIBE, {}), one.subscribe(uri))
        await server.send(method=UPDATED, params={"uri": "file:///d/e/f.txt#l"})
        await silent(server)
        assert [bool(one.noted(uri)) for uri in wanted] == [True] * 5 + [False]
        assert one.noted("file:///d") == ["file:///d/e/f.txt#l"]
