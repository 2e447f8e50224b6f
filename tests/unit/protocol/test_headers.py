"""What a modern request repeats in headers; the SDK's server side is the other opinion."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.shared import inbound

from mcp_hub.protocol.headers import Mirrors, header_value, param_headers, request_headers


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
    headers = mirrored(schema, {"region": "ü", "deep": {"count": 7, "on": True}})
    assert headers == {"mcp-param-region": "=?base64?w7w=?=", "mcp-param-n": "7", "mcp-param-on": "true"}


@pytest.mark.parametrize("given_", [{}, {"region": None}, {"region": [1]}, {"region": {"a": 1}}, None, 5])
def test_value_that_is_absent_or_no_primitive_has_no_header(given_: Any) -> None:
    assert mirrored(of(region=annotated("string")), given_) == {}


def mirrored(schema: Any, arguments: Any) -> dict[str, str] | None:
    mirrors = Mirrors()
    mirrors.learn([tool("t", schema)])
    return mirrors.headers(params("t", arguments))


KEYWORDS = (  # that hold schemas, JSON Schema 2020-12; and some that do not
    "items contains unevaluatedItems additionalProperties propertyNames unevaluatedProperties not if then else "
    "contentSchema allOf anyOf oneOf prefixItems properties patternProperties dependentSchemas $defs definitions "
    "default examples const enum $ref format x-ours"
).split()
VALID = [
    of(a={"type": "string"}),
    of(**{"x-mcp-header": {"type": "string"}}),
    of(a={"type": "object", "default": {"x-mcp-header": 1}, "enum": [{"x-mcp-header": 1}]}),
    of(a=annotated("string", "A"), b=annotated("integer", "B")),
    {**of(a=annotated("string")), "x-ours": annotated("number"), "x-list": [annotated("string")]},
    of(a={"$ref": "#/$defs/a", "x-ours": {"properties": {"b": annotated("string")}}}),
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


@pytest.mark.parametrize("keyword", KEYWORDS)
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: [x], lambda x: {"x": x}], ids=["one", "list", "map"])
def test_annotations_count_where_the_sdk_sees_a_schema(keyword: str, wrap: Callable[[object], object]) -> None:
    for inner in (annotated("string"), of(b=annotated("string"))):
        schema = of(a={"type": "string", keyword: wrap(inner)}, region=annotated("string"))
        verdict = inbound.find_invalid_x_mcp_header(schema)
        try:
            found = param_headers(schema)
        except ValueError:
            assert verdict is not None
        else:
            assert verdict is None and set(found.values()) == set(inbound.x_mcp_header_map(schema))


@pytest.mark.parametrize("schema", [*VALID, *INVALID])
def test_schema_is_accepted_within_the_rules_and_refused_against_them(schema: dict[str, Any]) -> None:
    assert (inbound.find_invalid_x_mcp_header(schema) is None) == (schema in VALID)
    if schema in VALID:
        headers = {path: f"mcp-param-{token.lower()}" for path, token in inbound.x_mcp_header_map(schema).items()}
        assert {path: name for name, path in param_headers(schema).items()} == headers
    else:
        with pytest.raises(ValueError, match="x-mcp-header"):
            param_headers(schema)


# -- what every request repeats


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", '{"arguments":{"name":"no"},"name":"a b"}', "a b"),
        ("prompts/get", '{"name":"\\u00fc"}', "=?base64?w7w=?="),
        ("resources/read", '{"uri":"file:///x","name":"no"}', "file:///x"),
        ("tools/list", '{"name":"no"}', None),
        ("tools/call", "{}", None),
        ("tools/call", '{"name":["x"]}', None),
        ("tools/call", '{"name":"\\ud800"}', None),
        ("tools/call", "[", None),
    ],
)
def test_method_and_name_stand_in_the_headers(method: str, params: str, name: str | None) -> None:
    expected = {"mcp-protocol-version": "2026-07-28", "mcp-method": method}
    assert request_headers("2026-07-28", method, params.encode()) == expected | ({"mcp-name": name} if name else {})


# -- the tools of one server


def tool(name: object, schema: object) -> bytes:
    return json.dumps({"name": name, "inputSchema": schema}).encode()


def params(name: str, arguments: object) -> dict[str, msgspec.Raw]:
    members = {"name": name, "arguments": arguments}
    return {key: msgspec.Raw(json.dumps(value).encode()) for key, value in members.items()}


def test_tools_are_used_by_the_rules_of_their_schema_or_left_out_by_name() -> None:
    good, bad, plain = tool("good", of(a=annotated("string"))), tool("bad", INVALID[0]), tool("plain", of())
    mirrors = Mirrors()
    usable, refused = mirrors.learn([good, bad, plain, b"5"])
    assert usable == [good, plain, b"5"]
    assert refused == ["bad is left out: a: x-mcp-header is for strings, integers and booleans only"]
    assert mirrors.headers(params("good", {"a": "eu", "b": "x"})) == {"mcp-param-region": "eu"}
    assert mirrors.headers(params("good", {})) == {}
    assert mirrors.headers(params("plain", {"a": "eu"})) is None and mirrors.headers(params("bad", {"a": 1})) is None


@pytest.mark.parametrize("arguments", [b'{"a":"\\ud800"}', b"[", b"5", b"null"])
def test_arguments_that_cannot_be_read_have_no_headers(arguments: bytes) -> None:
    mirrors = Mirrors()
    mirrors.learn([tool("x", of(a=annotated("string")))])
    assert mirrors.headers({"name": msgspec.Raw(b'"x"'), "arguments": msgspec.Raw(arguments)}) == {}
