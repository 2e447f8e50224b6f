"""Results of tools as values of a script, and its output as a result. Pure."""

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Final, TypeVar

import msgspec

from mcp_hub.code.steps import CodeRaise
from mcp_hub.globs import late
from mcp_hub.masking import hide_head
from mcp_hub.types import JsonObject, RawJson, RawObject

_T = TypeVar("_T")

_DEPTH: Final = 64
_MEDIA: Final = frozenset(("mime", "size", "handle"))
_HANDLE: Final = "media "
_BEGIN: Final = b'"media '
_MOST_ERROR: Final = 64 << 10
_MOST_COST: Final = 64 << 20
_COST: Final = 64
_LONG: Final = 64 << 10
_FUNCTION: Final = late(r"<(?:function|bound method|coroutine|generator)\b.{0,200}>")
"""The engine gives what it cannot hand out as such a text."""
_MISSING: Final = "not kept: the script has continued at another hub, or its media have more than 16 MiB"
TOO_LARGE: Final = "the result has a number that is too large"
_ERROR: Final = "the tool failed and gave no text"


def value_of(result: RawJson, call: str) -> RawJson | CodeRaise:
    """The value of a tool's result, or the exception of one with `isError`. `call` begins the handles of its media.

    `structuredContent`; else each part of `content`: a text that is JSON as a whole is its value, media are an object
    that can only be returned. Several parts are a list.
    """
    members = _members(result)
    if members is None:
        return result
    parts = _as(members.get("content"), list[msgspec.Raw]) or []
    if bytes(members.get("isError", b"false")) not in (b"false", b"null"):
        reason = "\n".join(filter(None, map(_text, map(_members, parts))))
        return CodeRaise("ToolError", hide_head(reason, _MOST_ERROR, "…") or _ERROR)
    structured = bytes(members.get("structuredContent", b"null"))
    if structured == b"null":
        values = [_part(part, f"{_HANDLE}{call}.{index}") for index, part in enumerate(parts)]
        structured = bytes(values[0]) if len(values) == 1 else msgspec.json.encode(values or None)
    if cost(structured) > _MOST_COST:
        reason = f"the result has {len(structured)} bytes, more than a script can take. Ask the tool for less"
        return CodeRaise("ToolError", reason)
    return structured if _is_value(structured) else CodeRaise("ToolError", TOO_LARGE)


def cost(encoded: bytes) -> int:
    """About a value's bytes in our memory; a list of nothing has twenty times its text."""
    if encoded.lstrip()[:1] not in (b"[", b"{"):
        return len(encoded)
    return len(encoded) + _COST * sum(encoded.count(sign) for sign in (b",", b":", b"[", b"{"))


