"""A hub over HTTP that is killed in the middle of a call: the next one on the same state goes on with the stream."""

from pathlib import Path

import pytest

from tests.e2e.bad_input import ALICE, BOB, TOKENS
from tests.e2e.client import HttpClient, SseEvent, SseStream
from tests.interaction.fronts import http_hub
from tests.upstreams.child import until
from tests.upstreams.launch import argv, free_port, received, servers_yaml

pytestmark = pytest.mark.anyio

RESTARTED = 1006


def told(*streams: SseStream) -> list[SseEvent]:
    return [event for stream in streams for event in stream.events if event.data]


async def follow(stream: SseStream, messages: int) -> None:
    while len(told(stream)) < messages:
        await stream.next_event()


@pytest.mark.parametrize("seen", [1, 40])
async def test_the_rest_and_one_response_come_from_the_next_hub(seen: int, tmp_path: Path) -> None:
    text, port = servers_yaml({"a": argv(name="a")}), ("--port", str(free_port()))
    async with http_hub(text, tmp_path, *port) as hub, HttpClient(hub.url) as client:
        await client.initialize()
        await client.request("tools/list")
        params = {"name": "a_progress", "arguments": {"n": 1000, "delay": 0.01}, "_meta": {"progressToken": "t"}}
        message = client.message("tools/call", params)
        async with client.stream(message) as before:
            await follow(before, seen)
            await hub.kill_alone()
            place, first = before.last_id, told(before)
    async with http_hub(text, tmp_path, *port) as hub, HttpClient(hub.url) as again:
        again.session, again.version = client.session, client.version
        for _ in range(2):
            async with again.listen(place) as after:
                rest = await after.rest()
            assert (after.status, after.is_sse) == (200, True)
            *progress, response = told(after)
            assert response.message["id"] == message["id"] and response.message["error"]["code"] == RESTARTED
            whole = [event.message["params"]["progress"] for event in [*first, *progress]]
            assert whole == list(range(1, len(whole) + 1))
            seqs = [int(str(event.id).rpartition(":")[2]) for event in [*first, *told(after)]]
            assert seqs == list(range(2, len(seqs) + 2))
        async with again.listen(rest.events[-1].id) as after:
            assert (await after.rest()).status == 204
        assert (await again.request("tools/list")).last["result"]["tools"]
        async with HttpClient(hub.url) as other:
            await other.initialize()
            async with other.listen(place) as refused:
                assert (await refused.rest()).status == 400


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
