"""Shorter JSON Schemas: without keywords that assert nothing, unused definitions, and `$schema` where 2020-12, the
default of MCP, and draft-07 agree.

The verdict on every instance stays. Pure; never raises.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NoReturn, TypeAlias
from urllib.parse import unquote

import msgspec

from mcp_hub.catalog.offers.definitions import MAX_DEPTH
from mcp_hub.schema import ANNOTATIONS, LISTS, NAMED, ONE, TYPES
from mcp_hub.types import RawObject

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
    """The schemas along `#/…`, each with its keyword and name or index; None: it leads elsewhere."""
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


class _Unproven(Exception):
    """A reference that compaction may not keep."""


class _References(msgspec.Struct):
    """`schemas`: outer before inner. `leads`: definitions that each unit refers to. `pinned`: keywords on a pointer's
    path, by `id` of their schema.
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


def survey(root: Schema) -> _References:
    """All references in a schema. Raises: _Unproven."""
    references = _References()
    for unit, schema in _schemas(root):
        references.schemas.append(schema)
        _check_identity(root, schema)
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            if not _note(references, root, unit, reference):
                raise _Unproven(reference)
        elif "$ref" in schema:
            if not isinstance(reference, str) or "$id" in root:
                raise _Unproven("may lead back to this schema")
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
        raise _Unproven("has a name of its own")
    base = schema.get("$id", "")
    if "$id" in schema and (schema is not root or not isinstance(base, str) or "#" in base):
        raise _Unproven("has another base URI")
    if "$schema" in schema and schema["$schema"] != root.get("$schema"):
        raise _Unproven("has a part in another dialect")


def _note(references: _References, root: Schema, unit: Unit, pointer: str) -> bool:
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


# as their meta-schemas are named: validators know no other spelling but a trailing "#". Not draft-04: it has no
# `$defs` to look into and forbids what is harmless later, so that moving a part can make a schema invalid
_DRAFT_07 = "http://json-schema.org/draft-07/schema"
_DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
_OTHERS = {"http://json-schema.org/draft-06/schema", "https://json-schema.org/draft/2019-09/schema"}
_ZERO = msgspec.Raw(b"0")
_BESIDE_REFERENCE = ANNOTATIONS | DEFINITIONS | {"$ref", "$schema"}
_BESIDE_ALTERNATIVES = ANNOTATIONS | DEFINITIONS | {"$schema"}
_NULL: Schema = {"type": "null"}
_SIBLING_FREE = frozenset(
    """type multipleOf minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength pattern format
    contentEncoding contentMediaType contentSchema items prefixItems additionalItems contains minContains maxContains
    minItems maxItems uniqueItems properties patternProperties additionalProperties propertyNames required
    minProperties maxProperties dependentRequired dependentSchemas dependencies""".split()
)
"""`type`, and the keywords that say nothing about null."""
_DIFFERING = frozenset(
    """$id $vocabulary additionalItems contentEncoding contentMediaType contentSchema dependencies dependentRequired
    dependentSchemas format maxContains minContains prefixItems unevaluatedItems unevaluatedProperties""".split()
)
"""Keywords that assert in only one of draft-07 and 2020-12; so does `items` with a list."""

# well-formed values only: dropping others could make an invalid schema valid
_IDLE: Mapping[str, Callable[[Json], bool]] = {
    **dict.fromkeys(("$comment", "title"), lambda value: isinstance(value, str)),
    "examples": lambda value: isinstance(value, list),
    "default": lambda value: value is None,
    **dict.fromkeys(("deprecated", "uniqueItems"), lambda value: value is False),
    "required": lambda value: value == [],
    "additionalProperties": lambda value: value is True or value == {},
    **dict.fromkeys(("minLength", "minItems", "minProperties"), lambda value: value == _ZERO),
}
MAX_BYTES = 1 << 18  # the longest schema of 611 real tools has 24 kB; the slowest of this length takes a second or two
_MAX_ROUNDS = 8  # a further round may find a little more, and the last one must find nothing; real schemas need two
_OBJECT = msgspec.json.Decoder(RawObject)


class _Rules(msgspec.Struct, frozen=True):
    """The rules for the parts of one schema."""

    pinned: frozenset[tuple[int, str]]
    has_unevaluated: bool
    drops_dialect: bool

    def without_idle(self, original: Schema, schema: Schema, *, is_root: bool = False) -> Schema:
        """The schema, made of `original`, without keywords that assert nothing."""
        return {
            keyword: value
            for keyword, value in schema.items()
            if (id(original), keyword) in self.pinned or not self._is_idle(keyword, value, is_root)
        }

    def _is_idle(self, keyword: str, value: Json, is_root: bool) -> bool:
        if keyword == "$schema":
            return self.drops_dialect or not is_root
        if keyword == "additionalProperties" and self.has_unevaluated:
            return False  # it evaluates
        is_idle = _IDLE.get(keyword)
        return is_idle is not None and is_idle(value)

    def nullable(self, original: Schema, schema: Schema) -> Schema:
        """`anyOf` or `oneOf` of `[{type: X, …}, {type: null}]` as `type: [X, null], …`, if equivalent."""
        for keyword in ("anyOf", "oneOf"):
            if (id(original), keyword) not in self.pinned and schema.keys() <= _BESIDE_ALTERNATIVES | {keyword}:
                members = _with_null(schema.get(keyword))
                if members is not None and members.keys().isdisjoint(schema):
                    return _spliced(schema, keyword, members)
        return schema


