"""The keywords of JSON Schema, drafts 06 to 2020-12, and where its subschemas are.

Only places that some draft calls a schema count: `properties.title` is a property of that name, while `enum`,
`const`, `default` and `examples` hold data, and what an unknown keyword holds is nobody's business.
"""

import re
from collections.abc import Callable, Iterator
from typing import TypeAlias
from urllib.parse import unquote

import msgspec

from mcp_hub.schema import LISTS, NAMED, ONE

Json: TypeAlias = "dict[str, Json] | list[Json] | str | bool | msgspec.Raw | None"
"""A decoded JSON value in which numbers stay the text that they were."""
Schema: TypeAlias = dict[str, "Json"]

_ONE = frozenset(ONE)
_LIST = frozenset({*LISTS, "items"})
DEFINITIONS = frozenset({"$defs", "definitions"})
_NAMED = DEFINITIONS | {*NAMED, "dependencies"}
PLACES = _ONE | _LIST | _NAMED
"""The keywords that hold subschemas in some draft; in the others what they hold is never looked at."""
DATA = frozenset({"enum", "const", "default", "examples"})
IDENTITY = frozenset({"$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveAnchor", "$recursiveRef"})
"""Keywords by which a schema is found, or looks for another, in other ways than by a JSON pointer."""
SIBLING_FREE = frozenset(
    """type multipleOf minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength pattern format
    contentEncoding contentMediaType contentSchema items prefixItems additionalItems contains minContains maxContains
    minItems maxItems uniqueItems properties patternProperties additionalProperties propertyNames required
    minProperties maxProperties dependentRequired dependentSchemas dependencies""".split()
)
"""`type`, and the keywords that say nothing about null."""
DIFFERING = frozenset(
    """$id $vocabulary additionalItems contentEncoding contentMediaType contentSchema dependencies dependentRequired
    dependentSchemas format maxContains minContains prefixItems unevaluatedItems unevaluatedProperties""".split()
)
"""Keywords that assert in one of draft-07 and 2020-12 and not in the other; `items` with a list is one more."""

_BAD_ESCAPE = re.compile("~(?![01])")
_INDEX = re.compile("0|[1-9][0-9]{0,8}")


def subschemas(schema: Schema) -> Iterator[tuple[str, str, Schema]]:
    """The schemas right under a schema, but for `true` and `false`: keyword, name (if the keyword has any), schema."""
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in _ONE:
                yield keyword, "", value
            elif keyword in _NAMED:
                yield from ((keyword, name, one) for name, one in value.items() if isinstance(one, dict))
        elif isinstance(value, list) and keyword in _LIST:
            yield from ((keyword, "", one) for one in value if isinstance(one, dict))


def rebuilt(schema: Schema, change: Callable[[Schema], Json]) -> Schema:
    """The schema with each of its `subschemas` changed, and everything else as it is."""
    return {keyword: _changed(keyword, value, change) for keyword, value in schema.items()}


def _changed(keyword: str, value: Json, change: Callable[[Schema], Json]) -> Json:
    if isinstance(value, dict):
        if keyword in _ONE:
            return change(value)
        if keyword in _NAMED:
            return {name: change(one) if isinstance(one, dict) else one for name, one in value.items()}
    elif isinstance(value, list) and keyword in _LIST:
        return [change(one) if isinstance(one, dict) else one for one in value]
    return value


def path_of(root: Schema, pointer: str) -> list[tuple[Schema, str, str]] | None:
    """The schemas on the way of `#/…`, with the keyword and name or index taken; None if it leads to no schema."""
    if _BAD_ESCAPE.search(pointer):
        return None
    tokens = [token.replace("~1", "/").replace("~0", "~") for token in unquote(pointer).split("/")]
    rest = iter(tokens[1:])
    path: list[tuple[Schema, str, str]] = []
    here: Json = root
    for keyword in rest:
        if not isinstance(here, dict):
            return None
        value, name = here.get(keyword), ""
        if keyword not in _ONE or isinstance(value, list):
            step = next(rest, None)
            if step is None:
                return None
            name = step
        path.append((here, keyword, name))
        here = _under(keyword, value, name)
    return path if isinstance(here, dict | bool) else None


def _under(keyword: str, value: Json, name: str) -> Json:
    if isinstance(value, list):
        is_there = keyword in _LIST and _INDEX.fullmatch(name) and int(name) < len(value)
        return value[int(name)] if is_there else None
    if keyword in _ONE:
        return value
    return value.get(name) if keyword in _NAMED and isinstance(value, dict) else None
