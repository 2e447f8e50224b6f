"""Parameter names that a provider does not take."""

import re
from collections.abc import Mapping

from mcp_hub.formats.schemas.nodes import Node, children, loosened, mapped

_ODD = re.compile(r"[^A-Za-z0-9_]")
_LENGTH = 64
_NAMING = ("properties", "required")


def renames(schema: Node, pattern: re.Pattern[str] | None) -> dict[str, str]:
    """New names by old ones, for properties that do not match `pattern`; unique and deterministic."""
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
