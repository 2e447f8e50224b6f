"""Another answer to a request whose call takes long, after which the call goes on without its request.

Who gets one, and which, is decided here in one place: a task, where the client takes tasks; what there is so far, where
it would cut the call.
"""

from collections.abc import Callable
from typing import Protocol

from mcp_hub.calls.runner import CallRecord
from mcp_hub.fronts.mcp.soft_deadline import soft_answer
from mcp_hub.fronts.mcp.tasks import task_answer
from mcp_hub.hub import HubPort
from mcp_hub.sessions.session import Session

__all__ = ["EarlyAnswer", "early_answer"]


class EarlyAnswer(Protocol):
    """Stands in for the result of one call."""

    @property
    def after(self) -> float:
        """Seconds after which it takes the place of the result, unless that is there."""
        ...

    def prepare(self, ready: Callable[[], None]) -> None:
        """Sees to it that the call can go on alone; `ready` is called (maybe at once) when the answer may be given.

        Never, if the call cannot be let go: then it stays an ordinary one.
        """
        ...

    def answer(self) -> bytes:
        """The result to be sent; from here on nobody waits for the call (`HubPort.leave`)."""
        ...


def early_answer(hub: HubPort, session: Session, record: CallRecord) -> EarlyAnswer | None:
    """What stands in for the result of this call, if anything does."""
    return task_answer(hub, session, record) or soft_answer(hub, session, record)
