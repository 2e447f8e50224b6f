"""The observers of a hub that is watched: which clients came, and which calls ended."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import msgspec

from mcp_hub.app.dashboard.operators import Operators
from mcp_hub.calls.history.recent import RecentCalls
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.sessions.clients_seen import ClientsSeen
from mcp_hub.sessions.session import Session
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.types import ClientKind, Era


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
        return cls(clients, RecentCalls(clients), Operators(under_way), config, records)
