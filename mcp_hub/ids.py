"""Ids that cannot be guessed: 26 Crockford base32 characters of the system's randomness (reliability.md §4).

A refill makes 256 at once: one by one, asking the system would cost a tenth of a short call.
"""

import base64
import os
from collections.abc import Callable, Iterator
from typing import Final

from mcp_hub.types import CallId

__all__ = ["RandomBytes", "ids", "new_call_id", "new_session_id"]

RandomBytes = Callable[[int], bytes]

_CROCKFORD: Final = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")
_LENGTH: Final = 26
_REFILL: Final = 130 * 32
"""Bytes of 256 ids: 130 bits each, a multiple of the 40 bits that base32 takes at a time."""


def ids(random: RandomBytes) -> Iterator[str]:
    """Endless ids from a source of random bytes."""
    while True:
        text = base64.b32encode(random(_REFILL)).translate(_CROCKFORD).decode()
        for start in range(0, len(text), _LENGTH):
            yield text[start : start + _LENGTH]


_fresh: Final = ids(os.urandom)


def new_call_id() -> CallId:
    """`st_` and an id (streams.md §1)."""
    return CallId("st_" + next(_fresh))


def new_session_id() -> str:
    """`se_` and an id: visible ASCII, as `Mcp-Session-Id` must be."""
    return "se_" + next(_fresh)
