"""Deferred search as a model uses it: over the captured tools it finds what the ranker finds (data outside of here)."""

import importlib.util
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.app.build import build
from mcp_hub.catalog.search import ranker
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings
from mcp_hub.fronts.http.auth import HttpAuth
from mcp_hub.fronts.http.endpoints import Endpoints
from mcp_hub.fronts.rest.api import RestApi
from mcp_hub.types import Era, Kind, Snapshot
from tests.captured import DATA, captured, encoded, needs_lists, needs_queries
from tests.unit.catalog.offers import Listing
from tests.unit.fronts.local_hub import Tools
from tests.unit.fronts.rest_peer import RestPeer

pytestmark = [pytest.mark.slow, needs_lists, needs_queries]

MOST = 5


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[RestPeer]:
    """A whole hub in front of servers that list the captured tools."""
    lists = captured()
    settings = Settings.model_validate(
        {
            "hub": {"store": {"type": "memory"}, "first_list_wait": 0},
            "servers": {name: {"url": "http://127.0.0.1:1/mcp"} for name in lists},
        }
    )
    app = build(Loaded(settings, tmp_path / "servers.yaml", frozenset()), {"MCP_HUB_STATE_DIR": str(tmp_path)})
    assert isinstance(app.upstreams, dict)
    for name, tools in lists.items():
        server = app.upstreams[name] = Listing(name, app.changes)
        server.lists(Snapshot(name, Era.MODERN, {Kind.TOOL: tuple(map(encoded, tools))}))
    rest = RestApi(app.hub, version="1", max_body=100_000, operator=app.operations)
    async with anyio.create_task_group() as tasks:
        yield RestPeer(app, Tools(), rest, Endpoints(HttpAuth({}), {}, rest), tasks)


def measured(found: Mapping[str, Sequence[str]], queries: Sequence[dict[str, Any]]) -> float:
    """The recall, by the program that comes with the data."""
    spec = importlib.util.spec_from_file_location("eval_search", DATA / "toolsearch/eval_search.py")
    assert spec is not None and spec.loader is not None
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    rows, _ = program.evaluate(lambda text, k: list(found[text]), queries, MOST)
    return float(program.summary(rows)[f"recall@{MOST}"])


def queries_for(ids: set[str]) -> list[dict[str, Any]]:
    """The dev queries for which these tools are labelled, with the needs that they meet."""
    found = []
    for line in (DATA / "toolsearch/mcp/dev.jsonl").read_bytes().splitlines():
        row = json.loads(line)
        needs = [
            [id_.removeprefix("real:") for id_ in group if id_.startswith("real:")] for group in row["gold_groups"]
        ]
        met = [need for need in needs if not ids.isdisjoint(need)]
        found += [{**row, "gold_groups": met}] if met else []
    return found


async def test_references_to_deferred_tools_are_those_that_the_ranker_finds(peer: RestPeer) -> None:
    tools = [
        {**tool, "server": server, "id": f"{server}/{tool['name']}"}
        for server, listed in captured().items()
        for tool in listed
    ]
    queries = queries_for({tool["id"] for tool in tools})
    listed = (await peer.ask("GET", "/v1/tools?format=anthropic&defer=1", token=None)).json["tools"]
    deferred = {tool["name"] for tool in listed if tool.get("defer_loading")}
    assert (len(tools), len(deferred), len(queries)) == (611, 611, 156)
    ids = {one.exported: f"{one.server}/{one.key}" for one in peer.app.hub.catalog.view(None).entries(Kind.TOOL)}
    found = {}
    for query in queries:
        arguments = {"query": query["text"], "limit": MOST}
        call = {"type": "tool_use", "id": query["id"], "name": listed[0]["name"], "input": arguments}
        answer = (await peer.ask("POST", "/v1/search?format=anthropic", {"call": call}, token=None)).json
        references = [block["tool_name"] for block in answer["content"] if block["type"] == "tool_reference"]
        assert deferred.issuperset(references) and len(references) <= MOST
        found[query["text"]] = [ids[name] for name in references]
    own = ranker.build(tools)
    ranked = {query["text"]: own.rank(query["text"], MOST) for query in queries}
    assert found == ranked
    assert measured(found, queries) == measured(ranked, queries) > 0.56
