"""A null that stands for a parameter which the model left out, as OpenAI's strict mode wants it, inside of unions."""

import json
from typing import Any

import pytest

from mcp_hub.formats.calls import read_calls
from mcp_hub.formats.providers import Format
from mcp_hub.formats.tools import export

Json = dict[str, Any]


def kind(name: str, *, required: tuple[str, ...] = (), **properties: Json) -> Json:
    return {
        "type": "object",
        "properties": {"kind": {"const": name}, **properties},
        "required": ["kind", *required],
        "additionalProperties": False,
    }


TEXT: Json = {"type": "string"}
NULLABLE: Json = {"type": ["string", "null"]}
CIRCLE = kind("circle", size={"type": "number"}, label=TEXT)
NOTE = kind("note", label=NULLABLE, required=("label",))
NESTED = kind("group", inner={"anyOf": [CIRCLE, NOTE]}, label=TEXT)
BY_ENUM = {**CIRCLE, "properties": {**CIRCLE["properties"], "kind": {"enum": ["disc", "ring"]}}}
NUMBERED = {**NOTE, "properties": {**NOTE["properties"], "kind": {"const": 1}}}

CASES: dict[str, tuple[Json, Json, Json]] = {
    "by const": (
        {"anyOf": [CIRCLE, NOTE]},
        {"kind": "circle", "size": 1, "label": None},
        {"kind": "circle", "size": 1},
    ),
    "the other": ({"anyOf": [CIRCLE, NOTE]}, {"kind": "note", "label": None}, {"kind": "note", "label": None}),
    "oneOf": ({"oneOf": [NOTE, CIRCLE]}, {"kind": "circle", "size": None, "label": None}, {"kind": "circle"}),
    "by enum": ({"anyOf": [BY_ENUM, NOTE]}, {"kind": "ring", "size": None, "label": None}, {"kind": "ring"}),
    "a number for const": (
        {"anyOf": [CIRCLE, NUMBERED]},
        {"kind": "circle", "size": None, "label": None},
        {"kind": "circle"},
    ),
    "by reference": (
        {"anyOf": [{"$ref": "#/$defs/Circle"}, {"$ref": "#/$defs/Note"}]},
        {"kind": "circle", "size": None, "label": None},
        {"kind": "circle"},
    ),
    "by names": (
        {
            "anyOf": [
                {"type": "object", "properties": {"a": TEXT, "label": TEXT}},
                {"type": "object", "properties": {"b": TEXT, "label": NULLABLE}, "required": ["label"]},
            ]
        },
        {"a": "x", "label": None},
        {"a": "x"},
    ),
    "by type": (
        {
            "anyOf": [
                {"type": "object", "properties": {"n": {"type": "integer"}, "label": TEXT}, "required": ["n"]},
                {"type": "object", "properties": {"n": TEXT, "label": NULLABLE}, "required": ["n", "label"]},
            ]
        },
        {"n": 3, "label": None},
        {"n": 3},
    ),
    "inside": (
        {"anyOf": [NESTED, NOTE]},
        {"kind": "group", "inner": {"kind": "circle", "size": None, "label": None}, "label": None},
        {"kind": "group", "inner": {"kind": "circle"}},
    ),
    "or null": (
        {"anyOf": [CIRCLE, NOTE, {"type": "null"}]},
        {"kind": "circle", "size": None, "label": None},
        {"kind": "circle"},
    ),
    "allOf": (
        {"allOf": [{"anyOf": [CIRCLE, NOTE]}]},
        {"kind": "circle", "size": None, "label": None},
        {"kind": "circle"},
    ),
    "none fits": ({"anyOf": [CIRCLE, NOTE]}, {"kind": "star", "label": None}, {"kind": "star", "label": None}),
}


@pytest.mark.parametrize(("schema", "sent", "meant"), CASES.values(), ids=CASES)
@pytest.mark.parametrize("into", [Format.OPENAI, Format.OPENAI_RESPONSES])
def test_null_goes_where_the_alternative_of_the_value_does_not_take_it(
    into: Format, schema: Json, sent: Json, meant: Json
) -> None:
    definitions = {"Circle": CIRCLE, "Note": NOTE}
    properties = {"shape": schema, "shapes": {"type": "array", "items": schema}, "title": TEXT}
    tool = {"name": "draw", "inputSchema": {"type": "object", "properties": properties, "$defs": definitions}}
    arguments = json.dumps({"shape": sent, "shapes": [sent, sent], "title": None})
    item: Json = {"type": "function_call", "call_id": "c", "name": "draw", "arguments": arguments}
    if into is Format.OPENAI:
        item = {"type": "function", "id": "c", "function": {"name": "draw", "arguments": arguments}}
    (call,) = read_calls(item, into, [tool])
    assert call.arguments == {"shape": meant, "shapes": [meant, meant]}


def test_a_union_is_enforced_with_its_optional_parameters_as_null() -> None:
    tool = {"name": "draw", "inputSchema": {"type": "object", "properties": {"shape": {"anyOf": [CIRCLE, NOTE]}}}}
    (strict,) = export([tool], Format.OPENAI_RESPONSES, is_strict=True).body["tools"]
    circle = strict["parameters"]["properties"]["shape"]["anyOf"][0]
    assert strict["strict"] is True and circle["required"] == ["kind", "size", "label"]
    assert {"type": "null"} in circle["properties"]["label"]["anyOf"]
