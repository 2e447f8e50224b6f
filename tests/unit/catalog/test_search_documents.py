"""What is taken of a tool, how much of it at most, and that it is taken once."""

from typing import Any

import pytest

from mcp_hub.catalog.search.documents import PEAK, Searchable, ToolDocument, prepare
from mcp_hub.catalog.search.words import words
from tests.unit.catalog.search_tools import tool

MAX_WORDS = 32 + 16 + 60 + 200 + 200 + 200 + 100


def has(document: ToolDocument, text: str) -> bool:
    return all(word in document.weights for word in words(text, 99))


def test_the_name_says_most_and_a_note_least() -> None:
    schema = {"properties": {"gamma": {"description": "delta"}}}
    weights = prepare(tool("beta", "alpha", "First epsilon here.\nThe rest has zeta.", schema)).weights
    assert weights["alpha"] > weights["beta"] > weights["epsilon"] > weights["gamma"] > weights["delta"]
    assert weights["epsilon"] > weights["zeta"] > weights["delta"]
    assert all(0 < weight < PEAK for weight in weights.values())


def test_parameters_are_read_three_levels_deep_with_items_and_choices() -> None:
    inner: dict[str, Any] = {"properties": {"third": {"properties": {"fourth": {}}}}}
    schema = {
        "properties": {
            "first": {"enum": ["red", 5, None, "green"], "description": 7},
            "rows": {"type": "array", "items": {"properties": {"second": inner, "odd": True}}},
        }
    }
    document = prepare(tool("s", "n", "", schema))
    assert has(document, "first rows second third odd red green")
    assert not has(document, "fourth")


@pytest.mark.parametrize(
    "schema",
    [
        None,
        [],
        "x",
        5,
        {"properties": []},
        {"properties": {"a": None, "b": []}},
        {"properties": {"a": {"enum": {}, "items": 3}}},
    ],
    ids=str,
)
def test_any_json_is_a_schema(schema: Any) -> None:
    assert has(prepare(Searchable("s_name", "s", "name", "", schema)), "name")


def test_a_document_has_a_bound_however_large_the_tool() -> None:
    much = " ".join(f"word{n}x" for n in range(200_000))
    schema = {"properties": {f"p{n}q": {"description": much[: 10 * n], "enum": [f"c{n}d"] * 99} for n in range(5_000)}}
    document = prepare(tool("server", much, much, schema))
    assert len(document.weights) <= 2 * MAX_WORDS and len(document.pairs) <= 100
    assert has(document, "word1x") and has(document, "p1q")
    assert not has(document, "p4999q")


def test_properties_beyond_the_limit_are_not_looked_at() -> None:
    for count, is_read in ((256, True), (257, False)):
        schema: dict[str, Any] = {
            "properties": {str(n): {} for n in range(count - 1)} | {"last": {"description": "distant"}}
        }
        assert has(prepare(tool("server", "name", "", schema)), "distant") is is_read


def test_a_cyclic_or_deep_schema_ends() -> None:
    cyclic: dict[str, Any] = {"properties": {}}
    cyclic["properties"]["cycle"] = cyclic
    deep: dict[str, Any] = {}
    for _ in range(5_000):
        deep = {"properties": {"deeper": deep}}
    assert has(prepare(tool("s", "n", "", cyclic)), "cycle") and has(prepare(tool("s", "n", "", deep)), "deeper")
