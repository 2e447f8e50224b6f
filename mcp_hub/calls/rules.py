"""Settings of calls and durable streams."""

from typing import Literal

import msgspec

from mcp_hub.call import People
from mcp_hub.calls.retries import RetryRule


class CallRules(msgspec.Struct, frozen=True):
    """One tool's rules. `task`: modern clients get a task if the call is slow, always, as the only way, or never.

    `orphan`: a call without client is cancelled, finished, or continued for so many seconds; None: as suits the tool.
    `idempotent`: equal calls may be joined and retried. `keeps_state`: a `requestState` needs its present process.
    """

    task: Literal["auto", "always", "required", "never"] = "auto"
    orphan: Literal["cancel", "finish"] | float | None = None
    idempotent: bool = False
    retry: RetryRule = RetryRule()
    keeps_state: bool = False


class CallLimits(msgspec.Struct, frozen=True):
    """One principal's running and waiting calls."""

    running: int
    waiting: int


class StreamLimits(msgspec.Struct, frozen=True):
    """`detached` calls per principal, `followers` per stream, `retention` in seconds after the end."""

    detached: int = 64
    followers: int = 16
    retention: float = 86400.0


class TimeLimits(msgspec.Struct, frozen=True):
    """Seconds: `silence` of an upstream, `total` of a call, `answer` to a question. `setting` is the key of silence."""

    silence: float
    total: float
    setting: str = "timeout"
    answer: float = 600.0


class SessionRules:
    """Settings of all sessions; a new `epoch` renews what they derive. `task_after` in seconds."""

    __slots__ = ("epoch", "page_size", "people", "task_after")

    def __init__(self, page_size: int, task_after: float = 5.0, people: People | None = None) -> None:
        self.people = people
        self.page_size = page_size
        self.task_after = task_after
        self.epoch = 0

    def use(self, page_size: int, task_after: float, *, look_again: bool) -> None:
        """Changes settings; sessions derive theirs again if `look_again`."""
        self.page_size, self.task_after = page_size, task_after
        self.epoch += look_again
