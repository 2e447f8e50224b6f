"""Tokens that are taken away while they are used: who only listens hears no more, calls are answered."""

import anyio
import pytest

from mcp_hub.fronts.http.auth import HttpAuth
from mcp_hub.sessions.session import Caller
from tests.unit.fronts.rest_peer import ALICE, BOB, CALLERS, SSE, Response, RestPeer, modern_request

OTHERS = {token: caller for token, caller in CALLERS.items() if token != ALICE}


async def listening(peer: RestPeer, token: str) -> list[Response]:
    """A GET of a handshake session, the events of a stream, and what a modern client listens on."""
    session = await peer.session(token=token)
    begun = await peer.call("hold", {"nonce": token}, headers={"prefer": "wait=0"}, token=token).ended()
    wanted, headers = modern_request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
    responses = [
        peer.start("GET", "/mcp", headers={**session, **SSE}, token=token),
        peer.start("GET", f"/v1/streams/{begun.json['stream']}/events", headers=SSE, token=token),
        peer.start("POST", "/mcp", wanted, headers=headers, token=token),
    ]
    await anyio.wait_all_tasks_blocked()
    assert [response.status for response in responses] == [200, 200, 200]
    return responses


LATER = {
    "gone": OTHERS,
    "of another": {**OTHERS, ALICE: Caller("somebody")},
    "bound": {**OTHERS, ALICE: Caller("alice", "narrow")},
}


@pytest.mark.slow
@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
async def test_listener_whose_token_is_taken_away_hears_no_more(later: dict[str, Caller], mcp_peer: RestPeer) -> None:
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
