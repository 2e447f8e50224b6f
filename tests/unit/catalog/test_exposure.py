"""What each kind of client is listed, and that all the rest can still be called."""

import json
from typing import Any

import pytest
from msgspec.structs import replace

from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.views.exposure import decided, exposed
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.types import OWN, ClientKind, Kind, Mode, Snapshot
from tests.unit.catalog import offers
from tests.unit.catalog.offers import names, offer

SEARCH = ["find_tools", "read_tool", "run_tool"]
WAITING = (
    b'{"name":"hub_calls","inputSchema":{"type":"object"}}',
    b'{"name":"hub_cancel","inputSchema":{"type":"object"}}',
)
ANYBODY = ClientKind(max_tools=240)
CODE = ClientKind(max_tools=400, defers_tools=True)


def tool(name: str, **members: Any) -> bytes:
    schema = {"type": "object", "title": "T", "properties": {"q": {"type": "string"}}}
    return offers.tool(name, **{"description": f"Does {name}.", "inputSchema": schema, **members})


def view_of(rules: ViewRules, *snapshots: Snapshot) -> CatalogView:
    return build(snapshots, rules)


def rules_of(*servers: str, **members: Any) -> ViewRules:
    members = {"expose": "auto", "max_result_tokens": 0, **members}
    return ViewRules({name: ServerRules(name) for name in servers}, **members)


def few(count: int, server_name: str = "git") -> Snapshot:
    return offer(server_name, *(tool(f"t{number}") for number in range(count)))


def listed(rules: ViewRules, client: ClientKind, *snapshots: Snapshot, mode: Mode | None = None) -> list[str]:
    view = view_of(rules, *snapshots)
    return names(exposed(view, rules, client, mode or decided(view, rules, client)))


MODES = [
    *((ANYBODY, 10**6, count, mode) for count, mode in ((0, "full"), (60, "full"), (61, "search"))),
    *((CODE, 1, count, mode) for count, mode in ((61, "full"), (400, "full"), (401, "search"))),
]


@pytest.mark.parametrize(("client", "budget", "count", "mode"), MODES)
def test_auto_lists_sixty_tools_in_full_and_all_that_it_takes_for_a_client_that_defers_tools(
    client: ClientKind, budget: int, count: int, mode: str
) -> None:
    rules = rules_of("git", budget=budget)
    assert decided(view_of(rules, few(count)), rules, client) == mode


def test_auto_lists_in_full_what_fits_the_budget_as_it_would_be_sent() -> None:
    rules = rules_of("git", budget=250)
    long = offer("git", tool("a", outputSchema={"type": "object", "description": "word " * 300}))
    view = view_of(rules, long)
    assert decided(view, rules, ANYBODY) == "search"
    assert decided(view, replace(rules, compact=True), ANYBODY) == "full", "compacted it has no output schema"
    assert decided(view, rules, replace(ANYBODY, hub_tools=WAITING, soft_deadline=45.0)) == "full", (
        "nor has it for who is answered early"
    )


def test_what_is_asked_for_is_what_is_listed_and_the_client_s_word_goes_before_the_profile_s() -> None:
    rules = rules_of("git", expose="names")
    view = view_of(rules, few(1))
    assert decided(view, rules, ANYBODY) == "names"
    assert decided(view, rules, replace(ANYBODY, expose="search")) == "search"
    assert decided(view, rules, replace(ANYBODY, expose="auto")) == "full"


def test_search_lists_the_hub_s_own_tools_and_what_is_pinned_and_all_can_be_called() -> None:
    rules = rules_of("git", expose="search", pinned=("*_t1",), max_result_tokens=8000)
    view = view_of(rules, few(3))
    shown = exposed(view, rules, ANYBODY, "search")
    assert names(shown) == [*SEARCH, "read_result", "git_t1"]
    for name in ("git_t0", "git_t2", *names(shown)):
        entry = shown.find(Kind.TOOL, name)
        assert entry is not None and entry.exported == name
        assert (entry.server == OWN) == (name in (*SEARCH, "read_result"))


def test_full_lists_just_the_tools_unless_results_are_cut_or_calls_answered_early() -> None:
    rules = rules_of("git")
    assert listed(rules, ANYBODY, few(2)) == ["git_t0", "git_t1"]
    cut = replace(rules, max_result_tokens=1)
    assert listed(cut, ANYBODY, few(1)) == ["read_result", "git_t0"]
    assert listed(cut, replace(ANYBODY, max_result_tokens=0), few(1)) == ["git_t0"]
    assert listed(rules, replace(ANYBODY, max_result_tokens=5), few(1)) == ["read_result", "git_t0"]
    early = replace(ANYBODY, hub_tools=WAITING, soft_deadline=45.0)
    assert listed(rules, early, few(1)) == ["hub_calls", "hub_cancel", "git_t0"]


