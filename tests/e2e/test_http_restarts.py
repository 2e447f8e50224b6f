"""A hub over HTTP that is killed: the next one on the same state has its sessions."""

from pathlib import Path

import pytest

from tests.e2e.bad_input import ALICE, BOB, TOKENS
from tests.e2e.client import HttpClient
from tests.interaction.fronts import http_hub
from tests.upstreams.child import until
from tests.upstreams.launch import argv, received, servers_yaml

pytestmark = pytest.mark.anyio


async def test_the_session_is_as_its_client_left_it_and_ends_with_it(tmp_path: Path) -> None:
    """Its level, its subscriptions; nobody else can use it."""
    journal = tmp_path / "journal"
    text = servers_yaml({"a": argv(name="a", journal=journal, era="handshake")}, hub={"tokens": TOKENS})
    async with http_hub(text, tmp_path) as hub, HttpClient(hub.url, ALICE) as client:
        await client.initialize()
        await client.request("tools/list")
        params = {"name": "a_progress", "arguments": {"n": 3}, "_meta": {"progressToken": 1}}
        place = (await client.request("tools/call", params)).events[0].id
        assert (await client.request("resources/subscribe", {"uri": "fixture://text/1"})).last["result"] == {}
        assert (await client.request("logging/setLevel", {"level": "error"})).last["result"] == {}
        await hub.kill_alone()
    before = len(received(journal, "resources/subscribe"))
    async with http_hub(text, tmp_path) as hub, HttpClient(hub.url, BOB) as bob, HttpClient(hub.url, ALICE) as again:
        for peer in (bob, again):
            peer.session, peer.version = client.session, client.version
        async with bob.listen(place) as refused:
            assert (await refused.rest()).status == 404
        async with again.listen():
            await until(lambda: len(received(journal, "resources/subscribe")) > before)
        assert received(journal, "logging/setLevel")[-1]["params"] == {"level": "error"}
        assert (await again.delete()).status == 204
        await hub.kill_alone()
    async with http_hub(text, tmp_path) as hub, HttpClient(hub.url, ALICE) as last:
        last.session, last.version = client.session, client.version
        assert (await last.request("tools/list")).status == 404
