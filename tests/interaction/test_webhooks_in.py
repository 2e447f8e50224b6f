"""Servers whose events come by webhook alone: the hub subscribes, verifies, stores, and passes on in its own ways."""

import base64
import hmac
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.e2e.client import Hub
from tests.interaction.fronts import MODERN, children, connected
from tests.interaction.hooked import receiving, subscribe
from tests.interaction.hub_process import hub_process
from tests.interaction.occurring import Poller, Service, config, streaming
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

NAME = "b_push"
SERVER = Path(__file__).parents[1] / "upstreams" / "webhook_server.py"
PUBLIC = "https://hub.example.com"


class Place:
    def __init__(self, hub: Hub, service: Service) -> None:
        self.hub = hub
        self.service = service
        self.reach()

    def reach(self) -> None:
        """Says to the server where the hub is."""
        parts = urlsplit(self.hub.url)
        self.service.file.with_suffix(".hub").write_text(f"{parts.scheme}://{parts.netloc}")

    @property
    def origin(self) -> str:
        return self.service.file.with_suffix(".hub").read_text()

    @property
    def url(self) -> str:
        """The address that the hub has given to the server."""
        return next(str(request["url"]) for request in self.service.asked if "url" in request)

    def posted(self, path: str, headers: dict[str, str], body: bytes) -> httpx2.Response:
        return httpx2.post(
            self.origin + path, content=body, headers={"host": urlsplit(PUBLIC).netloc, **headers}, timeout=30
        )


def _config(service: Service, *options: str, **hub: Any) -> str:
    http = {"public_url": PUBLIC}
    return config({"b": [sys.executable, str(SERVER), str(service.file), *options]}, http=http, **hub)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    service = Service(tmp_path, "b")
    async with hub_process(_config(service, "forged", "repeats"), tmp_path) as hub:
        yield Place(hub, service)


async def test_events_that_come_by_webhook_alone_can_be_polled_streamed_and_sent_on(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    hosts = {"events": {"webhook_hosts": ["127.0.0.1"]}}
    async with receiving() as receiver, hub_process(_config(service, **hosts), tmp_path) as hub:
        Place(hub, service)
        async with connected(hub, MODERN) as peer:
            poller = Poller(peer, NAME)
            await poller.poll()
            await subscribe(peer, NAME, receiver.url())
            async with streaming(peer, NAME) as stream:
                service.happens(1, 2, 3)
                await stream.until(lambda: stream.numbers == [1, 2, 3])
            await poller.until(lambda: poller.numbers == [1, 2, 3])
            await receiver.until(lambda: receiver.numbers == [1, 2, 3])
        subscribed = [request for request in service.asked if request.get("method") == "events/subscribe"]
        assert len(subscribed) == 1, "one subscription serves all"
        assert subscribed[0]["url"].startswith(f"{PUBLIC}/v1/events/in/")


async def test_forged_messages_are_refused_and_repeated_ones_stored_once(place: Place) -> None:
    async with connected(place.hub, MODERN) as peer:
        poller = Poller(peer, NAME)
        await poller.poll()
        place.service.happens(1, 2, 3)
        await poller.until(lambda: len(poller.numbers) >= 3)
        assert poller.numbers == [1, 2, 3]
    assert {entry["forged"] for entry in place.service.asked if "forged" in entry} == {401}
    assert {entry["status"] for entry in place.service.asked if "posted" in entry} == {200}


async def test_killed_hub_gets_what_it_has_missed(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    async with hub_process(_config(service), tmp_path) as hub:
        Place(hub, service)
        async with connected(hub, MODERN) as peer:
            poller = Poller(peer, NAME)
            await poller.poll()
            service.happens(1)
            await poller.until(lambda: poller.numbers == [1])
        hub.kill()
    service.happens(2)
    async with hub_process(_config(service), tmp_path) as hub:
        Place(hub, service)
        async with connected(hub, MODERN) as peer:
            again = Poller(peer, NAME, poller.cursor)
            service.happens(3)
            await again.until(lambda: len(again.numbers) >= 2)
            assert (again.numbers, again.gaps) == ([2, 3], 0)
    urls = {request["url"] for request in service.asked if "url" in request}
    assert len(urls) == 1, "the address outlives the hub"


async def test_killed_server_is_subscribed_again_and_sends_what_happened_meanwhile(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    async with hub_process(_config(service), tmp_path) as hub:
        Place(hub, service)
        async with connected(hub, MODERN) as peer:
            poller = Poller(peer, NAME)
            await poller.poll()
            service.happens(1)
            await poller.until(lambda: poller.numbers == [1])
            for pid in children(hub.pid):
                os.kill(pid, signal.SIGKILL)
            service.happens(2)
            await poller.until(lambda: len(poller.numbers) >= 2)
            assert (poller.numbers, poller.gaps) == ([1, 2], 0)


async def test_messages_of_strangers_are_refused(place: Place) -> None:
    async with connected(place.hub, MODERN) as peer:
        await Poller(peer, NAME).poll()
    path = urlsplit(place.url).path
    now = int(time.time())
    text = json.dumps({"eventId": "x", "name": "push", "timestamp": "2026-11-30T10:00:00Z", "data": {}}).encode()

    def signed(key: bytes, at: int = now) -> dict[str, str]:
        signature = base64.b64encode(hmac.new(key, f"x.{at}.".encode() + text, sha256).digest()).decode()
        return {"webhook-id": "x", "webhook-timestamp": str(at), "webhook-signature": f"v1,{signature}"}

    flipped = path[:-1] + ("0" if path[-1] != "0" else "1")
    unknown = path[:-64] + "0" * 64
    for target, headers, body, status in (
        (path, {}, text, 401),
        (path, signed(b""), text, 401),
        (path, signed(b"k" * 32), text, 401),
        (path, signed(b"k" * 32, now - 4000), text, 401),
        (path, {}, b"x" * (300 << 10), 413),
        (flipped, signed(b"k" * 32), text, 404),
        (unknown, {}, text, 404),
        (path + "/more", {}, text, 401),
        (path.upper(), {}, text, 404),
        ("/v1/events/in/", {}, text, 404),
        ("/v1/events/in/..%2f..%2fmetrics", {}, text, 404),
    ):
        answer = place.posted(target, headers, body)
        if target == path + "/more":
            assert answer.status_code in (401, 404)
        else:
            assert answer.status_code == status, (target, headers, answer.text)
    assert httpx2.get(place.origin + path, headers={"host": "hub.example.com"}).status_code == 405
    assert place.posted(path, {"host": "evil.example"}, text).status_code == 421


async def test_without_a_public_url_there_are_no_such_events_and_no_addresses(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    argv = [sys.executable, str(SERVER), str(service.file)]
    async with hub_process(config({"b": argv}), tmp_path) as hub, connected(hub, MODERN) as peer:
        assert "error" in (await peer.request("events/poll", {"name": NAME, "cursor": None})).answer
        place = Place(hub, service)
        answer = httpx2.post(place.origin + "/v1/events/in/" + "0" * 64, content=b"{}")
        assert answer.status_code == 404


async def test_server_that_rests_is_subscribed_again(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    settings = json.loads(_config(service))
    settings["servers"]["b"]["idle_stop"] = "0.5s"
    async with hub_process(json.dumps(settings), tmp_path) as hub:
        Place(hub, service)
        async with connected(hub, MODERN) as peer:
            poller = Poller(peer, NAME)
            await poller.poll()
            started = children(hub.pid)
            await until(lambda: children(hub.pid) != started)
            service.happens(1)
            await poller.until(lambda: poller.numbers == [1])
            assert poller.gaps == 0
