"""The interface of counts that replicas share."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class SharedLimit(NamedTuple):
    """At most `calls` in `period` seconds, and `running` at once, under a name; 0: any number."""

    name: str
    calls: int
    period: float
    running: int


class SharedCounts(Protocol):
    """Counts that replicas share, by group."""

    async def take(self, group: str, limits: Sequence[SharedLimit], holder: str) -> float:
        """Counts `holder` under all limits and returns 0; else seconds to wait, infinite for the end of another one.

        Raises `StoreError`.
        """

    def leave(self, group: str, limits: Sequence[SharedLimit], holder: str) -> None:
        """`holder` does not run any more. What a replica leaves behind ends with it. Never waits."""
