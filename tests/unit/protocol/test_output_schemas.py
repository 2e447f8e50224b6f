"""Right values of what Ajv 8, as the TypeScript SDK 1 sets it up, compiles; `rigs.definitions` asks Ajv itself."""

from typing import Any

import pytest

from mcp_hub.protocol.definitions.output_schemas import MOST, problem_of_pattern, problem_of_schema


def of(inner: Any, **members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"a": inner}, **members}


COMPILED: list[dict[str, Any]] = [
    {},
    of({"$ref": "#/$defs/x"}, **{"$defs": {"x": {"type": "string"}}}),
    of({"$ref": "#/definitions/x"}, definitions={"x": {"$ref": "#/definitions/y"}, "y": False}),
    of({"$ref": "#"}),
    of({"$ref": "#/$defs/a~1b%20c"}, **{"$defs": {"a/b c": {}}}),
    of({"$ref": "#n"}, **{"$defs": {"x": {"$anchor": "n"}}}),
    of({"$ref": "x"}, **{"$defs": {"x": {"$id": "x", "type": "string"}}}),
    of({"$ref": "https://e.org/r#/$defs/x"}, **{"$id": "https://e.org/r", "$defs": {"x": {}}}),
    of({"$ref": "#/allOf/0"}, allOf=[{"type": "object"}]),
    of({"$ref": "http://json-schema.org/draft-07/schema#"}),
    of({"items": {"$ref": "#/properties/a"}}),
    *(of({}, **{"$schema": uri}) for uri in ("https://json-schema.org/draft/2020-12/schema", "https://e.org/x", 5)),
    of({"type": ["string", "null"], "enum": ["a", None], "const": None, "default": None}),
    of({"minimum": 1.5, "maxLength": 3, "required": ["a"], "uniqueItems": True, "multipleOf": 2}),
    of({"properties": {"x": True, "y": 5}, "items": [{}, {}], "additionalProperties": False}),
    of({"anyOf": [], "not": {}, "if": {}, "then": {}, "contains": {}, "propertyNames": {"pattern": "^a"}}),
    of({"dependencies": {"a": ["b"], "c": {"required": ["d"]}}, "prefixItems": {}, "unevaluatedProperties": None}),
    of({"items": {"default": None}}),
    of({"type": ""}),
    of({"type": []}),
    of({"format": "no-such-format", "type": "string", "nullable": True, "$comment": 5, "x": None}),
    of({"enum": [{"$ref": "#/x", "id": 1}], "default": {"$ref": "#/x"}, "examples": [{"pattern": "("}]}),
    {"type": "object", "properties": {"id": {"type": "string"}, "$ref": {"type": "string"}, "pattern": {}}},
]
WRONG_TYPES: list[Any] = ["str", None, 5, ["string", "x"]]
NO_VALUES: list[Any] = [[], "a", None]
REFUSED: list[tuple[dict[str, Any], str]] = [
    (of({"$ref": "#/$defs/x"}), "/properties/a: $ref #/$defs/x leads nowhere"),
    (of({"$ref": "https://e.org/x.json"}), "leads nowhere"),
    (of({"$ref": "x.json"}), "leads nowhere"),
    (of({"$ref": "http://[x"}), "leads nowhere"),
    (of({"$ref": "#n"}), "leads nowhere"),
    (of({"$ref": "#/properties/a"}), "leads to itself"),
    (of({"$ref": "#/$defs/b"}, **{"$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/b"}}}), "to itself"),
    (of({"$ref": "#/x/y"}, x={"y": {"minimum": "1"}}), "/properties/a/$ref: minimum has a value"),
    (of({"$ref": 5}), "$ref has a value"),
    (of({"$ref": "https://json-schema.org/draft/2020-12/schema"}), "leads nowhere"),
    *((of({"type": value}), "type has a value") for value in WRONG_TYPES),
    *((of({name: "1"}), f"{name} has a value") for name in ("minimum", "maxLength", "multipleOf", "uniqueItems")),
    (of({"minimum": 0, "exclusiveMinimum": True}), "exclusiveMinimum has a value"),
    *((of({"enum": value}), "enum has a value") for value in NO_VALUES),
    *((of({"required": value}), "required has a value") for value in ("x", True, None)),
    *((of({name: []}), f"{name} has a value") for name in ("properties", "patternProperties", "dependencies")),
    *((of({name: None}), f"{name} has a value") for name in ("items", "not", "if", "contains", "additionalProperties")),
    *((of({name: {}}), f"{name} has a value") for name in ("anyOf", "oneOf", "allOf")),
    *((of({name: [None]}), f"null in {name}") for name in ("anyOf", "oneOf", "allOf", "items")),
    *((of({name: {"x": None}}), f"null in {name}") for name in ("properties", "patternProperties", "dependencies")),
    (of({"pattern": 5}), "pattern has a value"),
    (of({"pattern": "(?P<x>a)"}), "the pattern (?P<x>a) has a group"),
    (of({"patternProperties": {"(": {"type": "string"}}}), "the pattern ( has a group"),
    (of({"format": 5}), "format has a value"),
    (of({"nullable": True}), "nullable contradicts type"),
    (of({"type": ["string", "null"], "nullable": False}), "nullable contradicts type"),
    (of({"id": "x"}), "id is a keyword of draft 4"),
    (of({}, **{"$id": 5}), "the schema: $id is not a text"),
    (of({"$id": "y"}, **{"$defs": {"x": {"$id": "y"}}}), "is the address of two schemas"),
    (of({"$anchor": "y"}, **{"$defs": {"x": {"$anchor": "y"}}}), "is the name of two schemas"),
    (of({"$anchor": "a b"}), "$anchor is not a name"),
]


