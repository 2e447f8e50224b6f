"""The top of a schema: an object without alternatives. `allOf` is merged where that is exact."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from mcp_hub.formats.schemas.nodes import MAX_DEPTH, Node, definition, noted
from mcp_hub.protocol.rest.calls import LossInfo
from mcp_hub.schema import ANNOTATIONS, named_types

_GROUPS: Final = (
    frozenset(("if", "then", "else")),
    frozenset(("contains", "minContains", "maxContains")),
    frozenset(("prefixItems", "items", "unevaluatedItems")),
    frozenset(("properties", "additionalProperties", "patternProperties", "unevaluatedProperties")),
)
"""Keywords with a common meaning; two schemas that both have some are merged by a rule only."""

_UNMERGED: Final = frozenset(("unevaluatedProperties", "unevaluatedItems"))


def merged(first: Node, second: Node) -> Node | None:
    """A schema for exactly what both take, if one can say that."""
    if not _UNMERGED.isdisjoint(first) or not _UNMERGED.isdisjoint(second):
        return None
    combined = {**second, **first}
    objects = _objects(first, second)
    if objects is None or not all(map(_fits(first, second), _GROUPS[:3])):
        return None
    for keyword in first.keys() & second.keys() - _GROUPS[3] - ANNOTATIONS:
        first_value, second_value = first[keyword], second[keyword]
        if first_value != second_value:
            rule = _RULES.get(keyword)
            value = rule(first_value, second_value) if rule else None
            if value is None:
                return None
            combined[keyword] = value
    if "type" in first and "type" in second:
        common = _types(first, second)
        if not common:
            return None
        combined["type"] = common[0] if len(common) == 1 else common
    return combined | objects


def _fits(first: Node, second: Node) -> Callable[[frozenset[str]], bool]:
    def fits(group: frozenset[str]) -> bool:
        first_keys, second_keys = first.keys() & group, second.keys() & group
        return not first_keys or not second_keys or all(first.get(name) == second.get(name) for name in group)

    return fits


def _types(first: Node, second: Node) -> list[str]:
    first_types, second_types = named_types(first), named_types(second)
    common = [name for name in first_types if name in second_types or (name == "integer" and "number" in second_types)]
    return common + [
        name for name in second_types if name == "integer" and "number" in first_types and name not in common
    ]


def _objects(first: Node, second: Node) -> Node | None:
    if "patternProperties" in first or "patternProperties" in second:
        first_members, second_members = ({name: part.get(name) for name in _GROUPS[3]} for part in (first, second))
        has_both = any(value is not None for value in first_members.values()) and any(
            value is not None for value in second_members.values()
        )
        return None if has_both and first_members != second_members else {}
    rests = (first.get("additionalProperties", True), second.get("additionalProperties", True))
    named: Node = {}
    for name in (*first.get("properties", ()), *second.get("properties", ())):
        parts = [
            part
            for schema, additional in zip((first, second), rests, strict=True)
            if (part := schema.get("properties", {}).get(name, additional)) not in (True, {})
        ]
        if False in parts:
            continue  # one of them forbids it, and the merged schema is closed
        same = len(parts) == 1 or (len(parts) == 2 and parts[0] == parts[1])
        named[name] = parts[0] if same else {"allOf": parts} if parts else {}
    members: Node = {"properties": named} if named or "properties" in first or "properties" in second else {}
    additional = _additional(*rests)
    return members if additional is True else {**members, "additionalProperties": additional}


def _additional(first: object, second: object) -> object:
    if first is False or second is False:
        return False
    if first in (True, {}) or second in (True, {}):
        return second if first in (True, {}) else first
    return first if first == second else {"allOf": [first, second]}


def _common(first: list[object], second: list[object]) -> list[object] | None:
    return [
        value for value in first if any(value == candidate and type(value) is type(candidate) for candidate in second)
    ] or None


def _both(first: list[object], second: list[object]) -> list[object]:
    return [*first, *(value for value in second if value not in first)]


_LEAST: Final = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum", "minContains")
_MOST: Final = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum", "maxContains")
_RULES: Final[Mapping[str, Callable[[Any, Any], Any]]] = MappingProxyType(
    {
        **dict.fromkeys(_LEAST, max),
        **dict.fromkeys(_MOST, min),
        "required": _both,
        "enum": _common,
        "allOf": _both,
        "uniqueItems": lambda first, second: bool(first or second),
        "type": lambda first, second: first,
    }
)
"""Keywords whose values in both schemas can be said by one value; `type` is done last."""


_COMPOSED: Final = ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "dependentSchemas", "enum")


def rooted(schema: Node, losses: list[LossInfo]) -> Node:
    """The canonical schema as an object with properties.

    References are followed, `allOf` is merged where exact, alternatives become text.
    """
    root = _flat(schema, schema)
    merged_root = {key: value for key, value in root.items() if key not in _COMPOSED}
    composed = {key: value for key, value in root.items() if key in _COMPOSED}
    if composed:
        merged_root.pop("unevaluatedProperties", None)
        losses += (LossInfo("", "described", keyword) for keyword in composed)
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
