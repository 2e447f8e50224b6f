"""Several messages on one line: batches, and messages that threads which share a pipe wrote after one another.

A batch is an array, which protocol version 2025-03-26 alone has. Source: specification 2025-03-26, basic "Batching";
JSON-RPC 2.0 §6.
"""

import re
from itertools import chain, islice
from typing import Final

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc.envelope import MESSAGE, BadMessage, Envelope, begins_with_stray_text, decode
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST, PARSE_ERROR

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
    """Whether it begins as an array; a message begins as an object."""
    return text[:1] != b"{" and _ARRAY.match(text) is not None


def parts(text: bytes, most: int) -> list[bytes]:
    """The elements of an array, still encoded.

    Raises `RpcError` -32700 for text that is not JSON, -32600 for an empty array and for one of more than `most`.
    """
    try:
        found = _decode_array(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RpcError(f"malformed JSON: {problem}", code=PARSE_ERROR) from None
    if not found:
        raise RpcError("invalid request: an empty array", code=INVALID_REQUEST)
    if len(found) > most:
        raise RpcError(f"invalid request: over {most} messages in one array (hub.limits.batch)", code=INVALID_REQUEST)
    return [bytes(part) for part in found]


def messages(text: bytes, most: int) -> list[Envelope | BadMessage]:
    """The messages of an array, each decoded as one of its own. Raises `RpcError` as `parts`."""
    return [decode(part) for part in parts(text, most)]


def in_body(text: bytes) -> list[bytes]:
    """The messages of a body that should hold one: of an array, or of several lines on one; the text where unclear."""
    message = decode(text)
    if not isinstance(message, BadMessage):
        return [text]
    if is_array(text):
        try:
            return parts(text, _MOST)
        except RpcError:
            return [text]
    found, bad = several(text, message)
    return found if found and bad is None else [text]


def several(line: bytes, bad: BadMessage) -> tuple[list[bytes], tuple[BadMessage, bytes] | None]:
    """The messages of a line that is none as a whole, and its unreadable rest: why it cannot be read, and its bytes."""
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
