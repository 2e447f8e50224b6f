"""Definitions and results that clients refuse, changed so that they do not, where that loses nothing.

`null` in place of an optional member is an absent one, an empty array in place of an object an empty object, as PHP
writes it, and a schema that JSON Schema allows gets the form that clients read. Of annotations and icons a value that
clients refuse is dropped by itself, with its reason. A result that lacks its list gets an empty one. Everything else
stays as it is: what is wrong then is refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from mcp_hub.protocol.definitions.models import (
    MOST_COMPLETIONS,
    Audience,
    Priority,
    Size,
    Theme,
    Timestamp,
    is_base64,
    is_readable,
)
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.types import MODERN, Era, Kind, RawJson, RawObject

_NULL: Final = b"null"
_MISSING: Final = Raw(_NULL)
_TRUE: Final = b"true"
_OBJECT: Final = Raw(b"{}")
_LIST: Final = Raw(b"[]")
_EMPTY = re.compile(rb"\[\s*\]|\{\s*\}")
_NOTHING: Final = Raw(b'{"not":{}}')
_ANY_OBJECT: Final = Raw(b'{"type":"object"}')
_TYPE_OBJECT: Final = Raw(b'"object"')
_MEDIA: Final = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""Types of images, by what they begin with in base64."""
_DATA_URI = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_SAFE: Final = str.maketrans("-_", "+/")
"""The alphabet of base64 for addresses (RFC 4648 §5) to the usual one."""
_COMPLETE: Final = Raw(b'"complete"')
_FLAGS: Final = {
    **dict.fromkeys((b"1", b'"1"', b'"true"', b'"yes"'), Raw(b"true")),
    **dict.fromkeys((b"0", b'"0"', b'"false"', b'"no"', b'""'), Raw(b"false")),
}

Dropped = list[tuple[str, str]]
"""Paths of members that are left out, and why."""


class _Shape(msgspec.Struct, frozen=True):
    """An optional member, or one that `is_needed` and may not be null.

    `empty` is its empty value if it is an object, whose `members` are known, or a list of `items`. `values` is the type
    that clients accept, `loose` the one of a value that they refuse. `form` changes it. `default` is put in place of a
    missing one.
    """

    members: Mapping[str, "_Shape"] = {}
    items: "_Shape | None" = None
    empty: Raw | None = None
    values: Any = None  # a type
    loose: type = str
    form: Callable[[Raw], Raw | None] | None = None
    is_needed: bool = False
    default: Raw | None = None


def repaired(kind: Kind, fields: RawObject) -> tuple[RawObject, Dropped]:
    """The definition as clients read it, and what was dropped of it; the very same fields if there is nothing to do."""
    dropped: Dropped = []
    return _members(fields, _DEFINITIONS[kind], "", dropped), dropped


def _members(fields: RawObject, shapes: Mapping[str, _Shape], path: str, dropped: Dropped) -> RawObject:
    changed = fields
    for name, shape in shapes.items():
        if name not in fields and shape.default is None:
            continue
        before = fields.get(name, _MISSING)
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
        return raw if shape.is_needed else shape.default
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


def repaired_result(
    method: str, result: RawJson, era: Era, params: RawObject, *, is_modern_caller: bool = False
) -> RawJson:
    """The result of a call to a server of this era as clients read it; the very same if they do, or if it is a question
    or a task. `params` are those of the call; only a modern caller reads structured content of any type.
    """
    if is_readable(method, result, era):
        return result
    fields = raw_object(result)
    if fields is None or "task" in fields or fields.get("resultType", _COMPLETE) not in (_COMPLETE, _MISSING):
        return result
    shapes = {**_RESULTS[method], "_meta": _META, "resultType": _PLAIN}
    if method == "resources/read":
        shapes["contents"] = _listing(lambda raw: [_contents(raw, params.get("uri", _MISSING))])
    changed = _members(fields, shapes, "", [])
    if method == "tools/call" and era is not MODERN:
        changed = _structured(changed, is_modern_caller=is_modern_caller)
    return result if changed is fields else object_bytes(changed)


def _structured(fields: RawObject, *, is_modern_caller: bool) -> RawObject:
    """Structured content of the handshake era is an object; what is not leaves as text, unless there is one."""
    raw = fields.get("structuredContent")
    if raw is None or bytes(memoryview(raw)[:1]) == b"{":
        return fields
    if _EMPTY.fullmatch(bytes(raw)):
        return {**fields, "structuredContent": _OBJECT}
    if is_modern_caller and bytes(raw) != _NULL:
        return fields
    changed = {name: value for name, value in fields.items() if name != "structuredContent"}
    if bytes(raw) != _NULL and bytes(fields["content"]) == bytes(_LIST):
        changed["content"] = _encoded([_text_block(raw)])
    return changed


def _listed(raw: Raw, item: Callable[[Raw], list[Raw]]) -> Raw:
    """A list without nulls, of what `item` makes of each; a single one is a list as well."""
    items = read_as(raw, list[Raw])
    if items is None and bytes(memoryview(raw)[:1]) not in (b"{", b'"'):
        return raw
    listed = [
        own for each in ([raw] if items is None else items) for own in ([] if bytes(each) == _NULL else item(each))
    ]
    is_same = items is not None and len(items) == len(listed) and all(map(Raw.__eq__, items, listed))
    return raw if is_same else _encoded(listed)


def _listing(item: Callable[[Raw], list[Raw]]) -> _Shape:
    return _Shape(empty=_LIST, default=_LIST, form=lambda raw: _listed(raw, item))


def _text_block(text: Raw) -> Raw:
    return _encoded({"type": "text", "text": _as_text(text)})


