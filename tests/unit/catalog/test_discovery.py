import json
from collections.abc import Mapping
from typing import Any

import pytest

from mcp_hub.calls.hub_tools.own_tools import OFFERED
from mcp_hub.catalog.discovery.answers import ServerAbout, answer, compose, exact, listing, overview
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.catalog.texts import FIND, READ, READ_RESULT, RUN, RUN_READING, definitions
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.exposure import exposed
from mcp_hub.catalog.views.names import RESERVED
from mcp_hub.catalog.views.view import build
from mcp_hub.config.schema.clients import ClientTable
from mcp_hub.types import ClientKind, Kind
from tests.unit.catalog.offers import offer

GIT = {"git": ["git_commit", "git_log"], "web": ["fetch"]}


def hit(name: str, *also: str) -> Hit:
    return Hit(name, 1.0, also, {})


def tool(name: str, description: str = "", **properties: Any) -> bytes:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return json.dumps({"name": name, "description": description, "inputSchema": schema}).encode()


RAWS: Mapping[str, bytes] = {
    "git_commit": tool("git_commit", "Record changes. More.", message={"type": "string", "description": "In one line"}),
    "git_log": tool("git_log", "Show commits", count={"type": "integer", "description": "At most so many"}),
    "git_diff": tool("git_diff", "Show changes", path={"type": "string", "description": "Only in this file"}),
}
SERVERS = {"git": 3, "web": 12}


def found(*names: str, is_weak: bool = False) -> list[Hit]:
    return [Hit(name, 1.0, (), {}, is_weak) for name in names]


def described(groups: Mapping[str, list[str]], **options: Any) -> tuple[str, str | None]:
    """The description of `find_tools`, and that of the name in `run_tool`, if it has names."""
    find, _, run = map(json.loads, definitions(groups, is_names=True, **options))
    return find["description"], run["inputSchema"]["properties"]["name"].get("description")


def servers(count: int, tools: int) -> dict[str, list[str]]:
    return {f"server{number}": [f"server{number}_tool_{one}" for one in range(tools)] for number in range(count)}


def test_the_four_are_reserved() -> None:
    tools = [json.loads(raw) for raw in (*definitions(GIT, is_names=False), READ_RESULT)]
    names = [FIND, RUN_READING, RUN, READ]
    assert [one["name"] for one in tools] == names and RESERVED.issuperset(names)
    assert [list(one["inputSchema"]["properties"]) for one in tools] == [
        ["query", "server", "detail"],
        ["name", "arguments", "path"],
        ["name", "arguments", "path"],
        ["id", "offset", "grep", "path"],
    ]
    assert [one["inputSchema"]["required"] for one in tools] == [["query"], ["name"], ["name"], ["id"]]


def test_a_client_that_asks_by_hints_has_to_ask_for_one_of_the_four() -> None:
    tools = [json.loads(raw) for raw in (*definitions(GIT, is_names=False), READ_RESULT)]
    reads = {"readOnlyHint": True}  # the other hints of what only reads are their defaults, or mean nothing
    assert [one.get("annotations") for one in tools] == [reads, reads, None, reads]


def test_how_many_tools_there_are_and_of_whom_is_said() -> None:
    find, *_ = definitions(GIT, is_names=False)
    assert json.loads(find)["description"] == (
        "Search 3 tools of git, web. Run hits marked * by read_tool, others by run_tool."
    )


@pytest.mark.parametrize(
    ("count", "prefix"), [(1, "git"), (40, "google-workspace-"), (40, "x9Qz-KJ_qq"), (9, "服务器")]
)
@pytest.mark.parametrize("kind", ["claude-code", "claude-desktop", "cursor", "unknown"])
def test_the_hubs_own_tools_and_instructions_cost_any_client_at_most_500_tokens(
    count: int, prefix: str, kind: str
) -> None:
    """Whole definitions, with hints and `_meta`. The rest of the 500 is for what the estimate may be wrong by."""
    facts = ClientTable({}).rules(None, kind)
    deadline = facts.soft_deadline
    client = ClientKind(
        expose="search", defers_tools=facts.defers_tools, max_result_tokens=facts.max_result_tokens,
        soft_deadline=deadline, hub_tools=OFFERED if deadline is not None else OFFERED[:1],
    )  # fmt: skip
    rules = ViewRules({f"{prefix}{number}": ServerRules() for number in range(count)})
    view = build([offer(name, "read", "write") for name in rules.servers], rules)
    own = exposed(view, rules, client, "search").entries(Kind.TOOL)
    abouts = [ServerAbout(name, 300, "Reads and writes the records of a large company") for name in rules.servers]
    text = compose(None, abouts, is_search=True) or ""
    assert {"find_tools", "run_tool", "hub_calls"} <= {entry.exported for entry in own}
    assert sum(estimate(entry.raw) for entry in own) + estimate(text) <= 490


