"""Which kind of client a session is of: how many tools it takes, how they are exposed to it, how long results are."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, Protocol

from mcp_hub.sessions.session import Session
from mcp_hub.types import ClientKind, Mode

__all__ = ["ClientKinds", "ClientFacts"]

_NAME: Final = 256
"""Characters of a client's name that count."""
_NAMES: Final = 1024
"""Clients whose kind is remembered."""


class ClientFacts(Protocol):
    """Facts about a kind of client; hashable, and equal when they say the same."""

    @property
    def expose(self) -> Literal["auto"] | Mode | None: ...
    @property
    def max_tools(self) -> int | None: ...
    @property
    def defers_tools(self) -> bool: ...
    @property
    def max_result_tokens(self) -> int | None: ...


class ClientKinds:
    """One `ClientKind` for each kind of client, of which there are as many as the configuration tells apart.

    `find(client_name, chosen)` is what holds for a client of that name, or for the kind that was `chosen` for it;
    `soft_deadline` says whether a session is answered before its calls have ended; such a client is listed `own`, the
    definitions of the hub's own tools for it.
    """

    def __init__(
        self,
        find: Callable[[str | None, str | None], ClientFacts],
        soft_deadline: Callable[[Session], float | None],
        own: tuple[bytes, ...],
    ) -> None:
        self._own = own
        self._find = lru_cache(_NAMES)(find)
        self._soft_deadline = soft_deadline
        self._kinds: dict[tuple[ClientFacts, bool], ClientKind] = {}

    def forget(self) -> None:
        """The configuration is another one: every client is looked up again."""
        self._find.cache_clear()
        self._kinds.clear()

    def __call__(self, session: Session) -> ClientKind:
        name = session.client_info.get("name")
        rules = self._find(name[:_NAME] if isinstance(name, str) else None, session.caller.client)
        is_early = self._soft_deadline(session) is not None
        kind = self._kinds.get((rules, is_early))
        if kind is None:
            kind = self._kinds[rules, is_early] = ClientKind(
                expose=rules.expose,
                max_tools=rules.max_tools,
                defers_tools=rules.defers_tools,
                max_result_tokens=rules.max_result_tokens,
                own=self._own if is_early else (),
            )
        return kind
