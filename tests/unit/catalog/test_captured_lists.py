"""The lists of 33 public servers in the catalog: names, schemas, flags, and tokens against the real o200k encoding.

Tokens were measured once: of all lists as compact JSON, and of their signatures under exported names. Signatures that
changed are another text, which the count of their characters shows: they must be measured anew.
"""

import json
import re
from collections import Counter
from itertools import groupby
from operator import itemgetter
from statistics import mean

from mcp_hub.catalog.discovery.answers import answer
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.search.documents import Searchable
from mcp_hub.catalog.search.ranker import SearchIndex
from mcp_hub.catalog.texts import READ_RESULT, definitions, signature
from mcp_hub.catalog.token_costs import account
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.trust.scan import Inspector
from mcp_hub.catalog.views.entries import by_server
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.types import ClientKind, Kind
from tests.captured import DATA, captured, encoded, needs_lists
from tests.unit.catalog.offers import names, offer

pytestmark = needs_lists

RULES = ViewRules({server: ServerRules(server) for server in captured()}, expose="auto")
TOKENS, CHARACTERS, OF_LINES = 237_145, 88_364, 20_889
"""Tokens of all lists, characters of all signatures, tokens of these."""


def view() -> CatalogView:
    return build([offer(server, *map(encoded, tools)) for server, tools in captured().items()], RULES)


def test_every_tool_is_exported_under_a_legal_name_with_its_schema() -> None:
    assert len(captured()) == 33 and view().quarantined == ()
    assert len(set(names(view()))) == 611
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,47}", name) for name in names(view()))
    sent = [tool for tools in captured().values() for tool in tools]
    for tool, entry in zip(sent, view().entries(Kind.TOOL), strict=True):
        assert json.loads(entry.raw) == {**tool, "name": entry.exported}
        assert encoded(tool["inputSchema"]) in entry.raw


def test_the_meta_tools_cost_at_most_350_tokens_and_with_names_3100() -> None:
    groups = by_server((entry.server, entry.exported) for entry in view().entries(Kind.TOOL))
    # the real encoding has 9 fewer tokens of these texts
    assert sum(map(estimate, (*definitions(groups, is_names=False), READ_RESULT))) <= 360
    with_names = (*definitions(groups, is_names=True), READ_RESULT)
    assert sum(map(estimate, with_names)) <= 2800
    find, _, run, _ = map(json.loads, with_names)
    assert len(find["description"].encode()) <= 2000 and "google-workspace (119)" in find["description"]
    listed = run["inputSchema"]["properties"]["name"]["description"]
    assert sum(len(line.split(" ")) for line in listed.splitlines()[1:]) == 611


def test_what_is_found_for_real_queries_costs_360_tokens_at_most_on_average() -> None:
    raws: dict[str, bytes] = {}
    index = SearchIndex()
    folder = DATA / "toolsearch" / "mcp"
    tools = [json.loads(line) for line in (folder / "tools.jsonl").read_text().splitlines()]
    for server, its in groupby(sorted(tools, key=itemgetter("server")), key=itemgetter("server")):
        offered = []
        for tool in its:
            raws[tool["id"]] = json.dumps(tool).encode()
            texts = tool["id"], server, tool["name"], tool["description"] or ""
            offered.append(Searchable(*texts, tool["inputSchema"] or {}))
        index.put(server, offered)
    servers = Counter(tool["server"] for tool in tools)
    queries = [json.loads(line)["text"] for line in (folder / "dev.jsonl").read_text().splitlines()]
    costs = sorted(estimate(answer(index.search(query), raws, servers)) for query in queries)
    assert len(costs) > 300 and mean(costs) <= 345
    # the costliest are long lists of parameters' notes, not of hits
    assert costs[int(0.95 * len(costs))] <= 470


def test_all_lists_together_are_estimated_within_a_fiftieth() -> None:
    assert abs(sum(estimate(encoded(tools)) for tools in captured().values()) - TOKENS) <= TOKENS / 50
    listed = by_server((entry.server, signature(entry.exported, entry.raw)) for entry in view().entries(Kind.TOOL))
    texts = ["\n".join(lines) for lines in listed.values()]
    assert sum(map(len, texts)) == CHARACTERS, "other signatures than those that were measured"
    assert abs(sum(map(estimate, texts)) - OF_LINES) <= OF_LINES / 50 and OF_LINES < 23_000


def test_lists_cost_what_the_design_allows_in_every_mode() -> None:
    found = account(view(), RULES, ClientKind(max_tools=240))
    assert len(found.tools) == 611 and len(found.servers) == 33
    assert abs(found.total.full - 237_000) < 23_700, "by the o200k tokenizer, output schemas included"
    assert found.total.compact < 190_000 and found.total.signature < 24_000
    assert found.current.mode == "search" and found.current.tokens <= 360
    tokens = {one.expose: one.tokens for one in found.modes}
    assert tokens["names"] <= 3_100 and tokens["full"] > found.total.full


def test_hardly_a_tool_is_flagged() -> None:
    """4 of 611, 3 of which do use words that are names of other servers' tools."""
    found = Inspector().inspect(view().entries(Kind.TOOL))
    assert {one.kind for one in found} <= {"other_tool", "order"}
    assert len({(one.server, one.tool) for one in found}) <= 4
    assert sum(one.kind == "order" for one in found) <= 1
