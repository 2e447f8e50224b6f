"""The install state of this machine's clients, checked on request."""

from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

from mcp_hub.clock import Clock
from mcp_hub.protocol.rest.overview import ClientInstall

_FRESH: Final = 5.0
"""Seconds that a look is cached: it reads all clients' files."""


class InstallWatch:
    """Caches the last `look`, which blocks."""

    def __init__(self, look: Callable[[], list[ClientInstall]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._turn = anyio.Lock()
        self._last: tuple[float, list[ClientInstall]] | None = None

    async def now(self) -> list[ClientInstall]:
        """All clients, cached for seconds."""
        async with self._turn:
            if self._last is None or self._clock.now() - self._last[0] >= _FRESH:
                installs = await anyio.to_thread.run_sync(self._look, abandon_on_cancel=True)
                self._last = self._clock.now(), installs
            return self._last[1]
