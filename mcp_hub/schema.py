"""JSON Schema from strangers: any JSON is accepted, and work is bounded. Pure."""

from collections.abc import Collection, Mapping
from typing import Any, Final

TYPES: Final = ("object", "array", "string", "integer", "number", "boolean", "null")
ANNOTATIONS: Final = frozenset(
    ("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment")
)
"""Keywords without assertions."""

ONE: Final = (
    *("additionalProperties", "items", "not", "if", "then", "else", "contains", "propertyNames"),
    *("unevaluatedProperties", "unevaluatedItems", "contentSchema", "additionalItems"),
)
LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
NAMED: Final = ("properties", "patternProperties", "dependentSchemas")
"""Keywords with subschemas: one, a list, or one per name."""

_UNIONS: Final = ("anyOf", "oneOf", "allOf")
_OPEN: Final = ("additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if")
_TYPED: Final = frozenset(("type", "enum", "const"))
_NUMBERS: Final = frozenset(("integer", "number"))
_MAX_SCHEMAS: Final = 48
"""Schemas looked at per type."""
_MAX_STEPS: Final = 128
"""Steps of a reference."""
_MAX_DIGITS: Final = 9

_Schema = dict[str, Any]
Property = tuple[str, object, bool]
"""A property of a schema: its name, its own schema, and whether it is required."""


def input_schema(tool: object) -> _Schema:
    return _member(tool, "inputSchema")


def properties(schema: object) -> _Schema:
    return _member(schema, "properties")


def required(schema: object) -> list[str]:
    """Names of required properties, listed or not."""
    names = schema.get("required") if isinstance(schema, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def parameters(schema: object) -> list[Property]:
    """The listed properties, in order."""
    needed = set(required(schema))
    return [(name, member, name in needed) for name, member in properties(schema).items()]


def is_open(schema: object) -> bool:
    """Whether unlisted properties are allowed."""
    if not isinstance(schema, dict) or not isinstance(schema.get("properties"), dict):
        return True
    return any(schema.get(keyword) for keyword in _OPEN)


def resolve(root: object, reference: str) -> object:
    """The target of a reference such as `#/$defs/Point`, or None."""
    start, *steps = reference.split("/", _MAX_STEPS)
    target: object = root if start == "#" else None
    for step in steps:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(target, dict):
            target = target.get(key)
        elif isinstance(target, list) and key.isdecimal() and len(key) <= _MAX_DIGITS and int(key) < len(target):
            target = target[int(key)]
        else:
            return None
    return target


def alternatives(schema: _Schema, root: object) -> list[object] | None:
    """Schemas in place of `schema`, by reference or union; None: itself."""
    if isinstance(reference := schema.get("$ref"), str):
        return [resolve(root, reference)]
    if _TYPED.isdisjoint(schema):
        return next((schema[union] for union in _UNIONS if isinstance(schema.get(union), list)), None)
    return None


def named_types(schema: object) -> list[str]:
    """The types in `type`, in order, known or not."""
    named = schema.get("type") if isinstance(schema, dict) else None
    return [name for name in (named if isinstance(named, list) else [named]) if isinstance(name, str)]


def listed_values(schema: Mapping[str, object]) -> list[object] | None:
    """The values of `const` or `enum`, or None."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def allowed_types(schema: object, root: object) -> set[str]:
    """Allowed types, through references and unions; empty: any."""
    allowed: set[str] = set()
    waiting = [schema]
    for _ in range(_MAX_SCHEMAS):
        if not waiting:
            break
        member = waiting.pop()
        if not isinstance(member, dict):
            continue
        if (inner := alternatives(member, root)) is not None:
            waiting += inner
        elif names := named_types(member):
            allowed.update(names)
        else:
            kinds = {type_name(value) for value in listed_values(member) or ()}
            allowed |= kinds | _NUMBERS if not kinds.isdisjoint(_NUMBERS) else kinds
    return allowed


def type_name(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case _:
            return "object"


def fits(value: object, allowed: Collection[str]) -> bool:
    """Whether a value has one of these types."""
    kind = type_name(value)
    return kind in allowed or (kind == "integer" and "number" in allowed)


def look_wrong(arguments: object, schema: object) -> bool:
    """Whether a refusal is likely the arguments' fault: names or types at the top level."""
    if not isinstance(arguments, dict):
        return True
    if any(name not in arguments for name in required(schema)):
        return True
    listed = properties(schema)
    if not is_open(schema) and any(name not in listed for name in arguments):
        return True
    return any(name in listed and _has_other_type(value, listed[name]) for name, value in arguments.items())


def _has_other_type(value: object, schema: object) -> bool:
    types = {name for name in named_types(schema) if name in TYPES}
    if not types.isdisjoint(_NUMBERS):
        types |= _NUMBERS  # a server may take 1.0 for an integer
    return bool(types) and type_name(value) not in types


def _member(of: object, name: str) -> _Schema:
    value = of.get(name) if isinstance(of, dict) else None
    return value if isinstance(value, dict) else {}
