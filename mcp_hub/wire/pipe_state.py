"""The life of a pipe as a table: which state may follow which. Sans-I/O."""

from enum import Enum
from typing import Final


class PipeState(Enum):
    """The state of a pipe. `UNREAD`: the peer has closed its input and may still answer what it has read."""

    OPEN = "open"
    UNREAD = "unread"
    CLOSED = "closed"


CLOSED: Final = PipeState.CLOSED
_NEXT: Final = {
    PipeState.OPEN: frozenset({PipeState.UNREAD, CLOSED}),
    PipeState.UNREAD: frozenset({CLOSED}),
    CLOSED: frozenset[PipeState](),
}


def may_enter(state: PipeState, following: PipeState) -> bool:
    """Whether a pipe in `state` may enter the `following` one."""
    return following in _NEXT[state]
