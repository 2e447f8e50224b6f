"""Updated resources: every front and era of a client, every era of a server; the GET stream; floods."""

import itertools
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.e2e.client import HttpClient
from tests.interaction.fronts import ERAS, FRONTS, HANDSHAKE, MODERN, Peer, connected, http_hub
from tests.interaction.hearing import ACKNOWLEDGED, UPDATED, Ear, hearing
from tests.interaction.watched import UPSTREAMS, Running, fence, running
from tests.pace import paced
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

SHARED = {"h": "test://shared/info", "m": "hub://m/test://shared/info"}
"""The one URI that both servers list, as clients know it."""
NUMBERS = itertools.count()
TOOLS, PROMPTS = "notifications/tools/list_changed", "notifications/prompts/list_changed"


@pytest.fixture(scope="module", params=FRONTS)
async def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with running(request.param, tmp_path_factory.mktemp(request.param)) as hub:
        yield hub
        await hub.until_nothing_is_watched()


over_http = pytest.mark.parametrize("hub", ["http"], indirect=True)


# -- resources


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("server", UPSTREAMS)
@pytest.mark.first(2)
async def test_an_update_reaches_its_subscriber_under_the_uri_that_it_knows(
    hub: Running, server: str, era: str
) -> None:
    async with hub.client(era) as peer:
        async with hearing(peer, [SHARED[server], f"test://{server}/readme"]) as ear:
            await until(lambda: "test://shared/info" in hub.watched(server))
            other = next(iter(UPSTREAMS.keys() - {server}))
            await peer.call(f"{other}_touch", {"uri": "test://shared/info"})
            await peer.call(f"{server}_touch", {"uri": f"test://{server}/blob"})
            await peer.call(f"{server}_touch_unsubscribed", {"uri": f"test://{server}/blob"})
            await peer.call(f"{server}_touch", {"uri": "test://shared/info"})
            params = (await ear.next(UPDATED))["params"]
            assert {key: value for key, value in params.items() if key != "_meta"} == {"uri": SHARED[server]}
            await fence(peer, ear, server)
            assert ear.updated() == [SHARED[server], f"test://{server}/readme"]
        await until(lambda: hub.watched(server) == [])


@pytest.mark.parametrize("eras", [*itertools.product(ERAS, repeat=2)], ids="-".join)
@pytest.mark.parametrize("server", UPSTREAMS)
@pytest.mark.first(2)
async def test_one_of_two_that_leaves_takes_nothing_from_the_other(
    hub: Running, server: str, eras: tuple[str, str]
) -> None:
    if isinstance(hub.wire, StdioClient) and eras[0] == eras[1] == HANDSHAKE:
        pytest.skip("one pipe is one session")
    shared, readme = SHARED[server], f"test://{server}/readme"
    async with hub.client(eras[0]) as one, hub.client(eras[1]) as two:
        async with hearing(two, [shared, readme], id="two") as staying:
            async with hearing(one, [shared, readme], id="one") as leaving:
                await one.call(f"{server}_touch", {"uri": "test://shared/info"})
                for ear in (staying, leaving):
                    await ear.next(UPDATED, uri=shared)
            count = len(leaving.heard)
            await two.call(f"{server}_touch", {"uri": "test://shared/info"})
            await fence(two, staying, server)
            assert staying.updated().count(shared) == 2
            assert len(leaving.heard) == count
            assert hub.watched(server) == sorted(["test://shared/info", readme])


@over_http
async def test_updates_of_a_resource_reach_only_those_who_want_that_one(hub: Running) -> None:
    wants: dict[int, set[str]] = {}
    uris = [f"test://{server}/item/{number}" for server in UPSTREAMS for number in range(3)]
    ears: list[Ear] = []

    async def follow(number: int, era: str, ready: anyio.Event, done: anyio.Event) -> None:
        own = [uri for place, uri in enumerate(uris) if (place + number) % 3]
        wants[number] = set(own)
        async with hub.client(era) as peer, hearing(peer, own, id=number) as ear:
            ears.append(ear)
            ready.set()
            with anyio.move_on_after(WAIT):
                while set(ear.updated()) != wants[number]:
                    await ear.next(UPDATED, after=len(ear.updated()))
            await done.wait()
            assert set(ear.updated()) == wants[number]

    done = anyio.Event()
    async with anyio.create_task_group() as tasks:
        for number, era in enumerate([*ERAS, *ERAS]):
            ready = anyio.Event()
            tasks.start_soon(follow, number, era, ready, done)
            await ready.wait()
        async with hub.client(MODERN) as peer:
            for server in UPSTREAMS:
                for number in range(3):
                    await peer.call(f"{server}_touch", {"uri": f"test://{server}/item/{number}"})
        done.set()


