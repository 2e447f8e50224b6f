"""Tools to export: some of our own with every difficulty, and the captured ones; refusals."""

from collections.abc import Callable
from typing import Any

import pytest

from mcp_hub.errors import Rejected
from tests.captured import captured

TEXT = {"type": "string"}


def an_object(properties: dict[str, Any], *required: str, **members: Any) -> dict[str, Any]:
    """The schema of an object with these properties and further members."""
    needs = {"required": [*required]} if required else {}
    return {"type": "object", "properties": properties, **needs, **members}


def _tool(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": schema}


def _deepened(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = TEXT
    for _ in range(levels):
        schema = an_object({"d": schema})
    return schema


_DRAFT_07 = {"$schema": "http://json-schema.org/draft-07/schema#"}
_QUERY = {
    "query": {"type": "string", "minLength": 1, "description": "The words."},
    "limit": {"type": "integer", "minimum": 1, "maximum": 50, "default": 10},
    "kind": {"const": "page"},
    "tags": {"type": "array", "items": TEXT, "uniqueItems": True},
    "since": {"type": ["string", "null"], "format": "date"},
}
_ODD_NAMES = {
    "x-id": TEXT,
    "x.id": TEXT,
    "$filter": an_object({"@type": TEXT}, "@type"),
    "1st": {"type": "integer"},
    "x_id": {"type": "boolean"},
    "a" * 70: TEXT,
}
_NODE = an_object({"value": TEXT, "children": {"type": "array", "items": {"$ref": "#/definitions/Node"}}}, "value")
_ROOT = {"root": {"$ref": "#/definitions/Node", "description": "The top."}}
_MERGED = {
    "b": {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 5, "pattern": "^x"}]},
    "c": {"$ref": "#/properties/b"},
    "pair": {"type": "array", "items": [TEXT, {"type": "integer"}]},
}
OWN: list[dict[str, Any]] = [
    _tool("ping", "Says pong.", {"type": "object"}),
    {"name": "nothing", "inputSchema": an_object({}, additionalProperties=False)},
    {
        **_tool("search", "Finds pages.", an_object(_QUERY, "query", **_DRAFT_07)),
        "title": "Search",
        "outputSchema": an_object({"hits": {"type": "integer"}}),
    },
    _tool("free", "Takes any headers.", an_object({"headers": {"type": "object", "additionalProperties": TEXT}})),
    _tool("odd_names", "Has names that few providers take.", an_object(_ODD_NAMES, "x-id")),
    _tool("tree", "Stores a tree.", an_object(_ROOT, "root", definitions={"Node": _NODE})),
    _tool(
        "either",
        "Takes a file or an address.",
        {"oneOf": [an_object({name: TEXT}, name) for name in ("path", "url")]},
    ),
    _tool("merged", "Is put together.", an_object(_MERGED, allOf=[{"properties": {"a": TEXT}, "required": ["a"]}])),
    _tool("deep", "Is deep.", _deepened(60)),
]


def captured_tools() -> list[dict[str, Any]]:
    """All captured tools, with names that no two have."""
    tools = [tool for tools in captured().values() for tool in tools]
    return [{**tool, "name": f"t{number}_{tool['name']}"[:48]} for number, tool in enumerate(tools)]


def refused(code: str, function: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """The message with which a call is refused; its code must be this one."""
    with pytest.raises(Rejected) as raised:
        function(*arguments, **options)
    assert raised.value.code == code
    return str(raised.value)
