"""The top of a schema: an object without alternatives."""

from typing import Final

from mcp_hub.formats.records import Loss
from mcp_hub.formats.schemas.merging import merged
from mcp_hub.formats.schemas.nodes import MAX_DEPTH, Node, definition, noted

_COMPOSED: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "dependentSchemas", "enum")


def rooted(schema: Node, losses: list[Loss]) -> Node:
    """The canonical schema as an object with properties.

    References are followed, `allOf` is merged where exact, alternatives become text.
    """
    root = _flat(schema, schema)
    merged_root = {key: value for key, value in root.items() if key not in _COMPOSED}
    composed = {key: value for key, value in root.items() if key in _COMPOSED}
    if composed:
        merged_root.pop("unevaluatedProperties", None)
        losses += (Loss("", "described", keyword) for keyword in composed)
        merged_root["properties"] = {**_hoisted(schema, composed), **root.get("properties", {})}
        merged_root = noted(merged_root, composed)
    merged_root = {"type": "object", **merged_root, "properties": merged_root.get("properties", {})}
    merged_root["type"] = "object"
    return merged_root


def _flat(schema: Node, node: Node) -> Node:
    for _ in range(MAX_DEPTH):
        parts = [definition(schema, node)] if "$ref" in node else node.get("allOf", [])
        if not parts:
            return node
        whole: Node | None = {key: value for key, value in node.items() if key not in ("$ref", "allOf")}
        whole = {**whole, "allOf": node["allOf"]} if "$ref" in node and "allOf" in node and whole is not None else whole
        for part in parts:
            part = _bare(schema, part)
            whole = None if whole is None or "$ref" in part else merged(whole, part)
        if whole is None:
            break
        node = whole
    if "$ref" in node:  # a circle, or beside what it cannot be merged with
        siblings = {key: value for key, value in node.items() if key != "$ref"}
        node = {**siblings, "allOf": [*node.get("allOf", ()), definition(schema, node)]}
    return node


def _bare(schema: Node, node: Node) -> Node:
    for _ in range(MAX_DEPTH):
        if node.keys() != {"$ref"}:
            break
        node = definition(schema, node)
    return node


def _hoisted(schema: Node, composed: Node) -> Node:
    offered = [_bare(schema, part) for key in ("anyOf", "oneOf") for part in composed.get(key, ())]
    branches = [_bare(schema, part) for key in ("then", "else") if isinstance(part := composed.get(key), dict)]
    branches += [
        _bare(schema, part) for part in (*composed.get("allOf", ()), *composed.get("dependentSchemas", {}).values())
    ]
    is_choice = bool(offered) and ("anyOf" in composed) != ("oneOf" in composed) and not branches
    names = dict.fromkeys(name for part in (*offered, *branches) for name in part.get("properties", ()))
    return {name: _agreed(name, offered if is_choice else None, [*offered, *branches]) for name in names}


def _agreed(name: str, choice: list[Node] | None, parts: list[Node]) -> Node:
    schemas = [part["properties"][name] for part in parts if name in part.get("properties", ())]
    if choice is not None and all(name in part.get("properties", ()) or _is_closed(part) for part in choice):
        kinds = [schema for at, schema in enumerate(schemas) if schema not in schemas[:at]]
        return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    description = next((schema["description"] for schema in schemas if "description" in schema), None)
    return {} if description is None else {"description": description}


def _is_closed(part: Node) -> bool:
    return part.get("additionalProperties") is False and "patternProperties" not in part
