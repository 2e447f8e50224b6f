"""Tools as Python functions: what a model reads, and what a type checker is given."""

import ast
import json
from typing import Any

import pytest

from mcp_hub.catalog.tokens import estimate
from mcp_hub.code.signatures import left_out_if_none, line, returned, stubs
from mcp_hub.code.tool import definition, python_names
from mcp_hub.types import CodeMode
from tests.captured import captured, encoded, needs_lists

STRING, NUMBER = {"type": "string"}, {"type": "number"}


def tool(properties: object = None, *required: str, output: object = None, **schema: object) -> bytes:
    taken = {"type": "object", "properties": properties or {}, "required": list(required), **schema}
    return json.dumps({"name": "t", "inputSchema": taken, **({"outputSchema": output} if output else {})}).encode()


def returning(**properties: object) -> bytes:
    return tool(output={"type": "object", "properties": properties, "required": [*properties][:1]})


def stub(raw: bytes, name: str = "t") -> list[str]:
    """The lines of a stub without those that are the same for all."""
    text = stubs({name: raw})
    ast.parse(text)
    return [row for row in text.split("\n")[2:] if row]


@pytest.mark.parametrize(
    ("exported", "names"),
    [
        (["git_log", "web"], ["git_log", "web"]),
        (["git-log", "git.log", "git_log"], ["git_log_2", "git_log_3", "git_log"]),
        (["a.b", "a-b"], ["a_b_2", "a_b"]),
        (["a-b", "a_b_2", "a.b"], ["a_b", "a_b_2", "a_b_3"]),
        (["print", "asyncio", "ToolError", "class", "None", "1st", "_Any", "__debug__"],
         ["print_", "asyncio_", "ToolError_", "class_", "None_", "_1st", "_Any_", "__debug___"]),
        (["", "é", "match"], ["tool", "_", "match"]),
    ],
)  # fmt: skip
def test_each_tool_has_a_name_that_python_takes(exported: list[str], names: list[str]) -> None:
    assert python_names(exported) == dict(zip(exported, names, strict=True))
    assert python_names(reversed(exported)) == python_names(exported)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (tool(), "async def t() -> Any"),
        (tool({"a": STRING}, "a"), "async def t(*, a: str) -> Any"),
        (tool({"a": STRING}), "async def t(*, a: str | None = None) -> Any"),
        (tool({"b": {"type": "integer", "default": 7}, "a": {}}, "a"), "async def t(*, a: Any, b: int = 7) -> Any"),
        (tool({"a": {"enum": ["x", "y"]}}, "a"), 'async def t(*, a: Literal["x", "y"]) -> Any'),
        (tool({"a": {"enum": ["x" * 50]}}, "a"), "async def t(*, a: str) -> Any"),
        (tool({"a": {"type": ["null", "string"]}}, "a"), "async def t(*, a: str | None) -> Any"),
        (tool({"a": {"type": "array", "items": STRING}}, "a"), "async def t(*, a: list[str]) -> Any"),
        (tool({"a": {"$ref": "#/$defs/x"}}, "a", **{"$defs": {"x": NUMBER}}), "async def t(*, a: float) -> Any"),
        (tool({"x-y": STRING}, "x-y"), 'async def t(**{"x-y": str}) -> Any'),
        (tool({"from": STRING}), 'async def t(**{"from": str}) -> Any'),
        (tool({}, "unlisted"), "async def t(*, unlisted: Any) -> Any"),
        (returning(id={"type": "integer"}, name=STRING), 'async def t() -> {"id": int, "name": str}'),
        (b"not JSON", "async def t() -> Any"),
    ],
)
def test_line_says_how_to_call_a_tool(raw: bytes, text: str) -> None:
    assert line("t", raw) == text


def test_line_ends_with_the_purpose_and_says_the_other_name() -> None:
    assert line("a_b", tool(), "Adds", exported="a-b", mark="*") == "async def a_b() -> Any* (a-b): Adds"
    assert line("a_b", tool(), "Adds", exported="a_b") == "async def a_b() -> Any: Adds"


def test_line_has_two_hundred_characters_but_every_required_parameter() -> None:
    some = {f"parameter_{number}": STRING for number in range(20)}
    short = line("t", tool(some, "parameter_0"), "Does " + "this and that " * 20)
    assert len(short) <= 200 and "parameter_0: str, " in short and short.endswith("…")
    assert "+17?) -> Any: Does this" in short
    long = line("t", tool(some, *some), "Does this")
    assert all(f"{name}: str" in long for name in some) and long.endswith(") -> Any")


ROWS = {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "integer"}, "of": {"$ref": "#"}}}}


@pytest.mark.parametrize(
    ("output", "room", "text"),
    [
        ({"properties": {"rows": ROWS, "size": STRING}}, 30, '{"rows": list[dict], ...}'),
        ({"properties": {"rows": ROWS, "size": STRING}}, 40, '{"rows": list[dict], "size": str}'),
        ({"properties": {"rows": ROWS, "size": STRING}}, 60, '{"rows": list[{"id": int, "of": dict}], "size": str}'),
        ({"properties": {"rows": ROWS}}, 8, "dict"),
        ({"additionalProperties": STRING}, 60, "dict[str, str]"),
        ({"type": ["object", "null"], "properties": {"a": STRING}}, 60, '{"a": str} | None'),
        ({}, 60, "dict"),
    ],
)
def test_type_of_a_result_has_the_members_that_fit(output: dict[str, object], room: int, text: str) -> None:
    assert returned(tool(output={"type": "object", **output}), room) == text


