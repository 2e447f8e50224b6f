"""A call before it starts: what it goes by, and which states it can be in."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

import msgspec

from mcp_hub.call import Call, CallHandler, Upstream
from mcp_hub.events import Completed

__all__ = ["WITHOUT_PLAN", "CallPlan", "CallState", "Truncate"]

Truncate = Callable[[Call, Completed], Awaitable[Completed]]
"""Makes what stands for a result that is too long."""


class CallState(Enum):
    """Where a call is on its way."""

    WAITING = "waiting"
    """For its turn in the registry."""
    SENT = "sent"
    """The request is written; the answer is taken in place."""
    TASK = "task"
    """A handler runs."""
    ENDED = "ended"


class CallPlan(msgspec.Struct, frozen=True):
    """What is known of a call before it starts, besides the call itself.

    `upstream` can begin it in place, else the record's handler runs. `layers` wrap what finishes a call that was begun
    in place; a result that `passes` needs none of them. `truncate` makes what stands for a result that is too long.
    """

    upstream: Upstream | None = None
    layers: Callable[[CallHandler], CallHandler] | None = None
    passes: Callable[[Completed], bool] | None = None
    truncate: Truncate | None = None

    def layered(self, handler: CallHandler) -> CallHandler:
        """`handler` inside of what belongs around it."""
        return handler if self.layers is None else self.layers(handler)


WITHOUT_PLAN: Final = CallPlan()