def rules_of(root: Schema, references: _References) -> _Rules:
    """Raises: _Unproven for an unknown dialect."""
    schemas = references.schemas
    dialect = root.get("$schema", _DRAFT_2020_12)
    dialect = dialect.removesuffix("#") if isinstance(dialect, str) else ""
    if dialect not in _OTHERS | {_DRAFT_07, _DRAFT_2020_12}:
        raise _Unproven("unknown dialect")
    has_unevaluated = any("unevaluatedProperties" in schema for schema in schemas)
    is_neutral = dialect == _DRAFT_07 and not references.has_outside and all(map(_is_neutral, schemas))
    return _Rules(frozenset(references.pinned), has_unevaluated, dialect == _DRAFT_2020_12 or is_neutral)


def _is_neutral(schema: Schema) -> bool:
    if not schema.keys().isdisjoint(_DIFFERING) or isinstance(schema.get("items"), list):
        return False
    if not isinstance(schema.get("$defs", {}), dict):  # which draft-07 does not look at
        return False
    return "$ref" not in schema or schema.keys() <= _BESIDE_REFERENCE


def _spliced(schema: Schema, keyword: str, members: Schema) -> Schema:
    out: Schema = {}
    for name, value in schema.items():
        out.update(members if name == keyword else {name: value})
    return out


def _with_null(branches: Json) -> Schema | None:
    if not isinstance(branches, list) or len(branches) != 2 or _NULL not in branches:
        return None
    at = branches.index(_NULL)
    branch = branches[1 - at]
    if not isinstance(branch, dict) or not branch.keys() <= _SIBLING_FREE | ANNOTATIONS:
        return None
    named = branch.get("type")
    types = named if isinstance(named, list) else [named]
    names = [name for name in types if isinstance(name, str) and name in TYPES]
    if not names or len(set(names)) < len(types) or "null" in names:
        return None
    both: list[Json] = [*names, "null"] if at == 1 else ["null", *names]
    return {**branch, "type": both}


def compact_schema(raw: bytes) -> bytes:
    """One encoded schema, shortened where that is safe; not above `MAX_BYTES` and `MAX_DEPTH`. Never raises."""
    shortest = raw
    for _ in range(_MAX_ROUNDS):
        shorter = _shorter(shortest)
        if len(shorter) >= len(shortest):
            return shortest
        shortest = shorter
    return raw


def compact_tool(raw: bytes) -> bytes:
    """One encoded definition with a compact `inputSchema` and no `outputSchema`. Never raises."""
    try:
        fields = _OBJECT.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw
    members = {name: value for name, value in fields.items() if name != "outputSchema"}
    if "inputSchema" in members:
        members["inputSchema"] = msgspec.Raw(compact_schema(bytes(members["inputSchema"])))
    return raw if members == fields else msgspec.json.encode(members)


def _shorter(raw: bytes) -> bytes:
    if len(raw) > MAX_BYTES:
        return raw
    try:
        schema = _decoded(raw)
        if not isinstance(schema, dict) or height(schema) > MAX_DEPTH:
            return raw
        return msgspec.json.encode(_compacted(schema))
    except (ValueError, RecursionError):
        return raw


def _decoded(raw: bytes) -> Json:
    value: Json = json.loads(
        raw.decode(), object_pairs_hook=_unique, parse_int=msgspec.Raw, parse_float=msgspec.Raw, parse_constant=_reject
    )
    return value


def _unique(pairs: list[tuple[str, Json]]) -> Schema:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a key twice")
    return members


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _compacted(root: Schema) -> Schema:
    try:
        references = survey(root)
        rules = rules_of(root, references)
    except _Unproven:
        return root
    compacted: dict[int, Schema] = {}
    for schema in reversed(references.schemas):  # inner before outer, so that depth costs no stack
        members = rebuilt(schema, lambda inner: compacted[id(inner)])
        members = rules.without_idle(schema, members, is_root=schema is root)
        compacted[id(schema)] = rules.nullable(schema, members)
    return _without_unneeded(compacted[id(root)], references.needed)


def _without_unneeded(root: Schema, needed: Collection[tuple[str, str]]) -> Schema:
    members = dict(root)
    for keyword in DEFINITIONS & root.keys():
        if isinstance(value := root[keyword], dict):
            members[keyword] = {name: definition for name, definition in value.items() if (keyword, name) in needed}
            if not members[keyword]:
                del members[keyword]
    return members
