"""Parts that a schema can do without: keywords that assert nothing, and a detour to say "or null"."""

from collections.abc import Callable, Mapping

import msgspec

from mcp_hub.catalog.compact.keywords import DEFINITIONS, DIFFERING, SIBLING_FREE, Json, Schema
from mcp_hub.catalog.compact.references import References, Unproven
from mcp_hub.schema import ANNOTATIONS, TYPES

# as their meta-schemas are named: validators know no other spelling but a trailing "#". Not draft-04: it has no
# `$defs` to look into and forbids what is harmless later, so that moving a part can make a schema invalid
_DRAFT_07 = "http://json-schema.org/draft-07/schema"
_DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
_OTHERS = {"http://json-schema.org/draft-06/schema", "https://json-schema.org/draft/2019-09/schema"}
_ZERO = msgspec.Raw(b"0")
_BESIDE_REFERENCE = ANNOTATIONS | DEFINITIONS | {"$ref", "$schema"}
_BESIDE_ALTERNATIVES = ANNOTATIONS | DEFINITIONS | {"$schema"}
_NULL: Schema = {"type": "null"}


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


class Rules(msgspec.Struct, frozen=True):
    """The rules for the parts of one schema."""

    pinned: frozenset[tuple[int, str]]
    has_unevaluated: bool
    drops_dialect: bool

    def without_idle(self, original: Schema, schema: Schema, *, is_root: bool = False) -> Schema:
        """The schema, made of `original`, without what asserts nothing."""
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
        """`anyOf: [{type: X, …}, {type: null}]` as `type: [X, null], …`, if that means the same; `oneOf` likewise.

        Which it does when the other keywords of X say nothing about null, and nothing beside the list asserts.
        """
        for keyword in ("anyOf", "oneOf"):
            if (id(original), keyword) not in self.pinned and schema.keys() <= _BESIDE_ALTERNATIVES | {keyword}:
                members = _with_null(schema.get(keyword))
                if members is not None and members.keys().isdisjoint(schema):
                    return _spliced(schema, keyword, members)
        return schema


def rules_of(root: Schema, references: References) -> Rules:
    """The rules for a schema, by its dialect and by the keywords it uses. Raises: Unproven for an unknown dialect."""
    schemas = references.schemas
    dialect = root.get("$schema", _DRAFT_2020_12)
    dialect = dialect.removesuffix("#") if isinstance(dialect, str) else ""
    if dialect not in _OTHERS | {_DRAFT_07, _DRAFT_2020_12}:
        raise Unproven("unknown dialect")
    has_unevaluated = any("unevaluatedProperties" in schema for schema in schemas)
    is_neutral = dialect == _DRAFT_07 and not references.has_outside and all(map(_is_neutral, schemas))
    return Rules(frozenset(references.pinned), has_unevaluated, dialect == _DRAFT_2020_12 or is_neutral)


def _is_neutral(schema: Schema) -> bool:
    """Whether the keywords of one schema, not of those in it, mean the same in draft-07 and 2020-12."""
    if not schema.keys().isdisjoint(DIFFERING) or isinstance(schema.get("items"), list):
        return False
    if not isinstance(schema.get("$defs", {}), dict):  # which draft-07 does not look at
        return False
    return "$ref" not in schema or schema.keys() <= _BESIDE_REFERENCE


def _spliced(schema: Schema, keyword: str, members: Schema) -> Schema:
    """The schema with `members` in the place of one keyword."""
    out: Schema = {}
    for name, value in schema.items():
        out.update(members if name == keyword else {name: value})
    return out


def _with_null(branches: Json) -> Schema | None:
    if not isinstance(branches, list) or len(branches) != 2 or _NULL not in branches:
        return None
    at = branches.index(_NULL)
    other = branches[1 - at]
    if not isinstance(other, dict) or not other.keys() <= SIBLING_FREE | ANNOTATIONS:
        return None
    named = other.get("type")
    types = named if isinstance(named, list) else [named]
    names = [name for name in types if isinstance(name, str) and name in TYPES]
    if not names or len(set(names)) < len(types) or "null" in names:
        return None
    both: list[Json] = [*names, "null"] if at == 1 else ["null", *names]
    return {**other, "type": both}
