"""Settings of calls and durable streams."""

from typing import Literal

import msgspec

from mcp_hub.call import People
from mcp_hub.calls.retries import RetryRule


class CallRules(msgspec.Struct, frozen=True):
    """`task`: whether modern clients are answered with a task: when it takes long, always, only so, never.

    `orphan` is what becomes of a call whose client is gone: ended, finished, finished within so many seconds, or (None)
    what suits the tool. `idempotent`: a second identical call may join the first, and one that failed may be made
    again (`retry`). `keeps_state`: a `requestState` of the server is good for one process of it, which this hub has.
    """

    task: Literal["auto", "always", "required", "never"] = "auto"
    orphan: Literal["cancel", "finish"] | float | None = None
    idempotent: bool = False
    retry: RetryRule = RetryRule()
    keeps_state: bool = False


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


class SessionRules:
    """Settings of all sessions: the entries of one list page, and `task_after`, the seconds that the call of a client
    that takes tasks may run before it becomes one. `epoch` goes up when sessions have to look again. `people` answer
    questions in place of clients that cannot be asked.
    """

    __slots__ = ("epoch", "page_size", "people", "task_after")

    def __init__(self, page_size: int, task_after: float = 5.0, people: People | None = None) -> None:
        self.people = people
        self.page_size = page_size
        self.task_after = task_after
        self.epoch = 0

    def use(self, page_size: int, task_after: float, *, look_again: bool) -> None:
        """Other settings hold from now on; sessions `look_again` at all that they have derived from settings."""
        self.page_size, self.task_after = page_size, task_after
        self.epoch += look_again
