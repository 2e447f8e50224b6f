"""A tool's schema for one provider: plain, or strict if possible, with its parameter names."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from mcp_hub.formats.schemas.dialects import STRICT_OPTIONAL, STRICT_TOOLS, STRICT_UNIONS, Dialect
from mcp_hub.formats.schemas.nodes import Node, children, definition, loosened, mapped
from mcp_hub.formats.schemas.root import rooted
from mcp_hub.formats.schemas.subset import NotStrict, narrowed
from mcp_hub.protocol.rest.calls import LossInfo
from mcp_hub.schema import named_types

_ODD = re.compile(r"[^A-Za-z0-9_]")
_LENGTH = 64
_NAMING = ("properties", "required")


def renames(schema: Node, pattern: re.Pattern[str] | None) -> dict[str, str]:
    """New names by old ones that do not match `pattern`; unique and deterministic."""
    if pattern is None:
        return {}
    names = _property_names(schema)
    odd = [name for name in names if not _is_plain(name) and pattern.fullmatch(name) is None]
    new_names: dict[str, str] = {}
    for name in odd:
        base = _ODD.sub("_", name)[:_LENGTH]
        base = base if base[:1].isalpha() or base[:1] == "_" else f"_{base}"[:_LENGTH]
        new, number = base, 2
        while new in names or new in new_names.values():
            ending = f"_{number}"
            new, number = base[: _LENGTH - len(ending)] + ending, number + 1
        new_names[name] = new
    return new_names


def _is_plain(name: str) -> bool:
    return name.isidentifier() and name.isascii() and len(name) <= _LENGTH


def _property_names(schema: Node) -> dict[str, None]:
    names: dict[str, None] = {}
    pending = [schema, *schema.get("$defs", {}).values()]
    while pending:
        node = pending.pop()
        for keyword in _NAMING:
            if keyword in node:
                names.update(dict.fromkeys(node[keyword]))
        pending += children(node)
    return names


def renamed(schema: Node, names: Mapping[str, str]) -> Node:
    """The schema with new names, without patterns on names and object values, which may not fit."""
    pending, has_objects = [schema], False
    while pending and not has_objects:
        node = pending.pop()
        has_objects = any(isinstance(value, dict | list) for value in node.get("enum", ()))
        pending += [*children(node), *node.get("$defs", {}).values()]
    return _renamed(loosened(schema) if has_objects else schema, names)


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    copy = mapped(node, lambda part: _renamed(part, names))
    if "enum" in node and any(isinstance(value, dict | list) for value in node["enum"]):
        del copy["enum"]
    if not names.keys().isdisjoint(node.get("properties", ())):
        copy.pop("propertyNames", None)
        if copy.pop("patternProperties", None) is not None:
            copy.pop("additionalProperties", None)
    if "properties" in node:
        copy["properties"] = {
            names.get(name, name): part if name.isascii() or name not in names else _labelled(name, part)
            for name, part in copy["properties"].items()
        }
    if "dependentSchemas" in node:
        copy["dependentSchemas"] = {names.get(name, name): part for name, part in copy["dependentSchemas"].items()}
    if "required" in node:
        copy["required"] = [names.get(name, name) for name in node["required"]]
    if "dependentRequired" in node:
        needed = node["dependentRequired"].items()
        copy["dependentRequired"] = {
            names.get(name, name): [names.get(needed_name, needed_name) for needed_name in some]
            for name, some in needed
        }
    return copy


def _labelled(name: str, part: Node) -> Node:
    """The property with its old name in the description, since the new one says nothing."""
    description = part.get("description")
    return {**part, "description": f"{name}: {description}" if description else name}


_LONG: Final = 15_000
"""Characters of an enum of more than 250 values."""
OVER: Final = (
    f"one request takes {STRICT_TOOLS} strict tools with {STRICT_OPTIONAL} optional parameters and {STRICT_UNIONS} "
    "with alternatives, and those before this tool use them"
)
"""The reason of a tool that Anthropic would enforce in a smaller request."""


class _Strictness(NamedTuple):
    """A strict schema, with figures that providers sum over a request."""

    schema: Node
    optional: int
    unions: int


def plain(schema: Node, dialect: Dialect, losses: list[LossInfo]) -> Node:
    """A schema that is not enforced; never narrower."""
    root = _named(rooted(schema, losses), dialect, losses)
    if dialect.keywords is not None:
        return narrowed(root, dialect, losses)[0]
    return _with_items(root)


def strict(schema: Node, dialect: Dialect, losses: list[LossInfo], most_optional: int | None = None) -> _Strictness:
    """A schema to enforce. Raises: NotStrict, also above `most_optional` optional properties at the top."""
    root = _named(rooted(schema, losses), dialect, losses)
    if most_optional is not None and len(root["properties"]) - len(root.get("required", ())) > most_optional:
        raise NotStrict(OVER)
    document, deepest = narrowed(root, dialect, losses)
    if dialect.levels and not _is_small(document, deepest, dialect):
        _measure(document, dialect)
    if dialect.all_required:
        return _Strictness(document, 0, 0)
    nodes = _all(document)
    optional = sum(len(node.get("properties", ())) - len(node.get("required", ())) for node in nodes)
    parts = (part for node in nodes for part in node.get("properties", {}).values())
    return _Strictness(document, optional, sum("anyOf" in part or isinstance(part.get("type"), list) for part in parts))


def _named(root: Node, dialect: Dialect, losses: list[LossInfo]) -> Node:
    names = renames(root, dialect.parameters)
    if not names:
        return root
    losses += (LossInfo(old, "renamed", new) for old, new in names.items())
    return renamed(root, names)


def _with_items(node: Node) -> Node:
    """OpenAI refuses an array without `items`."""
    lacking = [part for part in _all(node) if "array" in named_types(part) and "items" not in part]
    for part in lacking:
        part["items"] = {}
    return node


def _all(root: Node) -> list[Node]:
    nodes, pending = [], [root, *root.get("$defs", {}).values()]
    while pending:
        node = pending.pop()
        nodes.append(node)
        pending += children(node)
    return nodes


def _is_small(root: Node, deepest: int, dialect: Dialect) -> bool:
    if deepest >= dialect.levels or "$defs" in root:
        return False
    text = msgspec.json.encode(root)
    return len(text) <= _LONG and text.count(b",") < dialect.values


def _measure(root: Node, dialect: Dialect) -> None:
    nodes = _all(root)
    names: list[str] = []
    values: list[object] = []
    containers = 0
    for node in nodes:
        names += node.get("properties", ())
        values += node.get("enum", ())
        containers += "properties" in node or "items" in node
    strings = [*names, *root.get("$defs", ()), *(value for value in values if isinstance(value, str))]
    if len(names) > dialect.properties:
        raise NotStrict(f"it has more than {dialect.properties} properties")
    if len(values) > dialect.values:
        raise NotStrict(f"its enums have more than {dialect.values} values")
    if sum(map(len, strings)) > dialect.strings:
        raise NotStrict(f"its names and values have more than {dialect.strings} characters")
    if any(_is_long(node["enum"]) for node in nodes if "enum" in node):
        raise NotStrict(f"an enum of more than 250 values has more than {_LONG} characters")
    if containers > dialect.levels and _levels(root, root, frozenset(), 0, dialect.levels) > dialect.levels:
        raise NotStrict(f"it has more than {dialect.levels} levels")


def _is_long(values: list[object]) -> bool:
    return len(values) > 250 and sum(len(value) for value in values if isinstance(value, str)) > _LONG


def _levels(root: Node, node: Node, around: frozenset[str], level: int, limit: int) -> int:
    """A cycle counts once."""
    if level > limit:
        return level
    if "$ref" in node:
        name = node["$ref"]
        return level if name in around else _levels(root, definition(root, node), around | {name}, level, limit)
    depth = level + (not {"properties", "items"}.isdisjoint(node))
    return max([depth, *(_levels(root, child, around, depth, limit) for child in children(node))])