def test_type_of_a_result_without_schema_is_not_shown() -> None:
    assert returned(tool(), 100) == returned(tool(output={"title": "x"}), 100) == ""


def test_stub_is_as_wide_as_scripts_write_their_values() -> None:
    items = {"type": "array", "items": {"type": "object"}}
    texts = {"type": "array", "items": {"enum": ["x", "y"]}}
    assert stub(tool({"a": items, "b": texts, "c": {"enum": ["x", "y"]}, "d": {"type": "object"}}, "a")) == [
        "async def t(*, a: _Sequence[_Mapping[str, _Any]], b: list[str] | tuple[str, ...] | None = None, "
        'c: _Literal["x", "y"] | None = None, d: _Mapping[str, _Any] | None = None) -> _Any: ...'
    ]


def test_stub_takes_by_any_name_what_a_schema_leaves_open_or_python_cannot_name() -> None:
    assert stub(tool({"x-y": STRING}, "x-y")) == ["async def t(**_more: _Any) -> _Any: ..."]
    assert stub(tool({"_more": STRING, "in": {}}, "_more")) == [
        "async def t(*, _more: str, **_more_: _Any) -> _Any: ..."
    ]
    assert stub(b'{"name":"t","inputSchema":{"type":"object"}}') == ["async def t(**_more: _Any) -> _Any: ..."]
    assert stub(tool({"a": STRING}, additionalProperties=False)) == [
        "async def t(*, a: str | None = None) -> _Any: ..."
    ]


def test_stub_has_a_type_for_each_object_that_comes_back() -> None:
    node = {"type": "object", "properties": {"id": {"type": "integer"}, "next": {"$ref": "#"}}, "required": ["id"]}
    assert stub(tool(output=node)) == [
        't_result = _TypedDict("t_result", {"id": int, "next": _NotRequired[t_result]})',
        "async def t() -> t_result: ...",
    ]
    inner = {"type": "array", "items": {"type": "object", "properties": {"a-b": {"type": ["string", "null"]}}}}
    assert stub(returning(rows=inner, count=NUMBER)) == [
        't_result_2 = _TypedDict("t_result_2", {"a-b": _NotRequired[str | None]})',
        't_result = _TypedDict("t_result", {"rows": list[t_result_2], "count": _NotRequired[_Any]})',
        "async def t() -> t_result: ...",
    ]


def test_type_of_a_result_takes_no_name_of_a_tool() -> None:
    both = stubs({"t": returning(id=STRING), "t_result": tool()})
    assert "t_result_2 = _TypedDict(" in both and "async def t_result() -> _Any" in both


@pytest.mark.parametrize("more", [{"additionalProperties": True}, {"properties": {"\n": STRING}}, {"properties": {}}])
def test_result_with_members_that_nobody_can_list_is_a_plain_mapping(more: dict[str, object]) -> None:
    output = {"type": "object", "properties": {"a": STRING}, **more}
    assert stub(tool(output=output)) == ["async def t() -> dict[str, _Any]: ..."]


def test_stub_that_would_be_long_says_less() -> None:
    wide = {f"p{number}": {"enum": [f"{number}-{value}" for value in range(60)]} for number in range(200)}
    assert stub(tool(wide)) == ["async def t(**_more: _Any) -> _Any: ..."]
    assert stub(tool({"a": STRING}, "a", output={"type": "object", "properties": wide})) == [
        "async def t(*, a: str) -> _Any: ..."
    ]


def test_none_stands_for_nothing_where_a_schema_does_not_take_null() -> None:
    nullable = {"anyOf": [STRING, {"type": "null"}]}
    raw = tool({"a": STRING, "b": STRING, "c": nullable, "d": {}, "e": {"enum": [1]}}, "a")
    assert left_out_if_none(raw) == {"b", "e"}


@pytest.mark.parametrize("mode", ["reads", "ask", "all"])
def test_run_code_costs_at_most_180_tokens_and_only_reads_if_its_scripts_do(mode: CodeMode) -> None:
    raw = definition(mode)
    described = json.loads(raw)
    assert estimate(raw) <= 180 and described["inputSchema"]["required"] == ["code"]
    assert "no packages, files or network" in described["description"]
    assert described.get("annotations") == ({"readOnlyHint": True} if mode == "reads" else None)


@needs_lists
def test_captured_tools_have_stubs_that_parse_and_lines_of_two_hundred_characters() -> None:
    for tools in captured().values():
        names = python_names(one["name"] for one in tools)
        raws: dict[str, Any] = {names[one["name"]]: encoded(one) for one in tools}
        declared = {node.name for node in ast.parse(stubs(raws)).body if isinstance(node, ast.AsyncFunctionDef)}
        assert declared == set(raws)
        assert all(len(line(name, raw, "What it does")) <= 200 for name, raw in raws.items())


def test_members_of_a_required_list_are_in_the_line_where_they_fit() -> None:
    item = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    schema = {"type": "object", "properties": {"rows": {"type": "array", "items": item}}, "required": ["rows"]}
    raw = json.dumps({"name": "add", "inputSchema": schema}).encode()
    assert line("add", raw) == 'async def add(*, rows: list[{"name": str}]) -> Any'
    assert line("add", raw, width=40) == "async def add(*, rows: list[dict]) -> Any"
