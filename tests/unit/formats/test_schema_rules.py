"""Single rules of schemas: what stays exact, what is widened and never narrowed, what is bounded."""

from typing import Any

import jsonschema_rs
import pytest

from mcp_hub.formats.providers import PROVIDERS, Format
from mcp_hub.formats.schemas.canonical import canonical
from mcp_hub.formats.schemas.dialects import ANTHROPIC_STRICT, OPENAI_STRICT
from mcp_hub.formats.schemas.emitters import plain, strict
from mcp_hub.formats.schemas.root import merged
from mcp_hub.formats.schemas.subset import NotStrict
from mcp_hub.protocol.rest.calls import LossInfo

Json = dict[str, Any]


def under(schema: Json, into: Format) -> tuple[Json, list[LossInfo]]:
    """The export of a property `p` with this schema; what it refers to is at the top."""
    losses: list[LossInfo] = []
    top: Json = {key: schema[key] for key in ("$defs", "definitions", "$schema") if key in schema}
    root: Json = {"type": "object", "properties": {"p": schema}, **top}
    return plain(canonical(root, losses), PROVIDERS[into].plain, losses), losses


def takes(schema: Json, value: Any) -> bool:
    return jsonschema_rs.Draft202012Validator(schema).is_valid({"p": value})


def test_an_object_that_is_closed_but_for_a_pattern_is_not_closed_without_it() -> None:
    found, losses = under(
        {"type": "object", "patternProperties": {"^x-": {}}, "additionalProperties": False}, Format.GEMINI
    )
    assert takes(found, {"x-a": 1})
    assert LossInfo("p", "described", "patternProperties") in losses


@pytest.mark.parametrize("into", [Format.ANTHROPIC, Format.OPENAI, Format.GEMINI])
def test_a_reference_that_leads_nowhere_takes_anything_and_narrows_nothing_around_it(into: Format) -> None:
    found, losses = under({"oneOf": [{"type": "string"}, {"$ref": "https://example.org/other.json"}]}, into)
    assert takes(found, "x")
    assert any(loss.kind == "widened" for loss in losses)


def test_parts_of_all_of_that_forbid_each_others_properties_are_merged_exactly() -> None:
    closed = {"properties": {"a": {"type": "string"}}, "additionalProperties": False}
    other = {"properties": {"a": {"minLength": 2}, "b": {"type": "integer"}}}
    found = merged(closed, other)
    assert found == {
        "properties": {"a": {"allOf": [{"type": "string"}, {"minLength": 2}]}},
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"pattern": "a"}, {"pattern": "b"}),
        ({"type": "string"}, {"type": "integer"}),
        ({"anyOf": [{}]}, {"anyOf": [{"type": "null"}]}),
        ({"patternProperties": {"a": {}}}, {"properties": {"b": {}}}),
        ({"unevaluatedProperties": False}, {"properties": {"b": {}}}),
        ({"prefixItems": [{}], "items": {}}, {"items": {"type": "null"}}),
    ],
)
def test_what_one_schema_cannot_say_is_not_merged(first: Json, second: Json) -> None:
    assert merged(first, second) is None


@pytest.mark.parametrize("schema", [{"type": "string", "enum": []}, {"type": "string", "enum": [1]}])
def test_an_enum_without_a_value_of_its_type_is_left_out(schema: Json) -> None:
    found, _ = under(schema, Format.GEMINI)
    assert "enum" not in found["properties"]["p"]


def test_integer_and_number_have_integer_in_common() -> None:
    assert merged({"type": ["number", "null"]}, {"type": "integer"}) == {"type": "integer"}
    assert merged({"type": "integer", "minimum": 1}, {"type": "number", "minimum": 3}) == {
        "type": "integer",
        "minimum": 3,
    }


def test_tuples_and_definitions_of_old_drafts_are_those_of_2020_12() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"A": {"type": "string"}},
        "type": "array",
        "items": [{"$ref": "#/definitions/A", "minLength": 3}],
        "additionalItems": False,
    }
    found, _ = under(schema, Format.ANTHROPIC)
    assert found["properties"]["p"] == {
        "type": "array",
        "prefixItems": [{"$ref": "#/$defs/A"}],
        "items": {"not": {}},
    }
    assert found["$defs"] == {"A": {"type": "string"}}


