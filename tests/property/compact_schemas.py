"""Random JSON Schemas of every dialect: what nobody would write beside what everybody writes."""

import random
from collections.abc import Iterator
from typing import Any

Json = Any

DRAFT_07 = "http://json-schema.org/draft-07/schema#"
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
DIALECTS = (
    *(None, None, None, DRAFT_07, DRAFT_07, DRAFT_07, DRAFT_2020_12, DRAFT_2020_12),
    *("http://json-schema.org/draft-06/schema", "https://json-schema.org/draft/2019-09/schema"),
    "http://json-schema.org/draft-04/schema#",
)
# names of keywords too: as names of properties they are nothing special
NAMES = ("a", "b", "title", "default", "examples", "$ref", "required")
# few of these lead to something, and many in a circle
ODD_POINTERS = (
    *("#/definitions/A", "#", "#/$defs/A", "#/$defs/A/anyOf/0", "#/$defs/B/additionalProperties", "#/$defs/C/items"),
    *("#/properties/a", "#/properties/title", "#/properties/a/anyOf/0", "#/properties/title/additionalProperties"),
)
TYPES = ("string", "integer", "number", "object", "array", "boolean", "null")
DATA = (None, None, 0, "a", {"$ref": "#/$defs/A", "title": "t"}, [{"title": "t"}], {"a": 1})
VALUES: dict[str, tuple[Json, ...]] = {
    "title": ("t", "u"),
    "description": ("d", "é"),
    "$comment": ("c",),
    "default": DATA,
    "examples": ([], [{"title": "t"}]),
    "deprecated": (False, True),
    "x-note": ("x", {"$ref": "#/$defs/C"}, {"mapping": {"a": "#/$defs/A"}}),
}
ASSERTING: dict[str, tuple[Json, ...]] = {
    "type": (*TYPES, ["string", "null"], ["object", "array"]),
    "required": ([], ["a"], ["title"]),
    "minLength": (0, 1),
    "minItems": (0, 1),
    "minProperties": (0, 1),
    "minContains": (0, 2),
    "minimum": (0, 1),
    "uniqueItems": (False, True),
    "enum": ([None], ["a", None], [{"title": "t"}, 0]),
    "const": DATA,
    "format": ("date",),
    "dependentRequired": ({"a": ["b"]},),
    "pattern": ("^a",),
}
ONE = ("additionalProperties", "unevaluatedProperties", "items", "not", "if", "then", "contains", "propertyNames")
LISTS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
NAMED = ("properties", "properties", "patternProperties", "dependencies", "dependentSchemas", "$defs")
NULLS = ({"type": "null"}, {"type": "null", "title": "t"})


class Schemas:
    """Draws schemas."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ahead = "ABC"

    def document(self) -> dict[str, Json]:
        """A schema with definitions A, B and C under `$defs`, and sometimes A under `definitions`."""
        members: list[tuple[str, Json]] = []
        dialect = self._rng.choice(DIALECTS)
        if dialect is not None:
            members.append(("$schema", dialect))
        root = {**self._some(VALUES, 2), **self._applicator(2), **self._applicator(2)}
        members += (item for item in root.items() if item[0] not in ("$defs", "properties"))
        properties = {"a": self._schema(2), "b": self._reference(), "title": self._schema(1)}
        members.append(("properties", properties))
        definitions: dict[str, Json] = {}
        for name in "ABC":
            self._ahead = "ABC"[len(definitions) + 1 :]
            definitions[name] = self._schema(2)
        members.insert(self._rng.randrange(len(members) + 1), ("$defs", definitions))
        if self._rng.random() < 0.3:
            members.append(("definitions", {"A": self._schema(1)}))
        return dict(members)

    def _schema(self, depth: int) -> Json:
        roll = self._rng.random()
        if roll < 0.05:
            return self._rng.choice([True, False, {}])
        if roll < 0.2 + 0.1 * depth and (self._ahead or roll < 0.1):
            return self._reference()
        if roll < 0.35 + 0.1 * depth:
            return self._optional(depth - 1)
        schema = self._some(VALUES, 2) | self._some(ASSERTING, 2)
        for _ in range(self._rng.randrange(3) if depth > 0 else 0):
            schema |= self._applicator(depth - 1)
        return schema

    def _some(self, members: dict[str, tuple[Json, ...]], most: int) -> dict[str, Json]:
        names = [self._rng.choice(list(members)) for _ in range(self._rng.randrange(most + 1))]
        return {name: self._rng.choice(members[name]) for name in names}

    def _reference(self) -> dict[str, Json]:
        beside = self._some(VALUES, 2) if self._rng.random() < 0.8 else self._some(ASSERTING, 1)
        ahead = [f"#/$defs/{name}" for name in self._ahead]
        pointer = self._rng.choice(ahead if ahead and self._rng.random() < 0.95 else ODD_POINTERS)
        return {**beside, "$ref": pointer}

    def _optional(self, depth: int) -> dict[str, Json]:
        typed = {**self._some(ASSERTING, 1), "type": self._rng.choice(TYPES), **self._some(VALUES, 1)}
        branches = [typed if self._rng.random() < 0.7 else self._schema(depth), self._rng.choice(NULLS)]
        keyword = self._rng.choice(["anyOf", "anyOf", "oneOf"])
        beside = self._some(VALUES, 1) if self._rng.random() < 0.7 else self._some(ASSERTING, 1)
        return {**beside, keyword: branches if self._rng.random() < 0.7 else branches[::-1]}

    def _applicator(self, depth: int) -> dict[str, Json]:
        roll = self._rng.random()
        if roll < 0.2:
            return {"additionalProperties": self._rng.choice([True, True, {}, {"title": "t"}, False])}
        if roll < 0.3:
            return {"unevaluatedProperties": False}
        if roll < 0.5:
            return {self._rng.choice(ONE): self._schema(depth)}
        if roll < 0.7:
            return {self._rng.choice(LISTS): [self._schema(depth) for _ in range(self._rng.randrange(1, 3))]}
        names = ("^a",) if (keyword := self._rng.choice(NAMED)) == "patternProperties" else NAMES
        return {keyword: {self._rng.choice(names): self._schema(depth) for _ in range(self._rng.randrange(1, 3))}}


def asks_itself(root: Json) -> bool:
    """Whether a verdict hangs on itself, so that there is none (2020-12, core, §9.4.1)."""
    ended: set[int] = set()

    def loops(schema: Json, around: frozenset[int]) -> bool:
        if not isinstance(schema, dict) or id(schema) in ended:
            return False
        inside = around | {id(schema)}
        found = any(id(one) in inside or loops(one, inside) for one in _beside(root, schema))
        ended.add(id(schema))
        return found

    pending, found = [root], False
    while pending and not found:
        here = pending.pop()
        if isinstance(here, dict):
            found = loops(here, frozenset())
            pending.extend(here.values())
        elif isinstance(here, list):
            pending.extend(here)
    return found


def _beside(root: Json, schema: Json) -> Iterator[Json]:
    """The schemas that are asked about the same instance as `schema`."""
    for keyword in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(keyword, ())
    for keyword in ("not", "if", "then"):
        yield schema.get(keyword)
    for keyword in ("dependencies", "dependentSchemas"):
        yield from schema.get(keyword, {}).values()
    if isinstance(schema.get("$ref"), str):
        yield _target(root, schema["$ref"])


def _target(root: Json, pointer: str) -> Json:
    here = root
    for token in pointer.split("/")[1:]:
        if isinstance(here, list):
            here = dict(enumerate(here)).get(int(token))
        else:
            here = here.get(token) if isinstance(here, dict) else None
    return here
