"""Observes clients, ended calls, and operators who watch."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import msgspec

from mcp_hub.aio import Timer, call_later
from mcp_hub.calls.history.recent import RecentCalls
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.errors import MethodNotFound
from mcp_hub.sessions.clients import ClientsSeen
from mcp_hub.sessions.session import Session
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.types import ClientKind, Era

_GRACE: Final = 10.0
"""Seconds for a page to come back after a reload or a lost connection."""


class Operators:
    """The `People` who answer for clients that cannot be asked; without any, questions are declined."""

    def __init__(self, under_way: Callable[[], Iterable[CallRecord]], grace: float = _GRACE) -> None:
        self._under_way = under_way
        self._grace = grace
        self._pages = 0
        self._leaving: Timer | None = None

    @property
    def are_there(self) -> bool:
        return self._pages > 0 or self._leaving is not None

    @contextmanager
    def here(self) -> Iterator[None]:
        """Counts one open page in the block."""
        self._pages += 1
        if self._leaving is not None:
            self._leaving.cancel()
            self._leaving = None
        try:
            yield
        finally:
            self._pages -= 1
            if not self._pages:
                self._leaving = call_later(self._grace, self._decline)

    def _decline(self) -> None:
        self._leaving = None
        for record in list(self._under_way()):
            for key, question in list(record.questions.open.items()):
                if not record.call.asks_client(question.method, question.params):
                    message = f"{question.method}: the client cannot be asked, and the people at the hub have left"
                    record.questions.answer(key, MethodNotFound(message))


class Seen(msgspec.Struct, frozen=True):
    """Clients, calls and operators, with configuration and approval records."""

    clients: ClientsSeen
    recent: RecentCalls
    operators: Operators
    config: Path
    records: KeyedFiles

    @classmethod
    def of(
        cls,
        kinds: Callable[[Session], ClientKind],
        config: Path,
        records: KeyedFiles,
        under_way: Callable[[], Iterable[CallRecord]],
        meet: Callable[[Era], object],
    ) -> Self:
        """An empty one. `under_way`: running calls. `meet` gets each new client's era."""
        clients = ClientsSeen(kinds, wall_time, SystemClock().now, meet)
        return cls(
            clients=clients, recent=RecentCalls(), operators=Operators(under_way), config=config, records=records
        )
