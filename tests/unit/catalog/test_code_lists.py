"""Where `run_code` is listed, what a script may call, and the lines of `find_tools` there."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from mcp_hub.call import Call
from mcp_hub.catalog.discovery.answers import ServerAbout, answer, exact, listing
from mcp_hub.catalog.discovery.meta_tools import ToolFinder, finding
from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.catalog.token_costs import account
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.exposure import exposed
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.types import CallId, ClientKind, CodeMode, Era, Kind, Mode
from tests.unit.catalog.offers import names, offer, tool
from tests.unit.catalog.test_exposure import ANYBODY, CODE, few, rules_of, view_of
from tests.unit.catalog.test_meta_tools import NOBODY

READING = {"annotations": {"readOnlyHint": True}}
RULES = rules_of("git", code="ask", lists_code=True)


def git_view(code: CodeMode = "ask", *, lists_code: bool = True) -> CatalogView:
    return view_of(rules_of("git", code=code, lists_code=lists_code), offer("git", tool("git-log")))


@pytest.mark.parametrize("mode", ["full", "search", "names"])
@pytest.mark.parametrize("client", [ANYBODY, CODE, ClientKind(expose="full", max_result_tokens=0)])
def test_run_code_is_listed_in_each_mode_for_each_client(mode: Mode, client: ClientKind) -> None:
    listed = names(exposed(view_of(RULES, few(3)), RULES, client, mode))
    assert listed.count("run_code") == 1 and ("git_t0" in listed) == (mode == "full")


@pytest.mark.parametrize(
    ("code", "lists_code"), [("off", False), ("all", False), ("reads", True), ("ask", True), ("all", True)]
)
def test_run_code_is_listed_where_scripts_can_run(code: CodeMode, lists_code: bool) -> None:
    is_listed = lists_code
    view = git_view(code, lists_code=lists_code)
    rules = rules_of("git", code=code, lists_code=lists_code)
    shown = exposed(view, rules, ANYBODY, "full")
    assert ("run_code" in names(shown)) == is_listed == (shown.find(Kind.TOOL, "run_code") is not None)
    assert (view.find(Kind.TOOL, "run_code") is not None) == is_listed


def test_run_code_is_listed_before_any_server_is_there() -> None:
    for mode in ("full", "search"):
        assert names(exposed(view_of(RULES), RULES, ANYBODY, mode)).count("run_code") == 1


def test_run_code_only_reads_where_its_scripts_do() -> None:
    for code, is_read_only in (("reads", True), ("ask", False), ("all", False)):
        rules = replace(RULES, code=code)
        shown = exposed(view_of(rules, offer("git", tool("log", **READING))), rules, ANYBODY, "full")
        entry = shown.find(Kind.TOOL, "run_code")
        assert entry is not None and entry.is_read_only is is_read_only


def test_callables_are_the_tools_of_servers_by_their_names_in_python() -> None:
    apps = {"_meta": {"ui": {"resourceUri": "ui://x", "visibility": ["app"]}}}
    view = view_of(RULES, offer("git", tool("log-all", **READING), tool("push"), tool("click", **apps)))
    shown = exposed(view, RULES, replace(ANYBODY, shows_apps=True), "search")
    assert shown.callables is shown.callables
    assert {name: entry.exported for name, entry in shown.callables.items()} == {
        "git_log_all": "git_log-all",
        "git_push": "git_push",
    }
    assert [entry.is_read_only for entry in shown.callables.values()] == [True, False]
    assert list(view.callables) == list(shown.callables)


def test_tokens_count_run_code() -> None:
    without = replace(RULES, code="off", lists_code=False)
    counts = {rules.code: account(view_of(rules, few(3)), rules, ANYBODY).current.tokens for rules in (RULES, without)}
    assert 100 < counts["ask"] - counts["off"] <= 180


LOG = tool(
    "git-log",
    description="Show commits. Newest first.",
    inputSchema={"type": "object", "properties": {"path": {"type": "string"}, "most": {"type": "integer"}}},
)
HITS = [Hit("git-log", 1.0, (), {})]


def test_lines_of_hits_are_python_where_scripts_can_call_them() -> None:
    said = answer(HITS, {"git-log": LOG}, {"git": 1}, reads=["git-log"], names={"git-log": "git_log"})
    head = "async def git_log(*, path: str | None = None, most: int | None = None) -> Any* (git-log): Show commits"
    assert said == head
    assert listing({"git-log": LOG}, names={"git-log": "git_log"}) == head.replace("*:", ":").replace("Any*", "Any")
    assert answer(HITS, {"git-log": LOG}, {"git": 1}) == "git-log(path?:str, most?:int): Show commits"


def test_definition_in_full_has_the_name_in_scripts_if_it_differs() -> None:
    full = answer(HITS, {"git-log": LOG}, {"git": 1}, detail="full", names={"git-log": "git_log"})
    assert full == exact(LOG) + " (run_code: git_log)"
    assert answer(HITS, {"git-log": LOG}, {"git": 1}, detail="full", names={"git-log": "git-log"}) == exact(LOG)


def test_definition_in_full_has_what_a_script_gets_from_the_tool() -> None:
    output = {"type": "object", "properties": {"size": {"type": "integer"}}}
    raw = tool("git_size", outputSchema=output)
    full = answer([Hit("git_size", 1.0, (), {})], {"git_size": raw}, {}, detail="full", names={"git_size": "git_size"})
    assert full == exact(raw) + ' -> {"size": int}'


def test_names_alone_come_with_how_they_are_written_in_scripts() -> None:
    raws = {f"git-{number}": LOG for number in range(30)}
    scripts = {name: name.replace("-", "_") for name in raws}
    brief = listing(raws, budget_tokens=300, names=scripts)
    assert brief.endswith("\nIn run_code each other character of a name is _.") and estimate(brief) <= 300
    assert "run_code" not in listing(raws, budget_tokens=300)


def test_definition_of_run_code_is_the_same_for_every_client() -> None:
    raws = set()
    for client in (ANYBODY, replace(ANYBODY, soft_deadline=50.0)):
        entry = exposed(git_view(), RULES, client, "search").find(Kind.TOOL, "run_code")
        raws.add(b"" if entry is None else entry.raw)
    (raw,) = raws
    assert json.loads(raw)["name"] == "run_code"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("code", "query", "said"),
    [
        ("ask", "show commits", "async def git_log("),
        ("off", "show commits", "git-log("),
        ("ask", "git_log", "(run_code: git_log)"),
        ("ask", "git-log", "(run_code: git_log)"),
        ("off", "git_log", "git-log("),
        ("ask", "", "async def git_log("),
    ],
)
async def test_find_tools_takes_and_says_both_names_where_scripts_run(code: CodeMode, query: str, said: str) -> None:
    view = view_of(rules_of("git", code=code, lists_code=code != "off"), offer("git", LOG))

    async def search(query: str, limit: int, server: str | None) -> list[Hit]:
        return [Hit("git-log", 1.0, (), {})]

    async def finder() -> ToolFinder:
        return ToolFinder(view=view, search=search, budget=8000, servers=[ServerAbout("git", 1, "")], absent=[])

    arguments = msgspec.Raw(json.dumps({"query": query, "server": "git"}).encode())
    params = {"name": msgspec.Raw(b'"find_tools"'), "arguments": arguments}
    call = Call(CallId("c"), "", "tools/call", params, {}, "s", "p", Era.MODERN, {})
    result = json.loads((await finding(finder)(call, NOBODY)).result)
    assert said in result["content"][0]["text"] and not result["isError"]
