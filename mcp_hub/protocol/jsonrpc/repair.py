"""Stand-ins for unreadable answers to the hub's requests.

In a list, unreadable values or definitions become `NOT_JSON`.
"""

import re
from itertools import islice
from typing import Final

import msgspec

from mcp_hub.protocol.capabilities import BY_LIST_METHOD, KINDS
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, decode, without_lone_surrogates
from mcp_hub.protocol.jsonrpc.unparsed import flat

NOT_JSON: Final = b'"dev.mcp-hub/not-json"'
"""In place of a value that JSON does not have, or of a definition that cannot be read."""
_LARGEST: Final = 8 << 20
"""Bytes of a list that is repaired; a longer one would delay other messages."""
_MAX_REPAIRED: Final = 1 << 20
"""Bytes in all that are searched for parts that are not JSON."""
_MOST_ELEMENTS: Final = 1 << 15
_MOST_TOKENS: Final = 1 << 19
"""Strings and brackets of a list; to look at so many takes about 0.3 seconds."""
_NUMBERS: Final = re.compile(rb'"[^"]*"?|-?(?:NaN|Infinity)\b')
"""Strings, and outside of them what is taken for a number. These patterns are for text that is `flat`."""
_TOKEN: Final = re.compile(rb'"[^"]*("?)|[\[\]{}]')
_SCALAR: Final = re.compile(rb'"[^"]*"|[^\s"\[\]{},]+')
_QUOTE: Final = ord('"')
_CLOSING: Final = {b"{": b"}", b"[": b"]"}
_SPACE: Final = re.compile(rb"\s*")
_decode_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Placeholder(Envelope):
    """The hub's own error in place of an answer."""

    def __post_init__(self) -> None:
        self.kind, self.id_key = "error", None


class _Lost(Exception):
    """Element boundaries are unclear."""


def placeholder(bad: BadMessage, line: bytes, method: str) -> Envelope:
    """The repaired list, else a `Placeholder`."""
    kind = BY_LIST_METHOD.get(method)
    if kind is not None and len(line) <= _LARGEST:
        try:
            repaired = _with_fit_elements(line, KINDS[kind].result_key.encode())
        except _Lost:
            repaired = line
        message = decode(repaired)
        if isinstance(message, BadMessage) and len(repaired) <= _MAX_REPAIRED:
            message = decode(_with_numbers(repaired))
        if isinstance(message, Envelope) and message.kind == "result":
            return message
    error = {"code": bad.code, "message": bad.reason}
    return Placeholder(error=msgspec.Raw(msgspec.json.encode(error)))


def _with_numbers(text: bytes) -> bytes:
    if b"NaN" not in text and b"Infinity" not in text:
        return text
    parts: list[bytes] = []
    kept = 0
    for found in _NUMBERS.finditer(flat(text)):
        if not found[0].startswith(b'"'):
            parts += (text[kept : found.start()], NOT_JSON)
            kept = found.end()
    return b"".join((*parts, text[kept:]))


def _with_fit_elements(line: bytes, member: bytes) -> bytes:
    """Raises `_Lost`."""
    begin = re.compile(rb'"%b"\s*:\s*\[' % member).search(line, max(line.find(b'"result"'), 0))
    if begin is None:
        raise _Lost
    parts: list[bytes] = []
    kept, unread = 0, _MAX_REPAIRED
    for start, end in _elements(flat(line), begin.end()):
        element = line[start:end]
        if _is_json(element):
            continue
        unread -= len(element)
        repaired = without_lone_surrogates(_with_numbers(element)) if unread >= 0 else element
        if not _is_json(repaired):
            if element[:1] not in _CLOSING:  # what looks like no value may be the end of another
                raise _Lost
            repaired = NOT_JSON
        parts += (line[kept:start], repaired)
        kept = end
    return b"".join((*parts, line[kept:]))


def _elements(line: bytes, at: int) -> list[tuple[int, int]]:
    """Raises `_Lost`."""
    found: list[tuple[int, int]] = []
    tokens = _MOST_TOKENS
    start = _behind_space(line, at)
    if line[start : start + 1] == b"]":
        return found
    while len(found) < _MOST_ELEMENTS:
        if line[start : start + 1] in _CLOSING:
            end, tokens = _closing(line, start, tokens)
        elif (scalar := _SCALAR.match(line, start)) is not None:
            end = scalar.end()
        else:
            raise _Lost
        found.append((start, end))
        place = _behind_space(line, end)
        if line[place : place + 1] == b"]":
            return found
        if line[place : place + 1] != b",":
            raise _Lost
        start = _behind_space(line, place + 1)
    raise _Lost


def _closing(line: bytes, at: int, most: int) -> tuple[int, int]:
    """Raises `_Lost`."""
    open_ = bytearray(_CLOSING[line[at : at + 1]])
    for found in islice(_TOKEN.finditer(line, at + 1), most):
        most -= 1
        token = found[0]
        if token[0] == _QUOTE:
            if not found[1]:  # it does not end
                break
        elif token in _CLOSING:
            open_ += _CLOSING[token]
        elif open_.pop() != token[0]:
            break
        elif not open_:
            return found.end(), most
    raise _Lost


def _behind_space(line: bytes, at: int) -> int:
    found = _SPACE.match(line, at)
    return found.end() if found is not None else at


def _is_json(text: bytes) -> bool:
    try:
        _decode_raw(text)
        return True
    except (msgspec.DecodeError, RecursionError):
        return False
