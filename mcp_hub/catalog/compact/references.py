"""Which `$ref` of a schema may be replaced by what it means, and which definitions nothing needs.

A schema is seen as units: the root, and each definition right under it (`#/$defs/name`, `#/definitions/name`). A
reference is proved by following it through places of schemas only. Where one cannot be proved, or where schemas are
found by other ways than JSON pointers, nothing at all is decided (`Unproven`).
"""

from collections.abc import Iterator

import msgspec

from mcp_hub.catalog.compact.keywords import DATA, DEFINITIONS, IDENTITY, PLACES, Json, Schema, path_of, subschemas

__all__ = ["ROOT", "References", "Unit", "Unproven", "Use", "height", "order", "survey"]

Unit = tuple[str, str]
"""The keyword and the name of a definition; both are empty for the rest of the schema."""
ROOT: Unit = ("", "")
_UNDERSTOOD = PLACES | DATA | {"$ref"}


class Unproven(Exception):
    """The schema refers in a way that compaction cannot prove to keep."""


class Use(msgspec.Struct, frozen=True):
    """A schema with a `$ref` to a unit; `depth` counts the JSON values around it in its own unit."""

    holder: Schema
    source: Unit
    depth: int


class References(msgspec.Struct, frozen=True):
    """References between units of a schema. `schemas` has those of each unit, outer first; `leads` its targets.

    `entered` units must stay, because something points into them. A pinned keyword, known by the `id` of its schema,
    must stay where it is, because a pointer passes it. `outside` are the references to other documents.
    """

    schemas: dict[Unit, list[Schema]] = msgspec.field(default_factory=dict)
    uses: dict[Unit, list[Use]] = msgspec.field(default_factory=dict)
    leads: dict[Unit, dict[Unit, None]] = msgspec.field(default_factory=dict)
    entered: set[Unit] = msgspec.field(default_factory=set)
    pinned: set[tuple[int, str]] = msgspec.field(default_factory=set)
    outside: list[str] = msgspec.field(default_factory=list)


def survey(root: Schema) -> References:
    """All references in a schema. Raises: Unproven."""
    found = References()
    for unit, depth, schema in _schemas(root):
        found.schemas.setdefault(unit, []).append(schema)
        _check_identity(root, schema)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            if not _note(found, root, reference, Use(schema, unit, depth)):
                raise Unproven(reference)
        elif "$ref" in schema:
            if not isinstance(reference, str) or "$id" in root:
                raise Unproven("may lead back to this schema")
            found.outside.append(reference)
        for pointer in _mentioned(schema):
            _note(found, root, pointer, Use(schema, unit, depth), is_exact=False)
    return found


def order(found: References) -> tuple[list[Unit], set[Unit]]:
    """The units that are needed, each after those it refers to, but for the second: those that lead to themselves."""
    needed: dict[Unit, None] = {}
    cyclic: set[Unit] = set()
    begun = {ROOT}
    path = [(ROOT, iter(found.leads.get(ROOT, ())))]
    while path:
        unit, ahead = path[-1]
        following = next(ahead, None)
        if following is None:
            needed[unit] = None
            path.pop()
        elif following not in begun:
            begun.add(following)
            path.append((following, iter(found.leads.get(following, ()))))
        elif following not in needed:
            cyclic.add(following)
    return list(needed), cyclic


def height(value: Json) -> int:
    """The depth to which JSON objects and arrays nest."""
    count, level = 0, [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        count += 1
        level = [below for one in level for below in (one.values() if isinstance(one, dict) else one)]
    return count


def _schemas(root: Schema) -> Iterator[tuple[Unit, int, Schema]]:
    pending: list[tuple[Unit, int, Schema]] = [(ROOT, 0, root)]
    while pending:
        unit, depth, schema = pending.pop()
        yield unit, depth, schema
        for steps, below in reversed(list(subschemas(schema))):
            if schema is root and steps[0] in DEFINITIONS:
                pending.append(((steps[0], steps[1]), 0, below))
            else:
                pending.append((unit, depth + len(steps), below))


def _check_identity(root: Schema, schema: Schema) -> None:
    """Raises: Unproven."""
    if not schema.keys().isdisjoint(IDENTITY) or isinstance(schema.get("id"), str):
        raise Unproven("has a name of its own")
    own = schema.get("$id", "")
    if "$id" in schema and (schema is not root or not isinstance(own, str) or "#" in own):
        raise Unproven("has another base URI")
    if "$schema" in schema and schema["$schema"] != root.get("$schema"):
        raise Unproven("has a part in another dialect")


def _note(found: References, root: Schema, pointer: str, use: Use, *, is_exact: bool = True) -> bool:
    """Keep a pointer that leads to a schema; not `is_exact`: it is only mentioned. Returns whether it does."""
    if pointer == "#":
        return True
    path = path_of(root, pointer[1:]) if pointer.startswith("#/") else None
    if path is None:
        return False
    found.pinned.update((id(schema), keyword) for schema, keyword, _ in path)
    _, keyword, name = path[0]
    if keyword in DEFINITIONS:
        unit = keyword, name
        found.leads.setdefault(use.source, {})[unit] = None
        if is_exact and len(path) == 1:
            found.uses.setdefault(unit, []).append(use)
        else:
            found.entered.add(unit)
    return True


def _mentioned(schema: Schema) -> Iterator[str]:
    """The local pointers in keywords that no draft knows, such as the mapping of a `discriminator`."""
    pending = [value for keyword, value in schema.items() if keyword not in _UNDERSTOOD]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, str) and value.startswith("#/"):
            yield value
