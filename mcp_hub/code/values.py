"""Results of tools as values of a script, and its output as a result. Pure."""

import datetime
import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import msgspec

from mcp_hub.code.engine import CodeRaise
from mcp_hub.types import JsonObject, RawJson

_DEPTH: Final = 64
_MEDIA: Final = frozenset(("mime", "size", "handle"))
_HANDLE: Final = "media "
_FUNCTION: Final = re.compile(r"<(?:function|bound method|coroutine|generator)\b.{0,200}>")
"""The engine gives what it cannot hand out as such a text."""
_ERROR: Final = "the tool failed and gave no text"


def value_of(result: RawJson, call: str) -> RawJson | CodeRaise:
    """The value of a tool's result, or the exception of one with `isError`. `call` begins the handles of its media.

    `structuredContent`; else each part of `content`: a text that is JSON as a whole is its value, media are an object
    that can only be returned. Several parts are a list.
    """
    members: Any = msgspec.json.decode(result)
    if not isinstance(members, dict):
        return result
    content = members.get("content")
    parts = content if isinstance(content, list) else []
    if members.get("isError"):
        return CodeRaise("ToolError", "\n".join(filter(None, map(_text, parts))) or _ERROR)
    if members.get("structuredContent") is not None:
        return msgspec.json.encode(members["structuredContent"])
    values = [_part(part, f"{_HANDLE}{call}.{index}") for index, part in enumerate(parts)]
    return msgspec.json.encode(values[0] if len(values) == 1 else values or None)


def handle_parts(handle: str) -> tuple[str, int] | None:
    """The call and the index of the block that a handle stands for."""
    call, dot, index = handle.removeprefix(_HANDLE).rpartition(".")
    return (call, int(index)) if handle.startswith(_HANDLE) and dot and index.isdecimal() and len(index) < 6 else None


def result_of(output: RawJson, block: Callable[[str], RawJson | None]) -> RawJson:
    """The result of a script that gave `output`. `block` gives the part of `content` that a handle stands for."""
    value: Any = msgspec.json.decode(output)
    blocks: list[msgspec.Raw] = []
    remaining = _replaced(value, block, blocks)
    result: JsonObject = {"content": []}
    is_only_media = blocks and (_is_media(value) or (isinstance(value, list) and all(map(_is_media, value))))
    if not is_only_media and value is not None:
        text = remaining if isinstance(remaining, str) else msgspec.json.encode(remaining).decode()
        result["content"].append({"type": "text", "text": text})
    result["content"] += blocks
    if isinstance(remaining, dict) and not is_only_media:
        result["structuredContent"] = remaining
    return msgspec.json.encode(result)


def checked_arguments(name: str, arguments: dict[str, Any], limit: int) -> bytes:
    """The arguments of a call. Raises `ValueError` that says which one is not JSON, or what is too long."""
    budget = _Budget(limit, f"the arguments of {name}() and the calls beside it are longer than {limit} bytes")
    for key, value in arguments.items():
        budget.spend(len(key))
        _check(value, f"{name}(): {key}", budget, 0)
    return msgspec.json.encode(arguments)


def encoded_output(value: object, limit: int) -> bytes:
    """The output of a script; what is not JSON is given as near to it as there is. Raises `ValueError` over `limit`."""
    budget = _Budget(limit, f"the output of the script is longer than {limit} bytes")
    encoded = msgspec.json.encode(_plain(value, budget, 0))
    if len(encoded) > limit:
        raise ValueError(budget.message)
    return encoded


class _Budget:
    def __init__(self, remaining: int, message: str) -> None:
        self.remaining = remaining
        self.message = message

    def spend(self, size: int) -> None:
        """Each value costs; one object may occur in a script's value any number of times."""
        self.remaining -= size + 1
        if self.remaining < 0:
            raise ValueError(self.message)


def _check(value: object, path: str, budget: _Budget, depth: int) -> None:
    budget.spend(_size(value))
    if depth > _DEPTH:
        raise ValueError(f"{path} is nested deeper than {_DEPTH} levels")
    if isinstance(value, dict):
        _check_object(value, path, budget, depth)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{path}[{index}]", budget, depth + 1)
    elif isinstance(value, str) and _FUNCTION.fullmatch(value):
        raise ValueError(f"{path} is a function or coroutine, which is not JSON")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path} is {value}, which is not JSON")
    elif value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"{path} is of type {type(value).__name__}, which is not JSON")


def _check_object(value: dict[object, object], path: str, budget: _Budget, depth: int) -> None:
    if _is_media(value):
        raise ValueError(f"{path} is {value['mime']}, which can only be returned")
    for key, item in value.items():
        if not isinstance(key, str):
            raise ValueError(f"{path} has a key of type {type(key).__name__}, which is not JSON")
        budget.spend(len(key))
        _check(item, f"{path}[{key[:40]!r}]", budget, depth + 1)


def _size(value: object) -> int:
    match value:
        case str() | bytes():
            return len(value)
        case int():
            return value.bit_length() // 3
        case _:
            return 0


def _plain(value: object, budget: _Budget, depth: int) -> object:
    budget.spend(_size(value))
    if depth > _DEPTH:
        return "…"
    match value:
        case None | bool() | str() | int():
            return value
        case list() | tuple() | set() | frozenset():
            return [_plain(item, budget, depth + 1) for item in value]
        case dict():
            keys = [_key(key) for key in value]
            budget.spend(sum(map(len, keys)))
            return dict(zip(keys, (_plain(item, budget, depth + 1) for item in value.values()), strict=True))
    attributes = getattr(value, "attributes", None)  # of a class of the script
    if isinstance(attributes, dict):
        return _plain(attributes, budget, depth + 1)
    text = _plain_scalar(value)
    budget.spend(len(text) if isinstance(text, str) else 0)
    return text


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
            return repr(key)[:200]


def _part(part: object, handle: str) -> object:
    """The value of a block."""
    if not isinstance(part, dict):
        return part
    text = _text(part)
    if text is not None:
        try:
            return msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return text
    resource = part.get("resource")
    source = resource if isinstance(resource, dict) else part
    mime, size = source.get("mimeType"), source.get("size")
    data = source.get("blob", source.get("data"))
    if isinstance(data, str):
        size = len(data) * 3 // 4 - data[-2:].count("=")
    return {
        "mime": mime if isinstance(mime, str) else "application/octet-stream",
        "size": size if isinstance(size, int) else 0,
        "handle": handle,
    }


def _text(part: object) -> str | None:
    """The text of a block that has one."""
    if not isinstance(part, dict):
        return None
    source = part.get("resource") if part.get("type") == "resource" else part
    text = source.get("text") if isinstance(source, dict) else None
    return text if isinstance(text, str) else None


def _is_media(value: object) -> bool:
    return isinstance(value, dict) and value.keys() == _MEDIA and str(value["handle"]).startswith(_HANDLE)


def _replaced(value: Any, block: Callable[[str], RawJson | None], blocks: list[msgspec.Raw]) -> Any:
    """`value` without handles; their blocks are added to `blocks`."""
    if isinstance(value, list):
        return [_replaced(item, block, blocks) for item in value]
    if not isinstance(value, dict):
        return value
    if not _is_media(value):
        return {key: _replaced(item, block, blocks) for key, item in value.items()}
    encoded = block(str(value["handle"]))
    if encoded is not None:
        blocks.append(msgspec.Raw(bytes(encoded)))
    return {"mime": value["mime"], "size": value["size"]}