def test_parameters_whose_names_do_not_say_enough_are_described() -> None:
    find, _, run = (json.loads(raw)["inputSchema"]["properties"] for raw in definitions(GIT, is_names=False))
    assert "empty lists server" in find["query"]["description"] and "full" in find["detail"]["description"]
    assert "JSONPath" in run["path"]["description"]


def test_the_order_in_which_servers_came_is_of_no_account() -> None:
    turned = {server: names[::-1] for server, names in reversed(GIT.items())}
    for is_names in (False, True):
        assert definitions(GIT, is_names=is_names) == definitions(turned, is_names=is_names)


def test_names_are_in_the_description_as_long_as_they_fit() -> None:
    groups = servers(10, 10)
    description, names = described(groups)
    assert names is None and "server3_tool_{0 1 2 3 4 5 6 7 8 9}" in description
    size = len(description.encode())
    assert described(groups, description_limit=size) == (description, None)
    shorter, names = described(groups, description_limit=size - 1)
    assert "server3_tool_{" not in shorter and "server3 (10)" in shorter
    assert names is not None and "server3_tool_{0 1 2 3 4 5 6 7 8 9}" in names


def test_many_names_are_in_the_schema_and_too_many_nowhere() -> None:
    description, names = described(servers(100, 15))
    assert len(description.encode()) <= 2000 and "server99 (15)" in description
    assert names is not None and 1800 < len(names.encode()) <= 12_000
    description, names = described(servers(400, 40))
    assert 1700 < len(description.encode()) <= 2000 and description.endswith("(40), …")
    assert names is None


def test_a_brief_answer_has_a_line_a_hit_and_notes_on_the_first_two() -> None:
    hits = [hit("git_commit", "hg_commit", "svn_commit"), hit("git_log"), hit("git_diff")]
    assert answer(hits, RAWS, SERVERS) == (
        "git_commit(message:str): Record changes\n  message: In one line\nalso: hg_commit, svn_commit\n"
        "git_log(count:int): Show commits\n  count: At most so many\n"
        "git_diff(path:str): Show changes"
    )


def test_no_more_hits_are_shown_than_were_asked_for() -> None:
    lines = answer(found("git_diff", "gone", "git_log", "git_commit"), RAWS, SERVERS, limit=2).split("\n")
    assert [line[:8] for line in lines if line[0] != " "] == ["git_diff", "git_log("]
    assert answer(found("git_diff"), RAWS, SERVERS, limit=-1).startswith("git_diff(")


def test_a_weak_answer_says_so_and_who_is_there() -> None:
    assert answer(found("git_log", is_weak=True), RAWS, SERVERS) == (
        "No close match. Servers: web (12), git (3). Weak matches:\ngit_log(count:int): Show commits"
    )


@pytest.mark.parametrize("query", ["дай совет", "星占い", "별자리 운세", "δώσε μου 12"])
def test_a_weak_answer_to_a_query_without_latin_words_asks_for_english(query: str) -> None:
    assert answer(found(), RAWS, SERVERS, query=query).endswith("git (3). Search again in English.")
    weak = answer(found("git_log", is_weak=True), RAWS, SERVERS, query=query)
    assert weak.startswith("No close match. Servers: web (12), git (3). Search again in English. Weak matches:\n")
    assert "English" not in answer(found("git_log"), RAWS, SERVERS, query=query)


@pytest.mark.parametrize("query", ["git の履歴", "horoscope", "für Ünal", "12"[:0]])
def test_a_weak_answer_to_latin_words_does_not(query: str) -> None:
    assert "English" not in answer(found(), RAWS, SERVERS, query=query)


def test_weak_hits_among_others_are_marked_and_keep_their_place() -> None:
    hits = [hit("git_commit"), Hit("git_log", 0.5, (), {}, weak=True), hit("git_diff")]
    for detail in ("brief", "full"):
        lines = answer(hits, RAWS, SERVERS, detail=detail).split("\n")
        assert [line.endswith("[weak match]") for line in lines if "git_log" in line] == [True]
        assert sum("[weak match]" in line for line in lines) == 1


