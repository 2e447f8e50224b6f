"""Instances for a JSON Schema: drawn after what it asks for, as well as that is quickly done, then mutated."""

import copy
import random
import re
from collections.abc import Iterator
from typing import Any

Json = Any

TEXTS = (
    *("", *"a abc 0 42 A1 A1:B2 en US a-b_c é x@y.org https://example.org/a?b=c /a/b".split()),
    *("2024-02-29", "2024-02-29T12:30:00Z", "12:30:00Z", "12:30", "P1D", "127.0.0.1", "::1", "example.org", "#a1b2c3"),
    *("123e4567-e89b-42d3-a456-426614174000", "123e4567e89b42d3a456426614174000", "1.2.3", "1234567890", "A" * 40),
)
ODD: tuple[Json, ...] = (
    *(None, True, False, 0, -1, 1, 1.0, 0.5, 10**9, "", "a", "title", [], [None], [1, 1], {}, {"a": 1}),
)
_PER_TYPE = {
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"),
}
_MAX_DEPTH = 7


class Instances:
    """Draws instances of one schema."""

    def __init__(self, root: Json, rng: random.Random) -> None:
        self._root = root
        self._rng = rng

    def draw(self, count: int) -> Iterator[Json]:
        """About as many that follow the schema as mutants of such."""
        for turn in range(count):
            instance = self._of(self._root, 0)
            for _ in range(turn % 4):
                instance = self._mutated(instance)
            yield instance

    def _of(self, schema: Json, depth: int) -> Json:
        schema = self._resolved(schema, depth)
        if not isinstance(schema, dict):
            return self._rng.choice(ODD)
        if "const" in schema:
            return copy.deepcopy(schema["const"])
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return copy.deepcopy(self._rng.choice(schema["enum"]))
        return self._typed(self._type(schema), schema, depth)

    def _typed(self, kind: Json, schema: Json, depth: int) -> Json:
        match kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema)
            case "integer":
                return int(self._number(schema))
            case "number":
                return self._number(schema)
            case "boolean":
                return self._rng.random() < 0.5
            case "null":
                return None
        return self._rng.choice(ODD)

    def _resolved(self, schema: Json, depth: int) -> Json:
        """The schema with what it refers to and one of its alternatives beside its own keywords."""
        for _ in range(8):
            if not isinstance(schema, dict):
                return schema
            rest = dict(schema)
            parts: list[Json] = []
            if isinstance(rest.get("$ref"), str):
                parts.append(self._target(rest.pop("$ref")) if depth < _MAX_DEPTH else {})
            offered = [rest.pop(keyword) for keyword in ("anyOf", "oneOf") if isinstance(rest.get(keyword), list)]
            parts += [self._rng.choice(branches) for branches in offered if branches]
            if isinstance(rest.get("allOf"), list):
                parts += rest.pop("allOf")
            if not parts:
                return rest
            for part in parts:
                rest = {**part, **rest} if isinstance(part, dict) else rest
            schema = rest
        return {}

    def _target(self, pointer: str) -> Json:
        here = self._root
        for token in pointer.split("/")[1:] if pointer.startswith("#") else ["?"]:
            here = here.get(token) if isinstance(here, dict) else here[int(token)] if isinstance(here, list) else None
        return here if here is not None else {}

    def _type(self, schema: Json) -> Json:
        named = schema.get("type")
        if isinstance(named, list) and named:
            return self._rng.choice(named)
        if named is None:
            fitting = [name for name, keywords in _PER_TYPE.items() if not schema.keys().isdisjoint(keywords)]
            return self._rng.choice(fitting) if fitting else None
        return named

    def _object(self, schema: Json, depth: int) -> Json:
        properties = _dict(schema.get("properties"))
        required = schema["required"] if isinstance(schema.get("required"), list) else []
        chance = 0.6 if depth < 3 else 0.2
        names = [name for name in properties if name in required or self._rng.random() < chance]
        names += [name for name in required if name not in properties]
        if schema.get("additionalProperties") is not False or self._rng.random() < 0.1:
            names += self._rng.sample(["extra", "title", "default", "a", "0"], self._rng.randrange(3))
        return {name: self._of(properties.get(name, schema.get("additionalProperties")), depth + 1) for name in names}

    def _array(self, schema: Json, depth: int) -> Json:
        least = _number(schema.get("minItems"), 0)
        most = min(_number(schema.get("maxItems"), least + 3), least + 3)
        count = self._rng.randint(min(least, most), most) if depth < _MAX_DEPTH else least
        heads = schema.get("prefixItems", schema.get("items"))
        heads = heads if isinstance(heads, list) else []
        return [
            self._of(heads[at] if at < len(heads) else schema.get("items"), depth + 1) for at in range(min(count, 50))
        ]

    def _string(self, schema: Json) -> str:
        least, most = _number(schema.get("minLength"), 0), _number(schema.get("maxLength"), 1 << 16)
        pattern = schema.get("pattern", "")
        fitting = [text for text in TEXTS if least <= len(text) <= most and _matches(pattern, text)]
        chosen: str = self._rng.choice(fitting or ["a" * min(max(least, 1), 5000)])
        return chosen

    def _number(self, schema: Json) -> Json:
        least = _number(schema.get("minimum", schema.get("exclusiveMinimum")), -3)
        most = _number(schema.get("maximum", schema.get("exclusiveMaximum")), max(least, 0) + 9)
        step = _number(schema.get("multipleOf"), 1) or 1
        value = self._rng.choice([least, most, least + 1, most - 1, (least + most) / 2, self._rng.uniform(least, most)])
        return round(value / step) * step if self._rng.random() < 0.8 else value

    def _mutated(self, instance: Json) -> Json:
        """The instance with a change somewhere."""
        if isinstance(instance, dict) and instance and self._rng.random() < 0.7:
            name = self._rng.choice(list(instance))
            return {**instance, name: self._mutated(instance[name])}
        if isinstance(instance, list) and instance and self._rng.random() < 0.7:
            at = self._rng.randrange(len(instance))
            return [*instance[:at], self._mutated(instance[at]), *instance[at + 1 :]]
        return self._changed(instance)

    def _changed(self, instance: Json) -> Json:
        roll = self._rng.random()
        if roll < 0.4:
            return self._rng.choice(ODD)
        if isinstance(instance, dict):
            if instance and roll < 0.7:
                gone = self._rng.choice(list(instance))
                return {name: value for name, value in instance.items() if name != gone}
            return {**instance, self._rng.choice(["extra", "a", "title"]): self._rng.choice(ODD)}
        if isinstance(instance, list):
            return instance[1:] if roll < 0.7 else [*instance, instance[0] if instance else 1]
        if isinstance(instance, str):
            return instance[1:] if roll < 0.7 else instance + "x"
        if isinstance(instance, int | float) and not isinstance(instance, bool):
            return instance + self._rng.choice([-1, 1, 0.5, 1000, -1000])
        return None


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


def _number(value: Json, otherwise: Json) -> Json:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else otherwise


def _matches(pattern: Json, text: str) -> bool:
    try:
        return re.search(pattern, text) is not None
    except (re.error, TypeError):
        return True