@pytest.mark.first(3)
@pytest.mark.parametrize("server", UPSTREAMS)
@pytest.mark.parametrize("era", ERAS)
async def test_after_the_servers_restart_a_subscriber_is_notified_once_and_stays_subscribed(
    hub: Running, server: str, era: str
) -> None:
    readme = f"test://{server}/readme"
    async with hub.client(era) as peer, hearing(peer, [readme, SHARED[server]]) as ear:
        await until(lambda: len(hub.watched(server)) == 2)
        before = hub.watched(server)
        await peer.call(f"{server}_crash")
        await ear.next(UPDATED, uri=readme)
        await ear.next(UPDATED, uri=SHARED[server])
        assert hub.watched(server) == before
        await fence(peer, ear, server)
        assert sorted(ear.updated()) == sorted([SHARED[server], readme, readme])


async def test_what_is_unknown_is_refused_as_reading_it_is(hub: Running) -> None:
    async with hub.client(HANDSHAKE) as peer:
        for uri in ("nobody://x", "", "test://h/../x"):
            refused = (await peer.request("resources/subscribe", {"uri": uri})).error
            assert refused == (await peer.request("resources/read", {"uri": uri})).error
            assert (await peer.request("resources/unsubscribe", {"uri": uri})).result == {}
        for params in ({}, {"uri": 7}, {"uri": None}):
            for method in ("resources/subscribe", "resources/unsubscribe"):
                assert (await peer.request(method, params)).error["code"] == -32602


async def test_subscribing_twice_is_subscribing_once(hub: Running) -> None:
    async with hub.client(HANDSHAKE) as peer:
        for _ in range(2):
            assert (await peer.request("resources/subscribe", {"uri": "test://h/readme"})).result == {}
        for _ in range(2):
            assert (await peer.request("resources/unsubscribe", {"uri": "test://h/readme"})).result == {}
        await until(lambda: hub.watched("h") == [])


@over_http
async def test_a_client_that_goes_takes_its_subscriptions_along(hub: Running) -> None:
    async with hub.client(HANDSHAKE) as peer:
        assert isinstance(peer.wire, HttpClient)
        for server in UPSTREAMS:
            await peer.request("resources/subscribe", {"uri": f"test://{server}/readme"})
        await peer.wire.delete()
        for server in UPSTREAMS:
            await until(partial(hub.is_unwatched, server))
    async with hub.client(MODERN) as peer:
        assert isinstance(peer.wire, HttpClient)
        params = peer.params({"notifications": {"resourceSubscriptions": ["test://h/readme", "test://m/readme"]}})
        async with peer.wire.stream(peer.wire.message("subscriptions/listen", params)) as stream:
            await stream.next_event()
            await until(lambda: hub.watched("h") == ["test://h/readme"] and hub.watched("m") == ["test://m/readme"])
        for server in UPSTREAMS:
            await until(partial(hub.is_unwatched, server))


async def test_a_session_that_makes_room_for_another_takes_its_subscriptions_along(tmp_path: Path) -> None:
    servers = {"h": argv(name="h", journal=tmp_path / "h.journal", era=HANDSHAKE)}
    text = servers_yaml(servers, hub={"http": {"max_sessions": 1}})
    async with http_hub(text, tmp_path) as wire, connected(wire, HANDSHAKE) as old:
        await old.request("resources/subscribe", {"uri": "test://h/readme"})
        hub = Running(wire, tmp_path)
        assert hub.watched("h") == ["test://h/readme"]
        assert isinstance(old.wire, HttpClient)
        async with old.wire.listen() as stream:
            async with connected(wire, HANDSHAKE):
                await until(lambda: hub.watched("h") == [])
            assert UPDATED not in [message["method"] for message in (await stream.rest()).messages]


# -- the GET stream


