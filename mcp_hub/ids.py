"""Unguessable ids: 26 random characters in Crockford base32."""

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
"""A character for every byte, equally likely: an id has 130 bits."""


def ids(random: RandomBytes) -> Iterator[str]:
    """Ids without end from random bytes."""
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
    """`se_` and an id, valid as `Mcp-Session-Id`."""
    return "se_" + next(_fresh)
