"""`allOf` as one schema, where that is exact."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from mcp_hub.formats.schemas.nodes import Node
from mcp_hub.schema import ANNOTATIONS, named_types

_GROUPS: Final = (
    frozenset(("if", "then", "else")),
    frozenset(("contains", "minContains", "maxContains")),
    frozenset(("prefixItems", "items", "unevaluatedItems")),
    frozenset(("properties", "additionalProperties", "patternProperties", "unevaluatedProperties")),
)
"""Keywords that mean something together: two schemas that both have some can be merged only by a rule."""

_UNMERGED: Final = frozenset(("unevaluatedProperties", "unevaluatedItems"))


def merged(first: Node, second: Node) -> Node | None:
    """A schema that takes exactly what both take, None if one schema cannot say that."""
    if not _UNMERGED.isdisjoint(first) or not _UNMERGED.isdisjoint(second):
        return None
    found = {**second, **first}
    objects = _objects(first, second)
    if objects is None or not all(map(_fits(first, second), _GROUPS[:3])):
        return None
    for keyword in first.keys() & second.keys() - _GROUPS[3] - ANNOTATIONS:
        one, other = first[keyword], second[keyword]
        if one != other:
            rule = _RULES.get(keyword)
            value = rule(one, other) if rule else None
            if value is None:
                return None
            found[keyword] = value
    if "type" in first and "type" in second:
        common = _types(first, second)
        if not common:
            return None
        found["type"] = common[0] if len(common) == 1 else common
    return found | objects


def _fits(first: Node, second: Node) -> Callable[[frozenset[str]], bool]:
    def fits(group: frozenset[str]) -> bool:
        one, other = first.keys() & group, second.keys() & group
        return not one or not other or all(first.get(name) == second.get(name) for name in group)

    return fits


def _types(first: Node, second: Node) -> list[str]:
    one, other = named_types(first), named_types(second)
    common = [name for name in one if name in other or (name == "integer" and "number" in other)]
    return common + [name for name in other if name == "integer" and "number" in one and name not in common]


def _objects(first: Node, second: Node) -> Node | None:
    """The members of both that speak of properties, merged; None if that is not exact."""
    if "patternProperties" in first or "patternProperties" in second:
        one, other = ({name: part.get(name) for name in _GROUPS[3]} for part in (first, second))
        has_both = any(value is not None for value in one.values()) and any(
            value is not None for value in other.values()
        )
        return None if has_both and one != other else {}
    rests = (first.get("additionalProperties", True), second.get("additionalProperties", True))
    named: Node = {}
    for name in (*first.get("properties", ()), *second.get("properties", ())):
        parts = [
            part
            for own, rest in zip((first, second), rests, strict=True)
            if (part := own.get("properties", {}).get(name, rest)) not in (True, {})
        ]
        if False in parts:
            continue  # one of them forbids it, and the merged schema is closed
        same = len(parts) == 1 or (len(parts) == 2 and parts[0] == parts[1])
        named[name] = parts[0] if same else {"allOf": parts} if parts else {}
    found: Node = {"properties": named} if named or "properties" in first or "properties" in second else {}
    rest = _rest(*rests)
    return found if rest is True else {**found, "additionalProperties": rest}


def _rest(one: Any, other: Any) -> Any:
    if one is False or other is False:
        return False
    if one in (True, {}) or other in (True, {}):
        return other if one in (True, {}) else one
    return one if one == other else {"allOf": [one, other]}


def _common(one: list[Any], other: list[Any]) -> list[Any] | None:
    return [value for value in one if any(value == kept and type(value) is type(kept) for kept in other)] or None


def _both(one: list[Any], other: list[Any]) -> list[Any]:
    return [*one, *(value for value in other if value not in one)]


_LEAST: Final = ("minLength", "minItems", "minProperties", "minimum", "exclusiveMinimum", "minContains")
_MOST: Final = ("maxLength", "maxItems", "maxProperties", "maximum", "exclusiveMaximum", "maxContains")
_RULES: Final[Mapping[str, Callable[[Any, Any], Any]]] = MappingProxyType(
    {
        **dict.fromkeys(_LEAST, max),
        **dict.fromkeys(_MOST, min),
        "required": _both,
        "enum": _common,
        "allOf": _both,
        "uniqueItems": lambda one, other: bool(one or other),
        "type": lambda one, other: one,
    }
)
"""Keywords whose values in both schemas can be said by one value; `type` is done last."""
