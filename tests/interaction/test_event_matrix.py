"""Every set of delivery modes that a server may have, in both eras, with every way in which a client gets events."""

import itertools
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import pytest

from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, HANDSHAKE, Peer, connected, http_hub
from tests.interaction.hooked import Receiver, receiving, subscribe
from tests.interaction.occurring import Poller, Service, config, streaming
from tests.interaction.test_hub_events import following, numbers
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

WEBHOOK_SERVER = Path(__file__).parents[1] / "upstreams" / "webhook_server.py"
MODES = ("poll", "push", "webhook")
SETS = [",".join(chosen) for count in (1, 2, 3) for chosen in itertools.combinations(MODES, count)]
NUMBERS = itertools.count(1)


class Place:
    def __init__(self, hub: Hub, services: dict[str, Service], receiver: Receiver) -> None:
        self.hub = hub
        self.services = services
        self.receiver = receiver


@pytest.fixture(scope="module", params=ERAS)
async def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    root, era = tmp_path_factory.mktemp(request.param), request.param
    services = {modes: Service(root, modes.replace(",", "-")) for modes in SETS}
    servers = {modes.replace(",", "-"): services[modes].argv(era, modes) for modes in SETS}
    options = ["handshake"] if era == HANDSHAKE else []
    servers["webhook"] = [sys.executable, str(WEBHOOK_SERVER), str(services["webhook"].file), *options]
    http, hosts = {"public_url": "https://hub.example.com"}, {"webhook_hosts": ["127.0.0.1"]}
    async with receiving() as receiver, http_hub(config(servers, http=http, events=hosts), root) as hub:
        parts = urlsplit(hub.url)
        services["webhook"].file.with_suffix(".hub").write_text(f"{parts.scheme}://{parts.netloc}")
        yield Place(hub, services, receiver)


async def by_tool(peer: Peer, arguments: dict[str, Any], expected: list[int]) -> list[int]:
    """What a model gets that waits until it has as many."""
    seen: list[int] = []
    with anyio.fail_after(WAIT):
        while len(seen) < len(expected):
            text = (await peer.call("hub_events", arguments)).text
            seen, arguments = seen + numbers(text), following(text)
    return seen


async def by_rest(rest: RestClient, name: str, cursor: str | None, expected: list[int]) -> list[int]:
    seen: list[int] = []
    with anyio.fail_after(WAIT):
        while len(seen) < len(expected):
            page = (await rest.ask("GET", f"/events?name={name}&after={quote(cursor or '')}")).json()
            seen, cursor = seen + [event["data"]["n"] for event in page["events"]], page["cursor"]
    return seen


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("modes", SETS)
async def test_each_way_brings_what_each_server_says(place: Place, modes: str, era: str) -> None:
    service, first = place.services[modes], next(NUMBERS) * 1000
    name = f"{modes.replace(',', '-')}_{'push' if modes == 'webhook' else 'build_done'}"
    expected, path = [first + 1, first + 2, first + 3], f"/{first}"
    async with connected(place.hub, era) as peer, RestClient(place.hub) as rest:
        poller = Poller(peer, name)
        assert not (await poller.poll())["truncated"]
        assert "result" in (await subscribe(peer, name, place.receiver.url(path))).answer
        wait = following((await peer.call("hub_events", {"action": "subscribe", "name": name})).text)
        async with streaming(peer, name) as stream:
            service.happens(*expected)
            await stream.until(lambda: len(stream.numbers) >= 3)
            got = {"stream": stream.numbers}
        await poller.until(lambda: len(poller.numbers) >= 3)
        await place.receiver.until(lambda: len(place.receiver.of(path=path)) >= 3)
        got["poll"] = poller.numbers
        got["webhook"] = [post.json["data"]["n"] for post in place.receiver.of(path=path)]
        got["tool"] = await by_tool(peer, wait, expected)
        got["rest"] = await by_rest(rest, name, wait["after"], expected)
        assert got == dict.fromkeys(("stream", "poll", "webhook", "tool", "rest"), expected)
        assert poller.gaps == 0
