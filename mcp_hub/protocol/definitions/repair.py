"""Definitions that clients refuse, changed so that they do not, where that loses nothing.

`null` in place of an optional member is an absent one, an empty array in place of an object an empty object, as PHP
writes it, and a schema that JSON Schema allows gets the form that clients read. Of annotations and icons a value that
clients refuse is dropped by itself, with its reason. Everything else stays as it is: what is wrong then is refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from mcp_hub.protocol.definitions.models import Audience, Priority, Size, Theme, Timestamp
from mcp_hub.protocol.jsonrpc.envelope import raw_object, read_as
from mcp_hub.types import Kind, RawObject

_NULL: Final = b"null"
_TRUE: Final = b"true"
_OBJECT: Final = Raw(b"{}")
_LIST: Final = Raw(b"[]")
_EMPTY = re.compile(rb"\[\s*\]|\{\s*\}")
_NOTHING: Final = Raw(b'{"not":{}}')
_ANY_OBJECT: Final = Raw(b'{"type":"object"}')
_TYPE_OBJECT: Final = Raw(b'"object"')

Dropped = list[tuple[str, str]]
"""Paths of members that are left out, and why."""


class _Shape(msgspec.Struct, frozen=True):
    """An optional member, or one that `is_needed` and may not be null.

    `empty` is its empty value if it is an object, whose `members` are known, or a list of `items`. `values` is the type
    that clients accept, `loose` the one of a value that they refuse. `form` changes it.
    """

    members: Mapping[str, "_Shape"] = {}
    items: "_Shape | None" = None
    empty: Raw | None = None
    values: Any = None  # a type
    loose: type = str
    form: Callable[[Raw], Raw | None] | None = None
    is_needed: bool = False


def repaired(kind: Kind, fields: RawObject) -> tuple[RawObject, Dropped]:
    """The definition as clients read it, and what was dropped of it; the very same fields if there is nothing to do."""
    dropped: Dropped = []
    return _members(fields, _DEFINITIONS[kind], "", dropped), dropped


def _members(fields: RawObject, shapes: Mapping[str, _Shape], path: str, dropped: Dropped) -> RawObject:
    changed = fields
    for name, shape in shapes.items():
        if name not in fields:
            continue
        before = fields[name]
        after = _value(before, shape, f"{path}{name}", dropped)
        if after is not before:
            changed = dict(changed) if changed is fields else changed
            if after is None:
                del changed[name]
            else:
                changed[name] = after
    return changed


def _value(raw: Raw, shape: _Shape, path: str, dropped: Dropped) -> Raw | None:
    """The value in the form that clients read; the very same if it has it already, None if it is to go."""
    if bytes(raw) == _NULL:
        return raw if shape.is_needed else None
    if shape.empty is not None and _EMPTY.fullmatch(bytes(raw)):
        raw = raw if bytes(raw)[:1] == bytes(shape.empty)[:1] else shape.empty
    if shape.form is not None:
        return shape.form(raw)
    if shape.members and (fields := raw_object(raw)) is not None:
        changed = _members(fields, shape.members, f"{path}.", dropped)
        return raw if changed is fields else _encoded(changed)
    if shape.items is not None and (items := read_as(raw, list[Raw])) is not None:
        read = [_value(item, shape.items, f"{path}[{place}]", dropped) for place, item in enumerate(items)]
        listed = [item if value is None else value for item, value in zip(items, read, strict=True)]
        return raw if all(a is b for a, b in zip(items, listed, strict=True)) else _encoded(listed)
    if shape.values is not None and (reason := _refusal(raw, shape)) is not None:
        dropped.append((path, reason))
        return None
    return raw


def _refusal(raw: Raw, shape: _Shape) -> str | None:
    """Why clients refuse a value that is of the right type; None also for one of another type."""
    if read_as(raw, shape.loose) is None:
        return None
    try:
        msgspec.json.decode(raw, type=shape.values)
    except msgspec.ValidationError as problem:
        return str(problem)
    return None


def _sizes(raw: Raw) -> Raw:
    """A list of sizes; an early draft of the specification had one text."""
    text = read_as(raw, str)
    return raw if text is None else _encoded(text.split())


def _input(raw: Raw) -> Raw:
    """A schema for arguments, which are an object in any case, so to say that loses nothing."""
    fields = {} if bytes(raw) == _TRUE else raw_object(raw)
    if fields is None:
        return raw
    changed = _schema(fields)
    types = read_as(changed.get("type", _LIST), list[str])
    if types is not None and (not types or "object" in types):
        changed = {"type": _TYPE_OBJECT, **{name: own for name, own in changed.items() if name != "type"}}
    return raw if changed is fields else _encoded(changed) if len(changed) > 1 else _ANY_OBJECT


def _output(raw: Raw) -> Raw | None:
    """A schema for results; one that allows everything says nothing."""
    if bytes(raw) == _TRUE:
        return None
    if (fields := raw_object(raw)) is None:
        return raw
    changed = _schema(fields)
    return raw if changed is fields else _encoded(changed)


def _schema(fields: RawObject) -> RawObject:
    """The members of a schema whose outermost members clients look at."""
    return _members(fields, _SCHEMA, "", [])


def _properties(raw: Raw) -> Raw:
    """Schemas by name, each of them an object: `true`, and `null` in its place, allow everything, `false` nothing."""
    fields = raw_object(raw)
    if fields is None:
        return raw
    changed = {name: _PROPERTIES.get(bytes(own).translate(None, b" \t\r\n"), own) for name, own in fields.items()}
    return raw if all(changed[name] is own for name, own in fields.items()) else _encoded(changed)


def _encoded(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


_PROPERTIES: Final = {_NULL: _OBJECT, _TRUE: _OBJECT, b"[]": _OBJECT, b"false": _NOTHING}
_PLAIN: Final = _Shape()
_SCHEMA: Final = {
    "type": _PLAIN,
    "$schema": _PLAIN,
    "properties": _Shape(empty=_OBJECT, form=_properties),
    "required": _Shape(empty=_LIST),
}
_ICON: Final = _Shape(
    {"mimeType": _PLAIN, "sizes": _Shape(empty=_LIST, form=_sizes), "theme": _Shape(values=Theme)}, empty=_OBJECT
)
_COMMON: Final = {
    "title": _PLAIN,
    "description": _PLAIN,
    "icons": _Shape(items=_ICON, empty=_LIST),
    "_meta": _Shape(empty=_OBJECT),
}
_HINTS: Final = ("title", "readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_ANNOTATIONS: Final = _Shape(
    {
        "audience": _Shape(values=Audience, loose=list[str], empty=_LIST),
        "priority": _Shape(values=Priority, loose=float),
        "lastModified": _Shape(values=Timestamp),
    },
    empty=_OBJECT,
)
_ARGUMENT: Final = _Shape(dict.fromkeys(("description", "required"), _PLAIN))
_DEFINITIONS: Final[Mapping[Kind, Mapping[str, _Shape]]] = {
    Kind.TOOL: {
        **_COMMON,
        "inputSchema": _Shape(empty=_OBJECT, form=_input, is_needed=True),
        "outputSchema": _Shape(empty=_OBJECT, form=_output),
        "annotations": _Shape(dict.fromkeys(_HINTS, _PLAIN), empty=_OBJECT),
        "execution": _Shape(empty=_OBJECT),
    },
    Kind.RESOURCE: {
        **_COMMON,
        "mimeType": _PLAIN,
        "size": _Shape(values=Size, loose=float),
        "annotations": _ANNOTATIONS,
    },
    Kind.TEMPLATE: {**_COMMON, "mimeType": _PLAIN, "annotations": _ANNOTATIONS},
    Kind.PROMPT: {**_COMMON, "arguments": _Shape(items=_ARGUMENT, empty=_LIST)},
    Kind.SKILL: {"_meta": _Shape(empty=_OBJECT)},
}