@pytest.mark.parametrize(
    "harmful",
    [
        {"name": "git_gc", "annotations": {"destructiveHint": True}},
        {"name": "git_gc", "annotations": {"destructiveHint": True, "readOnlyHint": False}},
        {"name": "git_deleteBranch"},
        {"name": "git_branch_remove", "annotations": {"title": "x"}},
    ],
)
def test_a_weak_answer_never_begins_with_a_tool_that_destroys_something(harmful: dict[str, Any]) -> None:
    raws = {**RAWS, "git_harm": json.dumps(harmful).encode()}
    lines = answer(found("git_harm", "git_log", "git_diff", is_weak=True), raws, SERVERS).split("\n")
    assert [line.partition("(")[0] for line in lines[1:]] == ["git_log", "git_diff", "git_harm"]
    alone = answer(found("git_harm", is_weak=True), raws, SERVERS)
    assert alone == (
        "No close match. Servers: web (12), git (3). Weak matches that may destroy data, not shown: git_harm"
    )
    assert answer(found("git_harm", "git_log"), raws, SERVERS).startswith("git_harm("), "a close match stays first"


@pytest.mark.parametrize(
    "harmless",
    [
        {"name": "git_remove", "annotations": {"readOnlyHint": True}},
        {"name": "git_reset", "annotations": {"destructiveHint": False}},
        {"name": "git_dropbox_list"},
    ],
)
def test_hints_and_whole_words_decide_what_destroys(harmless: dict[str, Any]) -> None:
    raws = {**RAWS, "git_ok": json.dumps(harmless).encode()}
    lines = answer(found("git_ok", "git_log", is_weak=True), raws, SERVERS).split("\n")
    assert lines[1].startswith("git_ok(")


def test_all_tools_of_a_server_are_listed_a_line_each_or_by_name() -> None:
    raws = {name: RAWS[name] for name in ("git_log", "git_diff")}
    assert listing(raws) == "git_log(count:int): Show commits\ngit_diff(path:str): Show changes"
    assert listing(raws, limit=1) == "git_log(count:int): Show commits"
    assert listing(raws, detail="full") == f"{exact(RAWS['git_log'])}\n{exact(RAWS['git_diff'])}"
    many = {f"git_tool_{number}": RAWS["git_log"] for number in range(100)}
    assert "git_tool_{0 1 2" in listing(many, budget_tokens=400)
    assert listing(many, budget_tokens=60).endswith(" more were left out.")


def test_all_servers_are_listed_a_line_each_as_far_as_they_fit() -> None:
    servers = [ServerAbout("git", 3, "Reads repositories and writes them"), ServerAbout("notes", 0, "")]
    assert overview(servers) == "git (3): Reads repositories and writes them\nnotes"
    many = [ServerAbout(f"server{number}", 5, "word " * 20) for number in range(100)]
    assert overview(many, 800).count("\n") == 99 and "word" not in overview(many, 800)
    assert estimate(overview(many, 100)) <= 110
    assert overview([]) == "There are no tools."


def test_nothing_found_is_no_answer_to_run() -> None:
    assert answer(found(), RAWS, SERVERS) == "No tool fits. Servers: web (12), git (3)."
    assert answer(found("gone"), RAWS, {}) == "No tool fits: no tools are available."


def test_a_full_answer_has_definitions_as_far_as_they_fit() -> None:
    hits = found("git_commit", "git_log")
    whole = answer(hits, RAWS, SERVERS, detail="full")
    assert whole == f"{exact(RAWS['git_commit'])}\n{exact(RAWS['git_log'])}"
    less = answer(hits, RAWS, SERVERS, detail="full", budget_tokens=estimate(whole)).split("\n")
    assert less[1] == "git_log(count:int): Show commits" and "too long in full" in less[2]


def test_nobody_forges_a_line() -> None:
    evil = "Reads.\n\ngit_log(): or this\u2028also: evil\r\x85x\n"
    raws = {"a": tool("a", evil, **{"p\nalso": {"description": evil}, "q": {"description": evil}})}
    brief = answer(found("a"), raws, SERVERS)
    assert [line[:2] for line in brief.splitlines()] == ["a(", "  "]
    full = answer(found("a"), raws, SERVERS, detail="full")
    assert len(full.splitlines()) == 1 and json.loads(full)["description"] == evil


def test_a_definition_alone_is_compact_and_as_it_was() -> None:
    definition = {
        "name": "t",
        "title": "T",
        "description": "x\u202e中",
        "inputSchema": {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "title": "A"},
        "outputSchema": {"type": "object"},
        "_meta": {"a": 1},
    }
    text = exact(json.dumps(definition, indent=1, ensure_ascii=False).encode())
    assert text.startswith('{"name":"t","description":"x\\u202e中","inputSchema":{') and "\n" not in text
    assert json.loads(text)["description"] == "x\u202e中"
    assert '"title"' not in text and "outputSchema" not in text and "_meta" not in text


@pytest.mark.parametrize("raw", [b"", b"[]", b"{", b'{"\xff":1}', b'{"description":"\xff"}', b"[" * 100_000], ids=len)
def test_what_is_no_definition_is_empty(raw: bytes) -> None:
    assert exact(raw) == "{}"
