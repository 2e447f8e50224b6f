"""A tool as a signature with its descriptions: fewer tokens than its schema, and what most models need."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcp_hub.formats.prompted.escapes import escaped_text
from mcp_hub.formats.prompted.schemas import input_schema, properties_of, referred

_MAX_DEPTH: Final = 6  # schemas inside each other that are written out
_MAX_SCHEMAS: Final = 2048  # schemas of a tool that are written out: one that refers to itself widely comes to an end
_MAX_VALUES: Final = 24  # values of an enumeration that are written out
_UNIONS: Final = ("anyOf", "oneOf")


def signature(tool: Mapping[str, Any]) -> str:
    """`- name(a: string, b?: integer): description`, and a line for each parameter with a description."""
    schema = input_schema(tool)
    lines = [f"- {tool['name']}({', '.join(_Types(schema).members(schema, _MAX_DEPTH))})"]
    if about := tool.get("description"):
        lines[0] += f": {about}"
    for name, member in properties_of(schema).items():
        if isinstance(member, Mapping) and (about := member.get("description")):
            lines.append(f"- - {name}: {about}")
    return "\n".join(escaped_text(" ".join(line.split())) for line in lines)


class _Types:
    """Types of one input schema in words."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = _MAX_SCHEMAS

    def members(self, schema: Mapping[str, Any], depth: int) -> list[str]:
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        members: list[str] = []
        for name, member in properties_of(schema).items():
            if self._left < 0:
                return [*members, "…"]
            members.append(f"{name}{'' if name in needed else '?'}: {self._type(member, depth)}")
        return members

    def _type(self, schema: Any, depth: int) -> str:
        self._left -= 1
        if not isinstance(schema, Mapping) or depth < 0 or self._left < 0:
            return "any"
        if isinstance(reference := schema.get("$ref"), str):
            return self._type(referred(reference, self._root), depth - 1)
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if isinstance(values, list) and 0 < len(values) <= _MAX_VALUES:
            return _joined(json.dumps(value, ensure_ascii=False) for value in values)
        members = next((schema[union] for union in _UNIONS if isinstance(schema.get(union), list)), None)
        if members is not None:
            return _joined(self._type(member, depth - 1) for member in members)
        named = schema.get("type")
        names = named if isinstance(named, list) else [named]
        shown = _joined(self._named(name, schema, depth) for name in names if isinstance(name, str))
        return shown + (f" = {json.dumps(schema['default'], ensure_ascii=False)}" if "default" in schema else "")

    def _named(self, name: str, schema: Mapping[str, Any], depth: int) -> str:
        if name == "array" and "items" in schema:
            items = self._type(schema["items"], depth - 1)
            return f"({items})[]" if " " in items else f"{items}[]"
        if name == "object" and (members := self.members(schema, depth - 1)):
            return "{" + ", ".join(members) + "}"
        return name


def _joined(types: Iterator[str]) -> str:
    return " | ".join(dict.fromkeys(types)) or "any"
