"""What the model reads, in tokens, with the 611 tools of 33 public servers (data outside the repository)."""

import json
import os
from collections import Counter
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from statistics import mean

import pytest

from mcp_hub.catalog.costs.tokens import estimate
from mcp_hub.catalog.discovery.definitions import READ_RESULT, answer, definitions
from mcp_hub.catalog.names import Wanted, assign
from mcp_hub.catalog.search.documents import Searchable
from mcp_hub.catalog.search.ranker import SearchIndex

DATA = os.environ.get("MCP_HUB_EVAL_DATA")
LISTS = sorted(Path(DATA, "tool-lists").glob("*.json")) if DATA else []
QUERIES = Path(DATA or "", "toolsearch", "mcp")

pytestmark = pytest.mark.skipif(not LISTS, reason="MCP_HUB_EVAL_DATA names no folder with tool-lists/*.json")


def captured() -> tuple[dict[str, list[str]], dict[str, bytes]]:
    """Exported names by server, and definitions by exported name."""
    lists = {path.stem: json.loads(path.read_bytes())["tools"] for path in LISTS}
    names = assign(Wanted(server, tool["name"], prefix=server) for server, tools in lists.items() for tool in tools)
    groups = {server: [names[server, tool["name"]] for tool in tools] for server, tools in lists.items()}
    raws = {names[server, tool["name"]]: json.dumps(tool).encode() for server, tools in lists.items() for tool in tools}
    return groups, raws


def test_the_meta_tools_cost_at_most_250_tokens_and_with_names_3100() -> None:
    groups, _ = captured()
    # 249 by the real encoding, which has up to 5 % more tokens of these texts
    assert sum(map(estimate, (*definitions(groups, is_names=False), READ_RESULT))) <= 240
    with_names = (*definitions(groups, is_names=True), READ_RESULT)
    # 2,528 by the real encoding
    assert sum(map(estimate, with_names)) <= 2800
    find, run = (json.loads(raw) for raw in with_names[:2])
    assert len(find["description"].encode()) <= 2000 and "google-workspace (119)" in find["description"]
    names = run["inputSchema"]["properties"]["name"]["description"]
    assert sum(len(line.split(" ")) for line in names.splitlines()[1:]) == 611


def test_what_is_found_for_real_queries_costs_360_tokens_at_most_on_average() -> None:
    raws: dict[str, bytes] = {}
    index = SearchIndex()
    tools = [json.loads(line) for line in (QUERIES / "tools.jsonl").read_text().splitlines()]
    for server, its in groupby(sorted(tools, key=itemgetter("server")), key=itemgetter("server")):
        offered = []
        for tool in its:
            raws[tool["id"]] = json.dumps(tool).encode()
            offered.append(
                Searchable(tool["id"], server, tool["name"], tool["description"] or "", tool["inputSchema"] or {})
            )
        index.put(server, offered)
    servers = Counter(tool["server"] for tool in tools)
    queries = [json.loads(line)["text"] for line in (QUERIES / "dev.jsonl").read_text().splitlines()]
    costs = sorted(estimate(answer(index.search(query), raws, servers)) for query in queries)
    assert len(costs) > 300 and mean(costs) <= 345
    # the costliest are long lists of parameters' notes, not of hits
    assert costs[int(0.95 * len(costs))] <= 470
