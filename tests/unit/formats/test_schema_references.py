"""References of every spelling, and parameter names that a provider does not take."""

from typing import Any

import jsonschema_rs
import pytest

from mcp_hub.formats.providers import PROVIDERS, Format
from mcp_hub.formats.tools import export, read_tools

Json = dict[str, Any]
POINT = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
REFERENCES: dict[str, Json] = {
    "percent": {"properties": {"p": {"$ref": "#/$defs/List%3CPoint%3E"}}, "$defs": {"List<Point>": POINT}},
    "percent, plain": {"properties": {"p": {"$ref": "#/$defs/List<Point>"}}, "$defs": {"List<Point>": POINT}},
    "space": {"properties": {"p": {"$ref": "#/definitions/A%20point"}}, "definitions": {"A point": POINT}},
    "percent in the key": {"properties": {"p": {"$ref": "#/$defs/50%25"}}, "$defs": {"50%": POINT}},
    "slash": {"properties": {"p": {"$ref": "#/$defs/a~1b"}}, "$defs": {"a/b": POINT}},
    "anchor": {"properties": {"p": {"$ref": "#point"}}, "$defs": {"Point": {"$anchor": "point", **POINT}}},
    "anchor, draft 7": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {"p": {"$ref": "#point"}},
        "definitions": {"Point": {"$id": "#point", **POINT}},
    },
    "anchor, draft 4": {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"p": {"$ref": "#point"}},
        "definitions": {"Point": {"id": "#point", **POINT}},
    },
    "dynamic anchor": {
        "properties": {"p": {"$dynamicRef": "#point"}},
        "$defs": {"Point": {"$dynamicAnchor": "point", **POINT}},
    },
    "id": {"properties": {"p": {"$ref": "point"}}, "$defs": {"Point": {"$id": "point", **POINT}}},
    "id, relative": {
        "$id": "https://example.org/schemas/tool.json",
        "properties": {"p": {"$ref": "point.json"}},
        "$defs": {"Point": {"$id": "/schemas/point.json", **POINT}},
    },
    "id, absolute": {
        "$id": "https://example.org/tool",
        "properties": {"p": {"$ref": "https://example.org/tool#/$defs/Point"}},
        "$defs": {"Point": POINT},
    },
    "id, urn": {"properties": {"p": {"$ref": "urn:x:p"}}, "$defs": {"Point": {"$id": "urn:x:p", **POINT}}},
    "id with definitions of its own": {
        "properties": {"p": {"$ref": "shapes#/$defs/Point"}},
        "$defs": {
            "Point": {"type": "string"},
            "Shapes": {"$id": "shapes", "$defs": {"Point": {"$ref": "#/$defs/Pair"}, "Pair": POINT}},
        },
    },
    "anchor inside an id": {
        "properties": {"p": {"$ref": "shapes#point"}},
        "$defs": {"Shapes": {"$id": "shapes", "$defs": {"P": {"$anchor": "point", **POINT}}}},
    },
}


@pytest.mark.parametrize("schema", REFERENCES.values(), ids=REFERENCES)
@pytest.mark.parametrize("into", PROVIDERS)
def test_references_of_every_kind_are_followed(into: Format, schema: Json) -> None:
    whole = {"type": "object", **schema, "required": ["p"], "additionalProperties": False}
    tool = {"name": "move", "inputSchema": whole}
    exported = export([tool], into, is_strict=True)
    kinds = {loss.kind for losses in exported.losses.values() for loss in losses}
    assert "widened" not in kinds and "not_strict" not in kinds
    (back,) = read_tools(exported.body, into)
    validator = jsonschema_rs.Draft202012Validator(back["inputSchema"])
    assert validator.is_valid({"p": {"x": 1}})
    assert not validator.is_valid({"p": {"x": "a"}}) and not validator.is_valid({"p": "a"})


@pytest.mark.parametrize("reference", ["#gone", "gone", "#/$defs/Gone", "https://[", "#/$defs/Point/%ff", 3, None])
def test_references_that_lead_nowhere_take_anything(reference: Any) -> None:
    schema = {"properties": {"p": {"$ref": reference}}, "$defs": {"Point": {"$anchor": "point", **POINT}}}
    exported = export([{"name": "move", "inputSchema": schema}], Format.OPENAI, is_strict=True)
    assert [loss.kind for loss in exported.losses["move"]][0] == "widened"


CIRCLES: dict[str, Json] = {
    "itself": {"A": {"$ref": "#/$defs/A"}},
    "another": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}},
    "alternative": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "string"}]}},
    "part": {"A": {"allOf": [{"$ref": "#/$defs/B"}]}, "B": {"if": {"$ref": "#/$defs/A"}, "then": {"type": "string"}}},
    "opposite": {"A": {"not": {"$ref": "#/$defs/A"}}},
    "way to one": {"A": {"$ref": "#/$defs/B"}, "B": {"dependentSchemas": {"x": {"$ref": "#/$defs/B"}}}},
}


@pytest.mark.parametrize("definitions", CIRCLES.values(), ids=CIRCLES)
@pytest.mark.parametrize("into", PROVIDERS)
def test_a_reference_back_to_the_same_value_takes_anything(into: Format, definitions: Json) -> None:
    schema = {"type": "object", "properties": {"p": {"$ref": "#/$defs/A"}}, "$defs": definitions}
    exported = export([{"name": "move", "inputSchema": schema}], into, is_strict=True)
    assert "widened" in [loss.kind for loss in exported.losses["move"]]
    (back,) = read_tools(exported.body, into)
    assert jsonschema_rs.Draft202012Validator(back["inputSchema"]).is_valid({"p": "a"})


def test_a_reference_to_a_part_of_the_value_is_no_circle() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#"}, "name": {"type": "string"}}}
    exported = export([{"name": "move", "inputSchema": tree}], Format.ANTHROPIC)
    assert exported.losses == {}
    (back,) = read_tools(exported.body, Format.ANTHROPIC)
    assert not jsonschema_rs.Draft202012Validator(back["inputSchema"]).is_valid({"left": {"left": {"name": 3}}})


@pytest.mark.parametrize("into", [Format.GEMINI, Format.ANTHROPIC])
def test_names_outside_of_ascii_stay_in_the_description(into: Format) -> None:
    properties = {
        "日付": {"type": "string", "description": "ISO"},
        "größe": {"type": "integer"},
        "x.id": {"type": "null"},
    }
    tool = {"name": "book", "inputSchema": {"type": "object", "properties": properties}}
    (back,) = read_tools(export([tool], into).body, into)
    described = [part.get("description") for part in back["inputSchema"]["properties"].values()]
    assert described == ["日付: ISO", "größe", None]
    assert all(name.isascii() for name in back["inputSchema"]["properties"])
