"""Decisions before a call starts, and its states."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

import msgspec

from mcp_hub.call import Call, CallHandler, Upstream
from mcp_hub.calls.retries import Retries
from mcp_hub.events import Completed, Progressed
from mcp_hub.types import RawJson

Truncate = Callable[[Call, Completed], Awaitable[Completed]]
"""Shortens a long result."""


class CallState(Enum):
    """A call's state."""

    WAITING = "waiting"
    """For its turn in the registry."""
    SENT = "sent"
    """The answer is taken in place."""
    STARTING = "starting"
    """Its task is about to run."""
    TASK = "task"
    """A handler runs."""
    ENDED = "ended"


ENDED: Final = CallState.ENDED
SENT: Final = CallState.SENT


class ResumePoint(msgspec.Struct, frozen=True, gc=False):
    """Data for another hub to continue a call; `revoked`: its cancellation's reason."""

    state: RawJson
    revoked: str | None = None


class CallPlan(msgspec.Struct, frozen=True):
    """Decisions about a call before its start.

    `upstream` may begin it in place. `layers` wrap the finish of such a call, unless its result `passes`. `may_last`:
    it may become durable. `resumption`, `progressed` and `events` belong to a call begun by another hub.
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
        return call.method != "tools/call" or (self.reads_only is not None and self.reads_only(call))


WITHOUT_PLAN: Final = CallPlan()
