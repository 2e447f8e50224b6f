"""A version that goes up whenever something changed; readers pull and wait (architecture.md, "One-way flow" 6)."""

import anyio

__all__ = ["Changes"]


class Changes:
    """One counter for all upstreams: state, lists. Carries no news itself, so it needs no bound."""

    def __init__(self) -> None:
        self.version = 0
        self._event: anyio.Event | None = None

    def bump(self) -> None:
        self.version += 1
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self, after: int) -> int:
        """The version, as soon as it is above `after`."""
        while self.version <= after:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
        return self.version
