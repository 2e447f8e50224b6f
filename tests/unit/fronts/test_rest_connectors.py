"""`/v1/tools?format=anthropic-mcp` and `openai-mcp`: entries for providers that connect to the hub themselves."""

from pathlib import Path
from typing import Any

import pytest

from tests.unit.fronts.local_hub import TOOLS
from tests.unit.fronts.rest_peer import ALICE, NARROW, RestPeer, mcp_hub, problem, rest_hub
from tests.upstreams.messages import rpc

PUBLIC = "https://hub.example.com"


async def entries(peer: RestPeer, query: str, **options: Any) -> Any:
    response = await peer.ask("GET", f"/v1/tools?{query}", **options)
    assert response.status == 200, response.body
    assert ALICE not in response.body.decode() and NARROW not in response.body.decode()
    return response.json


async def test_address_comes_from_the_settings_or_the_query(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, public_url=f"{PUBLIC}/tools") as peer:
        (server,) = (await entries(peer, "format=anthropic-mcp"))["mcp_servers"]
        assert (server["url"], server["authorization_token"]) == (f"{PUBLIC}/tools/mcp", "${HUB_TOKEN}")
        (entry,) = (await entries(peer, "format=openai-mcp&url=https://other.example.com"))["tools"]
        assert (entry["server_url"], entry["authorization"]) == ("https://other.example.com/mcp", "${HUB_TOKEN}")
        problem(await peer.ask("GET", "/v1/tools?format=openai-mcp&url=http://x.org"), 400, "public_url_required")


async def test_connectors_of_a_hub_without_a_public_address_are_refused(peer: RestPeer) -> None:
    for name in ("anthropic-mcp", "openai-mcp"):
        problem(await peer.ask("GET", f"/v1/tools?format={name}"), 400, "public_url_required")


async def test_profile_of_the_caller_is_in_the_address(peer: RestPeer) -> None:
    (entry,) = (await entries(peer, f"format=openai-mcp&url={PUBLIC}", token=NARROW))["tools"]
    assert entry["server_url"] == f"{PUBLIC}/mcp/p/narrow" and entry["server_label"] == "mcp-hub-narrow"
    assert entry["allowed_tools"] == {"tool_names": ["read_result", "hub_calls", "echo"]}


async def over_mcp(peer: RestPeer) -> list[dict[str, Any]]:
    """The tools that a handshake client of the endpoint is listed, over all pages."""
    headers = await peer.session("2025-06-18")
    assert (await peer.ask("POST", "/mcp", rpc("notifications/initialized", {}), headers=headers)).status == 202
    listed: list[dict[str, Any]] = []
    params: dict[str, str] = {}
    while True:
        response = await peer.ask("POST", "/mcp", rpc("tools/list", params, id=1), headers=headers)
        page = response.json["result"]
        listed += page["tools"]
        if "nextCursor" not in page:
            return listed
        params = {"cursor": page["nextCursor"]}


@pytest.mark.parametrize("expose", ["full", "search"])
@pytest.mark.parametrize("page_size", [1000, 2])
async def test_pinned_listing_is_that_of_the_endpoint(tmp_path: Path, expose: str, page_size: int) -> None:
    async with mcp_hub(tmp_path, expose=expose, page_size=page_size) as peer:
        listed = await over_mcp(peer)
        (toolset,) = (await entries(peer, f"format=anthropic-mcp&url={PUBLIC}"))["tools"]
        expected = [{"name": tool["name"], "input_schema": tool["inputSchema"]} for tool in listed]
        assert [{key: one[key] for key in ("name", "input_schema")} for one in toolset["tools"]] == expected
        assert [one.get("description") for one in toolset["tools"]] == [tool.get("description") for tool in listed]
        (entry,) = (await entries(peer, f"format=openai-mcp&url={PUBLIC}"))["tools"]
        assert entry["allowed_tools"]["tool_names"] == [tool["name"] for tool in listed]
        assert (set(TOOLS) <= {tool["name"] for tool in listed}) == (expose == "full")


async def test_selection_switches_the_other_tools_off(peer: RestPeer) -> None:
    (toolset,) = (await entries(peer, f"format=anthropic-mcp&url={PUBLIC}&tools=hold,echo"))["tools"]
    assert toolset["default_config"] == {"enabled": False} and len(toolset["tools"]) > len(TOOLS)
    assert toolset["configs"] == {"echo": {"enabled": True}, "hold": {"enabled": True}}
    search, entry = (await entries(peer, f"format=openai-mcp&url={PUBLIC}&tools=hold&defer=1"))["tools"]
    assert search["type"] == "tool_search" and entry["allowed_tools"] == {"tool_names": ["hold"]}
    problem(await peer.ask("GET", f"/v1/tools?format=openai-mcp&url={PUBLIC}&tools=no"), 404, "unknown_tool")
    problem(await peer.ask("GET", f"/v1/tools?format=openai-mcp&url={PUBLIC}&server=no"), 404, "unknown_server")
