"""Lines that are not one readable message: several messages on one line, and stand-ins for unreadable answers.

Several are a batch (specification 2025-03-26, basic "Batching"; JSON-RPC 2.0 §6), or concatenated writes of threads. In
an answer to the hub's request for a list, unreadable values or definitions become `NOT_JSON`.
"""

import re
from itertools import chain, islice
from typing import Final

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.globs import late
from mcp_hub.protocol.capabilities import BY_LIST_METHOD, KINDS
from mcp_hub.protocol.jsonrpc.envelope import (
    MESSAGE,
    BadMessage,
    Envelope,
    begins_with_stray_text,
    decode,
    without_lone_surrogates,
)
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, PARSE_ERROR
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
_NUMBERS: Final = late(rb'"[^"]*"?|-?(?:NaN|Infinity)\b')
"""Strings, and outside of them what is taken for a number. These patterns are for text that is `flat`."""
_TOKEN: Final = late(rb'"[^"]*("?)|[\[\]{}]')
_SCALAR: Final = late(rb'"[^"]*"|[^\s"\[\]{},]+')
_QUOTE: Final = ord('"')
_CLOSING: Final = {b"{": b"}", b"[": b"]"}
_SPACE: Final = late(rb"\s*")
_decode_raw: Final = msgspec.json.Decoder(msgspec.Raw).decode


class Placeholder(Envelope):
    """The hub's error in place of an answer."""

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
    for match in _NUMBERS.finditer(flat(text)):
        if not match[0].startswith(b'"'):
            parts += (text[kept : match.start()], NOT_JSON)
            kept = match.end()
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
    spans: list[tuple[int, int]] = []
    tokens = _MOST_TOKENS
    start = _behind_space(line, at)
    if line[start : start + 1] == b"]":
        return spans
    while len(spans) < _MOST_ELEMENTS:
        if line[start : start + 1] in _CLOSING:
            end, tokens = _closing(line, start, tokens)
        elif (scalar := _SCALAR.match(line, start)) is not None:
            end = scalar.end()
        else:
            raise _Lost
        spans.append((start, end))
        separator = _behind_space(line, end)
        if line[separator : separator + 1] == b"]":
            return spans
        if line[separator : separator + 1] != b",":
            raise _Lost
        start = _behind_space(line, separator + 1)
    raise _Lost


def _closing(line: bytes, at: int, most: int) -> tuple[int, int]:
    """Raises `_Lost`."""
    open_ = bytearray(_CLOSING[line[at : at + 1]])
    for match in islice(_TOKEN.finditer(line, at + 1), most):
        most -= 1
        token = match[0]
        if token[0] == _QUOTE:
            if not match[1]:  # it does not end
                break
        elif token in _CLOSING:
            open_ += _CLOSING[token]
        elif open_.pop() != token[0]:
            break
        elif not open_:
            return match.end(), most
    raise _Lost


def _behind_space(line: bytes, at: int) -> int:
    space = _SPACE.match(line, at)
    return space.end() if space is not None else at


def _is_json(text: bytes) -> bool:
    try:
        _decode_raw(text)
        return True
    except (msgspec.DecodeError, RecursionError):
        return False


BATCHING: Final = frozenset({"2025-03-26"})
"""Versions in which an array is a message."""
_ARRAY: Final = late(rb"\s*\[")
_MOST: Final = 64
"""Messages that are taken from one line."""
_MOST_LISTED: Final = 128
"""Messages of one array: nobody else has a turn meanwhile."""
_MOST_STRAY: Final = 4
"""Ends of objects at which stray text may end."""
_WHOLE: Final = 1 << 20
"""Bytes of a line that is looked at all over."""
_LOOK: Final = 1 << 16
"""Bytes that are looked at, at either end of a longer one."""
_CUT: Final = late(rb"\}\s*(?=%b)" % MESSAGE)
"""Between two messages. Valid JSON holds no such thing: its strings have no quotes of their own."""

_decode_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_array(text: bytes) -> bool:
    return text[:1] != b"{" and _ARRAY.match(text) is not None


def parts(text: bytes, most: int) -> list[bytes]:
    """The encoded elements of an array.

    Raises `RpcError`: -32700 for invalid JSON, -32600 for none or more than `most`.
    """
    try:
        elements = _decode_array(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RpcError(f"malformed JSON: {problem}", code=PARSE_ERROR) from None
    if not elements:
        raise RpcError("invalid request: an empty array", code=INVALID_REQUEST)
    if len(elements) > most:
        raise RpcError(f"invalid request: over {most} messages in one array", code=INVALID_REQUEST)
    return [bytes(element) for element in elements]


def messages(text: bytes, most: int) -> list[Envelope | BadMessage]:
    """Raises `RpcError` like `parts`."""
    return [decode(part) for part in parts(text, most)]


def in_body(text: bytes, bad: BadMessage, id_: int) -> tuple[Envelope | BadMessage, list[bytes]]:
    """The answer in an array or lines, and all other messages; `bad` if unclear.

    The last answer counts, one with `id_` first.
    """
    try:
        encoded, unreadable = (parts(text, _MOST), None) if is_array(text) else several(text, bad)
    except RpcError:
        return bad, []
    if not encoded or unreadable is not None:
        return bad, []
    messages = [*map(decode, encoded)]
    answers = [(at, each.id_key) for at, each in enumerate(messages) if isinstance(each, Envelope) and each.is_answer]
    with_id = [(index, key) for index, key in answers if key == id_]
    chosen = [len(encoded) - 1, *(index for index, _ in (*answers, *with_id))][-1]
    return messages[chosen], encoded[:chosen] + encoded[chosen + 1 :]


def several(line: bytes, bad: BadMessage) -> tuple[list[bytes], tuple[BadMessage, bytes] | None]:
    """The messages of a line, and its unreadable rest with the reason."""
    parts: list[bytes] = []
    start, stray = 0, _MOST_STRAY if begins_with_stray_text(line) else 0
    for cut in _cuts(line):
        if not isinstance(decode(line[start:cut]), BadMessage):
            parts.append(line[start:cut])
            start, stray = cut, 0
        elif stray == 0:  # what follows may be a part of this
            break
        else:
            stray -= 1
    if not parts:
        return [], (bad, line)
    rest = line[start:]
    last = decode(rest)
    return (parts, (last, rest)) if isinstance(last, BadMessage) else ([*parts, rest], None)


def elements(line: bytes, bad: BadMessage) -> tuple[list[bytes], tuple[BadMessage, bytes] | None]:
    """`several`, or the messages of an array (specification 2025-03-26, basic "Batching")."""
    if bad.code != INVALID_REQUEST or not is_array(line):
        return several(line, bad)
    try:
        listed = parts(line, _MOST_LISTED)
    except RpcError:
        return [], (bad, line)
    return ([], (bad, line)) if any(map(is_array, listed)) else (listed, None)


def _cuts(line: bytes) -> list[int]:
    if len(line) <= _WHOLE:
        cuts = _CUT.finditer(line)
    else:
        cuts = chain(_CUT.finditer(line, 0, _LOOK), _CUT.finditer(line, len(line) - _LOOK))
    return [cut.end() for cut in islice(cuts, _MOST - 1)]
