"""MCP Events through the hub: every way of a client with every way of a server, in both eras and on both fronts."""

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.e2e.client import Hub
from tests.interaction.fronts import ERAS, FRONTS, HANDSHAKE, MODERN, connected, http_hub, stdio_hub
from tests.interaction.occurring import Poller, Service, config, streaming
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

EVENTS = "io.modelcontextprotocol/events"
SERVERS = {
    "polled": (HANDSHAKE, "poll", ()),
    "pushed": (MODERN, "push", ()),
    "either": (MODERN, "poll,push", ("draft",)),
    "fleeting": (HANDSHAKE, "push", ("no-cursor", "repeats")),
}
NUMBERS = itertools.count(1)


class Builds:
    """A hub of one front over the four servers."""

    def __init__(self, wire: StdioClient | Hub, services: dict[str, Service]) -> None:
        self.wire = wire
        self.services = services


@pytest.fixture(scope="module", params=FRONTS)
async def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Builds]:
    root = tmp_path_factory.mktemp(request.param)
    services = {name: Service(root, name) for name in SERVERS}
    argv = {name: services[name].argv(era, modes, *options) for name, (era, modes, options) in SERVERS.items()}
    async with (stdio_hub if request.param == "stdio" else http_hub)(config(argv), root) as wire:
        if isinstance(wire, StdioClient):
            async with connected(wire, MODERN) as first:
                await first.names()  # their lists have to be there when the capabilities are declared
            await wire.initialize()
        yield Builds(wire, services)


@pytest.mark.parametrize("era", ERAS)
async def test_types_of_all_servers_are_listed_in_the_ways_of_the_hub(hub: Builds, era: str) -> None:
    async with connected(hub.wire, era) as peer:
        page = (await peer.request("events/list")).result
        types = {event["name"]: event for event in page["events"]}
        assert list(types) == [f"{server}_build_{what}" for server in SERVERS for what in ("done", "other")]
        assert {tuple(event["delivery"]) for event in types.values()} == {("push", "poll", "webhook")}
        assert types["polled_build_done"]["payloadSchema"]["properties"] == {"status": {"type": "string"}}


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("server", SERVERS)
async def test_polls_and_streams_bring_what_happens_from_now_on_once_and_in_order(
    hub: Builds, server: str, era: str
) -> None:
    service, first = hub.services[server], next(NUMBERS) * 1000
    async with connected(hub.wire, era) as peer:
        poller = Poller(peer, f"{server}_build_done")
        result = await poller.poll()
        assert (result["events"], result["truncated"]) == ([], False)
        async with streaming(peer, f"{server}_build_done") as stream:
            assert stream.of("active")[0]["truncated"] is False
            service.happens(first + 1, first + 2)
            await stream.until(lambda: len(stream.numbers) == 2)
            service.happens(first + 3)
            await stream.until(lambda: len(stream.numbers) == 3)
            assert stream.numbers == [first + 1, first + 2, first + 3]
            names = {params["name"] for params in stream.of("event")}
            assert names == {f"{server}_build_done"}
        await poller.until(lambda: len(poller.numbers) == 3)
        assert poller.numbers == [first + 1, first + 2, first + 3]
        assert poller.gaps == 0


@pytest.mark.parametrize("server", SERVERS)
async def test_what_happened_before_the_first_subscription_is_not_delivered(hub: Builds, server: str) -> None:
    service, first = hub.services[server], next(NUMBERS) * 1000
    service.happens(first)
    async with connected(hub.wire, MODERN) as peer:
        poller = Poller(peer, f"{server}_build_other", branch=f"b{first}")
        await poller.poll()
        service.happens(first + 1)
        await poller.until(lambda: bool(poller.numbers))
        assert poller.numbers == [first + 1]


