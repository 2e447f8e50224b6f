"""What a modern request repeats in headers; the SDK's server side is the other opinion."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from mcp_hub.protocol.headers import header_value, mirrored, param_headers


def annotated(kind: str, header: object = "Region") -> dict[str, Any]:
    return {"type": kind, "x-mcp-header": header}


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("us-west1", "us-west1"),
        ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
        (" padded ", "=?base64?IHBhZGRlZCA=?="),
        ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
        ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
    ],
)
def test_values_of_the_specification(text: str, value: str) -> None:
    assert header_value(text) == value


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.text("=?base64 \n"))
def test_any_value_reaches_a_server_as_it_is(text: str) -> None:
    value = header_value(text)
    assert value.isascii() and value.isprintable() and value == value.strip()
    assert inbound.decode_header_value(value) == text


def test_arguments_travel_in_the_headers_that_the_schema_names() -> None:
    schema = of(region=annotated("string"), deep=of(count=annotated("integer", "N"), on=annotated("boolean", "On")))
    headers = mirrored(param_headers(schema), {"region": "ü", "deep": {"count": 7, "on": True}})
    assert headers == {"mcp-param-region": "=?base64?w7w=?=", "mcp-param-n": "7", "mcp-param-on": "true"}


@pytest.mark.parametrize("given_", [{}, {"region": None}, {"region": [1]}, {"region": {"a": 1}}, None, 5])
def test_value_that_is_absent_or_no_primitive_has_no_header(given_: Any) -> None:
    assert mirrored(param_headers(of(region=annotated("string"))), given_) == {}


VALID = [
    of(a={"type": "string"}),
    of(**{"x-mcp-header": {"type": "string"}}),
    of(a={"type": "object", "default": {"x-mcp-header": 1}, "enum": [{"x-mcp-header": 1}]}),
    of(a=annotated("string", "A"), b=annotated("integer", "B")),
]
INVALID = [
    of(a=annotated("number")),
    of(a={"x-mcp-header": "A"}),
    of(a=annotated("string", "")),
    of(a=annotated("string", "a b")),
    of(a=annotated("string", "A\n")),
    of(a=annotated("string", 5)),
    of(a=annotated("string", "Same"), b=annotated("string", "same")),
    of(a={"type": "array", "items": annotated("string")}),
    of(a={"anyOf": [annotated("string")]}),
    {"$defs": {"a": annotated("string")}},
    {**annotated("string"), **of()},
]


@pytest.mark.parametrize("schema", VALID)
def test_schema_within_the_rules_is_accepted(schema: dict[str, Any]) -> None:
    assert inbound.find_invalid_x_mcp_header(schema) is None
    headers = {path: f"mcp-param-{token.lower()}" for path, token in inbound.x_mcp_header_map(schema).items()}
    assert {path: name for name, path in param_headers(schema).items()} == headers


@pytest.mark.parametrize("schema", INVALID)
def test_schema_against_the_rules_is_refused(schema: dict[str, Any]) -> None:
    assert inbound.find_invalid_x_mcp_header(schema) is not None
    with pytest.raises(ValueError, match="x-mcp-header"):
        param_headers(schema)
