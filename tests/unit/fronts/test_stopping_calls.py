"""Calls over REST whose hub stops before they have ended: nobody is told to make them again."""

import anyio
import anyio.lowlevel
import pytest

from mcp_hub.fronts.rest import follow
from tests.unit.fronts.rest_peer import RestPeer

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
async def test_who_waits_for_a_call_that_outlives_the_hub_is_told_where_it_is(
    peer: RestPeer, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    monkeypatch.setattr(follow, "_LAST_EVENTS", 0.01)
    waiting = peer.call("hold", {"nonce": "a"}, headers={"accept": accept})
    await peer.tools.has_come("a")
    await anyio.wait_all_tasks_blocked()
    peer.rest.close()
    accepted = await waiting.ended()
    assert (accepted.status, accepted.json["status"]) == (202, "working")
    assert accepted.headers["location"] == f"/v1/streams/{accepted.json['stream']}"
    assert accepted.headers["content-type"] == "application/json" and "retry-after" not in accepted.headers
    known = await peer.ask("GET", accepted.headers["location"])
    assert known.json["status"] == "working" and peer.tools.cancelled == []


async def test_call_that_comes_after_that_is_not_sent_away_either_once_it_has_begun(
    peer: RestPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "_LAST_EVENTS", 0)
    peer.rest.close()
    await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()
    late = await peer.call("hold", {"nonce": "a"}, headers={"accept": "text/event-stream"}).ended()
    assert late.status == 202 and late.headers["location"] == f"/v1/streams/{late.json['stream']}"
