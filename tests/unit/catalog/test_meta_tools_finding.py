"""`find_tools` and `read_tool`: arguments, answers, marks, and refusals with the way to run a tool."""

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.calls.hub_tools.own_tools import OFFERED
from mcp_hub.catalog.catalog import _Indexes
from mcp_hub.catalog.discovery.answers import ServerAbout, answer, exact, listing
from mcp_hub.catalog.discovery.meta_tools import MOST_HITS, ToolFinder, finding
from mcp_hub.catalog.offers.filters import Filter, HintClaims
from mcp_hub.catalog.offers.rules import Override, ServerRules, ViewRules
from mcp_hub.catalog.routes import Route
from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.exposure import exposed
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.types import OWN, CallId, ClientKind, Era, Kind, Snapshot, UpstreamState, UpstreamStatus
from tests.captured import captured, encoded, needs_lists
from tests.unit.catalog.offers import offer, routed, tool
from tests.unit.catalog.test_meta_tools import NOBODY

pytestmark = pytest.mark.anyio

WORDS = "issue branch page event file user label comment release milestone token team".split()
TOOLS: Mapping[str, Mapping[str, str]] = {
    "git": {f"create_{word}": f"Create a new {word} in a repository." for word in WORDS},
    "web": {"fetch": "Fetch the content of a URL. Follows redirects.", "截图": "对网页进行截图"},
    "empty": {},
}


def definition(name: str, description: str) -> bytes:
    schema = {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}
    return json.dumps({"name": name, "description": description, "inputSchema": schema}).encode()


OFFERS = [
    Snapshot(server, Era.HANDSHAKE, {Kind.TOOL: tuple(definition(*item) for item in tools.items())})
    for server, tools in TOOLS.items()
]
VIEW: CatalogView = build(OFFERS, ViewRules({server: ServerRules(server) for server in TOOLS}))

ABOUT = [ServerAbout("git", 12, "Repositories on a forge"), ServerAbout("web", 2, ""), ServerAbout("empty", 0, "")]
SLOW, LATER = (UpstreamStatus(name, UpstreamState.STARTING) for name in ("slow", "later"))
BROKEN = UpstreamStatus("broken", UpstreamState.BACKING_OFF, "no such file", code="command_not_found", failures=3)
AGAIN = UpstreamStatus("again", UpstreamState.STARTING, "it crashed", failures=1)
DEAD = UpstreamStatus("web", UpstreamState.FAILED, "requires a login", code="login_needed")


class Model:
    """Calls `find_tools`; `limits` has how many hits the search was asked for."""

    def __init__(self, *, budget: int = 8000, absent: tuple[UpstreamStatus, ...] = ()) -> None:
        self.limits: list[int] = []
        self._indexes = _Indexes({})
        self.servers = ABOUT
        self._budget = budget
        self._absent = absent

    async def _search(self, query: str, limit: int, server: str | None) -> tuple[Hit, ...]:
        self.limits.append(limit)
        return await self._indexes.search(None, VIEW, query, limit, server)

    async def _found(self) -> ToolFinder:
        return ToolFinder(VIEW, self._search, self._budget, self.servers, self._absent)

    async def says(self, arguments: bytes | None) -> tuple[str, bool]:
        """What the answer to these encoded arguments says, and whether it is an error."""
        given = {} if arguments is None else {"arguments": msgspec.Raw(arguments)}
        call = Call(
            CallId("c"), "", "tools/call", {"name": msgspec.Raw(b'"find_tools"'), **given}, {}, "s", "p", Era.MODERN, {}
        )
        result = json.loads((await finding(self._found)(call, NOBODY)).result)
        (block,) = result["content"]
        return block["text"], result["isError"]

    async def finds(self, query: str, **more: Any) -> str:
        text, is_error = await self.says(json.dumps({"query": query, **more}).encode())
        assert not is_error, text
        return text

    async def is_refused(self, arguments: bytes | None) -> str:
        text, is_error = await self.says(arguments)
        assert is_error and text.startswith("find_tools: ") and len(text) < 500, text
        assert not self.limits
        return text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (b"null", "object"),
        (b"[]", "object"),
        (b'{"query":["create issue"]}', "$.query"),
        (b'{"query":7}', "$.query"),
        (b'{"query":"x","server":["git"]}', "$.server"),
        (b'{"query":"x","server":"gti"}', "There is no server 'gti'. Servers: git, web"),
        (b'{"query":"x","server":"' + b"s" * 10_000 + b'"}', "Servers: git, web"),
        (b'{"query":"x","limit":"many"}', "`limit` is a number from 1 to 50, not 'many'"),
        (b'{"query":"x","limit":"-1"}', "`limit`"),
        (b'{"query":"x","limit":-1}', "`limit`"),
        (b'{"query":"x","limit":"1.5"}', "`limit`"),
        ('{"query":"x","limit":"八"}'.encode(), "`limit`"),
        (b'{"query":"x","limit":' + b"9" * 400 + b"}", "limit"),
        (b'{"query":"x","limit":1.5}', "$.limit"),
        (b'{"query":"x","limit":true}', "$.limit"),
        (b'{"query":"x","limit":[]}', "$.limit"),
        (b'{"query":"x","detail":"long"}', "`detail` is \"brief\" or \"full\", not 'long'"),
        (b'{"query":"x","detail":"' + b"d" * 10_000 + b'"}', "`detail`"),
        (b'{"query":"x","detail":1}', "$.detail"),
        (b'{"query":"x","x":' + b"[" * 5000 + b"]" * 5000 + b"}", "unknown field `x`. Known arguments: query, server"),
        (b'{"query":"x","max_results":1}', "unknown field `max_results`. Known arguments: query, server"),
        (b'{"query":"x","' + b"x" * 10_000 + b'":1}', "Known arguments: query, server, limit, detail"),
    ],
)  # fmt: skip
async def test_wrong_arguments_are_explained_to_the_model(arguments: bytes | None, said: str) -> None:
    assert said in await Model().is_refused(arguments)


