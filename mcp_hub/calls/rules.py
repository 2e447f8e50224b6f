"""What is configured for the calls of one tool, as far as calls themselves are concerned."""

from typing import Literal

import msgspec

__all__ = ["CallRules"]


class CallRules(msgspec.Struct, frozen=True):
    """`task`: whether modern clients are answered with a task: when it takes long, always, only so, never.

    `orphan` is what becomes of a call whose client is gone: ended, finished, finished within so many seconds, or (None)
    what suits the tool. `idempotent`: a second identical call may join the first.
    """

    task: Literal["auto", "always", "required", "never"] = "auto"
    orphan: Literal["cancel", "finish"] | float | None = None
    idempotent: bool = False
