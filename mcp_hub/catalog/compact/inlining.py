"""Rewrites a schema definition by definition, each before those that refer to it, and puts it where it is referred to.

A reference gives way when that makes the whole no longer, counted in bytes, so what a definition expands to is
bounded by the schema's own length.
"""

import msgspec

from mcp_hub.catalog.compact.keywords import ANNOTATIONS, DEFINITIONS, Json, Schema, rebuilt, spliced
from mcp_hub.catalog.compact.references import ROOT, References, Unit, Use, height, order
from mcp_hub.catalog.compact.rules import Rules

__all__ = ["Inlining"]

# readers give up at some depth (100 levels of a whole definition here); the deepest of 611 real tools has 19
_MAX_HEIGHT = 64


class Inlining:
    """One rewriting of one schema."""

    def __init__(self, root: Schema, references: References, rules: Rules) -> None:
        self._root = root
        self._references = references
        self._rules = rules
        self._needed, self._cyclic = order(references)
        self._heights = {unit: height(_body(root, unit)) for unit in self._needed if unit != ROOT}
        self._heights[ROOT] = 0
        self._sizes: dict[int, int] = {}
        self._rewritten: dict[int, Schema] = {}
        self._meanings: dict[int, Schema] = {}
        self._kept: dict[Unit, Json] = {}

    def run(self) -> Schema:
        """The whole schema, rewritten."""
        for unit in self._needed[:-1]:
            body = _body(self._root, unit)
            if isinstance(body, dict):
                self._rewrite(unit)
                body = self._rewritten[id(body)]
                is_needed = not self._place(unit, body)
            else:
                is_needed = True
            if is_needed:
                self._kept[unit] = body
        self._rewrite(ROOT)
        return self._rewritten[id(self._root)]

    def _rewrite(self, unit: Unit) -> None:
        """Rewrites each schema of a unit, inner before outer, so that depth costs no stack."""
        for schema in reversed(self._references.schemas[unit]):
            self._rewritten[id(schema)] = self._one(schema)

    def _one(self, schema: Schema) -> Schema:
        is_root = schema is self._root
        members = self._root_members() if is_root else rebuilt(schema, self._inner)
        members = self._rules.without_idle(schema, members, is_root=is_root)
        meaning = self._meanings.get(id(schema))
        if meaning is not None:
            # the same object: a chain of references costs no copies
            return spliced(members, "$ref", meaning) if len(members) > 1 else meaning
        return self._rules.nullable(schema, members)

    def _inner(self, schema: Schema) -> Schema:
        return self._rewritten[id(schema)]

    def _root_members(self) -> Schema:
        members: Schema = {}
        for keyword, value in self._root.items():
            if keyword in DEFINITIONS and isinstance(value, dict):
                kept: Schema = {name: self._kept[keyword, name] for name in value if (keyword, name) in self._kept}
                if kept:
                    members[keyword] = kept
            else:
                members |= rebuilt({keyword: value}, self._inner)
        return members

    def _place(self, unit: Unit, body: Schema) -> bool:
        """Decides which references a rewritten definition takes the place of; whether nothing needs it any more."""
        if unit in self._cyclic:
            return False
        uses = [use for use in self._references.uses.get(unit, ()) if use.source in self._heights]
        fitting = [use for use in uses if self._fits(use, unit, body)]
        growth = {id(use.holder): self._size(body) - _size({"$ref": use.holder["$ref"]}) for use in fitting}
        own_size = _size(unit[1]) + self._size(body) + len(":,")
        is_dropped = unit not in self._references.entered and len(fitting) == len(uses)
        is_dropped = is_dropped and sum(growth.values()) < own_size
        for use in fitting:
            if is_dropped or growth[id(use.holder)] <= 0:
                self._meanings[id(use.holder)] = body
                self._heights[use.source] = max(self._heights[use.source], use.depth + self._heights[unit])
        return is_dropped

    def _fits(self, use: Use, unit: Unit, body: Schema) -> bool:
        """Whether a definition can take the place of a reference: nothing beside it asserts or says it differently."""
        beside = self._rules.without_idle(use.holder, use.holder).keys() - {"$ref"}
        is_free = beside <= ANNOTATIONS and beside.isdisjoint(body)
        return is_free and use.depth + self._heights[unit] <= _MAX_HEIGHT

    def _size(self, body: Schema) -> int:
        if id(body) not in self._sizes:
            self._sizes[id(body)] = _size(body)
        return self._sizes[id(body)]


def _size(value: Json) -> int:
    return len(msgspec.json.encode(value))


def _body(root: Schema, unit: Unit) -> Json:
    definitions = root[unit[0]]
    return definitions[unit[1]] if isinstance(definitions, dict) else None
