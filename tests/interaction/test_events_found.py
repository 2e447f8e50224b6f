"""`find_tools` finds event types under the rules of tools; a type that has changed waits for a person everywhere."""

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from tests.interaction.fronts import MODERN, Peer, connected, http_hub
from tests.interaction.hooked import receiving, subscribe
from tests.interaction.occurring import Poller, Service, config
from tests.unit.cli.command import hub as command_line
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ANN = {"token": "a" * 32, "principal": "ann", "profile": "all"}
BEN = {"token": "b" * 32, "principal": "ben", "profile": "few"}
DONE, OTHER = "ci_build_done", "ci_build_other"


async def found(peer: Peer, **arguments: Any) -> list[str]:
    """The lines of an answer about event types, and about how to wait."""
    text = (await peer.call("find_tools", arguments)).text
    return [line for line in text.splitlines() if line.startswith(("event ", "hub_events "))]


async def test_types_are_found_with_the_way_to_wait_and_profiles_hide_them(tmp_path: Path) -> None:
    service = Service(tmp_path, "ci")
    hub = {"tokens": [ANN, BEN], "expose": "search"}
    settings = json.loads(config({"ci": service.argv(MODERN, "poll")}, **hub))
    settings["servers"]["quiet"] = {**settings["servers"]["ci"], "events": {"deny": ["*"]}}
    settings["profiles"] = {"all": {}, "few": {"events": {"deny": ["*_other"]}}}
    async with http_hub(json.dumps(settings), tmp_path, relays_all=False) as running:
        async with connected(running, MODERN, ANN["token"]) as ann, connected(running, MODERN, BEN["token"]) as ben:
            done, way = f"event {DONE}: A build has ended", "hub_events waits for an event."
            assert await found(ann, query="a build has ended") == [done, way]
            assert await found(ben, query="something else of a build") == []
            assert await found(ann, query="something else of a build") == [
                f"event {OTHER}: Something else of a build", way
            ]  # fmt: skip
            assert await found(ann, server="quiet") == [], "a filter of the server hides its types"
            assert await found(ben, server="ci") == [done, way]
            assert "hub_events" in await ben.names()


async def listed_again(peer: Peer) -> None:
    with anyio.fail_after(WAIT):
        while OTHER not in await peer.names("events/list", "events"):
            pass


async def test_changed_type_can_be_had_in_no_way_until_a_person_approves_it(tmp_path: Path) -> None:
    service = Service(tmp_path, "ci")

    def text(*options: str) -> str:
        hosts = {"events": {"webhook_hosts": ["127.0.0.1"]}, "expose": "search"}
        settings = json.loads(config({"ci": service.argv(MODERN, "push", *options)}, **hosts))
        return json.dumps({**settings, "defaults": {"approval": "block"}})

    async with http_hub(text(), tmp_path, relays_all=False) as hub, connected(hub, MODERN) as peer:
        assert await peer.names("events/list", "events") == [DONE, OTHER]
        poller = Poller(peer, OTHER, branch="x")
        await poller.poll()
    async with (
        receiving() as receiver,
        http_hub(text("changed"), tmp_path, relays_all=False) as hub,
        connected(hub, MODERN) as peer,
    ):
        assert await peer.names("events/list", "events") == [DONE]
        params = {"name": OTHER, "arguments": {"branch": "x"}, "cursor": poller.cursor}
        for method in ("events/poll", "events/stream"):
            assert (await peer.request(method, params)).error["code"] == -32024
        refused = (await subscribe(peer, OTHER, receiver.url(), arguments={"branch": "x"})).error
        assert refused["code"] == -32024 and receiver.posts == []
        assert "Send it to me first" not in (await peer.call("find_tools", {"query": "build"})).text
        assert OTHER not in (await peer.call("hub_events", {"action": "list"})).text
        waited = await peer.call("hub_events", {"action": "wait", **params, "after": poller.cursor})
        assert waited.result["isError"] and "approve" in waited.text
        await anyio.to_thread.run_sync(command_line, tmp_path, "approve", "ci", "event:build.other", "--yes")
        await listed_again(peer)
        again = Poller(peer, OTHER, poller.cursor, branch="x")
        service.happens(1)
        await again.until(lambda: again.numbers == [1])
