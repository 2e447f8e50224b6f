"""Answers that wait for a moment behind the last progress of their call.

Clients of the TypeScript SDKs lose progress that they read together with the result: they handle the result first and
then no longer know the call. A write of its own does not help, since two writes may end up in one read.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from mcp_hub import aio


class HeldAnswers:
    """The answers of one connection that wait, in order, each for the `gap` of its client (`ClientKind.result_gap`).

    There are no more of them than open requests, and one timer.
    """

    def __init__(self) -> None:
        self._progressed = -1.0
        self._waiting: Final = deque[tuple[float, Callable[[], None]]]()

    def progressed(self) -> None:
        """Progress was written just now."""
        self._progressed = anyio.current_time()

    def send(self, gap: float, send: Callable[[], None]) -> None:
        """Calls `send` as soon as `gap` seconds have passed since the last progress, and no earlier answer waits."""
        wait = self._progressed + gap - anyio.current_time()
        if not self._waiting and wait <= 0:
            send()
            return
        self._waiting.append((self._progressed + gap, send))
        if len(self._waiting) == 1:
            aio.call_later(wait, self._release)

    def _release(self) -> None:
        while self._waiting:
            due, send = self._waiting[0]
            if (wait := due - anyio.current_time()) > 0:
                aio.call_later(wait, self._release)
                return
            self._waiting.popleft()
            send()
