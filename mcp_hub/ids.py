"""Unguessable ids: 26 random characters in Crockford base32; and keys of records."""

import os
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import chain
from typing import Final, cast

from mcp_hub.types import CallId

RandomBytes = Callable[[int], bytes]

_LENGTH: Final = 26
_REFILL: Final = _LENGTH * 256
_CROCKFORD: Final = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ" * 8
"""A character for every byte, equally likely: an id has 130 bits."""


def ids(random: RandomBytes) -> Iterator[str]:
    """Ids without end from random bytes."""
    return chain.from_iterable(_batches(random))


def _batches(random: RandomBytes) -> Iterator[list[str]]:
    while True:
        text = random(_REFILL).translate(_CROCKFORD).decode()
        yield [text[start : start + _LENGTH] for start in range(0, _REFILL, _LENGTH)]


_fresh: Final = ids(os.urandom)
new_call_id: Final = cast(Callable[[], CallId], map("st_".__add__, _fresh).__next__)
"""`st_` and an id, made without a function of Python: each call needs one."""


def new_session_id() -> str:
    """`se_` and an id, valid as `Mcp-Session-Id`."""
    return "se_" + next(_fresh)


def record_key(config: str, server: str) -> str:
    """The key of a record about a configuration, or one of its servers."""
    return sha256(f"{config}\0{server}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
