"""JSON-RPC batches: an array of messages, which protocol version 2025-03-26 alone has.

Source: specification 2025-03-26, basic "Batching"; JSON-RPC 2.0 §6.
"""

import re
from typing import Final

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST, PARSE_ERROR

BATCHING: Final = frozenset({"2025-03-26"})
"""Versions in which an array is a message."""
_ARRAY: Final = re.compile(rb"\s*\[")
_decode: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode


def is_array(text: bytes) -> bool:
    """Whether it begins as an array; a message begins as an object."""
    return text[:1] != b"{" and _ARRAY.match(text) is not None


def parts(text: bytes, most: int) -> list[bytes]:
    """The elements of an array, still encoded.

    Raises `RpcError` -32700 for text that is not JSON, -32600 for an empty array and for one of more than `most`.
    """
    try:
        found = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RpcError(f"malformed JSON: {problem}", code=PARSE_ERROR) from None
    if not found:
        raise RpcError("invalid request: an empty array", code=INVALID_REQUEST)
    if len(found) > most:
        raise RpcError(f"invalid request: over {most} messages in one array (hub.limits.batch)", code=INVALID_REQUEST)
    return [bytes(part) for part in found]


def messages(text: bytes, most: int) -> list[Envelope | BadMessage]:
    """The messages of an array, each decoded as one of its own. Raises `RpcError` as `parts`."""
    return [envelope.decode(part) for part in parts(text, most)]