def _as_text(raw: Raw) -> Raw:
    """A text; of another value its JSON."""
    return raw if bytes(memoryview(raw)[:1]) == b'"' else _encoded(bytes(raw).decode())


def _block(raw: Raw) -> Raw:
    """A content block; a text in place of one is one."""
    fields = raw_object(raw)
    if fields is None:
        return _text_block(raw) if read_as(raw, str) is not None else raw
    if bytes(fields.get("type", _MISSING)) == _NULL and read_as(fields.get("text", _MISSING), str) is not None:
        fields = {"type": Raw(b'"text"'), **{name: own for name, own in fields.items() if name != "type"}}
    kind = read_as(fields.get("type", _MISSING), str)
    changed = _members(fields, _BLOCKS.get(kind or "", {}), "", [])
    if kind in ("image", "audio"):
        changed = _media(changed)
    if kind == "resource_link" and bytes(changed.get("name", _MISSING)) == _NULL and "uri" in changed:
        changed = {**changed, "name": changed["uri"]}
    return raw if changed == raw_object(raw) else _encoded(changed)


def _media(fields: RawObject) -> RawObject:
    """An image or sound: its data in the alphabet of clients, and its type, where another member or the data tells."""
    data = read_as(fields.get("data", _MISSING), str)
    if data is None:
        return fields
    uri = _DATA_URI.match(data)
    kinds = (
        read_as(fields.get("mimeType", _MISSING), str),
        read_as(fields.get("mime_type", _MISSING), str),
        uri and uri[1],
        next((kind for start, kind in _MEDIA.items() if data[uri.end() if uri else 0 :].startswith(start)), None),
    )
    changed = dict(fields)
    if (found := next(filter(None, kinds), None)) is not None:
        changed["mimeType"] = _encoded(found)
    if not is_base64(fields["data"]):
        changed["data"] = _base64(fields["data"])
    return changed


def _base64(raw: Raw) -> Raw:
    text = read_as(raw, str)
    return raw if text is None else _encoded(_DATA_URI.sub("", text, count=1).translate(_SAFE))


def _contents(raw: Raw, uri: Raw) -> Raw:
    """A resource that was read under this URI, or is part of a result."""
    fields = raw_object(raw)
    if fields is None:
        return raw
    shapes = _CONTENTS if bytes(uri) == _NULL else {**_CONTENTS, "uri": _Shape(default=uri)}
    if read_as(fields.get("blob", _MISSING), str) is None and "text" in fields:
        shapes = {**shapes, "text": _TEXT}
    changed = _members(fields, shapes, "", [])
    return raw if changed is fields else _encoded(changed)


def _messages(raw: Raw) -> list[Raw]:
    """A message of a prompt; one with several blocks is several messages."""
    fields = raw_object(raw)
    if fields is None or "content" not in fields:
        return [raw]
    blocks = read_as(fields["content"], list[Raw])
    if blocks is None:
        changed = _block(fields["content"])
        return [raw if changed is fields["content"] else _encoded({**fields, "content": changed})]
    return [_encoded({**fields, "content": _block(block)}) for block in blocks]


def _completion(raw: Raw) -> Raw:
    """Values for an argument, as many as there may be at once."""
    fields = raw_object(raw)
    if fields is None:
        return raw
    changed = _members(fields, _COMPLETION, "", [])
    values = read_as(changed["values"], list[Raw]) or []
    if len(values) > MOST_COMPLETIONS:
        total = {"total": _encoded(len(values))} if "total" not in changed else {}
        changed = {**changed, "values": _encoded(values[:MOST_COMPLETIONS]), **total, "hasMore": Raw(b"true")}
    return raw if changed is fields else _encoded(changed)


def _flag(raw: Raw) -> Raw:
    return _FLAGS.get(bytes(raw).lower(), raw)


def _total(raw: Raw) -> Raw | None:
    """A number that may be written as a text; one that is not whole says nothing."""
    text = read_as(raw, str)
    number = raw if text is None else Raw(text.encode())
    return number if read_as(number, Size) is not None else None


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
_META: Final = _Shape(empty=_OBJECT, values=RawObject, loose=object)
_TEXT: Final = _Shape(form=_as_text, default=Raw(b'""'))
_ABOUT: Final = {
    "annotations": _Shape(
        {
            "audience": _Shape(values=Audience, loose=object),
            "priority": _Shape(values=Priority, loose=object),
            "lastModified": _Shape(values=Timestamp, loose=object),
        },
        empty=_OBJECT,
        values=RawObject,
        loose=object,
    ),
    "_meta": _META,
}
_CONTENTS: Final = {"mimeType": _PLAIN, "_meta": _META, "blob": _Shape(form=_base64)}
_BLOCKS: Final[Mapping[str, Mapping[str, _Shape]]] = {
    "text": {"text": _TEXT, **_ABOUT},
    **dict.fromkeys(("image", "audio"), _ABOUT),
    "resource_link": {**_DEFINITIONS[Kind.RESOURCE], **_ABOUT, "size": _Shape(form=_total)},
    "resource": {"resource": _Shape(form=lambda raw: _contents(raw, _MISSING)), **_ABOUT},
}
_COMPLETION: Final = {
    "values": _listing(lambda raw: [_as_text(raw)]),
    "total": _Shape(form=_total),
    "hasMore": _Shape(form=_flag),
}
_RESULTS: Final[Mapping[str, Mapping[str, _Shape]]] = {
    "tools/call": {"content": _listing(lambda raw: [_block(raw)]), "isError": _Shape(form=_flag)},
    "prompts/get": {"messages": _listing(_messages), "description": _PLAIN},
    "resources/read": {},
    "completion/complete": {"completion": _Shape(form=_completion, default=Raw(b'{"values":[]}'))},
}
