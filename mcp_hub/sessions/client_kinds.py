"""Kinds of clients: limits of tools, results and calls."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Literal, Protocol

from mcp_hub.protocol.extensions import APPS, TASKS, declares
from mcp_hub.sessions.session import Session
from mcp_hub.types import ClientKind, Era, Mode, PartialForm

_NAME: Final = 256
"""Characters of a client's name that count."""
_NAMES: Final = 1024
"""Clients whose kind is remembered."""


class _ClientFacts(Protocol):
    """Hashable facts about a kind of client."""

    @property
    def expose(self) -> Literal["auto"] | Mode | None: ...
    @property
    def max_tools(self) -> int | None: ...
    @property
    def defers_tools(self) -> bool: ...
    @property
    def max_result_tokens(self) -> int | None: ...
    @property
    def first_list_wait(self) -> float | None: ...
    @property
    def partials(self) -> Literal["message", "off"]: ...
    @property
    def one_line(self) -> bool: ...
    @property
    def result_gap(self) -> float: ...


class ClientKinds:
    """Maps a session to its `ClientKind`, one object for each kind.

    `find(client_name, chosen)` returns facts by name or chosen kind, `deadline(client_name, chosen, known_only)` the
    soft deadline in seconds or None. `own` are hub tools for clients with a deadline; clients with the tasks extension
    have none.
    """

    def __init__(
        self,
        find: Callable[[str | None, str | None], _ClientFacts],
        deadline: Callable[[str | None, str | None, bool], float | None],
        own: tuple[bytes, ...],
    ) -> None:
        self._own = own
        self._find = lru_cache(_NAMES)(find)
        self._deadline = lru_cache(_NAMES)(deadline)
        self._kinds: dict[tuple[_ClientFacts, float | None, bool], ClientKind] = {}

    def forget(self) -> None:
        """Clears the caches after a configuration change."""
        self._find.cache_clear()
        self._deadline.cache_clear()
        self._kinds.clear()

    def __call__(self, session: Session) -> ClientKind:
        client_name, chosen = session.client_info.get("name"), session.caller.client
        name = client_name[:_NAME] if isinstance(client_name, str) else None
        rules, deadline = self._find(name, chosen), None
        if not declares(session.capabilities, session.era, TASKS):
            deadline = self._deadline(name, chosen, session.era is Era.MODERN or not session.caller.has_own_hub)
        shows_apps = declares(session.capabilities, session.era, APPS)
        kind = self._kinds.get((rules, deadline, shows_apps))
        if kind is None:
            kind = self._kinds[rules, deadline, shows_apps] = ClientKind(
                expose=rules.expose,
                max_tools=rules.max_tools,
                defers_tools=rules.defers_tools,
                max_result_tokens=rules.max_result_tokens,
                hub_tools=self._own if deadline is not None else (),
                soft_deadline=deadline,
                first_list_wait=rules.first_list_wait,
                partials=_form(rules),
                result_gap=rules.result_gap,
                shows_apps=shows_apps,
            )
        return kind


def _form(rules: _ClientFacts) -> PartialForm | None:
    if rules.partials == "off":
        return None
    return "line" if rules.one_line else "text"
