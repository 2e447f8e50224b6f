"""Projections: the fields of a result that a path selects. Pure.

The path is for structured content, else for the only text, if that is JSON. Errors are never projected. Texts left out
are kept; other blocks stay.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from mcp_hub.errors import InvalidParams
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object, read_as
from mcp_hub.selection.engine import has_too_many, select
from mcp_hub.stores.documents import document_id
from mcp_hub.types import RawJson, RawObject, plural

WHOLE: Final = "dev.mcp-hub/whole"
"""The member of a result's `_meta` with the id of the whole."""
MOST_PROJECTED: Final = 32 << 20
"""Bytes of JSON that a path is used on."""
_SHOWN: Final = 100
_blocks = msgspec.json.Decoder(list[msgspec.Raw] | None).decode


class _Block(msgspec.Struct):
    type: str = ""
    text: str | None = None


class _Source(msgspec.Struct, frozen=True):
    """The JSON that a path is for. `texts`: blocks with other words; `blocks`: pictures and the like."""

    body: bytes
    texts: Sequence[msgspec.Raw]
    blocks: Sequence[msgspec.Raw]


class _Projection(msgspec.Struct, frozen=True):
    """A projected result: `selected` is JSON, or None, and `note` says why. `documents` are to be kept."""

    members: RawObject
    source: _Source
    path: str
    selected: bytes | None
    note: str

    @property
    def documents(self) -> tuple[bytes, ...]:
        texts = self.source.texts
        return (self.source.body, *((b"[" + b",\n".join(texts) + b"]",) if texts else ()))

    @property
    def _label(self) -> str:
        return f"path {hide_head(self.path, _SHOWN)!r}"

    def encoded(self, *, is_kept: bool, is_told: bool) -> bytes:
        """The result; a note says where the whole is kept if the client `is_told`. A whole that was not kept, and in
        which nothing is selected, is passed on.
        """
        if not is_kept and self.selected in (None, b"[]"):
            return _noted(self.members, f"{self._label}: {self.note}; this is the whole, which cannot be kept")
        ids = [document_id(body) for body in self.documents] if is_kept else []
        note = self.note
        if ids and (is_told or self.selected is None):
            note += f"; the whole ({len(self.source.body)} bytes): read_result id={ids[0]}"
            note += f", its texts: id={ids[1]}" if len(ids) > 1 else ""
        shows_note = is_told or self.selected in (None, b"[]")
        texts = [] if self.selected is None else [_text(self.selected.decode())]
        notes = [_text(f"[{self._label}: {note}]")] if shows_note else []
        members = {name: value for name, value in self.members.items() if name != "structuredContent"}
        if ids:
            meta = raw_object(members.get("_meta", msgspec.UNSET)) or {}
            members["_meta"] = _raw({**meta, WHOLE: ids[0]})
        return object_bytes({**members, "content": _raw([*texts, *self.source.blocks, *notes])})


def projected(result: RawJson, path: str, is_over: Callable[[], bool]) -> _Projection | bytes | None:
    """None for errors and questions; the result with a note if it has no JSON."""
    members = raw_object(msgspec.Raw(bytes(result)))
    if members is None or _is_error(members) or not _is_complete(members):
        return None
    try:
        items = _blocks(members.get("content", b"[]")) or []
    except (msgspec.DecodeError, RecursionError):
        return None
    source = _source(members, items)
    if isinstance(source, str):
        return _noted(members, f"path {hide_head(path, _SHOWN)!r} is not used: {source}")
    if len(source.body) > MOST_PROJECTED:
        note = f"the result is larger than {MOST_PROJECTED} bytes, so nothing is selected"
        return _Projection(members=members, source=source, path=path, selected=None, note=note)
    try:
        selection = select(source.body, path, is_over)
    except InvalidParams as problem:
        return _Projection(members=members, source=source, path=path, selected=None, note=str(problem))
    values, note = selection.values, selection.reason or f"{plural(len(selection.values), 'value')}"
    selected = b"[" + b",".join(values) + b"]" if not selection.is_single else values[0] if values else None
    return _Projection(members=members, source=source, path=path, selected=selected, note=note)


def _noted(members: RawObject, note: str) -> bytes:
    items = _blocks(members.get("content", b"[]")) or []
    return object_bytes({**members, "content": _raw([*items, _text(f"[{note}]")])})


def _is_error(members: RawObject) -> bool:
    """Also where it is not a boolean: clients read 1 and "true" as true."""
    return members.get("isError", msgspec.Raw(b"false")) not in (msgspec.Raw(b"false"), msgspec.Raw(b"null"))


def _is_complete(members: RawObject) -> bool:
    return members.get("resultType", msgspec.Raw(b'"complete"')) == msgspec.Raw(b'"complete"')


def _source(members: RawObject, items: Sequence[msgspec.Raw]) -> _Source | str:
    read = [(item, read_as(item, _Block)) for item in items]
    texts = [
        (item, block.text)
        for item, block in read
        if block is not None and block.type == "text" and block.text is not None
    ]
    blocks = [item for item, block in read if block is None or block.type != "text" or block.text is None]
    structured = members.get("structuredContent")
    if structured is not None and structured != msgspec.Raw(b"null"):
        body = bytes(structured)
        return _Source(body, _others(texts, body), blocks)
    if len(texts) != 1:
        return f"the result has no structuredContent, and {plural(len(texts), 'text')}, not one"
    body = texts[0][1].encode()
    try:
        if _is_large(body):  # it is not read, here or later
            return _Source(body, (), blocks)
        msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return "the result has no structuredContent, and its text is not JSON"
    return _Source(body, (), blocks)


def _others(texts: Sequence[tuple[msgspec.Raw, str]], body: bytes) -> Sequence[msgspec.Raw]:
    """Texts that do not say the same as the structured content `body`, which is read once for all of them."""
    try:
        if _is_large(body):
            return [item for item, _ in texts]
        value = msgspec.json.decode(body)
        return [item for item, text in texts if not _is_same(text, value)]
    except (msgspec.DecodeError, RecursionError):
        return [item for item, _ in texts]


def _is_same(text: str, value: object) -> bool:
    try:
        encoded = text.encode()
        return not _is_large(encoded) and bool(msgspec.json.decode(encoded) == value)
    except (msgspec.DecodeError, RecursionError):
        return False


def _is_large(body: bytes) -> bool:
    return len(body) > MOST_PROJECTED or has_too_many(body)


def _text(text: str) -> msgspec.Raw:
    return _raw({"type": "text", "text": text})


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(object_bytes(value))
