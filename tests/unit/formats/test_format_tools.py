"""Tools in each format: valid for the provider's own types and documented rules; what they lost is reported."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from mcp_hub.formats.arguments import ArgumentNames
from mcp_hub.formats.calls import read_calls, write_results
from mcp_hub.formats.providers import FORMATS, PROVIDERS, Format, format_named
from mcp_hub.formats.records import Exported
from mcp_hub.formats.tools import export, read_tools, server_groups, tool_groups, write_found
from mcp_hub.protocol.rest.calls import LossInfo
from tests.captured import needs_lists
from tests.unit.formats import documented, sdk_types
from tests.unit.formats.sdk_types import fits, sdk_type
from tests.unit.formats.tool_lists import OWN, captured_tools, refused

Json = dict[str, Any]
LISTS = [pytest.param(OWN, id="own"), pytest.param(None, id="captured", marks=needs_lists)]
TYPES: dict[Format, tuple[str, str]] = {
    Format.ANTHROPIC: (sdk_types.ANTHROPIC, "ToolParam"),
    Format.OPENAI: (sdk_types.OPENAI, "ChatCompletionFunctionToolParam"),
    Format.OPENAI_RESPONSES: (sdk_types.RESPONSES, "FunctionToolParam"),
    Format.GEMINI_INTERACTIONS: (sdk_types.INTERACTIONS, "Function"),
}
SEARCH: Json = {
    "name": "find_tools",
    "description": "Finds tools.",
    "inputSchema": {"type": "object", "properties": {"query": {"type": "string"}}},
}


def exported(tools: list[Json] | None, into: Format, **options: Any) -> Iterator[tuple[list[Json], Exported]]:
    """The tools, as many at once as the provider takes."""
    given = captured_tools() if tools is None else tools
    for start in range(0, len(given), 100):
        some = given[start : start + 100]
        yield some, export(some, into, **options)


def entries(found: Exported, into: Format) -> list[Json]:
    tools: list[Json] = found.body["tools"]
    return tools[0]["functionDeclarations"] if into is Format.GEMINI else tools


def schema_of(entry: Json) -> Json:
    function = entry.get("function", entry)
    schema: Json = next(
        function[key] for key in ("input_schema", "parameters", "parametersJsonSchema") if key in function
    )
    return schema


@pytest.mark.parametrize("tools", LISTS)
@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("into", PROVIDERS)
def test_an_export_fits_the_types_of_the_sdk(into: Format, is_strict: bool, tools: list[Json] | None) -> None:
    count = 0
    for some, found in exported(tools, into, is_strict=is_strict):
        given = entries(found, into)
        assert len(given) == len(some)
        count += len(given)
        if into is Format.GEMINI:
            parsed = sdk_type(sdk_types.GEMINI, "Tool").model_validate(found.body["tools"][0])
            assert parsed.model_dump(by_alias=True, exclude_none=True) == found.body["tools"][0]
        else:
            assert all(fits(*TYPES[into], one) for one in given)
        for one in given:
            jsonschema_rs.validator_for(schema_of(one), offline=True)
    assert count == len(OWN if tools is not None else captured_tools())


@pytest.mark.parametrize("tools", LISTS)
@pytest.mark.parametrize("is_strict", [False, True])
@pytest.mark.parametrize("into", PROVIDERS)
def test_an_export_keeps_the_documented_rules(into: Format, is_strict: bool, tools: list[Json] | None) -> None:
    strict = 0
    for some, found in exported(tools, into, is_strict=is_strict):
        for tool, one in zip(some, entries(found, into), strict=True):
            schema, function = schema_of(one), one.get("function", one)
            assert PROVIDERS[into].names.fullmatch(function["name"])
            strict += bool(function.get("strict"))
            if PROVIDERS[into].strict is None:
                broken = documented.broken_for_gemini(schema)
            elif not function.get("strict"):
                broken = documented.broken_at_the_top(schema)
            elif into is Format.ANTHROPIC:
                broken = documented.broken_for_anthropic(schema)
            else:
                broken = documented.broken_for_openai(schema)
            assert not broken, (tool, schema)
            said = any(loss.kind == "not_strict" for loss in found.losses.get(tool["name"], ()))
            assert said == (is_strict and PROVIDERS[into].strict is not None and not function.get("strict"))
        if into is Format.ANTHROPIC:
            cost = documented.anthropic_cost(entries(found, into))
            assert all(have <= most for have, most in zip(cost, (20, 24, 16), strict=True)), cost
    if is_strict and tools is None and PROVIDERS[into].strict is not None:
        assert strict > (500 if into is not Format.ANTHROPIC else 60)


@pytest.mark.parametrize("tools", LISTS)
@pytest.mark.parametrize("into", PROVIDERS)
def test_a_tool_comes_back_as_it_was_where_nothing_was_lost(into: Format, tools: list[Json] | None) -> None:
    kept = 0
    for some, found in exported(tools, into):
        back = read_tools(found.body, into)
        again = export(back, into)
        assert again.body == found.body
        for tool, one in zip(some, back, strict=True):
            assert one["name"] == tool["name"]
            assert one.get("description", "") == tool.get("description", tool.get("title", one.get("description", "")))
            if tool["name"] not in found.losses and "$schema" not in tool["inputSchema"]:
                kept += meaning(one["inputSchema"]) == meaning(tool["inputSchema"])
    if tools is None:
        assert kept > (300 if PROVIDERS[into].strict is not None else 100)


def meaning(schema: Any) -> Any:
    """The schema without the spelling of single values and of references."""
    text = json.dumps(schema, sort_keys=True).replace("#/definitions/", "#/$defs/")
    value = json.loads(text)
    for node in documented.nodes(value):
        if "const" in node:
            node["enum"] = [node.pop("const")]
        if node.get("type") == "object":
            node.setdefault("properties", {})
    return value


@pytest.mark.parametrize("tools", LISTS)
def test_optional_parameters_are_optional_in_effect(tools: list[Json] | None) -> None:
    """Required and nullable for OpenAI; the null of a model does not reach the tool."""
    optional = 0
    for some, found in exported(tools, Format.OPENAI, is_strict=True):
        for tool, one in zip(some, entries(found, Format.OPENAI), strict=True):
            if not one["function"]["strict"]:
                continue
            schema, original = schema_of(one), tool["inputSchema"]
            left_out = [name for name in schema["properties"] if name not in original.get("required", ())]
            is_nullable = jsonschema_rs.validator_for({**schema, "required": []}, offline=True).is_valid
            assert all(is_nullable({name: None}) for name in left_out), (tool, schema)
            given = ArgumentNames(original, PROVIDERS[Format.OPENAI].strict or PROVIDERS[Format.OPENAI].plain)
            back = given.restored(dict.fromkeys(left_out))
            takes = jsonschema_rs.validator_for({**original, "required": []}, offline=True).is_valid
            assert takes(back), (tool, back)
            optional += len(left_out)
    assert optional > (1000 if tools is None else 5)


@pytest.mark.parametrize("tools", LISTS)
@pytest.mark.parametrize("into", PROVIDERS)
def test_free_form_objects_stay_free(into: Format, tools: list[Json] | None) -> None:
    free = 0
    for some, found in exported(tools, into, is_strict=True):
        for tool, one in zip(some, entries(found, into), strict=True):
            before, after = list(free_paths(tool["inputSchema"], "")), list(free_paths(schema_of(one), ""))
            free += len(before)
            assert set(before) <= set(after), tool
    assert free > (15 if tools is None else 0)


def free_paths(schema: Any, path: str) -> Iterator[str]:
    """Where objects are that take any property and describe none."""
    if isinstance(schema, dict):
        is_open = schema.get("additionalProperties", True) is not False and not schema.get("properties")
        if path and schema.get("type") == "object" and is_open:
            yield path
        for name, part in schema.get("properties", {}).items():
            yield from free_paths(part, f"{path}/{name}")


@pytest.mark.parametrize("into", PROVIDERS)
def test_the_same_tools_are_the_same_bytes(into: Format) -> None:
    first, second = (json.dumps(export(OWN, into, is_strict=True).body) for _ in range(2))
    assert first == second
    assert [tool["name"] for tool in read_tools(json.loads(first), into)] == [tool["name"] for tool in OWN]


def test_losses_say_where_and_what() -> None:
    losses = export(OWN, Format.GEMINI).losses
    assert LossInfo("query", "described", "minLength") in losses["search"]
    assert LossInfo("x-id", "renamed", "x_id_2") in losses["odd_names"]
    assert any(loss.kind == "widened" for loss in losses["deep"])
    assert "ping" not in losses
    strict = export(OWN, Format.OPENAI, is_strict=True).losses
    assert LossInfo("", "not_strict", "headers: it takes properties of any name") in strict["free"]


def test_a_constraint_that_the_subset_cannot_say_is_in_the_description() -> None:
    (tool,) = [one for one in entries(export(OWN, Format.GEMINI), Format.GEMINI) if one["name"] == "search"]
    described = tool["parametersJsonSchema"]["properties"]["query"]
    assert described == {"type": "string", "description": "The words. (minLength: 1)"}


def test_alternatives_at_the_top_are_text_and_their_parameters_are_listed() -> None:
    (tool,) = [one for one in entries(export(OWN, Format.OPENAI), Format.OPENAI) if one["function"]["name"] == "either"]
    schema = tool["function"]["parameters"]
    assert schema["properties"] == {"path": {}, "url": {}}
    assert '"required":["url"]' in schema["description"]


def test_more_tools_than_the_provider_takes_are_refused_with_the_ways_out() -> None:
    many = [{"name": f"t{number}", "inputSchema": {"type": "object"}} for number in range(129)]
    for into in (Format.OPENAI, Format.OPENAI_RESPONSES):
        message = refused("too_many_tools", export, many, into)
        assert all(way in message for way in ("tools=", "profile=", "expose=search", "defer=1"))
        assert len(export(many[:128], into).body["tools"]) == 128
    assert len(export(many, Format.ANTHROPIC).body["tools"]) == 129
    assert len(export(many, Format.OPENAI_RESPONSES, search=SEARCH).body["tools"]) == 130


@pytest.mark.parametrize("into", [Format.OPENAI, Format.GEMINI])
def test_a_format_without_deferral_refuses_it(into: Format) -> None:
    refused("deferral_unsupported", export, OWN, into, search=SEARCH)


@pytest.mark.parametrize("name", ["a b", "ü", "", "x" * 129, None, "1st.x"])
@pytest.mark.parametrize("into", PROVIDERS)
def test_a_name_that_the_provider_does_not_take_is_refused(into: Format, name: str | None) -> None:
    refused("unsupported_tool", export, [{"name": name, "inputSchema": {}}], into)


def test_two_tools_of_one_name_are_refused() -> None:
    refused("duplicate_name", export, [OWN[0], OWN[0]], Format.GEMINI)


def test_deferred_tools_have_one_that_finds_them() -> None:
    anthropic = export(OWN, Format.ANTHROPIC, search=SEARCH).body["tools"]
    assert anthropic[0]["name"] == "find_tools" and "defer_loading" not in anthropic[0]
    assert all(tool["defer_loading"] is True for tool in anthropic[1:])
    assert all(fits(*TYPES[Format.ANTHROPIC], tool) for tool in anthropic)
    first, *others = export(OWN, Format.OPENAI_RESPONSES, search=SEARCH).body["tools"]
    assert first["type"] == "tool_search" and first["execution"] == "client"
    assert fits(sdk_types.RESPONSES, "ToolSearchToolParam", first)
    assert all(tool["defer_loading"] is True and fits(*TYPES[Format.OPENAI_RESPONSES], tool) for tool in others)


GROUPS = {
    "ping": ("net", "Networks."),
    "search": ("web", "Pages."),
    "tree": ("net", "Networks."),
}


def test_tools_of_a_group_are_in_a_namespace_where_the_first_of_them_stands() -> None:
    found = export(OWN, Format.OPENAI_RESPONSES, groups=GROUPS, is_strict=True)
    flat = export(OWN, Format.OPENAI_RESPONSES, is_strict=True)
    net, nothing, web, *others = found.body["tools"]
    assert fits(sdk_types.RESPONSES, "NamespaceToolParam", net) and fits(sdk_types.RESPONSES, "NamespaceToolParam", web)
    assert (net["name"], net["description"]) == ("net", "Networks.") and nothing["name"] == "nothing"
    assert [tool["name"] for tool in net["tools"]] == ["ping", "tree"]
    assert [tool["name"] for tool in others] == ["free", "odd_names", "either", "merged", "deep"]
    by_name = {tool["name"]: tool for tool in flat.body["tools"]}
    assert [*net["tools"], *web["tools"]] == [by_name[name] for name in ("ping", "tree", "search")]
    assert found.losses == flat.losses
    assert {tool["name"] for tool in read_tools(found.body, Format.OPENAI_RESPONSES)} == set(by_name)


def test_a_deferred_group_is_a_namespace_of_deferred_tools() -> None:
    search, net, *_ = export(OWN, Format.OPENAI_RESPONSES, groups=GROUPS, search=SEARCH).body["tools"]
    assert search["type"] == "tool_search" and all(tool["defer_loading"] for tool in net["tools"])


def test_calls_of_a_namespace_are_those_of_its_tools_and_are_answered_with_it() -> None:
    item = {
        "type": "function_call",
        "call_id": "c1",
        "name": "search",
        "namespace": "web",
        "arguments": '{"query":"x"}',
    }
    (call,) = read_calls(item, Format.OPENAI_RESPONSES, OWN)
    assert (call.name, call.arguments, call.fault) == ("search", {"query": "x"}, None)
    (answer,) = write_results([call], {"c1": {"content": []}}, Format.OPENAI_RESPONSES)
    assert answer["namespace"] == "web"


@pytest.mark.parametrize("into", [into for into in Format if into is not Format.OPENAI_RESPONSES])
def test_a_format_without_groups_refuses_them(into: Format) -> None:
    for refusing in (export, write_found):
        assert "openai-responses" in refused("grouping_unsupported", refusing, OWN, into, groups=GROUPS)


def test_a_group_needs_a_name_of_its_own_that_the_provider_takes() -> None:
    for group, code in ((("a b", "x"), "unsupported_tool"), (("net", "x"), "duplicate_name")):
        refused(code, export, OWN, Format.OPENAI_RESPONSES, groups={**GROUPS, "free": group})


def test_servers_whose_names_are_alike_have_groups_of_their_own() -> None:
    servers: dict[str, str | None] = {
        "a b": "One.",
        "a_b": None,
        "a.b": None,
        "x" * 63 + ".": None,
        "x" * 63 + "_": None,
    }
    names = [group[0] for group in server_groups(servers).values()]
    assert names == ["a_b", "a_b_2", "a_b_3", "x" * 63 + "_", "x" * 62 + "_2"]
    assert [group[1] for group in server_groups(servers).values()][:2] == ["One.", "Tools of a_b."]


def test_tools_of_a_big_server_are_in_groups_by_the_first_words_of_their_names() -> None:
    big = [f"git_{verb}_{noun}" for verb in ("get", "set", "list") for noun in "branch tag commit issue".split()]
    big += [f"git_get_{number}_{kind}" for number in range(3) for kind in ("note", "file", "user", "team", "hook")]
    owners = {**dict.fromkeys(big, "git"), "clock_now": "clock", "git": "git", "stray": "gone"}
    groups = tool_groups(owners, {"git": "Repositories of the team.", "clock": None, "empty": None})
    assert groups.keys() == owners.keys() - {"stray"}
    sizes = Counter(groups.values())
    assert max(sizes.values()) <= 10 and len({group[0] for group in sizes}) == len(sizes)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", group[0]) for group in sizes)
    assert groups["clock_now"] == ("clock", "clock: clock_now")
    assert all(group[1].startswith("Repositories of the team: ") for group in sizes if group[0] != "clock")
    together = {groups[f"git_get_{number}_{kind}"] for number in range(3) for kind in ("note", "file")}
    assert all(group[0].startswith("git_git_get") or group[0].startswith("git_get") for group in together)
    assert tool_groups(owners, {"git": "Repositories of the team.", "clock": None, "empty": None}) == groups


@pytest.mark.parametrize("count", [1, 9, 10, 11, 100])
def test_groups_have_at_most_ten_tools_whatever_their_names_are(count: int) -> None:
    kinds = {
        "alike": [f"tool{'x' * number}" for number in range(count)],
        "apart": [f"{chr(97 + number % 26)}{number}_run" for number in range(count)],
        "capitals": [f"getThing{number}" for number in range(count)],
        "odd": [f"{'-' * (number + 1)}" for number in range(count)],
    }
    for names in kinds.values():
        groups = tool_groups(dict.fromkeys(names, "s"), {"s": None})
        assert list(groups) == names or set(groups) == set(names)
        sizes = Counter(group[0] for group in groups.values())
        assert max(sizes.values()) <= 10 and len(sizes) >= (count + 9) // 10
        assert all(group[1].strip(": ") for group in groups.values())
    whole = tool_groups(dict.fromkeys("ab", "s"), {"s": "Says what it does."})
    assert {group[1] for group in whole.values()} == {"Says what it does."}


def test_the_cache_ends_at_the_last_tool_that_is_not_deferred() -> None:
    def marked(**options: Any) -> list[str]:
        tools = export(OWN, Format.ANTHROPIC, **options).body["tools"]
        return [tool["name"] for tool in tools if "cache_control" in tool]

    assert marked() == ["deep"]
    assert marked(search=SEARCH) == ["find_tools"]
    assert marked(has_breakpoint=False) == []


def test_programs_may_call_only_the_tools_that_are_named() -> None:
    anthropic = export(OWN, Format.ANTHROPIC, programmatic=["search"]).body["tools"]
    (found,) = [tool for tool in anthropic if "allowed_callers" in tool]
    assert found["name"] == "search" and found["allowed_callers"] == ["direct", "code_execution_20260521"]
    assert 'Returns JSON: {"type":"object"' in found["description"]
    responses = export(OWN, Format.OPENAI_RESPONSES, programmatic=["search"]).body["tools"]
    (found,) = [tool for tool in responses if "allowed_callers" in tool]
    assert found["allowed_callers"] == ["direct", "programmatic"] and "output_schema" in found
    assert fits(*TYPES[Format.OPENAI_RESPONSES], found)
    assert "allowed_callers" not in json.dumps(export(OWN, Format.GEMINI, programmatic=["search"]).body)


def test_openai_is_always_asked_whether_to_enforce() -> None:
    """Where `strict` is absent, the Responses API tries it silently."""
    tools = export(OWN, Format.OPENAI_RESPONSES).body["tools"]
    assert [tool["strict"] for tool in tools] == [False] * len(OWN)


def test_mcp_is_the_definitions_themselves() -> None:
    found = export(OWN, Format.MCP)
    assert found == Exported({"tools": OWN}, {})
    assert read_tools(found.body, Format.MCP) == OWN


def test_an_unknown_format_is_refused_with_those_that_are_known() -> None:
    assert format_named("openai-responses") is Format.OPENAI_RESPONSES
    assert "gemini" in refused("unknown_format", format_named, "cohere")


def test_every_format_is_in_the_table_and_those_of_providers_have_streams() -> None:
    assert list(FORMATS) == list(Format)
    assert [into for into, entry in FORMATS.items() if entry.reader is None] == [Format.MCP]
    assert list(PROVIDERS) == [into for into in Format if into is not Format.MCP]


@pytest.mark.parametrize("file", ["docs/formats.md", "docs/cli.md", "mcp_hub/cli/commands/tools.py"])
def test_pages_and_help_name_every_format(file: str) -> None:
    text = (Path(__file__).parents[3] / file).read_text(encoding="utf-8")
    assert [into for into in Format if not re.search(rf"(?<![\w-]){into}(?![\w-])", text)] == []
