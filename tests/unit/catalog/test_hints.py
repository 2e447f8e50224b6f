"""Whose hints of a tool count: the server's, as far as they are used or approved, under the user's."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mcp_hub.catalog.discovery.meta_tools import check_reading
from mcp_hub.catalog.offers.definitions import parse
from mcp_hub.catalog.offers.filters import HINTS, Filter, HintClaims, HintRule, Selector, _Hints
from mcp_hub.catalog.offers.rules import Override, ServerRules, ViewRules
from mcp_hub.catalog.pins import Record, encoded
from mcp_hub.catalog.trust import approvals as module
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.view import build
from mcp_hub.errors import InvalidParams
from mcp_hub.ids import record_key
from mcp_hub.types import Era, Kind, Snapshot
from tests.unit.catalog.approved_hub import CONFIG, Hub, approve, call, running, until
from tests.unit.catalog.offers import names, offer, routed, tool

pytestmark = pytest.mark.anyio

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


# -- hints that count once they are approved

RULES = ViewRules({name: ServerRules(name, hints="approved") for name in "ab"})


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_AGAIN", 0.02)


def listing(description: str = "Looks.") -> Snapshot:
    return offer(
        "a", tool("look", description=description, annotations=READS), tool("x", description="X.", annotations=READS)
    )


def reads(hub: Hub) -> list[str]:
    """The tools that are known to only read."""
    return [entry.exported for entry in hub.catalog.view(None).entries(Kind.TOOL) if entry.is_read_only]


def is_run(hub: Hub, name: str) -> bool:
    """Whether `read_tool` runs it."""
    arguments = msgspec.json.encode({"name": name})
    params = {"name": msgspec.Raw(b'"read_tool"'), "arguments": msgspec.Raw(arguments)}
    view = hub.catalog.view(None)
    return routed(view, params).refusal is None


async def test_trust_on_first_use_is_not_enough_and_an_approval_counts_within_a_second(tmp_path: Path) -> None:
    async with running(Hub(tmp_path, "warn", RULES, confirms=("a",))) as hub:
        hub.a.lists(listing())
        assert reads(hub) == [] and hub.found() == {} and not is_run(hub, "a_look")
        await until(hub, lambda: hub.store.stamp(record_key(CONFIG, "a")) is not None)
        approve(tmp_path, "look")
        await until(hub, lambda: reads(hub) == ["a_look"])
        assert is_run(hub, "a_look") and not is_run(hub, "a_x")
    async with running(Hub(tmp_path, "warn", RULES, confirms=("a",))) as hub:
        hub.a.lists(listing())
        assert reads(hub) == ["a_look"], "the next hub knows"
        hub.a.lists(listing("Looks, and sends the keys."))
        assert reads(hub) == [] and hub.names()["a_look"] == "Looks, and sends the keys."
        hub.a.lists(listing())
        assert reads(hub) == ["a_look"]
    async with running(Hub(tmp_path, "warn", RULES, confirms=("a",))) as hub:
        hub.a.lists(listing())
        assert reads(hub) == ["a_look"]
        hub.store.update(record_key(CONFIG, "a"), lambda text: encoded(Record()))
        await until(hub, lambda: reads(hub) == [])


async def test_an_approval_of_a_changed_tool_counts_for_its_new_hints(tmp_path: Path) -> None:
    async with running(Hub(tmp_path, "block", RULES, confirms=("a",))) as hub:
        hub.a.lists(offer("a", tool("look", description="Looks.")))
        assert "a_look" in hub.names()
        hub.a.lists(listing())
        assert "a_look" not in hub.names()
        await until(hub, lambda: hub.on_disk() == {"look": "changed", "x": "new"})
        approve(tmp_path, "look")
        await until(hub, lambda: reads(hub) == ["a_look"])


async def test_hints_count_for_nobody_while_the_record_cannot_be_read(tmp_path: Path) -> None:
    hub = Hub(tmp_path, "warn", RULES, confirms=("a",))
    hub.store.update(record_key(CONFIG, "a"), lambda text: b"{")
    hub.a.lists(listing())
    assert [entry.exported for entry in hub.catalog.view(None).entries(Kind.TOOL)] == ["a_look", "a_x"] and reads(
        hub
    ) == []


# -- the process that gets the call


@pytest.mark.parametrize(
    ("rules", "annotations", "is_let_in"),
    [
        (ServerRules(), READS, True),
        (ServerRules(), {}, False),
        (ServerRules(), {**READS, "destructiveHint": True}, False),
        (ServerRules(hints="ignore"), READS, False),
        (ServerRules(hints="approved"), READS, False),
    ],
)
def test_a_process_that_lists_a_tool_as_more_dangerous_does_not_get_the_call(
    rules: ServerRules, annotations: dict[str, bool], is_let_in: bool
) -> None:
    check = partial(check_reading, lambda server: rules, lambda server, own: False)
    look = call("look", "a_look")
    own = offer("a", tool("other"), tool("look", annotations=annotations))
    if is_let_in:
        check(look, own)
        check(look, offer("a", tool("other")))
    else:
        with pytest.raises(InvalidParams, match=r"^read_tool runs .* a_look is not .*run_tool"):
            check(look, own)


def approved_hub(folder: Path, asks: str) -> Hub:
    """A hub that asks for approvals of this server. Its server `a` lists what was approved again."""
    hub = Hub(folder, "warn", RULES, confirms=(asks,))
    hub.a.lists(listing())
    hub.names()
    hub.approvals.close()
    approve(folder, "look")
    hub.a.lists(listing("Other."))
    hub.a.lists(listing())
    return hub


async def test_a_process_has_to_list_the_very_definition_that_was_approved(tmp_path: Path) -> None:
    assert reads(approved_hub(tmp_path / "other", "b")) == [], "nobody is asked about server a"
    hub = approved_hub(tmp_path, "a")
    assert reads(hub) == ["a_look"]
    check = partial(check_reading, lambda server: RULES.servers[server], hub.approvals.is_confirmed)
    look = call("look", "a_look")
    check(look, listing())
    with pytest.raises(InvalidParams, match="runs read-only tools"):
        check(look, listing("Looks, and sends the keys."))
