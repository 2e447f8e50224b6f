"""Repairs definitions that clients refuse, where nothing is lost.

A null or invalid optional member is dropped; an empty array becomes an empty object (PHP).
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
from msgspec import Raw

from mcp_hub.protocol.definitions.models import (
    OUTPUT_SCHEMA,
    Audience,
    Icon,
    Priority,
    Size,
    Theme,
    Timestamp,
)
from mcp_hub.protocol.jsonrpc.envelope import raw_object, read_as
from mcp_hub.types import Kind, RawObject

NULL: Final = b"null"
MISSING: Final = Raw(NULL)
_TRUE: Final = b"true"
_FALSE: Final = b"false"
OBJECT: Final = Raw(b"{}")
LIST: Final = Raw(b"[]")
EMPTY = re.compile(rb"\[\s*\]|\{\s*\}")
_NOTHING: Final = Raw(b'{"not":{}}')
_ANY_OBJECT: Final = Raw(b'{"type":"object"}')
_TYPE_OBJECT: Final = Raw(b'"object"')

_FLAGS: Final = {
    **dict.fromkeys((b"1", b'"1"', b'"true"', b'"yes"'), Raw(b"true")),
    **dict.fromkeys((b"0", b'"0"', b'"false"', b'"no"', b'""'), Raw(b"false")),
}

Dropped = list[tuple[str, str]]
"""Paths of members that are left out, and why."""


class Shape(msgspec.Struct, frozen=True):
    """The shape of an optional member, or one that `is_needed` and not null.

    `empty`: its empty object or list; `members`, `items`: shapes inside; `form` converts; `values`: the accepted type.
    """

    members: Mapping[str, "Shape"] = {}
    items: "Shape | None" = None
    empty: Raw | None = None
    values: object = None  # a type
    form: Callable[[Raw], Raw | None] | None = None
    is_needed: bool = False
    default: Raw | None = None


def repaired(kind: Kind, fields: RawObject) -> tuple[RawObject, Dropped]:
    """The repaired definition (the same object if unchanged), and what was dropped."""
    dropped: Dropped = []
    return readable_members(fields, DEFINITIONS[kind], "", dropped), dropped


def readable_members(fields: RawObject, shapes: Mapping[str, Shape], path: str, dropped: Dropped) -> RawObject:
    """The members repaired by `shapes`; the same object if unchanged."""
    changed = fields
    for name, shape in shapes.items():
        if name not in fields and shape.default is None:
            continue
        before = fields.get(name, MISSING)
        after = _value(before, shape, f"{path}{name}", dropped)
        if after is not before:
            changed = dict(changed) if changed is fields else changed
            if after is None:
                del changed[name]
            else:
                changed[name] = after
    return changed


def _value(raw: Raw, shape: Shape, path: str, dropped: Dropped) -> Raw | None:
    """Returns `raw` itself if unchanged, None to drop it."""
    if bytes(raw) == NULL:
        return raw if shape.is_needed else shape.default
    if shape.empty is not None and EMPTY.fullmatch(bytes(raw)):
        raw = raw if bytes(raw)[:1] == bytes(shape.empty)[:1] else shape.empty
    changed: Raw | None = raw if shape.form is None else shape.form(raw)
    if shape.members and (fields := raw_object(raw)) is not None:
        readable = readable_members(fields, shape.members, f"{path}.", dropped)
        changed = raw if readable is fields else encoded(readable)
    elif shape.items is not None and (items := read_as(raw, list[Raw])) is not None:
        read = [_value(item, shape.items, f"{path}[{index}]", dropped) for index, item in enumerate(items)]
        listed = [item for item in read if item is not None]
        is_same = len(items) == len(listed) and all(a is b for a, b in zip(items, listed, strict=True))
        changed = raw if is_same else encoded(listed)
    if shape.values is not None and changed is not None and (reason := _refusal(changed, shape.values)) is not None:
        dropped.append((path, reason))
        return None
    return changed


def _refusal(raw: Raw, values: object) -> str | None:
    try:
        msgspec.json.decode(raw, type=values)
    except (msgspec.ValidationError, RecursionError) as problem:
        return str(problem)
    return None


def _sizes(raw: Raw) -> Raw:
    text = read_as(raw, str)
    return raw if text is None else encoded(text.split())


def _lines(raw: Raw) -> Raw:
    lines = read_as(raw, list[str])
    return raw if lines is None else encoded("\n".join(lines))


def _modes(raw: Raw) -> Raw:
    """The known ones: a later revision may have more."""
    modes = read_as(raw, list[str])
    return raw if modes is None else encoded([mode for mode in modes if mode in ("poll", "push", "webhook")])


def flag(raw: Raw) -> Raw:
    """A boolean from a boolean, string or number."""
    return _FLAGS.get(bytes(raw).lower(), raw)


def _input(raw: Raw) -> Raw:
    """Arguments are always an object, so `type` may be added."""
    fields = {} if bytes(raw) == _TRUE else raw_object(raw)
    if fields is None:
        return raw
    changed = _schema(fields)
    kind = changed.get("type", LIST)
    types = read_as(kind, list[str])
    if types is None and kind != _TYPE_OBJECT and bytes(kind).lower() == bytes(_TYPE_OBJECT):  # as Gemini's schemas
        types = []
    if types is not None and (not types or "object" in types):
        changed = {"type": _TYPE_OBJECT, **{name: value for name, value in changed.items() if name != "type"}}
    return raw if changed is fields else encoded(changed) if len(changed) > 1 else _ANY_OBJECT


def _without_flag(raw: Raw) -> Raw | None:
    """Before draft 4 `required` was a boolean, which says nothing about arguments."""
    return None if bytes(raw) in (_TRUE, _FALSE) else raw


def _output(raw: Raw) -> Raw | None:
    if bytes(raw) == _TRUE:
        return None
    if (fields := raw_object(raw)) is None:
        return raw
    changed = _schema(fields)
    return raw if changed is fields else encoded(changed)


def _schema(fields: RawObject) -> RawObject:
    return readable_members(fields, SCHEMA, "", [])


def _properties(raw: Raw) -> Raw:
    fields = raw_object(raw)
    if fields is None:
        return raw
    changed = {name: _PROPERTIES.get(bytes(value).translate(None, b" \t\r\n"), value) for name, value in fields.items()}
    return raw if all(changed[name] is value for name, value in fields.items()) else encoded(changed)


def encoded(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


_PROPERTIES: Final = {NULL: OBJECT, _TRUE: OBJECT, b"[]": OBJECT, b"false": _NOTHING}
PLAIN: Final = Shape()
SCHEMA: Final = {
    "type": PLAIN,
    "$schema": PLAIN,
    "properties": Shape(empty=OBJECT, form=_properties),
    "required": Shape(empty=LIST, form=_without_flag),
}
TEXT: Final = Shape(values=str)
META: Final = Shape(empty=OBJECT, values=RawObject)
_ICON: Final = Shape(
    {
        "mimeType": TEXT,
        "sizes": Shape(empty=LIST, form=_sizes, values=list[str]),
        "theme": Shape(values=Theme),
    },
    empty=OBJECT,
    values=Icon,
)
_COMMON: Final = {
    "title": TEXT,
    "description": Shape(form=_lines, values=str),
    "icons": Shape(items=_ICON, empty=LIST, values=list[Raw]),
    "_meta": META,
}
_HINT: Final = Shape(values=bool)
_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
ANNOTATIONS: Final = Shape(
    {
        "audience": Shape(values=Audience, empty=LIST),
        "priority": Shape(values=Priority),
        "lastModified": Shape(values=Timestamp),
    },
    empty=OBJECT,
    values=RawObject,
)
_ARGUMENT: Final = Shape(
    {
        "title": Shape(values=str | None, is_needed=True),
        "description": Shape(form=_lines, values=str),
        "required": Shape(form=flag, values=bool),
    }
)
DEFINITIONS: Final[Mapping[Kind, Mapping[str, Shape]]] = {
    Kind.TOOL: {
        **_COMMON,
        "inputSchema": Shape(empty=OBJECT, form=_input, default=_ANY_OBJECT),
        "outputSchema": Shape(empty=OBJECT, form=_output, values=OUTPUT_SCHEMA),
        "annotations": Shape({"title": TEXT, **dict.fromkeys(_HINTS, _HINT)}, empty=OBJECT, values=RawObject),
        "execution": META,
    },
    Kind.RESOURCE: {**_COMMON, "mimeType": TEXT, "size": Shape(values=Size), "annotations": ANNOTATIONS},
    Kind.TEMPLATE: {**_COMMON, "mimeType": TEXT, "annotations": ANNOTATIONS},
    Kind.PROMPT: {**_COMMON, "arguments": Shape(items=_ARGUMENT, empty=LIST)},
    Kind.SKILL: {"_meta": META},
    Kind.EVENT: {
        **_COMMON,
        "delivery": Shape(form=_modes),
        "inputSchema": Shape(empty=OBJECT, default=_ANY_OBJECT),
        "payloadSchema": Shape(empty=OBJECT, default=_ANY_OBJECT),
    },
}
