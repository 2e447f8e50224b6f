"""Whatever a stranger's definition says, a script can call the tool, and a checker can read its stub."""

import ast
import inspect
import json
import keyword
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.code.signatures import left_out_if_none, line, stubs
from mcp_hub.code.tool import python_names
from tests.property.test_signatures_properties import encoded, is_seen, schemas, texts, tools, values

reserved = st.sampled_from(["print", "class", "a_b", "a_b_2", "_Any", "t_result"])
odd_names = st.text("ab-_.1é \n\"'", max_size=6) | reserved
definitions = st.builds(
    lambda tool, output: {**tool, "outputSchema": output}, tools, st.one_of(schemas, values, st.just({"$ref": "#"}))
)
plain_words = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(lambda word: not keyword.iskeyword(word))
listed = st.dictionaries(plain_words | texts, values, min_size=1, max_size=6)


def function(raw: bytes) -> inspect.Signature:
    """The function that a stub declares, as Python binds its arguments."""
    text = stubs({"t": raw})
    declared = [row for row in text.split("\n") if row.startswith("async def ")]
    scope: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + "\n".join(declared), scope)
    return inspect.signature(scope["t"])


@given(st.lists(odd_names, max_size=8))
def test_names_are_those_of_functions_and_no_two_are_alike(exported: list[str]) -> None:
    names = python_names(exported)
    assert list(names) == list(dict.fromkeys(exported)) and len(set(names.values())) == len(names)
    for name in names.values():
        assert name.isascii() and name.isidentifier() and not keyword.iskeyword(name)
    assert python_names(sorted(exported, reverse=True)) == names


@given(st.dictionaries(odd_names, definitions, max_size=3))
def test_stubs_can_be_parsed_and_declare_each_tool_once(offered: dict[str, Any]) -> None:
    names = python_names(offered)
    text = stubs({names[exported]: encoded(tool) for exported, tool in offered.items()})
    body = ast.parse(text).body
    functions = [node.name for node in body if isinstance(node, ast.AsyncFunctionDef)]
    targets = [node.targets[0] for node in body if isinstance(node, ast.Assign)]
    types = [target.id for target in targets if isinstance(target, ast.Name)]
    assert functions == list(names.values())
    assert len({*functions, *types}) == len(functions) + len(types) == len(body) - 2
    assert text.isascii() and len(text) <= (16 << 10) * (len(offered) + 1)


@given(definitions, st.integers(40, 300))
def test_line_is_python_without_its_purpose_and_is_seen_as_one_line(tool: Any, width: int) -> None:
    raw = encoded(tool)
    whole = line("t", raw, "What it does", exported="t-1", mark="*", width=width)
    assert is_seen(whole) and "\n" not in whole and whole.startswith("async def t(")
    assert len(whole) <= width or "+" not in line("t", raw, width=10_000)


@given(listed, st.data())
def test_stub_takes_every_call_that_names_what_the_schema_lists(
    properties: dict[str, Any], data: st.DataObject
) -> None:
    required = data.draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    raw = json.dumps({"inputSchema": {"type": "object", "properties": properties, "required": required}}).encode()
    more = data.draw(st.lists(st.sampled_from(sorted(properties)), unique=True))
    function(raw).bind(**dict.fromkeys([*required, *more]))
    needed = {name for name in required if name.isidentifier() and name.isascii() and not keyword.iskeyword(name)}
    shown = line("t", raw)
    assert all(f"{name}: " in shown for name in needed)
    assert left_out_if_none(raw).isdisjoint(required)
