"""A tool that is gone between list and call: a result that a model can act on. A name that never was: an error."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.errors import InvalidParams, UnknownEntry
from mcp_hub.fronts.mcp.binding import Binding
from mcp_hub.fronts.rest.problem import problem_for
from mcp_hub.protocol.meta import take_params
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.types import Era, Kind
from tests.unit.catalog.offers import routed
from tests.unit.fronts.small_hub import Hub


class Client:
    """Calls tools of a hub as an MCP client does."""

    def __init__(self, hub: Hub, era: Era = Era.HANDSHAKE) -> None:
        version = "2025-11-25" if era is Era.HANDSHAKE else "2026-07-28"
        self._session = Session("s", LOCAL, era, version)
        self._binding = Binding(hub.port, {"name": "hub", "version": "1"}, lambda profile: None)

    def calls(self, name: str) -> dict[str, Any]:
        """The result of a call that the hub answers by itself."""
        params, meta = take_params(json.dumps({"name": name}).encode())
        reply = self._binding.handle(self._session, "tools/call", params, meta)
        assert isinstance(reply, bytes)
        answer: dict[str, Any] = json.loads(reply)
        return answer


@pytest.fixture
async def hub() -> Hub:
    """Has listed three tools, of which one is gone."""
    hub = Hub()
    hub.source.offers(Kind.TOOL, "create_issue", "create_issues", "fetch")
    hub.port.catalog.view(None)
    hub.source.offers(Kind.TOOL, "create_issue", "fetch")
    return hub


@pytest.mark.parametrize("era", Era)
async def test_a_removed_tool_is_a_result_with_the_nearest_names(hub: Hub, era: Era) -> None:
    result = Client(hub, era).calls("create_issues")
    (block,) = result["content"]
    assert result["isError"] and block["type"] == "text"
    assert block["text"] == "Tool create_issues is no longer offered. Did you mean create_issue?"
    assert result.get("resultType") == (None if era is Era.HANDSHAKE else "complete")


async def test_without_a_similar_name_the_model_is_to_list_again(hub: Hub) -> None:
    hub.source.offers(Kind.TOOL)
    (block,) = Client(hub).calls("fetch")["content"]
    assert block["text"] == "Tool fetch is no longer offered. List the tools again."


@pytest.mark.parametrize("name", ["create_issuez", "", "git_create_issues"])
async def test_a_name_that_was_never_listed_stays_an_error(hub: Hub, name: str) -> None:
    with pytest.raises(InvalidParams, match="Unknown tool") as caught:
        Client(hub).calls(name)
    assert caught.value.code == -32602 and caught.value.symbol != "tool_removed"


async def test_a_program_over_rest_gets_a_status_and_a_model_gets_a_result_from_run_tool(hub: Hub) -> None:
    with pytest.raises(UnknownEntry) as caught:
        routed(hub.port.catalog.view(None), {"name": msgspec.Raw(b'"create_issues"')})
    assert caught.value.symbol == "tool_removed"
    found = problem_for(caught.value)
    assert (found.status, found.code) == (404, "unknown_tool")
    arguments = msgspec.Raw(b'{"name":"create_issues"}')
    params = {"name": msgspec.Raw(b'"run_tool"'), "arguments": arguments}
    refused = routed(hub.port.catalog.view(None), params).refusal
    assert refused is not None and refused.message.startswith("Tool create_issues is no longer offered. Did you mean")


def is_true() -> bool:
    return True


async def test_a_tool_that_came_back_and_one_that_moved_are_not_removed(hub: Hub) -> None:
    hub.source.offers(Kind.TOOL, "create_issues", "fetch")
    assert [*hub.port.catalog.view(None).removed] == ["create_issue"]


async def test_the_oldest_removed_names_are_forgotten(hub: Hub) -> None:
    hub.source.offers(Kind.TOOL, *(f"t{number}" for number in range(5000)))
    hub.port.catalog.view(None)
    hub.source.offers(Kind.TOOL)
    removed = hub.port.catalog.view(None).removed
    assert len(removed) == 4096 and "t4999" in removed and "create_issues" not in removed
