"""`read_tool`: it runs what is read-only, and refuses the rest with the way to run it; and what `find_tools` marks."""

import json
import re
from typing import Any

import msgspec
import pytest

from mcp_hub.calls.hub_tools.own_tools import OFFERED
from mcp_hub.catalog.discovery.answers import answer, exact, listing
from mcp_hub.catalog.discovery.meta_tools import not_read_only, refusing, resolve
from mcp_hub.catalog.offers.filters import Filter, HintClaims
from mcp_hub.catalog.offers.rules import Override, ServerRules, ViewRules
from mcp_hub.catalog.routes import Route
from mcp_hub.catalog.search.ranker import Hit, SearchAnswer
from mcp_hub.catalog.views.exposure import exposed
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.errors import UnknownEntry
from mcp_hub.types import OWN, ClientKind, Era, Kind
from tests.captured import captured, encoded, needs_lists
from tests.unit.catalog.offers import offer, tool
from tests.unit.catalog.test_meta_tools import NOBODY, call

READS = {"readOnlyHint": True}
LOG = {"inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
TOOLS = [
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
VIEW = exposed(build([offer("git", *TOOLS)], RULES), RULES, ClientKind(hub_tools=OFFERED), "search")


def asked(runner: str, arguments: Any, view: CatalogView = VIEW, *, is_settled: bool = True) -> Route:
    raw = arguments if isinstance(arguments, bytes) else json.dumps(arguments).encode()
    params = {"name": msgspec.Raw(json.dumps(runner).encode()), "arguments": msgspec.Raw(raw)}
    return resolve(view, Era.MODERN, "tools/call", params, lambda: is_settled)


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


@pytest.mark.anyio
async def test_the_refusal_is_a_result_for_the_model() -> None:
    done = await refusing(not_read_only("git_gc"))(call(b"{}"), NOBODY)
    assert json.loads(done.result)["isError"] and "run_tool" in done.result.decode()


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


def test_while_servers_start_an_unknown_tool_may_yet_turn_up() -> None:
    with pytest.raises(UnknownEntry):
        asked("read_tool", {"name": "later"}, is_settled=False)


@pytest.mark.parametrize("name", ["find_tools", "read_result", "hub_wait", "hub_cancel"])
def test_of_the_hubs_own_tools_it_runs_those_that_only_read(name: str) -> None:
    found = asked("read_tool", {"name": name, "arguments": {}})
    assert (found.refusal is None) is (name != "hub_cancel")


def test_waiting_for_a_call_reads_and_ending_it_destroys_nothing() -> None:
    wait, cancel = (json.loads(raw)["annotations"] for raw in OFFERED)
    repeatable = {"idempotentHint": True, "openWorldHint": False}
    assert wait == {"readOnlyHint": True, **repeatable}
    assert cancel == {"readOnlyHint": False, "destructiveHint": False, **repeatable}


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


RAWS = {entry.exported: entry.raw for entry in VIEW.entries(Kind.TOOL)} | {
    "git_log": tool("git_log", description="Show commits", **LOG),
    "git_commit": tool("git_commit", description="Record changes"),
}
READ_ONLY = {"git_log"}


@pytest.mark.parametrize("is_weak", [False, True])
def test_find_tools_marks_the_hits_that_read_tool_runs(is_weak: bool) -> None:
    found = SearchAnswer((Hit("git_log", 1.0, (), {}), Hit("git_commit", 1.0, (), {})), is_weak)
    lines = answer(found, RAWS, {"git": 2}, reads=READ_ONLY).split("\n")
    assert lines[-2:] == ["git_log(path:str)*: Show commits", "git_commit(): Record changes"]
    assert "*" not in answer(found, RAWS, {"git": 2})


def test_whole_definitions_and_lists_of_a_server_are_marked_alike() -> None:
    found = SearchAnswer((Hit("git_log", 1.0, (), {}), Hit("git_commit", 1.0, (), {})), False)
    log, commit = answer(found, RAWS, {"git": 2}, detail="full", reads=READ_ONLY).split("\n")
    assert log == exact(RAWS["git_log"]) + "*" == exact(RAWS["git_log"], is_read_only=True)
    assert commit == exact(RAWS["git_commit"])
    two = {name: RAWS[name] for name in ("git_log", "git_commit")}
    assert listing(two, reads=READ_ONLY).split("\n") == [
        "git_log(path:str)*: Show commits",
        "git_commit(): Record changes",
    ]
