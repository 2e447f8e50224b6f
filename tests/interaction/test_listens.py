"""`subscriptions/listen` of a modern client, on every front."""

import itertools
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import FRONTS, MODERN
from tests.interaction.hearing import ACKNOWLEDGED, ID, Ear, hearing, listening
from tests.interaction.watched import UPSTREAMS, Running, fence, running
from tests.upstreams.child import until
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

NUMBERS = itertools.count()
TOOLS, PROMPTS = "notifications/tools/list_changed", "notifications/prompts/list_changed"


@pytest.fixture(scope="module", params=FRONTS)
async def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with running(request.param, tmp_path_factory.mktemp(request.param)) as hub:
        yield hub
        await hub.until_nothing_is_watched()


over_http = pytest.mark.parametrize("hub", ["http"], indirect=True)


@pytest.mark.parametrize("id", [0, 70007, -1, 1 << 70, "70007", "ä", "", "x" * 300])
@pytest.mark.first(8)
async def test_the_acknowledgement_comes_first_and_everything_has_the_id_as_it_was_written(
    hub: Running, id: int | str
) -> None:
    async with hub.client(MODERN) as peer, hearing(peer, ["test://h/readme", "x:nobody"], "tools", id=id) as ear:
        await fence(peer, ear, "h")
        first, second = ear.heard
        granted = {"toolsListChanged": True, "resourceSubscriptions": ["test://h/readme"]}
        assert first == {
            "jsonrpc": "2.0",
            "method": ACKNOWLEDGED,
            "params": {"_meta": {ID: id}, "notifications": granted},
        }
        assert second["params"] == {"_meta": {ID: id}, "uri": "test://h/readme"}


async def test_only_requested_notifications_are_sent(hub: Running) -> None:
    name = f"fresh_{next(NUMBERS)}"
    async with hub.client(MODERN) as peer:
        async with hearing(peer, [], "prompts", id="p") as prompts, hearing(peer, [], "tools", id="t") as tools:
            for count, server in enumerate(UPSTREAMS):
                await peer.call(f"{server}_add_tool", {"name": name})
                await tools.next(TOOLS, after=count)
                await peer.call(f"{server}_add_prompt", {"name": name})
                await prompts.next(PROMPTS, after=count)
            assert {message["method"] for message in prompts.heard} == {ACKNOWLEDGED, PROMPTS}
            assert {message["method"] for message in tools.heard} == {ACKNOWLEDGED, TOOLS}
            assert all(message["params"] == {"_meta": {ID: "t"}} for message in tools.heard[1:])


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"notifications": None},
        {"notifications": []},
        {"notifications": {"toolsListChanged": 1}},
        {"notifications": {"promptsListChanged": None}},
        {"notifications": {"resourceSubscriptions": "test://h/readme"}},
        {"notifications": {"resourceSubscriptions": [1]}},
    ],
)
async def test_a_listen_that_is_malformed_is_refused(hub: Running, params: dict[str, Any]) -> None:
    async with hub.client(MODERN) as peer:
        seen = await peer.request("subscriptions/listen", params)
        assert seen.error["code"] == -32602 and seen.status in (None, 400)


async def test_nothing_is_a_listen_too_and_tasks_are_for_who_declares_them(hub: Running) -> None:
    async with hub.client(MODERN) as peer:
        params = peer.params({"notifications": {"toolsListChanged": False}})
        async with listening(peer.wire, params, 1) as ear:
            assert (await ear.next(ACKNOWLEDGED))["params"]["notifications"] == {}
        seen = await peer.request("subscriptions/listen", {"notifications": {"taskIds": ["st_1"]}})
        assert seen.error["code"] == -32021 and seen.status in (None, 400)


async def test_one_listen_too_many_is_refused_with_the_limit_and_the_others_go_on(hub: Running) -> None:
    async with hub.client(MODERN) as peer, anyio.create_task_group() as tasks:
        ears: list[Ear] = []

        async def hold(number: int) -> None:
            async with hearing(peer, [], "tools", id=number) as ear:
                ears.append(ear)
                await anyio.sleep_forever()

        for number in range(64):
            tasks.start_soon(hold, 1000 + number)
        await until(lambda: len(ears) == 64)
        error = (await peer.request("subscriptions/listen", {"notifications": {}})).error
        assert "64" in error["message"]
        too_many = {"resourceSubscriptions": [f"test://h/item/{number}" for number in range(1001)]}
        assert "1000" in (await peer.request("subscriptions/listen", {"notifications": too_many})).error["message"]
        tasks.cancel_scope.cancel()
    async with hub.client(MODERN) as peer, hearing(peer, [], "tools", id="again"):
        pass


@pytest.mark.parametrize("front", FRONTS)
async def test_when_the_hub_stops_every_listen_is_answered(front: str, tmp_path: Path) -> None:
    async with running(front, tmp_path) as hub, hub.client(MODERN) as peer:
        params = peer.params({"notifications": {"resourceSubscriptions": ["test://h/readme", "test://m/readme"]}})
        result = {"resultType": "complete", "_meta": {ID: "l"}}
        if isinstance(peer.wire, StdioClient):
            await peer.wire.send_request("subscriptions/listen", params, id="l")
            await Ear(peer.wire, "l").next(ACKNOWLEDGED)
            peer.wire.send_signal(signal.SIGTERM)
            assert (await peer.wire.response("l"))["result"] == result
            assert await peer.wire.wait() == 0
            return
        assert isinstance(peer.wire, HttpClient) and isinstance(hub.wire, Hub)
        async with peer.wire.stream(peer.wire.message("subscriptions/listen", params, id="l")) as stream:
            await stream.next_event()
            hub.wire.send_signal(signal.SIGTERM)
            assert (await stream.rest()).messages[-1] == {"jsonrpc": "2.0", "id": "l", "result": result}
        assert await hub.wire.wait() == 0


@over_http
async def test_a_client_that_takes_no_stream_cannot_listen(hub: Running) -> None:
    async with hub.client(MODERN) as peer:
        assert isinstance(peer.wire, HttpClient)
        params = peer.params({"notifications": {"toolsListChanged": True}})
        answer = await peer.wire.request("subscriptions/listen", params, headers={"accept": "application/json"})
        assert answer.status == 406 and "text/event-stream" in answer.last["error"]["message"]
