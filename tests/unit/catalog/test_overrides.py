"""What the settings change about a tool: its name, description, schema, and whether it is there at all."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.catalog.offers.filters import Filter, Selector
from mcp_hub.catalog.offers.rules import Override, ServerRules, Supplied, ViewRules
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.view import CatalogView, build
from mcp_hub.types import Era, Kind, RawObject, Snapshot
from tests.unit.catalog.offers import names

HANDSHAKE, MODERN = Era.HANDSHAKE, Era.MODERN
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"repo": {"type": "string"}, "limit": {"type": "integer"}, "token": {"type": "string"}},
    "required": ["repo", "token"],
    "additionalProperties": False,
}


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {"name": name, "description": "Does it.\nWell.", "inputSchema": SCHEMA, **members}


def view(
    *tools: dict[str, Any], pinned: tuple[str, ...] = (), allowed: Filter | None = None, globs: Any = None, **own: Any
) -> CatalogView:
    """Of one server `git`; `globs` and `own` are its overrides, or other rules of it."""
    overrides = {**(globs or {}), **{key: value for key, value in own.items() if isinstance(value, Override)}}
    rest = {key: value for key, value in own.items() if not isinstance(value, Override)}
    lists = {
        Kind.TOOL: tuple(json.dumps(one).encode() for one in tools),
        Kind.PROMPT: (json.dumps({"name": "log"}).encode(),),
    }
    rules = {"git": ServerRules("git", overrides=overrides, **rest)}
    return build([Snapshot("git", HANDSHAKE, lists)], ViewRules(rules, allowed or Filter(), pinned=pinned))


def only(catalog: CatalogView) -> Entry:
    (entry,) = catalog.entries(Kind.TOOL)
    return entry


def raws(values: dict[str, Any]) -> RawObject:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in values.items()}


def supplied(arguments: dict[str, Any] | None = None, fixed: dict[str, Any] | None = None) -> Override:
    return Override(supplied=Supplied(raws(arguments or {}), raws(fixed or {})))


def schema_of(catalog: CatalogView) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(only(catalog).raw)["inputSchema"]
    return found


def test_tool_of_which_nothing_is_said_is_listed_byte_for_byte() -> None:
    plain, other = view(tool("log")), view(tool("log"), status=Override(description="x"))
    assert only(plain).raw == only(other).raw
    assert only(plain).supplied is None and not only(plain).is_pinned


def test_name_is_the_exported_one_without_a_prefix_and_leaves_prompts_alone() -> None:
    catalog = view(tool("log"), tool("status"), log=Override(name="history"))
    assert names(catalog) == ["history", "git_status"]
    assert catalog.find(Kind.TOOL, "git_log") is None
    assert json.loads(catalog.entries(Kind.TOOL)[0].raw)["name"] == "history"
    assert [entry.exported for entry in catalog.entries(Kind.PROMPT)] == ["git_log"]


def test_a_name_of_the_hubs_own_tools_is_prefixed_for_any_server() -> None:
    assert names(view(tool("log"), log=Override(name="run_tool"))) == ["git_run_tool"]
    own = ("find_tools", "read_tool", "run_tool", "read_result", "hub_calls", "hub_cancel")
    lists = {Kind.TOOL: tuple(json.dumps(tool(name)).encode() for name in own)}
    bare = build([Snapshot("git", HANDSHAKE, lists)], ViewRules({"git": ServerRules()}))
    assert names(bare) == [f"git_{name}" for name in own]


def test_description_replaces_the_servers_and_its_summary() -> None:
    entry = only(view(tool("log", title="Log"), log=Override(description="Shows commits. \nNewest first.")))
    shown = json.loads(entry.raw)
    assert (shown["description"], entry.summary) == ("Shows commits. \nNewest first.", "Shows commits.")
    assert (shown["title"], shown["inputSchema"]) == ("Log", SCHEMA)
    assert list(shown) == ["name", "description", "inputSchema", "title"]


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
def test_hidden_tool_is_not_there_by_any_name(era: Era) -> None:
    catalog = view(tool("log"), tool("status"), log=Override(hide=True, name="history", pin=True), pinned=("*",))
    assert names(catalog) == ["git_status"]
    for name in ("log", "git_log", "history"):
        assert catalog.find(Kind.TOOL, name) is None
        assert catalog.nearest(Kind.TOOL, name) in ([], ["git_status"])
    assert b"log" not in catalog.page(Kind.TOOL, era, None, 100)


def test_glob_hides_all_but_what_has_an_entry_of_its_own() -> None:
    catalog = view(tool("get_a"), tool("get_b"), tool("put"), globs={"get_*": Override(hide=True)}, get_b=Override())
    assert names(catalog) == ["git_get_b", "git_put"]


@pytest.mark.parametrize(
    ("pin", "pinned", "is_pinned"),
    [
        (None, (), False),
        (None, ("git_*",), True),
        (None, ("log",), False),  # exported names only
        (True, (), True),
        (False, ("git_*",), False),
    ],
)
def test_tool_is_pinned_by_its_own_entry_else_by_a_glob(
    pin: bool | None, pinned: tuple[str, ...], is_pinned: bool
) -> None:
    catalog = view(tool("log"), pinned=pinned, log=Override(pin=pin))
    assert only(catalog).is_pinned is is_pinned
    assert not any(entry.is_pinned for entry in catalog.entries(Kind.PROMPT))


def test_tags_of_the_settings_count_with_the_servers_own() -> None:
    tagged = view(tool("log", tags=["b"]), tool("status"), log=Override(tags=frozenset({"a", "b"})))
    assert [entry.tags for entry in tagged.entries(Kind.TOOL)] == [("a", "b"), ()]
    chosen = view(
        tool("log"), tool("status"), log=Override(tags=frozenset({"a"})), tools=Filter(allow=(Selector(tag="a"),))
    )
    assert names(chosen) == ["git_log"]
    denied = view(
        tool("log"), tool("status"), log=Override(tags=frozenset({"a"})), allowed=Filter(deny=(Selector(tag="a"),))
    )
    assert names(denied) == ["git_status"]


def test_argument_that_is_filled_in_need_not_be_given_and_its_value_is_not_shown() -> None:
    catalog = view(tool("log"), log=supplied({"repo": "s3cret", "limit": 5}))
    assert schema_of(catalog) == {**SCHEMA, "required": ["token"]}
    assert b"s3cret" not in only(catalog).raw
    assert only(catalog).supplied == Supplied(raws({"repo": "s3cret", "limit": 5}), {})


def test_argument_that_is_fixed_is_not_in_the_schema() -> None:
    schema = schema_of(view(tool("log"), log=supplied({"repo": "a"}, {"token": "s3cret", "unknown": 1})))
    assert sorted(schema) == ["additionalProperties", "properties", "type"]  # nothing is required any more
    assert sorted(schema["properties"]) == ["limit", "repo"]


def test_fixed_argument_that_the_schema_points_at_stays_in_it() -> None:
    own = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}},
        "required": ["a"],
    }
    schema = schema_of(view(tool("log", inputSchema=own), log=supplied({}, {"a": "x"})))
    assert schema == {"type": "object", "properties": own["properties"]}


def test_other_members_of_the_schema_stay_as_they_were_written() -> None:
    raw = b'{"name":"log","inputSchema":{"type":"object","properties":{"n" : {"maximum":1e400}},"required":["n"]}}'
    rules = ViewRules({"git": ServerRules("git", overrides={"log": supplied({"n": 1})})})
    catalog = build([Snapshot("git", HANDSHAKE, {Kind.TOOL: (raw,)})], rules)
    assert b'"properties":{"n" : {"maximum":1e400}}}' in only(catalog).raw
    assert b"required" not in only(catalog).raw


def test_a_tool_that_is_projected_shows_no_schema_of_its_whole_result() -> None:
    result = {"outputSchema": {"type": "object"}}
    projected = only(view(tool("log", **result), log=Override(path="$.a")))
    assert b"outputSchema" not in projected.raw and projected.path == "$.a"
    assert b"outputSchema" in only(view(tool("log", **result))).raw
