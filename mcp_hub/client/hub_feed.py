"""The state of a hub as its dashboard shows it."""

from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import anyio
import msgspec

from mcp_hub.client.rest import LIMIT, ConnectionLost, HubTransport, RequestRefused, RestClient
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.protocol.jsonrpc.framing import TooLong
from mcp_hub.protocol.rest.overview import CallSummary, DashboardBatch, DashboardState
from mcp_hub.protocol.rest.servers import ServerInfo
from mcp_hub.protocol.sse import EventParser

MOST_CALLS: Final = 1000
"""Calls that have ended and are kept, the newest."""
_FIRST_PAUSE: Final = 0.3
_LONGEST_PAUSE: Final = 5.0


class HubFeed:
    """Follows the hub whose page is `page` (`http://127.0.0.1:8765/`), and reconnects.

    `problem` is empty while connected.
    """

    def __init__(self, page: str, transport: HubTransport) -> None:
        self.state: DashboardState | None = None
        self.servers: list[ServerInfo] = []
        self.calls: list[CallSummary] = []
        self.live: list[CallSummary] = []
        self.problem = "connecting"
        self._api = f"{page}api/"
        self._rest = RestClient(transport, f"{page}api/mcp")
        self._cursor: str | None = None

    async def run(self, changed: Callable[[], object]) -> None:
        """Calls `changed` after each change. Raises `ConfigError` if the hub denies access."""
        pause = _FIRST_PAUSE
        while True:
            try:
                if self._cursor is None:
                    await self._snapshot()
                    changed()
                pause = _FIRST_PAUSE
                await self._follow(changed)
            except ConfigError:
                raise
            except RequestRefused as refused:
                if isinstance(refused.error, ConfigError):
                    raise refused.error from None
                self.problem = str(refused)
            except (HubError, ConnectionLost) as lost:
                self.problem = str(lost)
            changed()
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _snapshot(self) -> None:
        state = await self._rest.send(DashboardState, "GET", f"{self._api}state")
        self.state, self._cursor, self.problem = state, state.cursor, ""
        self.servers, self.calls, self.live = state.servers.servers, state.calls[:MOST_CALLS], state.live

    async def _follow(self, changed: Callable[[], object]) -> None:
        answer = await self._rest.open("GET", f"{self._api}feed?after={self._cursor}", media="text/event-stream")
        parser = EventParser(LIMIT)
        try:
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    self.problem = ""
                    for event in parser.events(chunk):
                        if isinstance(event, TooLong) or event.type != b"batch":
                            self._cursor = None
                            return
                        self._take(msgspec.json.decode(event.data, type=DashboardBatch))
                        self._cursor = (parser.last_id or b"").decode() or None
                    changed()
        except msgspec.DecodeError as broken:
            self._cursor, self.problem = None, f"the feed cannot be read: {broken}"
            return
        finally:
            await answer.aclose()
        self.problem = "the hub has ended the connection"

    def _take(self, batch: DashboardBatch) -> None:
        if batch.ended:
            self.calls = [*reversed(batch.ended), *self.calls][:MOST_CALLS]
        if isinstance(batch.live, list):
            self.live = batch.live
        if batch.servers:
            self.servers = batch.servers.servers
