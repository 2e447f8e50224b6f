"""When a refusal is put down to the arguments: what a model gets wrong, and what may be meant as it is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.catalog.discovery.arguments import look_wrong

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
def test_what_fits_is_not_to_blame(arguments: object) -> None:
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
def test_what_is_missing_unknown_or_of_another_type_is(arguments: object) -> None:
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