@pytest.mark.parametrize(
    ("limit", "asked"),
    [
        (None, 8),
        ("", 8),
        (0, 8),
        ("0", 1),
        (1, 1),
        ("3", 3),
        (3.0, 3),
        (50, 50),
        (51, MOST_HITS),
        (999_999_999, MOST_HITS),
    ],
)
async def test_a_limit_may_be_text_and_is_bounded(limit: object, asked: int) -> None:
    model = Model()
    await model.finds("create something", limit=limit)
    assert model.limits == [asked]


async def test_what_is_left_empty_is_left_out() -> None:
    assert await Model().finds("create issue", server="", detail="", limit=None) == await Model().finds("create issue")
    assert await Model().finds("create issue", server=None, detail=None) == await Model().finds("create issue")


@pytest.mark.parametrize("query", ["the of and to", "?!…", "\x00\x1b[2J"])
async def test_a_query_that_says_nothing_gets_a_hint_where_to_look(query: str) -> None:
    text = await Model().finds(query)
    assert text.startswith("No ") and "git (12), web (2)" in text and "\x1b" not in text


async def test_a_query_may_be_in_chinese_or_very_long() -> None:
    assert "对网页进行截图" in await Model().finds("网页截图")
    long = await Model().finds("create a new issue in a repository. " * 280)
    assert "git_create_issue(" in long and estimate(long) < 1000
    assert estimate(await Model().finds("x" * 10_000)) < 1000


@pytest.mark.parametrize("query", ["git_create_issue", "  git_create_issue\n"])
async def test_an_exact_name_gives_the_definition_whatever_the_detail(query: str) -> None:
    model = Model()
    for more in ({}, {"detail": "brief"}, {"server": "git"}):
        shown = json.loads(await model.finds(query, **more))
        assert (shown["name"], shown["inputSchema"]["required"]) == ("git_create_issue", ["title"])
    assert model.limits == []


async def test_an_answer_keeps_to_its_budget() -> None:
    for detail in ("brief", "full"):
        text = await Model(budget=120).finds("create new", detail=detail, limit=50)
        assert estimate(text) <= 140 and "left out" in text


@pytest.mark.parametrize(
    "arguments", [None, b"{}", b'{"query":null}', b'{"query":" \\n"}', b'{"query":"","server":""}']
)
async def test_without_a_query_all_servers_are_listed_with_a_line_each(arguments: bytes | None) -> None:
    text, is_error = await Model().says(arguments)
    assert not is_error and text == "git (12): Repositories on a forge\nweb (2)\nempty"


async def test_without_a_query_all_tools_of_a_server_are_listed() -> None:
    model = Model()
    lines = (await model.finds("", server="git")).split("\n")
    assert [line.partition("(")[0] for line in lines] == [f"git_create_{word}" for word in WORDS]
    assert len((await model.finds("", server="git", limit=3)).split("\n")) == 3
    assert model.limits == [], "nothing is searched for"
    assert "Servers: git, web." in await Model().is_refused(b'{"query":"","server":"empty"}'), "that has no tools"


