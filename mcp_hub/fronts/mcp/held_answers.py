"""Responses that wait briefly after progress: clients of the TypeScript SDKs lose progress that they read with the
result.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import anyio

from mcp_hub import aio


class HeldAnswers:
    """One connection's waiting responses, in order, with one timer."""

    def __init__(self) -> None:
        self._progressed = -1.0
        self._waiting: Final = deque[tuple[float, Callable[[], None]]]()

    def progressed(self) -> None:
        """Progress was just written."""
        self._progressed = anyio.current_time()

    def send(self, gap: float, send: Callable[[], None]) -> None:
        """Calls `send` `gap` seconds after the last progress."""
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
