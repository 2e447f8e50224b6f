import json
from typing import Any

import pytest

from mcp_hub.catalog.texts import WIDTH, all_names, counted, parameter_notes, signature


def tool(properties: Any = None, *, required: Any = (), description: Any = None, **members: Any) -> bytes:
    schema = {"type": "object", "properties": properties or {}, "required": list(required), **members}
    return json.dumps({"name": "t", "description": description, "inputSchema": schema}).encode()


def parameters(*args: Any, **members: Any) -> str:
    line = signature("t", tool(*args, **members))
    assert line.startswith("t(") and line.endswith(")")
    return line[2:-1]


def test_a_tool_is_a_line_of_its_parameters_and_first_sentence() -> None:
    text = {"type": "string"}
    raw = tool(
        {"body": text, "owner": text, "labels": {"type": "array", "items": text}, "title": text},
        required=["owner", "title"],
        description="Create a new issue. It is open at first.",
    )
    assert signature("github_create_issue", raw) == (
        "github_create_issue(owner:str, title:str, body?:str, labels?:list[str]): Create a new issue"
    )


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string"}, "p:str"),
        ({"type": "integer"}, "p:int"),
        ({"type": "number"}, "p:num"),
        ({"type": "boolean"}, "p:bool"),
        ({"type": "object", "properties": {"a": {}}}, "p:obj"),
        ({"type": "array"}, "p:list"),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, "p:list[a]|list[b]"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}}, "p:list[list]"),
        ({"type": ["string", "null"]}, "p:str|null"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "string"}]}, "p:str|int"),
        ({"oneOf": [{"type": "object"}, {"type": "null"}]}, "p:obj|null"),
        ({"allOf": [{"$ref": "#/$defs/point"}]}, "p:list[num]"),
        ({"$ref": "#/$defs/a~1b"}, "p:bool"),
        ({"$ref": "#/$defs/gone"}, "p"),
        ({"$ref": "https://example.org/schema"}, "p"),
        ({"$ref": "#/$defs/loop"}, "p"),
        ({"$ref": "#/$defs/tree"}, "p:str"),
        ({"type": "string", "enum": ["asc", "desc"]}, "p:asc|desc"),
        ({"enum": [1, 2.5, True, None]}, "p:1|2.5|true|null"),
        ({"enum": ["two words", "x"]}, "p:str"),
        ({"enum": [{"a": 1}, "x"]}, "p:obj|str"),
        ({"enum": [f"value-{number}" for number in range(9)]}, "p:str"),
        ({"const": "only"}, "p:only"),
        ({"anyOf": [{"const": f"value-{number}"} for number in range(9)]}, "p"),
        ({}, "p"),
        (True, "p"),
        ("string", "p"),
        ({"type": 7, "anyOf": 3}, "p"),
    ],
    ids=json.dumps,
)
def test_a_type_is_as_short_as_it_gets(schema: Any, shown: str) -> None:
    definitions = {
        "point": {"type": "array", "items": {"type": "number"}},
        "a/b": {"type": "boolean"},
        "loop": {"$ref": "#/$defs/loop"},
        "tree": {"anyOf": [{"type": "string"}, {"$ref": "#/$defs/tree"}]},
    }
    assert parameters({"p": schema}, required=["p"], **{"$defs": definitions}) == shown


def test_an_optional_parameter_is_not_shown_as_nullable() -> None:
    assert parameters({"p": {"anyOf": [{"type": "string"}, {"type": "null"}]}}) == "p?:str"


def test_parameters_that_do_not_fit_are_counted() -> None:
    many = {f"parameter_{number}": {"type": "string"} for number in range(30)}
    shown = parameters(many, required=[f"parameter_{number}" for number in range(20)])
    names = shown.split(", ")
    assert names[-2:] == [f"+{20 - len(names) + 2}", "+10?"] and len(names) > 8
    raw = tool(many, description="word " * 99)
    assert len(signature("t", raw)) <= WIDTH
    assert signature("t", raw, 110).startswith("t(parameter_0?:str, parameter_1?:str, +28?): word word")


def test_a_name_that_is_no_word_is_shown_as_it_must_be_written() -> None:
    assert parameters({"a b": {}, "x\ny": {}, "\u202e": {}, "größe": {}, "": {}}) == (
        '"a b"?, "x\\ny"?, "\\u202e"?, größe?, ""?'
    )


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{",
        b'{"inputSchema":[]}',
        b'{"inputSchema":{"properties":[]}}',
        b'{"description":7,"inputSchema":{"properties":{},"required":{}}}',
        b'{"description":"\xff"}',
        b"[" * 100_000,
    ],
    ids=lambda raw: raw[:60].decode("ascii", "replace"),
)
def test_what_is_no_definition_is_a_name(raw: bytes) -> None:
    assert signature("t", raw) == "t()"
    assert parameter_notes(raw, 100) == []


def test_no_description_can_make_a_line_of_its_own() -> None:
    line = signature("t", tool(description="a \x1b[31m\u202e\u200bb\u2028other_tool(): c"))
    assert line == "t(): a b other_tool(): c"


def test_notes_are_what_names_do_not_say() -> None:
    raw = tool(
        {
            "limit": {"description": "Limit."},
            "page": {"description": "Which page, from 1. There are 30 on each."},
            "repo": {"description": "Its name without the owner"},
            "plain": {"type": "string"},
        },
        required=["repo"],
    )
    notes = ["repo: Its name without the owner", "page: Which page, from 1"]
    assert parameter_notes(raw, 100) == notes
    assert parameter_notes(raw, len(notes[0])) == notes[:1]
    assert parameter_notes(raw, len(notes[0]) - 1) == []


def test_names_are_grouped_with_what_they_share_written_once() -> None:
    groups = {
        "github": ["github_create_issue", "github_list_issues", "github_list"],
        "web": ["fetch_page", "fetch_pages"],
        "time": ["time_now"],
        "clock": ["ring"],
        "mixed": ["one", "two"],
        "most": ["mos_a_long_one", "most_a", "most_b", "most_b_c"],
        "none": [],
    }
    assert all_names(groups).split("\n") == [
        "github_{create_issue list_issues list}",
        "web: fetch_{page pages}",
        "time_now",
        "clock: ring",
        "mixed: one two",
        "most_{a b b_c} mos_a_long_one",
    ]


def test_servers_are_counted_as_far_as_they_fit() -> None:
    counts = {"b": 2, "a": 2, "c": 3}
    assert counted(counts, 24) == "c (3), a (2), b (2)"
    assert counted(counts, 19) == "c (3), a (2), …"
    assert counted(counts, 5) == "…"
