"""Settings of calls and durable streams."""

from typing import Literal

import msgspec


class CallRules(msgspec.Struct, frozen=True):
    """`task`: whether modern clients are answered with a task: when it takes long, always, only so, never.

    `orphan` is what becomes of a call whose client is gone: ended, finished, finished within so many seconds, or (None)
    what suits the tool. `idempotent`: a second identical call may join the first.
    """

    task: Literal["auto", "always", "required", "never"] = "auto"
    orphan: Literal["cancel", "finish"] | float | None = None
    idempotent: bool = False


class CallLimits(msgspec.Struct, frozen=True):
    """Calls of one principal that run at once, and those that wait for their turn."""

    running: int
    waiting: int


class StreamLimits(msgspec.Struct, frozen=True):
    """`detached` calls of one principal that run without a client, `followers` of one stream.

    `retention` in seconds after the end.
    """

    detached: int = 64
    followers: int = 16
    retention: float = 86400.0


class TimeLimits(msgspec.Struct, frozen=True):
    """Seconds: `silence`, the longest an upstream may say nothing for a call; `total`, the longest a call may take.

    `setting` names what to raise where that silence is normal. `answer` is the longest a caller may leave a question
    open.
    """

    silence: float
    total: float
    setting: str = "timeout"
    answer: float = 600.0
