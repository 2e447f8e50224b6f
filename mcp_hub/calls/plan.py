"""The plan of a call before it starts, and the states that it can be in."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

import msgspec

from mcp_hub.call import Call, CallHandler, Upstream
from mcp_hub.calls.retries import Retries
from mcp_hub.events import Completed, Progressed
from mcp_hub.types import RawJson

Truncate = Callable[[Call, Completed], Awaitable[Completed]]
"""Makes what stands for a result that is too long."""


class CallState(Enum):
    """State of a call."""

    WAITING = "waiting"
    """For its turn in the registry."""
    SENT = "sent"
    """The request is written; the answer is taken in place."""
    STARTING = "starting"
    """Its task is about to run."""
    TASK = "task"
    """A handler runs."""
    ENDED = "ended"


ENDED: Final = CallState.ENDED
SENT: Final = CallState.SENT


class ResumePoint(msgspec.Struct, frozen=True, gc=False):
    """All that another hub needs to continue a call: its upstream's word on it, and why it was cancelled, if it was."""

    state: RawJson
    revoked: str | None = None


class CallPlan(msgspec.Struct, frozen=True):
    """All that is known of a call before it starts, besides the call itself.

    `upstream` can begin it in place, else the record's handler runs. `layers` wrap what finishes a call that was begun
    in place; a result that `passes` needs none of them. `truncate` makes what stands for a result that is too long.
    `may_last` unless the call is never to become a durable stream, or is one already. `reads_only` says whether the
    tool claims to only read. Without `retries` a call that fails is not made again. A call that another hub began has a
    `resumption`, its last progress and so many `events`.
    """

    upstream: Upstream | None = None
    layers: Callable[[CallHandler], CallHandler] | None = None
    passes: Callable[[Completed], bool] | None = None
    truncate: Truncate | None = None
    may_last: bool = True
    reads_only: Callable[[Call], bool] | None = None
    retries: Retries | None = None
    resumption: ResumePoint | None = None
    progressed: Progressed | None = None
    events: int = 0

    def is_read_only(self, call: Call) -> bool:
        """Whether the call changes nothing: a tool that claims so, or any method that only reads."""
        return call.method != "tools/call" or (self.reads_only is not None and self.reads_only(call))


WITHOUT_PLAN: Final = CallPlan()
