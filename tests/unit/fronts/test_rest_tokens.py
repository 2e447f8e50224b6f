"""`/v1/tokens`: what the caller's tools cost, for the kind of client that is asked about."""

from pathlib import Path

import anyio
import msgspec
import pytest

from mcp_hub.errors import ConfigError
from mcp_hub.fronts.rest.api import ANY_CLIENT
from mcp_hub.protocol.rest.servers import TokenAccount
from mcp_hub.sessions.session import Caller
from tests.unit.fronts.local_hub import TOOLS
from tests.unit.fronts.rest_peer import NARROW, Response, RestPeer, problem, rest_hub


def account(response: Response) -> TokenAccount:
    assert response.status == 200, response.body
    assert response.headers["content-type"] == "application/json"
    return msgspec.json.decode(response.body, type=TokenAccount)


async def test_account_is_of_all_tools_for_any_client(peer: RestPeer) -> None:
    response = await peer.ask("GET", "/v1/tokens")
    found = account(response)
    assert (found.client, found.profile, found.current.expose) == (ANY_CLIENT, None, "auto")
    assert [one.name for one in found.tools] == TOOLS
    assert [(one.server, one.tools) for one in found.servers] == [("local", 9)]
    assert sorted(found.heaviest) == sorted(one.name for one in found.tools)
    assert (await peer.ask("GET", "/v1/tokens")).body == response.body
    assert found == await peer.app.hub.views.token_account(Caller("alice"), ANY_CLIENT)


async def test_a_kind_of_client_gets_what_the_configuration_says_of_it(tmp_path: Path) -> None:
    clients = {"small": {"expose": "names", "max_tools": 5}}
    async with rest_hub(tmp_path, clients=clients) as peer:
        code = account(await peer.ask("GET", "/v1/tokens?client=claude-code"))
        assert (code.client, code.defers, code.max_tools) == ("claude-code", True, 400)
        small = account(await peer.ask("GET", "/v1/tokens?client=small"))
        assert (small.current.expose, small.max_tools) == ("names", 5)
        whole = account(await peer.ask("GET", "/v1/tokens?client=mcp-hub"))
        assert (whole.current.expose, whole.current.listed) == ("full", 9), "results are not cut, calls not cut short"


@pytest.mark.parametrize("client", ["claude-cod", "", "x" * 5000], ids=["slip", "empty", "long"])
async def test_unknown_client_is_refused(peer: RestPeer, client: str) -> None:
    told = problem(await peer.ask("GET", f"/v1/tokens?client={client}"), 400, "unknown_client")
    assert "unknown client" in told["detail"] and len(told["detail"]) < 400
    if client == "claude-cod":
        assert 'Did you mean "claude-code"' in told["detail"]
    with pytest.raises(ConfigError):
        await peer.app.hub.views.token_account(Caller(), "nobody")


async def test_a_profile_s_account_is_of_what_it_lets_through(peer: RestPeer) -> None:
    found = account(await peer.ask("GET", "/v1/tokens", token=NARROW))
    assert (found.profile, [one.name for one in found.tools]) == ("narrow", ["echo"])


async def test_many_who_ask_at_once_are_all_answered_and_the_loop_continues(peer: RestPeer) -> None:
    asked = [peer.start("GET", "/v1/tokens") for _ in range(10)]
    gone = peer.start("GET", "/v1/tokens")
    gone.leave()
    with anyio.fail_after(240):
        assert (await peer.call("echo", {"text": "x"}).ended()).status == 200
        assert len({(await one.ended()).body for one in asked}) == 1