async def test_servers_that_are_starting_are_named_and_those_that_failed_are_not_called_so() -> None:
    known = await Model().finds("create issue")
    assert "tarting" not in known and "ailed" not in known
    text = await Model(absent=(SLOW, BROKEN, LATER, AGAIN)).finds("create issue")
    assert text == (f"{known}\nStarting, tools not known yet: slow, later.\nFailed: broken (command_not_found), again.")


@pytest.mark.parametrize("query", ["", "zzqx", "create issue", "?"])
async def test_a_server_that_failed_is_named_once(query: str) -> None:
    model = Model(absent=(DEAD, BROKEN))
    model.servers = ABOUT[:1]
    text = await model.finds(query)
    assert text.count("broken") == 1 and text.count("web (") == 1 and text.endswith("broken (command_not_found).")


async def test_a_server_that_is_not_there_yet_is_not_called_unknown() -> None:
    absent = (SLOW, LATER, BROKEN)
    assert 'Server "slow" is starting' in await Model(absent=absent).is_refused(b'{"query":"x","server":"slow"}')
    text = await Model(absent=absent).is_refused(b'{"query":"x","server":"broken"}')
    assert 'Server "broken" has failed (command_not_found)' in text and "starting" not in text
    text = await Model(absent=absent).is_refused(b'{"query":"x","server":"other"}')
    assert "There is no server 'other'. Servers: git, web" in text and text.count("broken") == text.count("slow") == 1


# -- `read_tool`