def test_calls_are_listed_to_every_client_but_one_that_wants_servers_tools_alone() -> None:
    rules, calls = rules_of("git"), WAITING[:1]
    for client in (ANYBODY, CODE, replace(ANYBODY, expose="search")):
        assert "hub_calls" in listed(rules, replace(client, hub_tools=calls), few(1))
    bare = replace(ANYBODY, hub_tools=calls, expose="full", max_result_tokens=0)
    assert listed(rules, bare, few(1)) == ["git_t0"]
    assert listed(replace(rules, expose="full"), replace(CODE, hub_tools=calls), few(1)) == ["git_t0"]
    assert "hub_calls" in listed(rules, replace(bare, max_result_tokens=5), few(1))
    assert listed(rules, replace(bare, soft_deadline=45.0), few(1)) == ["hub_calls", "git_t0"]
    view = view_of(rules, few(1))
    assert exposed(view, rules, bare, "full").find(Kind.TOOL, "hub_calls") is not None, "it can be called"


@pytest.mark.parametrize(
    ("name", "near"),
    [("find_tol", ["find_tools"]), ("hub_cals", []), ("find_files", []), ("run_tests", []), ("read_resource", [])],
)
def test_own_tool_is_named_only_for_a_misspelling_of_it(name: str, near: list[str]) -> None:
    rules = rules_of("git")
    assert exposed(view_of(rules, few(2)), rules, ANYBODY, "search").nearest(Kind.TOOL, name) == near


def test_while_servers_are_unknown_auto_lists_the_search_too_and_full_stays_full() -> None:
    rules = rules_of("git")
    view = view_of(rules, few(1))
    assert names(exposed(view, rules, ANYBODY, "full", is_partial=True)) == [*SEARCH, "git_t0"]
    everything = replace(rules, expose="full")
    assert names(exposed(view, everything, ANYBODY, "full", is_partial=True)) == ["git_t0"]


def test_a_server_may_be_listed_in_full_or_left_to_search_whatever_holds_for_the_others() -> None:
    rules = rules_of("git", "ci", "db", expose="search")
    rules = replace(rules, servers={**rules.servers, "ci": ServerRules("ci", expose="full")})
    servers = few(1), few(1, "ci"), few(1, "db")
    assert listed(rules, ANYBODY, *servers) == [*SEARCH, "ci_t0"]
    rules = replace(rules, expose="full", servers={**rules.servers, "db": ServerRules("db", expose="search")})
    assert listed(rules, ANYBODY, *servers) == [*SEARCH, "git_t0", "ci_t0"]


def test_a_list_that_has_outgrown_its_client_is_cut_and_the_rest_can_be_found() -> None:
    rules = rules_of("git", max_result_tokens=8000)
    small = replace(ANYBODY, max_tools=10)
    assert listed(rules, small, few(10), mode="full") == [*SEARCH, "read_result", *(f"git_t{n}" for n in range(6))]
    assert len(listed(rules, small, few(9), mode="full")) == 10, "one has room for read_result"
    everything = replace(rules, expose="full")
    assert len(listed(everything, small, few(30))) == 31, "who asks for full gets it"


def test_compact_definitions_are_listed_where_it_is_set_and_whole_ones_elsewhere() -> None:
    rules = rules_of("git", "ci", expose="full")
    rules = replace(rules, servers={**rules.servers, "ci": ServerRules("ci", compact=True)})
    git, ci = exposed(view_of(rules, few(1), few(1, "ci")), rules, ANYBODY, "full").entries(Kind.TOOL)
    assert b'"title"' in git.raw and b'"title"' not in ci.raw
    rules = replace(rules, compact=True, servers={**rules.servers, "git": ServerRules("git", compact=False)})
    git, ci = exposed(view_of(rules, few(1), few(1, "ci")), rules, ANYBODY, "full").entries(Kind.TOOL)
    assert b'"title"' in git.raw and b'"title"' not in ci.raw


def test_a_client_that_defers_tools_gets_search_hints_and_result_sizes() -> None:
    rules = rules_of("git", max_result_tokens=8000)
    own = {"anthropic/searchHint": "own", "x": 1}
    offered = offer("git", tool("a"), tool("b", _meta=own))
    _, a, b = exposed(view_of(rules, offered), rules, CODE, "full").entries(Kind.TOOL)
    assert json.loads(a.raw) == {
        **json.loads(tool("git_a", description="Does a.")),
        "_meta": {"anthropic/searchHint": "git: Does a.", "anthropic/maxResultSizeChars": 32000},
    }
    assert json.loads(b.raw)["_meta"] == {**own, "anthropic/maxResultSizeChars": 32000}
    (plain, *_) = exposed(view_of(rules, offered), rules, ANYBODY, "full").entries(Kind.TOOL)[1:]
    assert "_meta" not in json.loads(plain.raw)


def test_definitions_are_those_of_the_server_byte_for_byte_where_nothing_is_to_be_changed() -> None:
    rules = rules_of("git")
    view = view_of(rules, few(2))
    for entry, same in zip(
        exposed(view, rules, ANYBODY, "full").entries(Kind.TOOL), view.entries(Kind.TOOL), strict=True
    ):
        assert entry is same
