"""Webhooks with replicas: one hub delivers, another one takes over, and each takes messages for all."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.interaction.fronts import MODERN, connected
from tests.interaction.hooked import receiving, subscribe, unsubscribe
from tests.interaction.occurring import Poller, Service, config, streaming
from tests.interaction.replicas import replicas
from tests.redis_server import NO_SERVER, binary

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(binary() is None, reason=NO_SERVER)]

NAME = "b_build_done"
LEASE = 2.0
HOSTS = {"events": {"webhook_hosts": ["127.0.0.1"]}}


async def test_one_replica_delivers_and_another_takes_over_from_the_stored_cursor(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv(MODERN, "push")}, **HOSTS)
    async with receiving() as receiver, replicas(text, tmp_path, lease=LEASE) as running:
        first, second = running.hubs
        async with connected(first, MODERN) as one, connected(second, MODERN) as two:
            created = (await subscribe(one, NAME, receiver.url())).result
            refreshed = (await subscribe(two, NAME, receiver.url(), ttlMs=7_200_000)).result
            assert refreshed["id"] == created["id"] and refreshed["refreshBefore"] != created["refreshBefore"]
            service.happens(1, 2, 3)
            await receiver.until(lambda: len(receiver.numbers) >= 3)
            await unsubscribe(two, NAME, receiver.url())
            assert (await unsubscribe(one, NAME, receiver.url())).error["data"] == {"kind": "subscription"}
            await subscribe(one, NAME, receiver.url(), cursor=receiver.of()[-1].json["cursor"])
            service.happens(4)
            await receiver.until(lambda: receiver.numbers[-1:] == [4])
            assert receiver.numbers == [1, 2, 3, 4], "each from one replica"
        first.kill()
        service.happens(5)
        await receiver.until(lambda: receiver.numbers[-1:] == [5])
        assert list(dict.fromkeys(receiver.numbers)) == [1, 2, 3, 4, 5], "4 again, if its cursor was not stored yet"
        assert len(receiver.of("verification")) == 2


async def test_any_replica_takes_messages_of_servers(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    server = Path(__file__).parents[1] / "upstreams" / "webhook_server.py"
    argv = [sys.executable, str(server), str(service.file), "repeats", "forged"]
    text = config({"b": argv}, http={"public_url": "https://hub.example.com"})
    async with replicas(text, tmp_path, lease=LEASE) as running:
        first, second = running.hubs
        parts = urlsplit(second.url)
        service.file.with_suffix(".hub").write_text(f"{parts.scheme}://{parts.netloc}")
        async with connected(first, MODERN) as one, connected(second, MODERN) as two:
            poller, other = Poller(one, "b_push"), Poller(two, "b_push")
            await poller.poll()
            await other.poll()
            service.happens(1, 2, 3)
            await poller.until(lambda: len(poller.numbers) >= 3)
            await other.until(lambda: len(other.numbers) >= 3)
            assert (poller.numbers, other.numbers, poller.gaps, other.gaps) == ([1, 2, 3], [1, 2, 3], 0, 0)
    asked = service.asked
    assert len([entry for entry in asked if entry.get("method") == "events/subscribe"]) == 1
    assert {entry["status"] for entry in asked if "posted" in entry} == {200}
    assert {entry["forged"] for entry in asked if "forged" in entry} == {401}


async def test_every_replica_passes_on_that_a_server_has_ended_a_subscription(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv(MODERN, "push")}, **HOSTS)
    async with receiving() as receiver, replicas(text, tmp_path, lease=LEASE) as running:
        first, second = running.hubs
        async with (
            connected(first, MODERN) as one,
            connected(second, MODERN) as two,
            streaming(one, NAME) as near,
            streaming(two, NAME) as far,
        ):
            await subscribe(two, NAME, receiver.url())
            service.happens(1)
            for stream in (near, far):
                await stream.until(lambda stream=stream: stream.numbers == [1])  # type: ignore[misc]
            service.file.with_suffix(".terminate").touch()
            for stream in (near, far):
                await stream.until(lambda stream=stream: bool(stream.of("terminated")))  # type: ignore[misc]
                assert stream.of("terminated")[0]["error"]["data"] == {"kind": "event"}
            await receiver.until(lambda: bool(receiver.of("terminated")))
            service.file.with_suffix(".terminate").unlink()
            poller = Poller(two, NAME, far.of("event")[0]["cursor"])  # the server has the type again
            service.happens(2)
            await poller.until(lambda: poller.numbers == [2])
