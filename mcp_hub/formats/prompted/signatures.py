"""A tool as a signature, in fewer tokens than its schema."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from mcp_hub.formats.prompted.escapes import escaped_text
from mcp_hub.schema import input_schema, listed_values, named_types, parameters, properties, resolve

_MAX_DEPTH: Final = 6  # schemas inside each other that are written out
_MAX_SCHEMAS: Final = 2048  # schemas of a tool that are written out: one that refers to itself widely comes to an end
_MAX_VALUES: Final = 24  # values of an enumeration that are written out
_UNIONS: Final = ("anyOf", "oneOf")


def signature(tool: Mapping[str, Any]) -> str:
    """`- name(a: string, b?: integer): description`, and a line for each described parameter."""
    schema = input_schema(tool)
    lines = [f"- {tool['name']}({', '.join(_Types(schema).members(schema, _MAX_DEPTH))})"]
    if description := tool.get("description"):
        lines[0] += f": {description}"
    for name, member in properties(schema).items():
        if isinstance(member, Mapping) and (description := member.get("description")):
            lines.append(f"- - {name}: {description}")
    return "\n".join(escaped_text(" ".join(line.split())) for line in lines)


class _Types:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._budget = _MAX_SCHEMAS

    def members(self, schema: Mapping[str, Any], depth: int) -> list[str]:
        members: list[str] = []
        for name, member, is_required in parameters(schema):
            if self._budget < 0:
                return [*members, "…"]
            members.append(f"{name}{'' if is_required else '?'}: {self._type(member, depth)}")
        return members

    def _type(self, schema: Any, depth: int) -> str:
        self._budget -= 1
        if not isinstance(schema, Mapping) or depth < 0 or self._budget < 0:
            return "any"
        if isinstance(reference := schema.get("$ref"), str):
            return self._type(resolve(self._root, reference), depth - 1)
        values = listed_values(schema)
        if values is not None and 0 < len(values) <= _MAX_VALUES:
            return _joined(json.dumps(value, ensure_ascii=False) for value in values)
        members = next((schema[union] for union in _UNIONS if isinstance(schema.get(union), list)), None)
        if members is not None:
            return _joined(self._type(member, depth - 1) for member in members)
        joined = _joined(self._named(name, schema, depth) for name in named_types(schema))
        return joined + (f" = {json.dumps(schema['default'], ensure_ascii=False)}" if "default" in schema else "")

    def _named(self, name: str, schema: Mapping[str, Any], depth: int) -> str:
        if name == "array" and "items" in schema:
            items = self._type(schema["items"], depth - 1)
            return f"({items})[]" if " " in items else f"{items}[]"
        if name == "object" and (members := self.members(schema, depth - 1)):
            return "{" + ", ".join(members) + "}"
        return name


def _joined(types: Iterator[str]) -> str:
    return " | ".join(dict.fromkeys(types)) or "any"
