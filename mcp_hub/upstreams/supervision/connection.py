"""One connection to one server, of whatever transport: what a supervisor needs of it."""

from collections.abc import Iterable
from typing import Protocol

import anyio.abc

from mcp_hub.types import Cause
from mcp_hub.upstreams.peer.peer import Peer


class Connection(Protocol):
    """Opened once and closed once, by the same owner task; a new start makes a new one."""

    @property
    def pid(self) -> int | None:
        """The process behind it, if the hub started one."""
        ...

    @property
    def stderr(self) -> Iterable[str]:
        """The last lines that the server wrote for people; empty where there is no such thing."""
        ...

    @property
    def can_retry(self) -> bool:
        """Whether another start may go better; not, say, when the command does not exist."""
        ...

    @property
    def lost_session(self) -> bool:
        """Whether it ended because the server has forgotten the session, and nothing worse."""
        ...

    async def open(self, tasks: anyio.abc.TaskGroup) -> Peer:
        """Connects and settles the era; what must run while it is open runs in `tasks`.

        Raises `StartFailed` with the reason.
        """
        ...

    async def last_words(self, cause: Cause) -> Cause:
        """`cause`, with what else is known of why the connection ended. May wait a moment."""
        ...

    async def close(self) -> None:
        """Ends it. Shielded and bounded."""
        ...