def test_a_pointer_anywhere_becomes_a_definition() -> None:
    root = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}}
    assert canonical(root, [])["$defs"] == {"a": {"type": "string"}}


@pytest.mark.parametrize("into", [Format.ANTHROPIC, Format.OPENAI, Format.GEMINI])
def test_a_schema_that_would_grow_without_bound_is_bounded(into: Format) -> None:
    definitions: Json = {"d0": {"type": "string"}}
    for level in range(1, 40):
        named = {side: {"$ref": f"#/$defs/d{level - 1}", "minLength": 1} for side in ("l", "r")}
        definitions[f"d{level}"] = {"type": "object", "properties": named}
    found, _ = under({"$ref": "#/$defs/d39", "$defs": definitions, "title": "t"}, into)
    assert len(str(found)) < 2_000_000
    with pytest.raises(NotStrict):
        strict(canonical({"properties": {"p": {"$ref": "#/$defs/d39"}}, "$defs": definitions}, []), OPENAI_STRICT, [])


def test_definitions_in_a_circle_end() -> None:
    circle = {
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
        "properties": {"p": {"$ref": "#/$defs/A"}},
    }
    for into in (Format.ANTHROPIC, Format.OPENAI, Format.GEMINI):
        plain(canonical(circle, []), PROVIDERS[into].plain, [])
    for into in (Format.ANTHROPIC, Format.OPENAI, Format.GEMINI):
        plain(canonical({"$ref": "#"}, []), PROVIDERS[into].plain, [])


@pytest.mark.parametrize("schema", [None, True, [], "x", {"type": 3, "properties": [], "required": "x", "enum": 4}])
def test_a_schema_that_is_none_is_an_object_without_properties(schema: Any) -> None:
    for into in (Format.ANTHROPIC, Format.OPENAI, Format.GEMINI):
        assert plain(canonical(schema, []), PROVIDERS[into].plain, []) == {"type": "object", "properties": {}}


NOT_STRICT: list[tuple[Json, str]] = [
    ({}, "p: it takes any value"),
    ({"type": "object"}, "p: it is a free-form object"),
    ({"type": "object", "additionalProperties": {"type": "string"}}, "p: it takes properties of any name"),
    (
        {"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": True},
        "p: it takes properties of any name",
    ),
    ({"type": "array"}, "p: a list of any values"),
    ({"type": "array", "prefixItems": [{"type": "null"}]}, "p: it is a tuple"),
    ({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]}, "p: it requires a property"),
    ({"allOf": [{"pattern": "a"}, {"pattern": "b"}], "type": "string"}, "p: allOf cannot be one schema"),
    ({"enum": [{"a": 1}]}, "an enum has a value that is an object or a list"),
]


@pytest.mark.parametrize(("schema", "reason"), NOT_STRICT)
@pytest.mark.parametrize("dialect", [OPENAI_STRICT, ANTHROPIC_STRICT], ids=["openai", "anthropic"])
def test_a_schema_that_cannot_be_enforced_says_why(dialect: Any, schema: Json, reason: str) -> None:
    with pytest.raises(NotStrict) as refused:
        strict(canonical({"type": "object", "properties": {"p": schema}}, []), dialect, [])
    assert str(refused.value).startswith(reason)


def test_the_bounds_of_openai_are_kept() -> None:
    def tried(properties: Json) -> str:
        with pytest.raises(NotStrict) as refused:
            strict(canonical({"type": "object", "properties": properties}, []), OPENAI_STRICT, [])
        return str(refused.value)

    assert "1000 values" in tried({"p": {"enum": list(range(1001))}})
    assert "15000" in tried({"p": {"enum": ["x" * 60 + str(number) for number in range(260)]}})
    assert "120000" in tried({"p" * 700 + str(number): {"type": "null"} for number in range(180)})
    deep: Json = {"type": "string"}
    for _ in range(10):
        deep = {"type": "object", "properties": {"p": deep}}
    assert "10 levels" in tried({"p": deep})
    strict(canonical(deep, []), OPENAI_STRICT, [])
