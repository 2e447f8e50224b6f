"""Tokens that are taken away while they are used: who only listens hears no more, calls are answered."""

from typing import Any

import anyio
import pytest

from mcp_hub.fronts.http.auth import HttpAuth
from mcp_hub.sessions.session import Caller
from tests.unit.fronts.rest_peer import ALICE, BOB, CALLERS, Response, RestPeer
from tests.upstreams.messages import CLIENT, modern

pytestmark = pytest.mark.anyio

BOTH = "application/json, text/event-stream"
OTHERS = {token: caller for token, caller in CALLERS.items() if token != ALICE}


def rpc(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def listening(peer: RestPeer, token: str) -> list[Response]:
    """A GET of a handshake session, the events of a stream, and what a modern client listens on."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
    begun = await peer.ask("POST", "/mcp", rpc("initialize", hello), headers={"accept": BOTH}, token=token)
    stream = (await peer.call("hold", {"nonce": token}, headers={"prefer": "wait=0"}, token=token).ended()).json[
        "stream"
    ]
    session = {"accept": "text/event-stream", "mcp-session-id": begun.headers["mcp-session-id"]}
    headers = {"accept": BOTH, "mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen"}
    wanted = rpc("subscriptions/listen", modern({"notifications": {"toolsListChanged": True}}))
    found = [
        peer.start("GET", "/mcp", headers=session, token=token),
        peer.start("GET", f"/v1/streams/{stream}/events", headers={"accept": "text/event-stream"}, token=token),
        peer.start("POST", "/mcp", wanted, headers=headers, token=token),
    ]
    await anyio.wait_all_tasks_blocked()
    assert [response.status for response in found] == [200, 200, 200]
    return found


LATER = {
    "gone": OTHERS,
    "of another": {**OTHERS, ALICE: Caller("somebody")},
    "bound": {**OTHERS, ALICE: Caller("alice", "narrow")},
}


@pytest.mark.slow
@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
async def test_who_listens_with_a_token_that_is_taken_away_hears_no_more(
    later: dict[str, Caller], mcp_peer: RestPeer
) -> None:
    hers, his = await listening(mcp_peer, ALICE), await listening(mcp_peer, BOB)
    calling = mcp_peer.call("hold", {"nonce": "call"})
    await mcp_peer.tools.has_come("call")
    mcp_peer._endpoints.use(HttpAuth({**CALLERS, "new": Caller("new")}), {})
    await anyio.wait_all_tasks_blocked()
    assert not any(response.is_complete for response in (*hers, *his)), "her token is still good"
    mcp_peer._endpoints.use(HttpAuth(later), {})
    for response in hers:
        await response.ended()
    assert not any(response.is_complete for response in (*his, calling))
    mcp_peer.tools.go.set()
    assert (await calling.ended()).json["result"]["content"][0]["text"] == "call"


async def test_without_tokens_nobody_is_sent_away(mcp_peer: RestPeer) -> None:
    mcp_peer._endpoints.use(HttpAuth({}), {})
    hers = mcp_peer.start("GET", "/v1/streams", token=None)
    await hers.ended()
    assert hers.status == 200 and not mcp_peer._endpoints._listeners
