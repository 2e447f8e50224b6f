"""JSON Schema from strangers: any JSON is accepted, and work is bounded. Pure."""

from collections.abc import Collection, Mapping
from typing import Any, Final
from urllib.parse import unquote, urljoin

import msgspec

from mcp_hub.globs import late

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
_MAX_IDENTIFIED: Final = 20_000
"""Objects in a schema that may have an `$id`."""
_VALUES: Final = frozenset(("enum", "const", "default", "examples", "example"))
"""Keywords with values, in which `$id` is data."""
_NAMING: Final = late(rb'"(?:\$?id|\$(?:dynamicA|a)nchor)":"')
_DRAFT_4: Final = late(r"json-schema\.org/draft-0[34]/")

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
            target = target[key] if key in target else target.get(unquote(key))
        elif isinstance(target, list) and key.isdecimal() and len(key) <= _MAX_DIGITS and int(key) < len(target):
            target = target[int(key)]
        else:
            return None
    return target


def identified(root: object) -> tuple[dict[int, str], dict[str, object]]:
    """Subschemas named by `$id` or an anchor, for references.

    First the base URI of each object, by its `id()`; then the targets by URI, anchors behind `#`. Both are empty
    without names. Draft 4 says `id`.
    """
    bases: dict[int, str] = {}
    targets: dict[str, object] = {"": root}
    if not _may_name(root):
        return {}, {}
    waiting: list[tuple[object, str, int]] = [(root, "", 0)]
    while waiting and len(bases) < _MAX_IDENTIFIED:
        schema, base, depth = waiting.pop()
        if isinstance(schema, dict):
            base = _named_by_itself(schema, base, targets)
            bases[id(schema)] = base
        members = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
        if depth < _MAX_STEPS:
            waiting += [(member, base, depth + 1) for key, member in members if key not in _VALUES]
    return (bases, targets) if len(targets) > 1 else ({}, {})


def _may_name(root: object) -> bool:
    """A fast look at the text: hardly any schema names a part of itself."""
    try:
        return _NAMING.search(msgspec.json.encode(root)) is not None
    except (TypeError, ValueError, RecursionError):
        return True


def _named_by_itself(schema: _Schema, base: str, targets: dict[str, object]) -> str:
    """The base URI inside the schema; its names are added to `targets`."""
    for keyword in ("$id", "id"):
        name = schema.get(keyword)
        if not isinstance(name, str) or (keyword == "id" and "$id" in schema):
            continue
        uri = joined(base, name)
        targets.setdefault(uri.removesuffix("#"), schema)
        if not name.startswith("#") and (keyword == "$id" or _DRAFT_4.search(str(schema.get("$schema"))) is not None):
            base = uri.partition("#")[0]
    for keyword in ("$anchor", "$dynamicAnchor"):
        if isinstance(name := schema.get(keyword), str):
            targets.setdefault(f"{base}#{name}", schema)
    return base


def joined(base: str, reference: str) -> str:
    """A reference as an absolute one."""
    if reference.startswith("#"):
        return base + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        return reference


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
