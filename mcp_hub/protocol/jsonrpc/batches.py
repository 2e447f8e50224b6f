"""Several messages on one line: a batch (2025-03-26), or concatenated writes of threads.

Source: specification 2025-03-26, basic "Batching"; JSON-RPC 2.0 §6.
"""

import re
from itertools import chain, islice
from typing import Final

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc.envelope import (
    MESSAGE,
    BadMessage,
    Envelope,
    begins_with_stray_text,
    decode,
)
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST, PARSE_ERROR

BATCHING: Final = frozenset({"2025-03-26"})
"""Versions in which an array is a message."""
_ARRAY: Final = re.compile(rb"\s*\[")
_MOST: Final = 64
"""Messages that are taken from one line."""
_MOST_STRAY: Final = 4
"""Ends of objects at which stray text may end."""
_WHOLE: Final = 1 << 20
"""Bytes of a line that is looked at all over."""
_LOOK: Final = 1 << 16
"""Bytes that are looked at, at either end of a longer one."""
_CUT: Final = re.compile(rb"\}\s*(?=%b)" % MESSAGE)
"""Between two messages. Valid JSON holds no such thing: its strings have no quotes of their own."""

_decode_array: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_array(text: bytes) -> bool:
    return text[:1] != b"{" and _ARRAY.match(text) is not None


def parts(text: bytes, most: int) -> list[bytes]:
    """The encoded elements of an array.

    Raises `RpcError`: -32700 for invalid JSON, -32600 for none or more than `most`.
    """
    try:
        found = _decode_array(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RpcError(f"malformed JSON: {problem}", code=PARSE_ERROR) from None
    if not found:
        raise RpcError("invalid request: an empty array", code=INVALID_REQUEST)
    if len(found) > most:
        raise RpcError(f"invalid request: over {most} messages in one array", code=INVALID_REQUEST)
    return [bytes(part) for part in found]


def messages(text: bytes, most: int) -> list[Envelope | BadMessage]:
    """Raises `RpcError` like `parts`."""
    return [decode(part) for part in parts(text, most)]


def in_body(text: bytes, bad: BadMessage, id_: int) -> tuple[Envelope | BadMessage, list[bytes]]:
    """The answer in a body of an array or lines, and all other messages; `bad` if unclear.

    The last answer counts, one with `id_` first.
    """
    try:
        found, rest = (parts(text, _MOST), None) if is_array(text) else several(text, bad)
    except RpcError:
        return bad, []
    if not found or rest is not None:
        return bad, []
    messages = [*map(decode, found)]
    answers = [(at, each.id_key) for at, each in enumerate(messages) if isinstance(each, Envelope) and each.is_answer]
    own = [(index, key) for index, key in answers if key == id_]
    place = [len(found) - 1, *(index for index, _ in (*answers, *own))][-1]
    return messages[place], found[:place] + found[place + 1 :]


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


def _cuts(line: bytes) -> list[int]:
    if len(line) <= _WHOLE:
        found = _CUT.finditer(line)
    else:
        found = chain(_CUT.finditer(line, 0, _LOOK), _CUT.finditer(line, len(line) - _LOOK))
    return [cut.end() for cut in islice(found, _MOST - 1)]
