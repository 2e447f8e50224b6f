"""One connection to one server, of whatever transport: what a supervisor needs of it."""

from collections.abc import Iterable, Sequence
from typing import Protocol

import anyio.abc

from mcp_hub.types import Cause
from mcp_hub.upstreams.peer.peer import Peer


class Connection(Protocol):
    """Opened once and closed once, by the same owner task; a new start makes a new one.

    `pid` is the process behind it, if the hub started one; `stderr` has the last lines that the server wrote for
    people. `can_retry`: whether another start may go better; not, say, when the command does not exist.
    `lost_session`: whether it ended because the server has forgotten the session, and nothing worse. `notes` are
    warnings about an open connection.
    """

    @property
    def pid(self) -> int | None: ...
    @property
    def stderr(self) -> Iterable[str]: ...
    @property
    def can_retry(self) -> bool: ...
    @property
    def lost_session(self) -> bool: ...
    @property
    def notes(self) -> Sequence[str]: ...

    def successor(self) -> "Connection | None":
        """The connection that takes over the session which was begun in place of a lost one, if there is one."""

    async def open(self, tasks: anyio.abc.TaskGroup) -> Peer:
        """Connects and settles the era; `tasks` run while it is open. Raises `StartFailed` with the reason.

        `AnotherProcess` is one of them: another connection is to be opened at once, and that is not a failure.
        """

    async def last_words(self, cause: Cause) -> Cause:
        """`cause`, with what else is known of why the connection ended or was not open in time. May wait a moment."""

    async def close(self) -> None:
        """Ends it. Shielded and bounded."""
