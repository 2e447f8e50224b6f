"""Ids that cannot be guessed: 128 random bits each (reliability.md §4)."""

import base64
import os
from collections.abc import Callable
from typing import Final

from mcp_hub.types import CallId

__all__ = ["RandomBytes", "new_call_id", "new_session_id"]

RandomBytes = Callable[[int], bytes]

_CROCKFORD: Final = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", b"0123456789ABCDEFGHJKMNPQRSTVWXYZ")


def _crockford(random: RandomBytes) -> str:
    return base64.b32encode(random(16))[:26].translate(_CROCKFORD).decode()


def new_call_id(random: RandomBytes = os.urandom) -> CallId:
    """`st_` and 26 Crockford base32 characters (streams.md §1)."""
    return CallId("st_" + _crockford(random))


def new_session_id(random: RandomBytes = os.urandom) -> str:
    """`se_` and 26 Crockford base32 characters: visible ASCII, as `Mcp-Session-Id` must be."""
    return "se_" + _crockford(random)
