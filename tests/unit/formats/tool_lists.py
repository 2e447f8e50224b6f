"""Tools to export: some of our own with every difficulty, and the captured ones; refusals."""

from collections.abc import Callable
from typing import Any

import pytest

from mcp_hub.errors import FormatRefused
from tests.captured import captured

OWN: list[dict[str, Any]] = [
    {"name": "ping", "description": "Says pong.", "inputSchema": {"type": "object"}},
    {"name": "nothing", "inputSchema": {"type": "object", "properties": {}, "additionalProperties": False}},
    {
        "name": "search",
        "title": "Search",
        "description": "Finds pages.",
        "inputSchema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {
                "query": {"type": "string", "minLength": 1, "description": "The words."},
                "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
                "kind": {"const": "page"},
                "tags": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
                "since": {"type": ["string", "null"], "format": "date"},
            },
            "required": ["query"],
        },
        "outputSchema": {"type": "object", "properties": {"hits": {"type": "integer"}}},
    },
    {
        "name": "free",
        "description": "Takes any headers.",
        "inputSchema": {
            "type": "object",
            "properties": {"headers": {"type": "object", "additionalProperties": {"type": "string"}}},
        },
    },
    {
        "name": "odd_names",
        "description": "Has names that few providers take.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "x-id": {"type": "string"},
                "x.id": {"type": "string"},
                "$filter": {"type": "object", "properties": {"@type": {"type": "string"}}, "required": ["@type"]},
                "1st": {"type": "integer"},
                "x_id": {"type": "boolean"},
                "a" * 70: {"type": "string"},
            },
            "required": ["x-id"],
        },
    },
    {
        "name": "tree",
        "description": "Stores a tree.",
        "inputSchema": {
            "type": "object",
            "properties": {"root": {"$ref": "#/definitions/Node", "description": "The top."}},
            "required": ["root"],
            "definitions": {
                "Node": {
                    "type": "object",
                    "properties": {
                        "value": {"type": "string"},
                        "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}},
                    },
                    "required": ["value"],
                }
            },
        },
    },
    {
        "name": "either",
        "description": "Takes a file or an address.",
        "inputSchema": {
            "oneOf": [
                {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
                {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]},
            ]
        },
    },
    {
        "name": "merged",
        "description": "Is put together.",
        "inputSchema": {
            "type": "object",
            "allOf": [{"properties": {"a": {"type": "string"}}, "required": ["a"]}],
            "properties": {
                "b": {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 5, "pattern": "^x"}]},
                "c": {"$ref": "#/properties/b"},
                "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
            },
        },
    },
    {
        "name": "deep",
        "description": "Is deep.",
        "inputSchema": {"type": "object", "properties": {"d": {}}},
    },
]


def _deepened(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"d": schema}}
    return schema


OWN[-1]["inputSchema"] = _deepened(60)


def captured_tools() -> list[dict[str, Any]]:
    """All captured tools, with names that no two have."""
    tools = [tool for tools in captured().values() for tool in tools]
    return [{**tool, "name": f"t{number}_{tool['name']}"[:48]} for number, tool in enumerate(tools)]


def refused(code: str, function: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The message with which a call is refused; its code must be this one."""
    with pytest.raises(FormatRefused) as raised:
        function(*arguments, **options)
    assert raised.value.code == code
    return str(raised.value)
