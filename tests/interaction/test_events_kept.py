"""What the hub keeps of events: over `kill -9` of itself and of servers, at other hubs, for each principal alone."""

import itertools
import os
import signal
from pathlib import Path

import anyio
import pytest

from tests.e2e.client import Hub
from tests.interaction.fronts import HANDSHAKE, MODERN, children, connected, stdio_hub
from tests.interaction.hub_process import hub_process
from tests.interaction.occurring import Poller, Service, config, streaming
from tests.interaction.replicas import replicas
from tests.redis_server import NO_SERVER, binary
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

WAYS = ("poll", "push")
NAME = "b_build_done"


async def killed(hub: Hub) -> None:
    hub.send_signal(signal.SIGKILL)
    with anyio.fail_after(WAIT):
        await hub.wait()


@pytest.mark.parametrize("modes", WAYS)
@pytest.mark.processes
async def test_no_event_is_lost_or_comes_twice_when_hub_and_server_are_killed(modes: str, tmp_path: Path) -> None:
    service, numbers = Service(tmp_path, "b"), itertools.count(1)
    text = config({"b": service.argv(MODERN, modes)})
    cursor, heard = None, []
    for _ in range(3):
        async with hub_process(text, tmp_path) as hub, connected(hub, MODERN) as peer:
            poller = Poller(peer, NAME, cursor)
            await poller.poll()
            service.happens(next(numbers), next(numbers))
            await poller.until(lambda poller=poller: bool(poller.numbers))  # type: ignore[misc]
            for child in children(hub.pid):
                os.kill(child, signal.SIGKILL)
            service.happens(next(numbers))
            last = next(numbers)
            service.happens(last)
            await poller.until(lambda poller=poller, last=last: last in poller.numbers)  # type: ignore[misc]
            cursor = poller.cursor
            heard += poller.numbers
            assert poller.gaps == 0
            service.happens(next(numbers))  # for the next hub
            await killed(hub)
        service.happens(next(numbers))
    async with hub_process(text, tmp_path) as hub, connected(hub, MODERN) as peer:
        poller, last = Poller(peer, NAME, cursor), next(numbers) - 1
        await poller.until(lambda: last in poller.numbers)
        heard += poller.numbers
        assert poller.gaps == 0
    assert heard == list(range(1, last + 1))


@pytest.mark.processes
async def test_a_server_without_replay_is_marked_by_a_gap_and_what_the_hub_has_is_read_again(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv(HANDSHAKE, "push", "no-cursor")})
    async with hub_process(text, tmp_path) as hub, connected(hub, MODERN) as peer:
        async with streaming(peer, NAME) as stream:
            start = stream.of("active")[0]["cursor"]
            service.happens(1, 2)
            await stream.until(lambda: len(stream.numbers) == 2)
        await killed(hub)
    service.happens(3)
    async with hub_process(text, tmp_path) as hub, connected(hub, MODERN) as peer:
        async with streaming(peer, NAME, start) as stream:
            await stream.until(lambda: stream.of("active")[-1]["truncated"])
            service.happens(4)
            await stream.until(lambda: 4 in stream.numbers)
            assert stream.numbers == [1, 2, 4]
            gap = [message["method"].rpartition("/")[2] for message in stream.messages]
            assert gap == ["active", "event", "event", "active", "event"]


@pytest.mark.processes
async def test_a_server_that_has_lost_some_says_so_through_the_hub(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv(MODERN, "poll", "window=2")})
    async with hub_process(text, tmp_path) as hub, connected(hub, MODERN) as peer:
        poller = Poller(peer, NAME)
        await poller.poll()
        cursor = poller.cursor
        await killed(hub)
    service.happens(1, 2, 3, 4)
    async with hub_process(text, tmp_path) as hub, connected(hub, MODERN) as peer:
        poller = Poller(peer, NAME, cursor)
        await poller.until(lambda: bool(poller.numbers))
        assert (poller.numbers, poller.gaps) == ([3, 4], 1)


@pytest.mark.processes
async def test_an_ended_type_ends_its_streams_with_the_reason_of_the_server(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv(MODERN, "push", "draft")})
    async with hub_process(text, tmp_path) as hub, connected(hub, MODERN) as peer, streaming(peer, NAME) as stream:
        service.happens(1)
        await stream.until(lambda: stream.numbers == [1])
        service.file.with_suffix(".terminate").touch()
        await stream.until(lambda: bool(stream.of("terminated")))
        assert stream.numbers == [1]
        assert stream.of("terminated")[0]["error"]["code"] == -32023
        await stream.until(lambda: "result" in stream.messages[-1])


