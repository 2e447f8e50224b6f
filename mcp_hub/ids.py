"""Ids that cannot be guessed: 26 Crockford base32 characters of the system's randomness.

A refill makes 256 at once: one by one, asking the system would cost a tenth of a short call.
"""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final

from mcp_hub.types import CallId

RandomBytes = Callable[[int], bytes]

_LENGTH: Final = 26
_REFILL: Final = _LENGTH * 256
_POOL: Final = 256
_CROCKFORD: Final = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ" * 8
"""A character for every byte, each as likely as any other: an id holds 130 bits."""


def ids(random: RandomBytes) -> Iterator[str]:
    """Endless ids from a source of random bytes."""
    while True:
        text = random(_REFILL).translate(_CROCKFORD).decode()
        for start in range(0, _REFILL, _LENGTH):
            yield text[start : start + _LENGTH]


_fresh: Final = ids(os.urandom)
_pool: Final[list[str]] = []


def new_call_id() -> CallId:
    """`st_` and an id."""
    if not _pool:
        _pool.extend(islice(_fresh, _POOL))
    return CallId("st_" + _pool.pop())


def new_session_id() -> str:
    """`se_` and an id: visible ASCII, as `Mcp-Session-Id` must be."""
    return "se_" + next(_fresh)
