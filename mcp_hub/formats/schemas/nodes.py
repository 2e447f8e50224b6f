"""Facts about schema nodes."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from mcp_hub.schema import LISTS, NAMED, ONE, fits, named_types
from mcp_hub.types import JsonObject

Node: TypeAlias = JsonObject

MAX_DEPTH: Final = 50
"""Levels of a schema, and of arguments, that are looked at."""

NESTED: Final = frozenset((*ONE, *LISTS, *NAMED))

OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "object": (
        *("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"),
        *("propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
    ),
    "array": (
        *("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains"),
        "unevaluatedItems",
    ),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}
"""Keywords that say nothing about values of other types."""


def inferred_type(node: Node) -> str | None:
    return next((name for name, keywords in OF_TYPE.items() if not node.keys().isdisjoint(keywords)), None)


def children(node: Node) -> list[Node]:
    """Its subschemas."""
    if NESTED.isdisjoint(node):
        return []
    subschemas: list[Node] = []
    for keyword, value in node.items():
        if keyword in NESTED:
            if keyword in ONE:
                subschemas += (value,) if isinstance(value, dict) else ()
            else:
                subschemas += value.values() if isinstance(value, dict) else value
    return subschemas


def mapped(node: Node, change: Callable[[Node], Node]) -> Node:
    """The node with each subschema changed, also in `$defs`."""
    copy: Node = {}
    for keyword, value in node.items():
        if keyword in ONE:
            copy[keyword] = change(value) if isinstance(value, dict) else value
        elif keyword in LISTS:
            copy[keyword] = [change(part) for part in value]
        elif keyword in NAMED or keyword == "$defs":
            copy[keyword] = {name: change(part) for name, part in value.items()}
        else:
            copy[keyword] = value
    return copy


_COUNTING: Final = frozenset(("not", "if", "then", "else", "oneOf", "maxContains"))


def loosened(node: Node) -> Node:
    """Without keywords that narrow when a subschema widens; `oneOf` becomes `anyOf`."""
    if not _COUNTING.isdisjoint(node):
        offered = node.get("oneOf")
        node = {key: value for key, value in node.items() if key not in _COUNTING}
        if offered is not None:
            node = (
                {**node, "allOf": [*node.get("allOf", ()), {"anyOf": offered}]}
                if "anyOf" in node
                else {**node, "anyOf": offered}
            )
    return mapped(node, loosened)


def definition(root: Node, node: Node) -> Node:
    """The target of a canonical reference."""
    target: Node = root["$defs"][node["$ref"].removeprefix("#/$defs/")]
    return target


def expanded(root: Node, nodes: list[Node]) -> list[Node]:
    """The nodes, and all that they refer to or combine."""
    alternatives: dict[int, Node] = {}
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if id(node) not in alternatives:
            alternatives[id(node)] = node
            pending += [definition(root, node)] if "$ref" in node else []
            for keyword in ("anyOf", "oneOf", "allOf"):
                pending += node.get(keyword, ())
            pending += [part for key in ("if", "then", "else") if isinstance(part := node.get(key), dict)]
            pending += node.get("dependentSchemas", {}).values()
    return list(alternatives.values())


_MOST_LEVELS: Final = 4
"""Levels of a value that are compared with a schema."""


def chosen(root: Node, nodes: list[Node], value: Node) -> list[Node]:
    """The nodes and all that they refer to or combine, without alternatives that `value` does not fit.

    Null is fine for an optional property. All are there where the value fits none. Those that name all keys of the
    value come first.
    """
    picked: list[Node] = []
    pending, seen = list(nodes), set[int]()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        picked.append(node)
        pending += [definition(root, node)] if "$ref" in node else []
        for keyword in ("anyOf", "oneOf"):
            offered = node.get(keyword, ())
            fitting = [part for part in offered if _may_be(root, part, value, 0)] or offered
            pending += [part for part in fitting if _names(root, part) >= value.keys()] or fitting
        pending += node.get("allOf", ())
        pending += [part for key in ("if", "then", "else") if isinstance(part := node.get(key), dict)]
        pending += node.get("dependentSchemas", {}).values()
    return picked


def _names(root: Node, node: Node) -> set[str]:
    return {name for part in expanded(root, [node]) for name in part.get("properties", ())}


def _may_be(root: Node, node: Node, value: object, level: int) -> bool:
    """Whether nothing that is looked at speaks against it."""
    if level > _MOST_LEVELS:
        return True
    if "$ref" in node and not _may_be(root, definition(root, node), value, level + 1):
        return False
    types = named_types(node)
    if (
        types
        and not fits(value, types)
        and not (isinstance(value, float) and value.is_integer() and "integer" in types)
    ):
        return False
    if "enum" in node and not any(value == allowed and type(value) is type(allowed) for allowed in node["enum"]):
        return False
    for keyword in ("anyOf", "oneOf"):
        if keyword in node and not any(_may_be(root, part, value, level + 1) for part in node[keyword]):
            return False
    if not all(_may_be(root, part, value, level + 1) for part in node.get("allOf", ())):
        return False
    return not isinstance(value, dict) or _may_have(root, node, value, level)


def _may_have(root: Node, node: Node, value: Node, level: int) -> bool:
    properties, required = node.get("properties", {}), node.get("required", ())
    if not value.keys() >= set(required):
        return False
    if (
        node.get("additionalProperties") is False
        and "patternProperties" not in node
        and not properties.keys() >= value.keys()
    ):
        return False
    return all(
        (value[name] is None and name not in required) or _may_be(root, part, value[name], level + 1)
        for name, part in properties.items()
        if name in value
    )


def cyclic(root: Node) -> frozenset[str]:
    """References into a cycle."""
    targets = {f"#/$defs/{name}": _references(node) for name, node in root.get("$defs", {}).items()}
    while ended := [name for name, named in targets.items() if named.isdisjoint(targets)]:
        for name in ended:
            del targets[name]
    return frozenset(targets)


def _references(node: Node) -> set[str]:
    names, pending = set(), [node]
    while pending:
        current = pending.pop()
        pending += children(current)
        if "$ref" in current:
            names.add(current["$ref"])
    return names


def accepts_null(root: Node, node: Node, depth: int = 0) -> bool:
    """Whether null is valid; True if unknown."""
    if depth > MAX_DEPTH:
        return True
    if "type" in node and node["type"] != "null" and "null" not in node["type"]:
        return False
    if "enum" in node and None not in node["enum"]:
        return False
    below = depth + 1
    return (
        ("$ref" not in node or accepts_null(root, definition(root, node), below))
        and ("anyOf" not in node or any(accepts_null(root, part, below) for part in node["anyOf"]))
        and ("oneOf" not in node or any(accepts_null(root, part, below) for part in node["oneOf"]))
        and all(accepts_null(root, part, below) for part in node.get("allOf", ()))
    )


def text_of(value: object) -> str:
    return msgspec.json.encode(value).decode()


_MOST_NOTED: Final = 400
"""Characters of one constraint that are shown."""


def noted(node: Node, constraints: Node) -> Node:
    """The node with the constraints at the end of its description."""
    if not constraints:
        return node
    text = "; ".join([_sentence(keyword, value) for keyword, value in constraints.items()])
    before = node.get("description", "").rstrip()
    return {**node, "description": f"{before} ({text})" if before else f"({text})"}


def _sentence(keyword: str, value: object) -> str:
    text = value if isinstance(value, str) else text_of(value)
    return f"{keyword}: {text if len(text) <= _MOST_NOTED else text[:_MOST_NOTED] + '…'}"
