"""The subschemas of a schema, its local `$ref`s, and the keywords that JSON pointers pass."""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias
from urllib.parse import unquote

import msgspec

from mcp_hub.schema import LISTS, NAMED, ONE

Json: TypeAlias = "dict[str, Json] | list[Json] | str | bool | msgspec.Raw | None"
"""A decoded JSON value whose numbers are still text."""
Schema: TypeAlias = dict[str, "Json"]

_ONE = frozenset(ONE)
_LIST = frozenset({*LISTS, "items"})
DEFINITIONS = frozenset({"$defs", "definitions"})
_NAMED = DEFINITIONS | {*NAMED, "dependencies"}
PLACES = _ONE | _LIST | _NAMED
"""Keywords that hold subschemas in some draft."""
DATA = frozenset({"enum", "const", "default", "examples"})
IDENTITY = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"})
"""Keywords that identify or refer to a schema without a JSON pointer."""
_BAD_ESCAPE = re.compile("~(?![01])")
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
Unit = tuple[str, str]
"""Keyword and name of a definition at the top, or `ROOT` for everything else."""
ROOT: Unit = ("", "")
_UNDERSTOOD = PLACES | DATA | {"$ref"}


def subschemas(schema: Schema) -> Iterator[tuple[str, str, Schema]]:
    """Direct subschemas except booleans: keyword, name (or empty), schema."""
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in _ONE:
                yield keyword, "", value
            elif keyword in _NAMED:
                yield from (
                    (keyword, name, subschema) for name, subschema in value.items() if isinstance(subschema, dict)
                )
        elif isinstance(value, list) and keyword in _LIST:
            yield from ((keyword, "", subschema) for subschema in value if isinstance(subschema, dict))


def rebuilt(schema: Schema, change: Callable[[Schema], Json]) -> Schema:
    """The schema with each direct subschema changed."""
    return {keyword: _changed(keyword, value, change) for keyword, value in schema.items()}


def _changed(keyword: str, value: Json, change: Callable[[Schema], Json]) -> Json:
    if isinstance(value, dict):
        if keyword in _ONE:
            return change(value)
        if keyword in _NAMED:
            return {
                name: change(subschema) if isinstance(subschema, dict) else subschema
                for name, subschema in value.items()
            }
    elif isinstance(value, list) and keyword in _LIST:
        return [change(subschema) if isinstance(subschema, dict) else subschema for subschema in value]
    return value


def path_of(root: Schema, pointer: str) -> list[tuple[Schema, str, str]] | None:
    """The schemas along `#/…`, each with its keyword and name or index; None if it leads elsewhere."""
    if _BAD_ESCAPE.search(pointer):
        return None
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in unquote(pointer).split("/")]
    remaining = iter(tokens[1:])
    path: list[tuple[Schema, str, str]] = []
    current: Json = root
    for keyword in remaining:
        if not isinstance(current, dict):
            return None
        value, name = current.get(keyword), ""
        if keyword not in _ONE or isinstance(value, list):
            step = next(remaining, None)
            if step is None:
                return None
            name = step
        path.append((current, keyword, name))
        current = _under(keyword, value, name)
    return path if isinstance(current, dict | bool) else None


def _under(keyword: str, value: Json, name: str) -> Json:
    if isinstance(value, list):
        is_there = keyword in _LIST and _INDEX.fullmatch(name) and int(name) < len(value)
        return value[int(name)] if is_there else None
    if keyword in _ONE:
        return value
    return value.get(name) if keyword in _NAMED and isinstance(value, dict) else None


class Unproven(Exception):
    """A reference that compaction cannot prove to keep."""


class References(msgspec.Struct):
    """`schemas`: outer before inner. `leads`: definitions that each unit refers to. `pinned`: keywords on the path of a
    pointer, by `id` of their schema.
    """

    schemas: list[Schema] = msgspec.field(default_factory=list)
    leads: dict[Unit, set[Unit]] = msgspec.field(default_factory=dict)
    pinned: set[tuple[int, str]] = msgspec.field(default_factory=set)
    has_outside: bool = False
    """Something refers to another document."""

    @property
    def needed(self) -> set[Unit]:
        reached: set[Unit] = set()
        ahead = {ROOT}
        while ahead:
            reached |= ahead
            ahead = {unit for source in ahead for unit in self.leads.get(source, ())} - reached
        return reached


def survey(root: Schema) -> References:
    """All references in a schema. Raises: Unproven."""
    references = References()
    for unit, schema in _schemas(root):
        references.schemas.append(schema)
        _check_identity(root, schema)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            if not _note(references, root, unit, reference):
                raise Unproven(reference)
        elif "$ref" in schema:
            if not isinstance(reference, str) or "$id" in root:
                raise Unproven("may lead back to this schema")
            references.has_outside = True
        for pointer in _mentioned(schema):
            _note(references, root, unit, pointer)
    return references


def height(value: Json) -> int:
    """Nesting depth."""
    count, level = 0, [value]
    while level := [node for node in level if isinstance(node, dict | list)]:
        count += 1
        level = [below for node in level for below in (node.values() if isinstance(node, dict) else node)]
    return count


def _schemas(root: Schema) -> Iterator[tuple[Unit, Schema]]:
    pending: list[tuple[Unit, Schema]] = [(ROOT, root)]
    while pending:
        unit, schema = pending.pop()
        yield unit, schema
        for keyword, name, below in subschemas(schema):
            pending.append(((keyword, name) if schema is root and keyword in DEFINITIONS else unit, below))


def _check_identity(root: Schema, schema: Schema) -> None:
    if not schema.keys().isdisjoint(IDENTITY) or isinstance(schema.get("id"), str):
        raise Unproven("has a name of its own")
    base = schema.get("$id", "")
    if "$id" in schema and (schema is not root or not isinstance(base, str) or "#" in base):
        raise Unproven("has another base URI")
    if "$schema" in schema and schema["$schema"] != root.get("$schema"):
        raise Unproven("has a part in another dialect")


def _note(references: References, root: Schema, unit: Unit, pointer: str) -> bool:
    if pointer == "#":
        return True
    path = path_of(root, pointer[1:]) if pointer.startswith("#/") else None
    if path is None:
        return False
    references.pinned.update((id(schema), keyword) for schema, keyword, _ in path)
    references.leads.setdefault(unit, set()).add(path[0][1:])
    return True


def _mentioned(schema: Schema) -> Iterator[str]:
    pending = [value for keyword, value in schema.items() if keyword not in _UNDERSTOOD]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, str) and value.startswith("#/"):
            yield value
