"""The local `$ref`s of a schema, and the keywords that must stay in place because a pointer passes them.

A reference is proved by following it through places of schemas only. Where one cannot be proved, or where schemas are
found by other ways than JSON pointers, nothing at all is decided (`Unproven`).
"""

from collections.abc import Iterator

import msgspec

from mcp_hub.catalog.compact.keywords import DATA, DEFINITIONS, IDENTITY, PLACES, Json, Schema, path_of, subschemas

Unit = tuple[str, str]
"""The keyword and the name of a definition right under the schema, or `ROOT`, the rest of it."""
ROOT: Unit = ("", "")
_UNDERSTOOD = PLACES | DATA | {"$ref"}


class Unproven(Exception):
    """The schema refers in a way that compaction cannot prove to keep."""


class References(msgspec.Struct):
    """`schemas` has the schema and all in it, outer before inner; `leads` the definitions that each unit leads to.

    A pinned keyword, known by the `id` of its schema, must stay, because a pointer passes it.
    """

    schemas: list[Schema] = msgspec.field(default_factory=list)
    leads: dict[Unit, set[Unit]] = msgspec.field(default_factory=dict)
    pinned: set[tuple[int, str]] = msgspec.field(default_factory=set)
    has_outside: bool = False
    """Something refers to another document."""

    @property
    def needed(self) -> set[Unit]:
        """The definitions that the rest of the schema leads to, by whatever way."""
        found: set[Unit] = set()
        ahead = {ROOT}
        while ahead:
            found |= ahead
            ahead = {unit for one in ahead for unit in self.leads.get(one, ())} - found
        return found


def survey(root: Schema) -> References:
    """All references in a schema. Raises: Unproven."""
    found = References()
    for unit, schema in _schemas(root):
        found.schemas.append(schema)
        _check_identity(root, schema)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            if not _note(found, root, unit, reference):
                raise Unproven(reference)
        elif "$ref" in schema:
            if not isinstance(reference, str) or "$id" in root:
                raise Unproven("may lead back to this schema")
            found.has_outside = True
        for pointer in _mentioned(schema):
            _note(found, root, unit, pointer)
    return found


def height(value: Json) -> int:
    """The depth to which JSON objects and arrays nest."""
    count, level = 0, [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        count += 1
        level = [below for one in level for below in (one.values() if isinstance(one, dict) else one)]
    return count


def _schemas(root: Schema) -> Iterator[tuple[Unit, Schema]]:
    pending: list[tuple[Unit, Schema]] = [(ROOT, root)]
    while pending:
        unit, schema = pending.pop()
        yield unit, schema
        for keyword, name, below in subschemas(schema):
            pending.append(((keyword, name) if schema is root and keyword in DEFINITIONS else unit, below))


def _check_identity(root: Schema, schema: Schema) -> None:
    """Raises: Unproven."""
    if not schema.keys().isdisjoint(IDENTITY) or isinstance(schema.get("id"), str):
        raise Unproven("has a name of its own")
    own = schema.get("$id", "")
    if "$id" in schema and (schema is not root or not isinstance(own, str) or "#" in own):
        raise Unproven("has another base URI")
    if "$schema" in schema and schema["$schema"] != root.get("$schema"):
        raise Unproven("has a part in another dialect")


def _note(found: References, root: Schema, unit: Unit, pointer: str) -> bool:
    """Keeps the way of a pointer that leads to a schema. Returns whether it does."""
    if pointer == "#":
        return True
    path = path_of(root, pointer[1:]) if pointer.startswith("#/") else None
    if path is None:
        return False
    found.pinned.update((id(schema), keyword) for schema, keyword, _ in path)
    found.leads.setdefault(unit, set()).add(path[0][1:])
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