@over_http
async def test_a_get_stream_tells_what_happened_since_the_last_one_once(hub: Running) -> None:
    name = f"fresh_{next(NUMBERS)}"
    async with hub.client(HANDSHAKE) as peer:
        assert isinstance(peer.wire, HttpClient)
        for server in UPSTREAMS:
            await peer.request("resources/subscribe", {"uri": f"test://{server}/readme"})
        async with peer.wire.listen() as stream:
            await fence(peer, Ear(stream), "h")
            assert Ear(stream).updated() == ["test://h/readme"]
        for _ in range(3):
            for server in UPSTREAMS:
                seen = await peer.call(f"{server}_touch", {"uri": f"test://{server}/readme"})
                assert seen.before == []
        await peer.call("h_add_prompt", {"name": name})
        await peer.call("h_add_tool", {"name": name})
        async with hub.client(MODERN) as other:
            await until_named(other, f"h_{name}")
        async with peer.wire.listen() as stream:
            ear = Ear(stream)
            for server in UPSTREAMS:
                await ear.next(UPDATED, uri=f"test://{server}/readme")
            await fence(peer, ear, "m")
            methods = [message["method"] for message in ear.heard]
            assert sorted(methods) == sorted([TOOLS, PROMPTS, UPDATED, UPDATED, UPDATED])
        async with peer.wire.listen() as stream:
            await fence(peer, Ear(stream), "h")
            assert len(Ear(stream).heard) == 1
        await peer.wire.delete()


@over_http
async def test_a_list_that_the_session_has_seen_since_is_not_announced(hub: Running) -> None:
    name = f"fresh_{next(NUMBERS)}"
    async with hub.client(HANDSHAKE) as peer:
        assert isinstance(peer.wire, HttpClient)
        await peer.request("resources/subscribe", {"uri": "test://h/readme"})
        await peer.call("h_add_tool", {"name": name})
        await until_named(peer, f"h_{name}")
        async with peer.wire.listen() as stream:
            await fence(peer, Ear(stream), "h")
            assert TOOLS not in [message["method"] for message in Ear(stream).heard]
        await peer.wire.delete()


async def until_named(peer: Peer, tool: str) -> None:
    with anyio.fail_after(WAIT):
        while tool not in await peer.names():
            await anyio.lowlevel.checkpoint()


# -- floods


@pytest.mark.first(2)
@pytest.mark.parametrize(("server", "era"), UPSTREAMS.items())
async def test_a_flood_of_updates_is_sent_now_and_then_and_starves_nobody(hub: Running, server: str, era: str) -> None:
    other = next(iter(UPSTREAMS.keys() - {server}))
    count, calls = 20_000, list[tuple[float, float]]()
    async with hub.client(era) as peer, hub.client(MODERN) as busy:
        async with hearing(peer, [SHARED[server], f"test://{server}/readme"]) as ear:
            is_over = anyio.Event()

            async def flood() -> None:
                await peer.call(f"{server}_flood_updates", {"count": count, "uri": "test://shared/info"})
                is_over.set()

            async with paced(hub.wire.pid) as pace, anyio.create_task_group() as tasks:
                tasks.start_soon(flood)
                calls.append((anyio.current_time(), pace.lost))
                while not is_over.is_set():
                    await busy.call(f"{other}_echo", {"text": "x"})
                    calls.append((anyio.current_time(), pace.lost))
            await fence(peer, ear, server)
            told = ear.updated().count(SHARED[server])
    assert 1 <= told <= (calls[-1][0] - calls[0][0]) / 0.05 + 3
    own = [after[0] - before[0] - (after[1] - before[1]) for before, after in itertools.pairwise(calls)]
    assert max(own) < 1, "seconds of the hub; those of a busy machine do not count"


@pytest.mark.first(2)
@pytest.mark.parametrize("server", UPSTREAMS)
async def test_a_flood_of_changes_that_change_nothing_is_not_passed_on(hub: Running, server: str) -> None:
    async with hub.client(MODERN) as peer:
        async with hearing(peer, [f"test://{server}/readme"], "tools", "prompts", "resources") as ear:
            await peer.call(f"{server}_flood_changes", {"count": 20_000})
            await fence(peer, ear, server)
            assert [message["method"] for message in ear.heard] == [ACKNOWLEDGED, UPDATED]