@pytest.mark.parametrize("server", SERVERS)
async def test_a_cursor_of_a_stream_is_good_for_another_stream_and_for_polls(hub: Builds, server: str) -> None:
    service, first = hub.services[server], next(NUMBERS) * 1000
    async with connected(hub.wire, MODERN) as peer:
        async with streaming(peer, f"{server}_build_done", id="a") as stream:
            service.happens(first, first + 1)
            await stream.until(lambda: len(stream.numbers) == 2)
            cursor = stream.of("event")[0]["cursor"]
        async with streaming(peer, f"{server}_build_done", cursor, id="b") as again:
            await again.until(lambda: len(again.numbers) == 1)
            assert again.numbers == [first + 1]
            assert again.of("active")[0]["cursor"] == cursor, "who leaves behind it has missed nothing"
        poller = Poller(peer, f"{server}_build_done", cursor)
        await poller.poll(maxEvents=1)
        assert poller.numbers == [first + 1]


async def test_one_subscription_at_the_server_serves_all_with_equal_arguments(hub: Builds) -> None:
    service = hub.services["pushed"]
    async with connected(hub.wire, MODERN) as peer:
        async with (
            streaming(peer, "pushed_build_other", id="a", branch="x", depth=1) as one,
            streaming(peer, "pushed_build_other", id="b", depth=1, branch="x") as other,
        ):
            number = next(NUMBERS) * 1000
            service.happens(number)
            await one.until(lambda: one.numbers == [number])
            await other.until(lambda: other.numbers == [number])
        asked = [request for request in service.asked if "depth" in request["arguments"]]
        assert [request["arguments"] for request in asked] == [{"branch": "x", "depth": 1}]


@pytest.mark.parametrize(
    ("params", "code", "data"),
    [
        ({"name": "nothing_like_it"}, -32023, {"kind": "event"}),
        ({"name": "polled_build_other"}, -32602, None),
        ({"name": "pushed_build_other", "arguments": []}, -32602, None),
        ({"name": "pushed_build_done", "cursor": 7}, -32602, None),
        ({}, -32602, None),
    ],
)
@pytest.mark.parametrize("method", ["events/poll", "events/stream"])
async def test_a_bad_subscription_is_refused_before_a_stream_opens(
    hub: Builds, method: str, params: dict[str, object], code: int, data: object
) -> None:
    async with connected(hub.wire, MODERN) as peer:
        error = (await peer.request(method, params)).error
        assert error["code"] == code
        if data is not None:
            assert error["data"] == data


@pytest.mark.parametrize("cursor", ["", "x", "st_00000000000000000000000000.5", "../..", "st_"])
async def test_a_cursor_that_nobody_gave_is_truncated_and_gives_a_fresh_one(hub: Builds, cursor: str) -> None:
    async with connected(hub.wire, MODERN) as peer:
        poller = Poller(peer, "polled_build_done", cursor)
        result = await poller.poll()
        assert (result["truncated"], result["events"]) == (True, [])
        assert (await poller.poll())["truncated"] is False


@pytest.mark.parametrize("era", ERAS)
async def test_the_hub_declares_events_as_the_extension_and_as_its_drafts_do(era: str, tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    async with http_hub(config({"b": service.argv(MODERN, "poll")}), tmp_path) as hub:
        async with connected(hub, MODERN) as peer:
            await peer.names()
            discovered = (await peer.request("server/discover")).result["capabilities"]
        async with connected(hub, HANDSHAKE) as peer:
            wire = peer.wire
            shaken = (await wire.initialize()).last["result"]["capabilities"]  # type: ignore[union-attr]
        capabilities = discovered if era == MODERN else shaken
        assert capabilities["events"] == {"listChanged": True}
        assert capabilities["extensions"][EVENTS] == {"listChanged": True}


async def test_a_hub_without_events_declares_none_and_knows_no_method(tmp_path: Path) -> None:
    async with http_hub(config({}), tmp_path) as hub, connected(hub, MODERN) as peer:
        capabilities = (await peer.request("server/discover")).result["capabilities"]
        assert "events" not in capabilities
        assert EVENTS not in capabilities["extensions"]
        for method in ("events/list", "events/poll", "events/stream"):
            assert (await peer.request(method, {"name": "x"})).error["code"] == -32601