@pytest.mark.processes
async def test_two_hubs_on_one_store_share_a_subscription_and_each_others_cursors(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv(MODERN, "push")})
    async with hub_process(text, tmp_path) as one, hub_process(text, tmp_path) as other:
        async with connected(one, MODERN) as first, connected(other, MODERN) as second:
            async with streaming(first, NAME) as stream, streaming(second, NAME) as follower:
                service.happens(1)
                await stream.until(lambda: stream.numbers == [1])
                await follower.until(lambda: follower.numbers == [1])
                assert len([request for request in service.asked if request["method"] == "events/stream"]) == 1
                await killed(one)
                service.happens(2)
                await follower.until(lambda: follower.numbers == [1, 2])
                cursor = follower.of("event")[0]["cursor"]
            poller = Poller(second, NAME, cursor)
            await poller.poll()
            assert (poller.numbers, poller.gaps) == ([2], 0)


@pytest.mark.processes
@pytest.mark.skipif(binary() is None, reason=NO_SERVER)
async def test_replicas_share_a_subscription_and_go_on_after_its_owner(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv(MODERN, "poll")})
    async with replicas(text, tmp_path) as running:
        one, other = running.hubs
        async with connected(one, MODERN) as first, connected(other, MODERN) as second:
            poller, follower = Poller(first, NAME), Poller(second, NAME)
            await poller.poll()
            await follower.poll()
            service.happens(1, 2)
            await poller.until(lambda: poller.numbers == [1, 2])
            await follower.until(lambda: follower.numbers == [1, 2])
            await killed(one)
            service.happens(3)
            await follower.until(lambda: follower.numbers == [1, 2, 3])
            mixed = Poller(second, NAME, poller.cursor)
            await mixed.poll()
            assert mixed.numbers == [3]
            assert follower.gaps + mixed.gaps == 0


@pytest.mark.processes
async def test_a_profile_hides_types_and_their_cursors(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    servers = {"b": service.argv(MODERN, "poll")}
    tokens = [{"token": "all", "principal": "a"}, {"token": "few", "principal": "f", "profile": "few"}]
    text = config(servers, tokens=tokens)[:-2] + ',\n  "profiles": {"few": {"events": {"allow": ["b_build_other"]}}}\n}'
    async with hub_process(text, tmp_path) as hub:
        async with connected(hub, MODERN, "all") as every, connected(hub, MODERN, "few") as few:
            assert await every.names("events/list", "events") == [NAME, "b_build_other"]
            assert await few.names("events/list", "events") == ["b_build_other"]
            poller = Poller(every, NAME)
            await poller.poll()
            service.happens(1)
            await poller.until(lambda: bool(poller.numbers))
            for method in ("events/poll", "events/stream"):
                refused = await few.request(method, {"name": NAME, "cursor": poller.cursor})
                assert refused.error["code"] == -32023
            foreign = Poller(few, "b_build_other", poller.cursor, branch="x")
            result = await foreign.poll()
            assert (result["events"], result["truncated"]) == ([], True)


@pytest.mark.parametrize("modes", WAYS)
@pytest.mark.processes
async def test_stream_outlives_that_its_server_starts_again_in_the_era_without_events(
    modes: str, tmp_path: Path
) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv("both", modes)})
    async with hub_process(text, tmp_path) as hub, connected(hub, MODERN) as first:
        await first.request("tools/call", {"name": "b_noop", "arguments": {}})
        async with streaming(first, NAME) as stream, connected(hub, HANDSHAKE) as last:
            service.happens(1)
            await stream.until(lambda: stream.numbers == [1])
            await last.request("tools/call", {"name": "b_noop", "arguments": {}})  # which decides on the next start
            for child in children(hub.pid):
                os.kill(child, signal.SIGKILL)
            service.happens(2)
            await stream.until(lambda: stream.numbers == [1, 2])
            assert not stream.of("terminated")
            names = [event["name"] for event in (await last.request("events/list")).result["events"]]
            assert NAME in names


async def test_events_of_a_server_that_a_handshake_client_starts_come_from_a_modern_connection(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    async with stdio_hub(config({"b": service.argv("both", "push")}), tmp_path) as wire:
        await wire.initialize()
        async with connected(wire, HANDSHAKE) as peer:
            await peer.request("tools/call", {"name": "b_noop", "arguments": {}})
            poller = Poller(peer, NAME)
            with anyio.fail_after(WAIT):
                while NAME not in str((await peer.request("events/list")).answer):  # noqa: ASYNC110 - of a process
                    await anyio.sleep(0.05)
            await poller.poll()
            service.happens(1)
            await poller.until(lambda: poller.numbers == [1])
