"""Repairs results, questions and notices that clients refuse, where nothing is lost."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Raw

from mcp_hub.globs import late
from mcp_hub.protocol import eras
from mcp_hub.protocol.definitions.models import (
    MOST_COMPLETIONS,
    Size,
    is_base64,
    is_readable,
)
from mcp_hub.protocol.definitions.repair import (
    ANNOTATIONS,
    DEFINITIONS,
    EMPTY,
    LIST,
    META,
    MISSING,
    NULL,
    OBJECT,
    PLAIN,
    SCHEMA,
    TEXT,
    Shape,
    encoded,
    flag,
    readable_members,
)
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.types import MODERN, Era, Kind, RawJson, RawObject

_MEDIA: Final = {"iVBORw0KGgo": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""Types of images, by what they begin with in base64."""
_DATA_URI = late(r"data:([^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_SAFE: Final = str.maketrans("-_", "+/")
"""The alphabet of base64 for addresses (RFC 4648 §5) to the usual one."""
_COMPLETE: Final = Raw(b'"complete"')


def repaired_result(
    method: str, result: RawJson, era: Era, params: RawObject, *, is_modern_caller: bool = False
) -> RawJson:
    """The result in a form that clients read; the same object if unchanged, a question or a task.

    `params` are the call's, `era` is the server's.
    """
    if is_readable(method, result, era):
        return result
    fields = raw_object(result)
    if fields is None or "task" in fields or fields.get("resultType", _COMPLETE) not in (_COMPLETE, MISSING):
        return result
    shapes = {**_RESULTS[method], "_meta": META, "resultType": PLAIN}
    if method == "resources/read":
        shapes["contents"] = _listing(lambda raw: [_contents(raw, params.get("uri", MISSING))])
    changed = readable_members(fields, shapes, "", [])
    if method == "tools/call" and era is not MODERN:
        changed = _structured(changed, is_modern_caller=is_modern_caller)
    return result if changed is fields else object_bytes(changed)


def _structured(fields: RawObject, *, is_modern_caller: bool) -> RawObject:
    """Handshake clients accept objects only."""
    raw = fields.get("structuredContent")
    if raw is None or bytes(memoryview(raw)[:1]) == b"{":
        return fields
    if EMPTY.fullmatch(bytes(raw)):
        return {**fields, "structuredContent": OBJECT}
    if is_modern_caller and bytes(raw) != NULL:
        return fields
    changed = {name: value for name, value in fields.items() if name != "structuredContent"}
    if bytes(raw) != NULL and bytes(fields["content"]) == bytes(LIST):
        changed["content"] = encoded([_text_block(raw)])
    return changed


def repaired_params(method: str, params: RawObject) -> RawObject:
    """Returns `params` itself if unchanged."""
    return readable_members(params, _PARAMS.get(method, {}), "", [])


def repaired_notice(method: str, params: Raw) -> Raw:
    """Returns `params` itself if unchanged."""
    fields = raw_object(params) or {}
    changed = repaired_params(method, fields)
    return params if changed is fields else encoded(changed)


def _fields(raw: Raw) -> Raw:
    fields = raw_object(raw)
    if fields is None:
        return raw
    changed = readable_members(fields, dict.fromkeys(fields, _FIELD), "", [])
    return raw if changed is fields else encoded(changed)


def _sampled(raw: Raw) -> Raw:
    return _block(raw) if read_as(raw, list[Raw]) is None else _listed(raw, lambda block: [_block(block)])


def _listed(raw: Raw, item: Callable[[Raw], list[Raw]]) -> Raw:
    items = read_as(raw, list[Raw])
    if items is None and bytes(memoryview(raw)[:1]) not in (b"{", b'"'):
        return raw
    listed = [
        value for each in ([raw] if items is None else items) for value in ([] if bytes(each) == NULL else item(each))
    ]
    is_same = items is not None and len(items) == len(listed) and all(map(Raw.__eq__, items, listed))
    return raw if is_same else encoded(listed)


def _listing(item: Callable[[Raw], list[Raw]]) -> Shape:
    return Shape(empty=LIST, default=LIST, form=lambda raw: _listed(raw, item))


def _text_block(text: Raw) -> Raw:
    return encoded({"type": "text", "text": _as_text(text)})


def _as_text(raw: Raw) -> Raw:
    return raw if bytes(memoryview(raw)[:1]) == b'"' else encoded(bytes(raw).decode())


def _level(raw: Raw) -> Raw:
    level = read_as(raw, str)
    return raw if level in eras.LOG_LEVELS else encoded(eras.log_level(level or read_as(raw, float)))


def _block(raw: Raw, *, is_inner: bool = False) -> Raw:
    fields = raw_object(raw)
    if fields is None:
        return _text_block(raw) if read_as(raw, str) is not None else raw
    if bytes(fields.get("type", MISSING)) == NULL and read_as(fields.get("text", MISSING), str) is not None:
        fields = {"type": Raw(b'"text"'), **{name: value for name, value in fields.items() if name != "type"}}
    kind = read_as(fields.get("type", MISSING), str)
    if is_inner and kind == "tool_result":
        return raw
    changed = readable_members(fields, _BLOCKS.get(kind or "", {}), "", [])
    if kind in ("image", "audio"):
        changed = _media(changed)
    if kind == "resource_link" and bytes(changed.get("name", MISSING)) == NULL and "uri" in changed:
        changed = {**changed, "name": changed["uri"]}
    return raw if changed == raw_object(raw) else encoded(changed)


def _media(fields: RawObject) -> RawObject:
    data = read_as(fields.get("data", MISSING), str)
    if data is None:
        return fields
    uri = _DATA_URI.match(data)
    kinds = (
        read_as(fields.get("mimeType", MISSING), str),
        read_as(fields.get("mime_type", MISSING), str),
        uri and uri[1],
        next((kind for start, kind in _MEDIA.items() if data[uri.end() if uri else 0 :].startswith(start)), None),
    )
    changed = dict(fields)
    if (media_kind := next(filter(None, kinds), None)) is not None:
        changed["mimeType"] = encoded(media_kind)
    if not is_base64(fields["data"]):
        changed["data"] = _base64(fields["data"])
    return changed


def _base64(raw: Raw) -> Raw:
    text = read_as(raw, str)
    return raw if text is None else encoded(_DATA_URI.sub("", text, count=1).translate(_SAFE))


def _contents(raw: Raw, uri: Raw) -> Raw:
    fields = raw_object(raw)
    if fields is None:
        return raw
    shapes = _CONTENTS if bytes(uri) == NULL else {**_CONTENTS, "uri": Shape(default=uri)}
    if read_as(fields.get("blob", MISSING), str) is None and "text" in fields:
        shapes = {**shapes, "text": _TEXT}
    changed = readable_members(fields, shapes, "", [])
    return raw if changed is fields else encoded(changed)


def _messages(raw: Raw) -> list[Raw]:
    fields = raw_object(raw)
    if fields is None or "content" not in fields:
        return [raw]
    blocks = read_as(fields["content"], list[Raw])
    if blocks is None:
        changed = _block(fields["content"])
        return [raw if changed is fields["content"] else encoded({**fields, "content": changed})]
    return [encoded({**fields, "content": _block(block)}) for block in blocks]


def _completion(raw: Raw) -> Raw:
    fields = raw_object(raw)
    if fields is None:
        return raw
    changed = readable_members(fields, _COMPLETION, "", [])
    values = read_as(changed["values"], list[Raw]) or []
    if len(values) > MOST_COMPLETIONS:
        total = {"total": encoded(len(values))} if "total" not in changed else {}
        changed = {**changed, "values": encoded(values[:MOST_COMPLETIONS]), **total, "hasMore": Raw(b"true")}
    return raw if changed is fields else encoded(changed)


def _total(raw: Raw) -> Raw | None:
    text = read_as(raw, str)
    number = raw if text is None else Raw(text.encode())
    return number if read_as(number, Size) is not None else None


_TEXT: Final = Shape(form=_as_text, default=Raw(b'""'))
_ABOUT: Final = {
    "annotations": ANNOTATIONS,
    "_meta": META,
}
_CONTENTS: Final = {"mimeType": TEXT, "_meta": META, "blob": Shape(form=_base64)}
_BLOCKS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "text": {"text": _TEXT, **_ABOUT},
    **dict.fromkeys(("image", "audio"), _ABOUT),
    "resource_link": {**DEFINITIONS[Kind.RESOURCE], **_ABOUT, "size": Shape(form=_total)},
    "resource": {"resource": Shape(form=lambda raw: _contents(raw, MISSING)), **_ABOUT},
    "tool_use": {"_meta": META},
    "tool_result": {
        "content": _listing(lambda raw: [_block(raw, is_inner=True)]),
        "structuredContent": Shape(empty=OBJECT),
        "isError": Shape(form=flag),
        "_meta": META,
    },
}
_COMPLETION: Final = {
    "values": _listing(lambda raw: [_as_text(raw)]),
    "total": Shape(form=_total),
    "hasMore": Shape(form=flag),
}
_RESULTS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "tools/call": {"content": _listing(lambda raw: [_block(raw)]), "isError": Shape(form=flag)},
    "prompts/get": {"messages": _listing(_messages), "description": TEXT},
    "resources/read": {},
    "completion/complete": {"completion": Shape(form=_completion, default=Raw(b'{"values":[]}'))},
}
_FIELD: Final = Shape(
    dict.fromkeys(
        ("title", "description", "default", "format", "enum", "enumNames", "oneOf", "minLength", "maxLength")
        + ("minimum", "maximum", "minItems", "maxItems"),
        PLAIN,
    ),
    is_needed=True,
)
_PREFERENCES: Final = dict.fromkeys(("costPriority", "speedPriority", "intelligencePriority"), PLAIN)
_ONLY_META: Final = {"_meta": Shape(empty=OBJECT)}
_PARAMS: Final[Mapping[str, Mapping[str, Shape]]] = {
    "notifications/message": {
        "level": Shape(form=_level, default=Raw(b'"info"')),
        "logger": Shape(form=_as_text),
        **_ONLY_META,
    },
    **dict.fromkeys(
        ("notifications/elicitation/complete", "notifications/resources/updated", "roots/list"), _ONLY_META
    ),
    "elicitation/create": {
        **dict.fromkeys(("mode", "elicitationId"), PLAIN),
        "requestedSchema": Shape({**SCHEMA, "properties": Shape(empty=OBJECT, form=_fields, is_needed=True)}),
        **_ONLY_META,
    },
    "sampling/createMessage": {
        **dict.fromkeys(("systemPrompt", "includeContext", "temperature"), PLAIN),
        "messages": Shape(
            items=Shape({"content": Shape(form=_sampled, is_needed=True), **_ONLY_META}),
            empty=LIST,
            is_needed=True,
        ),
        "modelPreferences": Shape(
            {"hints": Shape(items=Shape({"name": PLAIN}, empty=OBJECT), empty=LIST), **_PREFERENCES}, empty=OBJECT
        ),
        "stopSequences": Shape(empty=LIST),
        "metadata": Shape(empty=OBJECT),
        "tools": Shape(items=Shape(DEFINITIONS[Kind.TOOL]), empty=LIST),
        "toolChoice": Shape({"mode": PLAIN}, empty=OBJECT),
        **_ONLY_META,
    },
}
