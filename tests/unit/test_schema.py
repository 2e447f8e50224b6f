"""References, types and properties of schemas, and arguments that are likely to be wrong."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub import schema as reader
from mcp_hub.schema import look_wrong

SCHEMA = {
    "type": "object",
    "properties": {
        "owner": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": ["number", "null"]},
        "deep": {"type": "boolean"},
        "tags": {"type": "array"},
        "any": {},
        "odd": {"type": "elephant"},
    },
    "required": ["owner"],
}


@pytest.mark.parametrize(
    "arguments",
    [
        {"owner": "me"},
        {"owner": "me", "count": 3, "ratio": None, "deep": True, "tags": []},
        {"owner": "me", "ratio": 1.5, "any": {"x": [1]}, "odd": 5},
    ],
)
def test_arguments_that_fit_are_not_to_blame(arguments: object) -> None:
    assert not look_wrong(arguments, SCHEMA)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"own": "me"},
        {"owner": "me", "repo": "x"},
        {"owner": 5},
        {"owner": None},
        {"owner": "me", "count": "3"},
        {"owner": "me", "count": True},
        {"owner": "me", "deep": 1},
        {"owner": "me", "tags": {"0": "a"}},
        {"owner": "me", "ratio": "high"},
        [],
        "owner=me",
        None,
    ],
)
def test_missing_unknown_and_mistyped_arguments_are_to_blame(arguments: object) -> None:
    assert look_wrong(arguments, SCHEMA)


@pytest.mark.parametrize(
    "keyword", ["additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if"]
)
def test_a_name_that_is_not_listed_may_be_meant_where_a_schema_is_open(keyword: str) -> None:
    value: Any = {"additionalProperties": True, "allOf": [{}], "anyOf": [{}], "oneOf": [{}]}.get(keyword, {"x": {}})
    assert not look_wrong({"owner": "me", "more": 1}, {**SCHEMA, keyword: value})
    assert look_wrong({"owner": "me", "more": 1}, {**SCHEMA, "additionalProperties": False})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SCHEMA, "x"]), inner, max_size=4),
)


@given(JSON, JSON)
def test_no_schema_and_no_arguments_are_too_odd(arguments: object, schema: object) -> None:
    assert look_wrong(arguments, schema) in (True, False)


@given(JSON, JSON)
def test_any_json_can_be_read_as_a_schema(root: object, schema: object) -> None:
    assert reader.allowed_types(schema, root) >= set()
    assert [name for name, _, _ in reader.parameters(schema)] == list(reader.properties(schema))


ROOT: dict[str, Any] = {
    "$defs": {
        "point": {"type": "array"},
        "a/b": {"type": "boolean"},
        "loop": {"$ref": "#/$defs/loop"},
        "one": {"oneOf": [{"enum": [1]}, {"$ref": "#/$defs/point"}, True]},
    },
    "anyOf": [{"type": "string"}],
}


@pytest.mark.parametrize(
    ("reference", "target"),
    [
        ("#", ROOT),
        ("#/$defs/point", {"type": "array"}),
        ("#/$defs/a~1b", {"type": "boolean"}),
        ("#/anyOf/0", {"type": "string"}),
        ("#/anyOf/0/type", "string"),
        *((reference, None) for reference in ("#/anyOf/1", "#/anyOf/" + "9" * 5000, "#/anyOf/-1", "#/$defs/gone")),
        *((reference, None) for reference in ("other.json#/$defs/point", "/$defs/point", "$defs/point")),
        ("#" + "/x" * 5000, None),
    ],
)
def test_reference_is_resolved_in_its_schema_alone(reference: str, target: object) -> None:
    assert reader.resolve(ROOT, reference) == target


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null", 5]}, {"string", "null"}),
        ({"const": "a"}, {"string"}),
        ({"enum": [None, "a", []]}, {"null", "string", "array"}),
        ({"enum": [1]}, {"integer", "number"}),
        ({"$ref": "#/$defs/one"}, {"integer", "number", "array"}),
        ({"allOf": [{"$ref": "#/$defs/a~1b"}]}, {"boolean"}),
        ({"$ref": "#/$defs/loop"}, set()),
        ({"minLength": 1}, set()),
        (True, set()),
    ],
)
def test_allowed_types_are_those_of_references_and_unions(schema: object, types: set[str]) -> None:
    assert reader.allowed_types(schema, ROOT) == types


def test_required_properties_are_marked_in_the_order_of_the_schema() -> None:
    schema = {"properties": {"b": {}, "a": True}, "required": ["a", 5, "gone"]}
    assert reader.parameters(schema) == [("b", {}, False), ("a", True, True)]
    assert reader.required(schema) == ["a", "gone"]


@pytest.mark.parametrize(
    ("value", "allowed"), [(1, {"number"}), (1, {"integer"}), (None, {"null"}), (True, {"boolean"})]
)
def test_value_fits_its_type(value: object, allowed: set[str]) -> None:
    assert reader.fits(value, allowed)
    assert not reader.fits(value, {"string"})
    assert not reader.fits(1.5, {"integer"})
