"""Mutated definitions of all four kinds: every member that clients know, with every kind of value in its place."""

import json
from collections.abc import Iterator
from typing import Any

from mcp_hub.types import Kind
from tests.unit.protocol.test_output_schemas import BAD, COMPILED, GOOD, REFUSED

ODD: tuple[Any, ...] = (None, [], {}, "", "x", 5, 1.5, True, False, [None], ["x"], {"x": 1}, {"x": None})
_ICON = {"src": "https://e.org/a.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
_COMMON = {"title": "T", "description": "d", "icons": [_ICON], "_meta": {"e.org/x": None}, "x-new": None}
_SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "properties": {"a": {"type": ["string", "null"], "default": None}},
    "required": ["a"],
    "additionalProperties": False,
}
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_ABOUT = {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-12T15:00:58Z"}
BASES: dict[Kind, dict[str, Any]] = {
    Kind.TOOL: {
        **_COMMON,
        "inputSchema": _SCHEMA,
        "outputSchema": _SCHEMA,
        "annotations": {"title": "T", **dict.fromkeys(_HINTS, False)},
        "execution": {"taskSupport": "forbidden"},
    },
    Kind.RESOURCE: {**_COMMON, "name": "n", "mimeType": "text/plain", "size": 5, "annotations": _ABOUT},
    Kind.TEMPLATE: {**_COMMON, "name": "n", "mimeType": "text/plain", "annotations": _ABOUT},
    Kind.PROMPT: {
        **_COMMON,
        "arguments": [{"name": "a", "title": "A", "description": "d", "required": True}],
    },
}
_NEW = "(?i:a)"
"""An expression that only recent versions of JavaScript have."""
_TIMES = ("yesterday", "2025-01-12", "2025-01-12T15:00:58", "2025-02-30T15:00:58Z", "2024-02-29T00:00:00.5+02:00")
_PLACES = (
    *(
        "a:b",
        "http://",
        "http:///x",
        "http://a b/",
        "https://e.org:99999/",
        "note://a:port/",
        "note://a b/c",
        "x://[::1",
    ),
    *("a:b c", "file:///a b/é.txt", "no-scheme", "hub://s/ui://x", "urn:isbn:0", "data:,x", "mailto:a@e.org"),
    *("http://%zz/", "ws://a/"),
)


def mutated() -> dict[Kind, list[str]]:
    """The definitions as JSON text, each with a name of its own: `t0`, `x://0`, `x://{a}/0`, `p0`."""
    found: dict[Kind, list[str]] = {}
    for kind, base in BASES.items():
        changed = [base, *_members(base), *_wholes(kind, base)]
        found[kind] = [json.dumps({**identity(kind, number), **own}) for number, own in enumerate(changed)]
    return found


def identity(kind: Kind, number: int) -> dict[str, Any]:
    """The member by which the definition is known."""
    match kind:
        case Kind.TOOL:
            return {"name": f"t{number}"}
        case Kind.RESOURCE:
            return {"uri": f"x://{number}"}
        case Kind.TEMPLATE:
            return {"uriTemplate": f"x://{{a}}/{number}"}
        case _:
            return {"name": f"p{number}"}


def _members(base: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One member after the other, at any depth, missing and with odd values."""
    for path in _paths(base):
        for value in (*ODD, ...):
            changed = json.loads(json.dumps(base))
            holder: Any = changed
            for step in path[:-1]:
                holder = holder[step]
            if value is ...:
                del holder[path[-1]]
            else:
                holder[path[-1]] = value
            yield changed


def _paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, own in inner:
        yield (*path, step)
        yield from _paths(own, (*path, step))


def _wholes(kind: Kind, base: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Values that a random one does not hit."""
    if kind is Kind.TOOL:
        patterns = (
            {"type": "object", "properties": {"a": {"pattern": text}}} for text in (*GOOD, *BAD) if text != _NEW
        )
        for schema in (*COMPILED, *(own for own, _ in REFUSED), *patterns):
            yield {**base, "outputSchema": {"type": "object", **schema}}
        for types in (["object"], ["null", "object"], ["string"], "array"):
            yield {**base, "inputSchema": {**_SCHEMA, "type": types}}
        yield {**base, "execution": {"taskSupport": "some-day"}}
    if kind in (Kind.RESOURCE, Kind.TEMPLATE):
        for text in _TIMES:
            yield {**base, "annotations": {"lastModified": text}}
        yield from ({**base, "annotations": {"priority": value}} for value in (-1, 2, 1, 1e300))
    if kind is Kind.RESOURCE:
        yield from ({**base, "uri": f"{place}#{number}"} for number, place in enumerate(_PLACES))
        yield from ({**base, "size": value} for value in (-1, 5.0, 2**60, 1e300))
