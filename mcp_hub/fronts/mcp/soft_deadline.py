"""The soft deadlines of clients that would cut a long call: they get the output so far in time, and how to continue.

A client's deadline depends on its name and on the kind that it was started as. The call continues without its request,
as a task would (`calls.early_answers`); the tools `hub_wait` and `hub_cancel` (`calls.hub_tools`) do the rest.
"""

from functools import lru_cache
from typing import Final, Protocol

from mcp_hub.protocol.extensions import TASKS, declares
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era

__all__ = ["SoftDeadlines"]

_NAME: Final = 256
"""Characters of a client's name that count."""
_NAMES: Final = 1024
"""Clients whose deadline is remembered."""


class Find(Protocol):
    """The deadline of a client of that name, or of the kind that was `chosen` for it; None is never.

    `known_only`: what is configured for unknown clients does not count.
    """

    def __call__(self, client_name: str | None, chosen: str | None, *, known_only: bool) -> float | None: ...


class SoftDeadlines:
    """After how many seconds the calls of a session are answered though they still run.

    A client without a name that is known has a deadline only where it waits by itself for what it started: handshake
    clients over stdio. Whoever takes tasks needs none.
    """

    def __init__(self, find: Find) -> None:
        self._find = lru_cache(_NAMES)(lambda name, chosen, known_only: find(name, chosen, known_only=known_only))

    def forget(self) -> None:
        """The configuration is another one: every client is looked up again."""
        self._find.cache_clear()

    def __call__(self, session: Session) -> float | None:
        caller = session.caller
        name = session.client_info.get("name")
        known_only = session.era is Era.MODERN or not caller.has_own_hub
        found: float | None = self._find(name[:_NAME] if isinstance(name, str) else None, caller.client, known_only)
        return None if found is None or declares(session.capabilities, session.era, TASKS) else found
