"""For how long a call goes on whose client is gone. Source: streams.md §3, "Orphan policy". Pure."""

import math
from typing import Final, Literal

__all__ = ["DETACHED", "patience"]

DETACHED: Final = 3600.0
_READ_ONLY: Final = 30.0
_OTHERS: Final = 600.0
"""Seconds that a call may go on without a client: one that was meant to, one that only reads, any other."""


def patience(policy: Literal["cancel", "finish"] | float | None, *, is_detached: bool, is_read_only: bool) -> float:
    """Seconds, infinity for a call that is to finish. `cancel` holds for calls that are not detached alone."""
    if policy is None or policy == "cancel":
        return DETACHED if is_detached else _READ_ONLY if is_read_only else _OTHERS
    return math.inf if policy == "finish" else policy
