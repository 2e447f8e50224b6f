"""Whose hints of a tool count: the server's, as far as they are used, under the user's; and how they are listed."""

import json
from typing import Any

import pytest

from mcp_hub.catalog.offers.definitions import parse
from mcp_hub.catalog.offers.filters import HINTS, Filter, HintClaims, HintRule, Selector, _Hints
from mcp_hub.catalog.offers.rules import Override, ServerRules, ViewRules
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.view import build
from mcp_hub.types import Era, Kind
from tests.unit.catalog.offers import names, offer, tool

READS = {"readOnlyHint": True}
DESTROYS = {"destructiveHint": True}


def entry(
    annotations: dict[str, Any] | None,
    user: HintClaims | None = None,
    rule: HintRule = "trust",
    *,
    is_approved: bool = False,
) -> Entry:
    """The tool `x` of a server that lists it with these annotations."""
    overrides = {} if user is None else {"x": Override(hints=user)}
    rules = ViewRules({"git": ServerRules("git", overrides=overrides, hints=rule)})
    sent = {} if annotations is None else {"annotations": annotations}
    approved = {("git", "x")} if is_approved else set()
    (found,) = build([offer("git", tool("x", **sent))], rules, approved=approved).entries(Kind.TOOL)
    return found


def hints(found: Entry) -> _Hints:
    return found.hints.claims.hints()


def listed(found: Entry) -> Any:
    return json.loads(found.raw).get("annotations")


def origins(found: Entry) -> dict[str, tuple[bool, str]]:
    shown = json.loads(found.definition(Era.MODERN, explains_hints=True))["_meta"]["dev.mcp-hub/hints"]
    assert list(shown) == list(HINTS.values())
    return {name: (one["value"], one["origin"]) for name, one in shown.items()}


@pytest.mark.parametrize(
    ("rule", "is_approved", "counts"),
    [
        ("trust", False, True),
        ("trust", True, True),
        ("approved", False, False),
        ("approved", True, True),
        ("ignore", False, False),
        ("ignore", True, False),
    ],
)
def test_the_setting_says_whether_the_hints_of_a_server_count(rule: HintRule, is_approved: bool, counts: bool) -> None:
    found = entry({**READS, "title": "T", "x": [1]}, None, rule, is_approved=is_approved)
    assert found.is_read_only is hints(found).read_only is counts
    assert listed(found) == {**(READS if counts else {}), "title": "T", "x": [1]}, "a client asks by what is listed"
    origin = {"trust": "server", "approved": "server" if counts else "unapproved", "ignore": "ignored"}[rule]
    assert origins(found) == {
        "readOnlyHint": (counts, origin),
        "destructiveHint": (not counts, "default"),
        "idempotentHint": (counts, "default"),
        "openWorldHint": (True, "default"),
    }


def test_nothing_is_changed_where_the_server_gives_no_hints_or_they_count_as_they_are() -> None:
    for annotations in (None, {}, {"title": "T"}):
        assert listed(entry(annotations, None, "ignore")) == annotations
    assert listed(entry({"readOnlyHint": None}, None, "ignore")) == {}
    assert listed(entry(READS, None, "ignore")) is None
    raw = b'{"annotations":{"destructiveHint":false , "x":1.50},"name":"x","inputSchema":{"type":"object"}}'
    rules = ViewRules({"git": ServerRules()})
    (found,) = build([offer("git", raw)], rules).entries(Kind.TOOL)
    assert found.raw == raw


@pytest.mark.parametrize("rule", ["trust", "approved", "ignore"])
@pytest.mark.parametrize(
    ("sent", "user", "shown", "counts"),
    [
        (None, HintClaims(True), READS, _Hints(True, False, True)),
        (DESTROYS, HintClaims(True), READS, _Hints(True, False, True)),
        ({"readOnlyHint": False, **DESTROYS}, HintClaims(True), READS, _Hints(True, False, True)),
        (READS, HintClaims(False), {"readOnlyHint": False}, _Hints()),
        (READS, HintClaims(destructive=True), DESTROYS, _Hints()),
        ({"title": "T"}, HintClaims(destructive=False), {"title": "T", "destructiveHint": False}, _Hints(False, False)),
    ],
)
def test_where_a_server_and_a_user_disagree_the_user_wins(
    rule: HintRule, sent: dict[str, Any] | None, user: HintClaims, shown: dict[str, Any], counts: _Hints
) -> None:
    found = entry(sent, user, rule)
    assert hints(found) == counts and found.is_read_only is counts.read_only
    assert listed(found) == shown
    for name, wire in HINTS.items():
        if getattr(user, name) is not None:
            assert origins(found)[wire] == (getattr(user, name), "user")


def test_what_the_user_leaves_open_is_the_servers_as_far_as_it_counts() -> None:
    sent = {"destructiveHint": False, "openWorldHint": False}
    trusted, ignored = (entry(sent, HintClaims(idempotent=True), rule) for rule in ("trust", "ignore"))
    assert hints(trusted) == _Hints(False, False, True, False) and hints(ignored) == _Hints(idempotent=True)
    assert listed(trusted) == {**sent, "idempotentHint": True} and listed(ignored) == {"idempotentHint": True}
    assert [origin for _, origin in origins(ignored).values()] == ["default", "ignored", "user", "ignored"]


def test_a_tool_that_is_said_to_only_read_and_to_destroy_destroys() -> None:
    found = entry({**READS, **DESTROYS})
    assert not found.is_read_only and hints(found) == _Hints()
    assert origins(found)["readOnlyHint"] == (False, "server")


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize(
    ("other", "counts"),
    [
        (DESTROYS, _Hints()),
        ({"destructiveHint": False}, _Hints(destructive=False)),
        ({**READS, "idempotentHint": False}, _Hints(True, False)),
        (READS, _Hints(True, False, True)),
    ],
)
def test_of_two_definitions_of_one_tool_the_more_dangerous_hints_count(
    order: int, other: dict[str, Any], counts: _Hints
) -> None:
    twice = [tool("x", annotations={**READS, "openWorldHint": False}), tool("x", annotations=other)][::order]
    usable, unfit = parse(Kind.TOOL, twice, "twice")
    assert [one.key for one in usable] == ["x"] and len(unfit) == 1
    assert usable[0].traits.hints == usable[0].hints.claims.hints() == counts


def test_filters_go_by_the_hints_that_count() -> None:
    reads = Filter((Selector(read_only=True),))
    tools = [tool("a", annotations=READS), tool("b"), tool("c", annotations=READS)]
    overrides = {"b": Override(hints=HintClaims(True)), "c": Override(hints=HintClaims(False))}
    expected = {"trust": ["a", "b"], "approved": ["b"], "ignore": ["b"]}
    for rule in ("trust", "approved", "ignore"):
        own = ServerRules(tools=reads, overrides=overrides, hints=rule)
        assert names(build([offer("git", *tools)], ViewRules({"git": own}))) == expected[rule]
    own = ServerRules(tools=reads, hints="approved")
    approved = build([offer("git", *tools)], ViewRules({"git": own}), approved={("git", "c")})
    assert names(approved) == ["c"]
