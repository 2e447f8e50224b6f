"""The observers of a hub that is watched, which clients came and which calls ended, and the operators who watch."""

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
from mcp_hub.sessions.clients_seen import ClientsSeen
from mcp_hub.sessions.session import Session
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.types import ClientKind, Era

_GRACE: Final = 10.0
"""Seconds that a page may take to come back: a reload, a lost connection."""


class Operators:
    """The `People` who answer what a client cannot be asked. When the last one has left, such questions are declined.

    `under_way` are the calls that run.
    """

    def __init__(self, under_way: Callable[[], Iterable[CallRecord]], grace: float = _GRACE) -> None:
        self._under_way = under_way
        self._grace = grace
        self._pages = 0
        self._leaving: Timer | None = None

    @property
    def are_there(self) -> bool:
        """Whether a page is open, or was a moment ago."""
        return self._pages > 0 or self._leaving is not None

    @contextmanager
    def here(self) -> Iterator[None]:
        """One page is open as long as this lasts."""
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
            for key, question in list(record.open_questions.items()):
                if not record.call.asks_client(question.method, question.params):
                    message = f"{question.method}: the client cannot be asked, and the people at the hub have left"
                    record.answer(key, MethodNotFound(message))


class Seen(msgspec.Struct, frozen=True):
    """Both, and the operators who watch, beside the configuration at `config` and the records of its tools."""

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
        """Nobody has come yet. `kinds` finds the kind of a client, `under_way` are the calls that run.

        `meet` gets the era of each client that comes.
        """
        clients = ClientsSeen(kinds, wall_time, SystemClock().now, meet)
        return cls(
            clients=clients, recent=RecentCalls(), operators=Operators(under_way), config=config, records=records
        )
