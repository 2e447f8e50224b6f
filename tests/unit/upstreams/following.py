"""One server's `ServerSubscriptions` over connections to a server that follows a script."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from mcp_hub.notices import Notices
from mcp_hub.types import Era, RawObject
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import Observer, ServerLogs
from mcp_hub.upstreams.peer.subscriptions import ServerSubscriptions
from tests.unit.upstreams.function_calls import request
from tests.unit.upstreams.scripted import Script, Server, talking, together
from tests.unit.wire.raw_lines import WAIT, group

UPDATED = "notifications/resources/updated"


class Following(Observer):
    """The subscriptions to the server `git`, through as many connections as a test makes."""

    def __init__(self, era: Era, timeout: float = WAIT) -> None:
        self.era = era
        self.changes = Notices()
        self.subscriptions = ServerSubscriptions("git", self.changes)
        self._logs = ServerLogs()
        self.timeout = timeout
        self.peer: Peer

    @property
    def logs(self) -> ServerLogs:
        return self._logs

    def passes(self, method: str) -> bool:
        return False

    def on_notice(self, method: str, params: RawObject) -> None:
        self.subscriptions.on_notice(method, params)

    def on_message(self, session: str, frame: bytes) -> None:
        self.changes.tell(session, frame)

    @property
    def wanted(self) -> set[str]:
        return set(self.subscriptions.resources.reference_counts)

    async def subscribe(self, uri: str) -> None:
        """As an `Upstream` does it."""
        self.subscriptions.resources.want(uri, request("x"))
        with anyio.fail_after(2 * WAIT):
            await self.subscriptions.confirmed(uri)

    def release(self, uri: str) -> None:
        self.subscriptions.resources.release(uri, request("x").session)

    def noted(self, uri: str, after: int = 0) -> list[str]:
        """The URIs that were noted for this one."""
        return [noted for noted, _ in self.changes.notices(("git", uri), after)]

    @asynccontextmanager
    async def connected(self, script: Script | None = None, **capabilities: Any) -> AsyncIterator[Server]:
        """A connection on which the lists may be read; `script` is what the server does until then."""
        async with talking(self.era, observer=self, **capabilities) as (self.peer, server):
            async with group() as tasks:
                starting = tasks.start(self.subscriptions.follow, self.peer, self.timeout)
                await (starting if script is None else together(script(server), starting))
                yield server


async def silent(server: Server) -> None:
    """All that was sent has been read, on both sides: the next message is the answer to this ping."""
    await anyio.wait_all_tasks_blocked()
    await server.send(id="flush", method="ping")
    line = await server.line()
    assert line.get("id") == "flush", line