def _is_value(encoded: bytes) -> bool:
    """Whether it can be decoded; of a long one, whether it is JSON."""
    try:
        msgspec.json.decode(encoded, type=object if len(encoded) < _LONG else msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def _members(encoded: RawJson) -> RawObject | None:
    return _as(encoded, dict[str, msgspec.Raw])


def _as(encoded: RawJson | None, type_: type[_T]) -> _T | None:
    try:
        return None if encoded is None else msgspec.json.decode(encoded, type=type_)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def has_media(value: RawJson) -> bool:
    """Whether a value of `value_of` has handles, or looks like that."""
    return _BEGIN in bytes(value)


def handle_parts(handle: str) -> tuple[str, int] | None:
    """The call and the index of the block that a handle stands for."""
    call, dot, index = handle.removeprefix(_HANDLE).rpartition(".")
    return (call, int(index)) if handle.startswith(_HANDLE) and dot and index.isdecimal() and len(index) < 6 else None


def result_of(output: RawJson, block: Callable[[str], RawJson | None], printed: str = "") -> RawJson:
    """The result of a script that gave `output` after it had `printed`.

    `block` gives a handle's part of `content`.
    """
    if not has_media(output):
        return _plain_result(bytes(output), printed)
    value = msgspec.json.decode(output)
    blocks: list[msgspec.Raw] = []
    remaining = _replaced(value, block, blocks)
    result: JsonObject = {"content": [{"type": "text", "text": printed}] if printed else []}
    items = value if isinstance(value, list) else [value]
    is_only_media = blocks and len(blocks) == len(items) and all(map(_is_media, items))
    if not is_only_media and value is not None:
        text = remaining if isinstance(remaining, str) else msgspec.json.encode(remaining).decode()
        result["content"].append({"type": "text", "text": text})
    result["content"] += blocks
    if isinstance(remaining, dict) and not is_only_media:
        result["structuredContent"] = remaining
    return msgspec.json.encode(result)


def _plain_result(output: bytes, printed: str) -> bytes:
    """The result of an output without media."""
    result: JsonObject = {"content": [{"type": "text", "text": printed}] if printed else []}
    if output != b"null":
        text = msgspec.json.decode(output, type=str) if output[:1] == b'"' else output.decode()
        result["content"].append({"type": "text", "text": text})
    if output[:1] == b"{":
        result["structuredContent"] = msgspec.Raw(output)
    return msgspec.json.encode(result)


def checked_arguments(name: str, arguments: JsonObject, used: int, limit: int) -> bytes:
    """The arguments of a call, `used` bytes of the limit being those beside it.

    Raises `ValueError` that says which argument is not JSON, or what is too long.
    """
    sizes = _Sizes(limit - used, f"the arguments of {name}() and the calls beside it are longer than {limit} bytes")
    total = sum(len(key) + sizes.of(value, f"{name}(): {key}", 0) for key, value in arguments.items())
    sizes.checked(total)
    return msgspec.json.encode(arguments)


def encoded_output(value: object, limit: int) -> bytes:
    """The output of a script; what is not JSON is given as near to it as there is. Raises `ValueError` over `limit`."""
    message = f"the output of the script is longer than {limit} bytes"
    try:
        _Sizes(limit, message, is_sent=False).of(value, "", 0)
    except _NotJson:
        value = _Plain(limit, message).of(value, 0)
        _Sizes(limit, message, is_sent=False).of(value, "", 0)
    encoded = msgspec.json.encode(value)
    if len(encoded) > limit:
        raise ValueError(message)
    return encoded


class _NotJson(ValueError):
    pass


class _Sizes:
    """At least so many bytes, of values that are JSON. An object that occurs often is looked at once."""

    def __init__(self, limit: int, message: str, *, is_sent: bool = True) -> None:
        self._limit = limit
        self._message = message
        self._is_sent = is_sent
        self._sizes: dict[int, int] = {}

    def checked(self, size: int) -> int:
        if size > self._limit:
            raise ValueError(self._message)
        return size

    def of(self, value: object, path: str, depth: int) -> int:
        if isinstance(value, list | tuple | dict):
            size = self._sizes.get(id(value))
            if size is None:
                self._sizes[id(value)] = size = self.checked(self._of_container(value, path, depth))
            return size
        if isinstance(value, str):
            if self._is_sent and _FUNCTION.fullmatch(value):
                raise _NotJson(f"{path} is a function or coroutine, which is not JSON")
            return self.checked(len(value) + 2)
        if isinstance(value, float) and not math.isfinite(value):
            raise _NotJson(f"{path} is {value}, which is not JSON")
        if value is not None and not isinstance(value, int | float):
            raise _NotJson(f"{path} is of type {type(value).__name__}, which is not JSON")
        return self.checked(value.bit_length() // 4 if isinstance(value, int) else 1)

    def _of_container(
        self, value: list[object] | tuple[object, ...] | dict[object, object], path: str, depth: int
    ) -> int:
        if depth > _DEPTH:
            raise _NotJson(f"{path} is nested deeper than {_DEPTH} levels")
        if self._is_sent and _is_media(value):
            raise _NotJson(f"{path} is an object with the handle of a block, which can only be returned")
        size = 1
        if not isinstance(value, dict):
            for index, item in enumerate(value):
                size = self.checked(size + 1 + self.of(item, f"{path}[{index}]", depth + 1))
            return size
        for key, item in value.items():
            if not isinstance(key, str):
                raise _NotJson(f"{path} has a key of type {type(key).__name__}, which is not JSON")
            size = self.checked(size + len(key) + 4) + self.of(item, f"{path}[{hide_head(key, 40)!r}]", depth + 1)
        return size


class _Plain:
    """Values as JSON. A repeated object is made plain once."""

    def __init__(self, limit: int, message: str) -> None:
        self._remaining = limit // 2  # of a list each value takes two bytes
        self._message = message
        self._plain: dict[int, tuple[object, object]] = {}
        """By id, with the value itself, so that its id is not another's."""

    def of(self, value: object, depth: int) -> object:
        if value is None or isinstance(value, str | int):
            return value
        if depth > _DEPTH:
            return "…"
        if id(value) not in self._plain:
            self._plain[id(value)] = value, self._of_container(value, depth)
        return self._plain[id(value)][1]

    def _of_container(self, value: object, depth: int) -> object:
        if isinstance(value, list | tuple | set | frozenset):
            self._spend(len(value))
            return [self.of(item, depth + 1) for item in value]
        if not isinstance(value, dict):
            attributes = getattr(value, "attributes", None)  # of a class of the script
            if not isinstance(attributes, dict):
                return _plain_scalar(value)
            value = attributes
        self._spend(len(value))
        return {_key(key): self.of(item, depth + 1) for key, item in value.items()}

    def _spend(self, values: int) -> None:
        self._remaining -= values
        if self._remaining < 0:
            raise ValueError(self._message)


def _plain_scalar(value: object) -> object:
    match value:
        case float():
            return value if math.isfinite(value) else str(value)
        case datetime.date() | datetime.time():
            return value.isoformat()
        case bytes():
            return value.decode(errors="replace")
        case Decimal() | datetime.timedelta():
            return str(value)
        case BaseException():
            return f"{type(value).__name__}: {value}"
        case _:
            return f"<{type(value).__name__}>"


def _key(key: object) -> str:
    match key:
        case str():
            return key
        case None | bool():
            return msgspec.json.encode(key).decode()
        case int() | float():
            return str(key)
        case _:
            return hide_head(repr(key), 200)


def _part(part: msgspec.Raw, handle: str) -> msgspec.Raw:
    """The value of a block."""
    members = _members(part)
    if members is None:
        return part
    if (text := _text(members)) is not None:
        encoded = text.encode()
        is_json = cost(encoded) <= _MOST_COST and _is_value(encoded)
        return msgspec.Raw(encoded if is_json else msgspec.json.encode(text))
    source = _members(members.get("resource", b"null")) or members
    size = _as(source.get("size"), int)
    if (data := _as(source.get("blob", source.get("data")), str)) is not None:
        size = len(data) * 3 // 4 - data[-2:].count("=")
    mime = _as(source.get("mimeType"), str) or "application/octet-stream"
    return msgspec.Raw(msgspec.json.encode({"mime": mime, "size": size or 0, "handle": handle}))


def _text(members: RawObject | None) -> str | None:
    """The text of a block that has one."""
    is_resource = members is not None and _as(members.get("type"), str) == "resource"
    source = _members((members or {}).get("resource", b"null")) if is_resource else members
    return None if source is None else _as(source.get("text"), str)


def _is_media(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == _MEDIA and str(value["handle"]).startswith(_HANDLE)


def _replaced(value: object, block: Callable[[str], RawJson | None], blocks: list[msgspec.Raw]) -> object:
    """`value` without handles; their blocks are added to `blocks`, and it says which are not kept."""
    if isinstance(value, list):
        return [_replaced(item, block, blocks) for item in value]
    if not isinstance(value, dict):
        return value
    if not _is_media(value):
        return {key: _replaced(item, block, blocks) for key, item in value.items()}
    facts = {"mime": value["mime"], "size": value["size"]}
    encoded = block(str(value["handle"]))
    if encoded is None:
        return {**facts, "missing": _MISSING}
    blocks.append(msgspec.Raw(bytes(encoded)))
    return facts
