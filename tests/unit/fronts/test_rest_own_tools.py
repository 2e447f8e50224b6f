"""The hub's own tools over REST."""

import json

import pytest

from tests.unit.fronts.rest_peer import RestPeer

pytestmark = pytest.mark.anyio


async def test_call_of_the_hub_s_own_tool_goes_on_as_any_other(peer: RestPeer) -> None:
    key = {"idempotency-key": "k"}
    id_ = await peer.detached("find_tools", {"query": "hold"}, **key)
    assert "hold" in json.dumps((await peer.until(id_, "completed", "cancelled")).get("result"))
    again = await peer.call("find_tools", {"query": "hold"}, headers=key).ended()
    assert (again.status, again.json["stream"]) == (200, id_)