READS = {"readOnlyHint": True}
LOG = {"inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
READ_TOOLS = [
    tool("log", annotations=READS, **LOG),
    tool("commit"),
    tool("gc", annotations={"readOnlyHint": False}),
    tool("both", annotations={**READS, "destructiveHint": True}),
    tool("secret", annotations=READS),
    tool("mine"),
    tool("theirs", annotations=READS),
]
OVERRIDES = {"mine": Override(hints=HintClaims(True)), "theirs": Override(hints=HintClaims(False))}
RULES = ViewRules({"git": ServerRules("git", tools=Filter(deny=("secret",)), overrides=OVERRIDES)})
READ_VIEW = exposed(build([offer("git", *READ_TOOLS)], RULES), RULES, ClientKind(hub_tools=OFFERED), "search")


def asked(runner: str, arguments: Any, view: CatalogView = READ_VIEW, *, is_settled: bool = True) -> Route:
    raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    params = {"name": msgspec.Raw(json.dumps(runner).encode()), "arguments": msgspec.Raw(raw)}
    return routed(view, params, lambda: is_settled)


@pytest.mark.parametrize("name", ["git_log", "git_mine"])
def test_a_read_only_tool_is_called_as_by_run_tool_and_must_not_reach_another(name: str) -> None:
    given = {"name": name, "arguments": '{"path":"a"}'}
    read, run = asked("read_tool", given), asked("run_tool", given)
    assert read == msgspec.structs.replace(run, must_read=True) and not run.must_read
    assert read.refusal is None and (read.server, bytes(read.params["arguments"])) == ("git", b'{"path":"a"}')


@pytest.mark.parametrize("arguments", [{}, {"path": 5}, "no object", [1]])
@pytest.mark.parametrize("name", ["git_commit", "git_gc", "git_both", "git_theirs"])
def test_a_tool_that_is_not_known_to_only_read_is_refused_with_the_way_to_run_it(name: str, arguments: Any) -> None:
    found = asked("read_tool", {"name": name, "arguments": arguments})
    assert found.refusal is not None and found.server == OWN and not found.must_read
    said = f"read_tool runs read-only tools, and {name} is not known to be one. Use run_tool for it."
    assert found.refusal.message == said


@pytest.mark.parametrize(
    "given",
    [
        {},
        [],
        {"name": 7},
        {"name": "git_log", "arguments": [1]},
        {"name": "git_log", "path": "lost"},
        {"name": "git_secret"},
        {"name": "git_lgo"},
        {"name": "nobody"},
        b'{"name":"git_log","x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_what_is_wrong_is_refused_in_the_words_of_run_tool(given: Any) -> None:
    read, run = asked("read_tool", given).refusal, asked("run_tool", given).refusal
    assert read is not None and run is not None
    assert read.message == re.sub(r"^run_tool", "read_tool", run.message)


@pytest.mark.parametrize("outer", ["run_tool", "read_tool"])
@pytest.mark.parametrize("inner", ["run_tool", "read_tool", r"read\u005ftool"])
def test_neither_runs_the_other_or_itself(outer: str, inner: str) -> None:
    given = b'{"name":"%b","arguments":{"name":"git_log","arguments":{}}}' % inner.encode()
    found = asked(outer, given)
    assert found.refusal is not None
    assert found.refusal.message.startswith(f"{outer} cannot run {inner.replace(chr(92) + 'u005f', '_')}.")


@pytest.mark.parametrize("name", ["find_tools", "read_result", "hub_calls", "hub_cancel"])
def test_of_the_hubs_own_tools_it_runs_those_that_only_read(name: str) -> None:
    found = asked("read_tool", {"name": name, "arguments": {}})
    assert (found.refusal is None) is (name != "hub_cancel")


def test_waiting_for_a_call_reads_and_ending_it_destroys_nothing() -> None:
    calls, cancel = (json.loads(raw)["annotations"] for raw in OFFERED)
    assert calls == {"readOnlyHint": True}
    assert cancel == {"readOnlyHint": False, "destructiveHint": False}


@needs_lists
def test_no_captured_tool_that_writes_by_its_hints_or_name_is_run() -> None:
    """What is read is counted by the files themselves; a tool that has a verb of change for its action writes."""
    lists = captured()
    rules = ViewRules({server: ServerRules(server, always=True) for server in lists})
    view = build([offer(server, *map(encoded, tools)) for server, tools in lists.items()], rules)
    shown = exposed(view, rules, ClientKind(), "search")
    sent = [own.get("annotations") or {} for tools in lists.values() for own in tools]
    ran, writers = 0, 0
    for entry, own in zip(view.entries(Kind.TOOL), sent, strict=True):
        reads = own.get("readOnlyHint") is True and own.get("destructiveHint") is not True
        refused = asked("read_tool", {"name": entry.exported}, shown).refusal
        assert (refused is None) is reads, entry.exported
        assert refused is None or "run_tool" in refused.message
        ran += refused is None
        if CHANGES.fullmatch(entry.key):
            writers += 1
            assert refused is not None, entry.exported
    assert (ran, len(sent)) == (253, 611) and writers >= 150


CHANGES = re.compile(
    r"(?:[A-Za-z]+[_-])?(?:create|update|delete|write|add|remove|move|edit|insert|push|merge|send|modify|rename|drop|"
    r"upload|fork|assign|reset|fill|click|type|drag|transition|unmerge|apply|copy|append|replace|close|manage|post|patch|"
    r"commit|clear|draft|unwatch|start|stop)(?:_.*|[A-Z-].*)?"
)
"""Names of tools, as their servers have them, that say in the first or second word that they change something."""


# -- find_tools


RAWS = {entry.exported: entry.raw for entry in READ_VIEW.entries(Kind.TOOL)} | {
    "git_log": tool("git_log", description="Show commits", **LOG),
    "git_commit": tool("git_commit", description="Record changes"),
}
READ_ONLY = {"git_log"}


@pytest.mark.parametrize("is_weak", [False, True])
def test_find_tools_marks_the_hits_that_read_tool_runs(is_weak: bool) -> None:
    found = [Hit(name, 1.0, (), {}, is_weak) for name in ("git_log", "git_commit")]
    lines = answer(found, RAWS, {"git": 2}, reads=READ_ONLY).split("\n")
    assert lines[-2:] == ["git_log(path:str)*: Show commits", "git_commit(): Record changes"]
    assert "*" not in answer(found, RAWS, {"git": 2})


def test_whole_definitions_and_lists_of_a_server_are_marked_alike() -> None:
    found = [Hit(name, 1.0, (), {}) for name in ("git_log", "git_commit")]
    log, commit = answer(found, RAWS, {"git": 2}, detail="full", reads=READ_ONLY).split("\n")
    assert log == exact(RAWS["git_log"]) + "*" == exact(RAWS["git_log"], is_read_only=True)
    assert commit == exact(RAWS["git_commit"])
    two = {name: RAWS[name] for name in ("git_log", "git_commit")}
    assert listing(two, reads=READ_ONLY).split("\n") == [
        "git_log(path:str)*: Show commits",
        "git_commit(): Record changes",
    ]