@pytest.mark.parametrize(("schema", "reason"), [*((schema, None) for schema in COMPILED), *REFUSED])
def test_schema_that_clients_cannot_compile_has_a_problem(schema: dict[str, Any], reason: str | None) -> None:
    problem = problem_of_schema(schema)
    assert problem is None if reason is None else reason in (problem or "")


GOOD = r"""
abc ^a$ a|b (a)(?:b)(?<n>c)\k<n>\1 a*b+?c??d{2}e{2,}f{2,3}? [a-z\d_-] [^\]a\-b]
\d\D\w\W\s\S\b\B\n\t\/\.\$ (?=a)(?!b)(?<=c)(?<!d) \p{L}\P{Lu}\p{Script=Greek} \u{1F600}\u0041\x41
[\b\u0041-\u005a] \cA\0 😀+ ^(\([0-9]{3}\))?[0-9]{3}-[0-9]{4}$ [-a] [a-] [.*+?^${}()|]
""".split()
BAD = r"""
( ) a) (?P<x>a) (?i)abc (?i:a) (?>a) (?#x)a (a)?(?(1)b|c) \Aabc\Z [\w-.] [a-\d] a\-b \_ \@ \' \: \#
a{ a} a] {1} *a a** a++ a{3,1} ^* (?=a)* \pL \p{Foo} [[:alpha:]] \x4 \u12 \07 \1 \k<a>
(?<a>x)(?<a>y) [z-a] [\x62-\x61] [ [a \ \u{110000} (?<1>a) |*
""".split()


@pytest.mark.parametrize(("text", "is_good"), [*((text, True) for text in GOOD), *((text, False) for text in BAD)])
def test_an_expression_that_javascript_does_not_have_has_a_problem(text: str, is_good: bool) -> None:
    assert (problem_of_pattern(text) is None) == is_good


def test_a_long_expression_is_refused_unread() -> None:
    assert problem_of_pattern("") is None and problem_of_pattern("a" * MOST) is None
    assert problem_of_pattern("(" * (MOST + 1)) == f"longer than {MOST} characters"


def test_a_chain_of_references_is_not_followed_without_end() -> None:
    chain = {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(3000)}
    schema = {"$defs": {**chain, "d3000": {}}}
    assert "leads over more than 100 others" in (problem_of_schema(schema) or "")
    assert problem_of_schema({"$defs": {**dict(list(chain.items())[2950:]), "d3000": {}}}) is None
