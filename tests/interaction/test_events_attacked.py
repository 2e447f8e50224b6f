"""MCP Events against hostile clients and servers: values of every size and kind are refused or bounded."""

from pathlib import Path

import pytest

from tests.interaction.fronts import MODERN, connected, http_hub
from tests.interaction.hooked import receiving, subscribe
from tests.interaction.occurring import Poller, Service, config

pytestmark = pytest.mark.anyio

NAME = "b_build_done"
HUGE = 10**400
HOSTS = {"events": {"webhook_hosts": ["127.0.0.1"]}}


async def test_numbers_of_any_size_are_bounded_or_refused(tmp_path: Path) -> None:
    service = Service(tmp_path, "b")
    text = config({"b": service.argv(MODERN, "push")}, **HOSTS)
    async with receiving() as receiver, http_hub(text, tmp_path) as hub, connected(hub, MODERN) as peer:
        await peer.names("events/list", "events")
        poller = Poller(peer, NAME)
        await poller.poll()
        first = poller.cursor
        service.happens(1, 2, 3)
        await poller.until(lambda: len(poller.numbers) == 3)
        for wish, count in ((0, 1), (-7, 1), (2.0, 2), (1e300, 3), (None, 3)):
            page = (await peer.request("events/poll", {"name": NAME, "cursor": first, "maxEvents": wish})).result
            assert len(page["events"]) == count, wish
        for member in ("maxEvents", "maxAgeMs", "ttlMs"):
            values: list[object] = [HUGE, -HUGE, "1", True, [], {}]
            for value in values:
                error = (await peer.request("events/poll", {"name": NAME, "cursor": first, member: value})).error
                assert error["code"] == -32602, (member, value)
        for age in (-5, 0, 1e300, 86_400_000.0):
            page = (await peer.request("events/poll", {"name": NAME, "cursor": first, "maxAgeMs": age})).result
            assert page["truncated"] is (age <= 0)
        for ttl in (-1, 1e300, 90_000.0):
            assert (await subscribe(peer, NAME, receiver.url(), ttlMs=ttl)).result["refreshBefore"]
        assert (await subscribe(peer, NAME, receiver.url(), ttlMs=HUGE)).error["code"] == -32602
        assert (await subscribe(peer, NAME, receiver.url("/2"), cursor=first, maxAgeMs=1e300)).result["cursor"] == first
