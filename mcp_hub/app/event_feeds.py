"""Events of servers in a hub: loaded where a client asks for them, or an earlier hub has left some."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import anyio

from mcp_hub.app.limits import Current
from mcp_hub.call import StreamInfo, Upstream
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.events import Progressed
from mcp_hub.hub import HubPort
from mcp_hub.protocol.notifications import FEED

if TYPE_CHECKING:
    from mcp_hub.calls.feeds.table import Feeds
    from mcp_hub.event_port import EventPort


class EventFeeds:
    """The feeds of one hub, once they are used."""

    def __init__(self, table: StreamTable, upstreams: Mapping[str, Upstream], current: Current) -> None:
        self._table = table
        self._upstreams = upstreams
        self._current = current
        self._feeds: Feeds | None = None
        self._port: EventPort | None = None
        self._is_used = anyio.Event()

    @property
    def feeds(self) -> "Feeds":
        """The feeds, made at first use."""
        if self._feeds is None:
            from mcp_hub.calls.feeds.table import Feeds

            self._feeds = Feeds(self._table, self._upstreams, lambda: self._current.settings.hub.events.keep)
            self._is_used.set()
        return self._feeds

    def port(self, hub: HubPort) -> "EventPort":
        """The port of fronts, made at first use."""
        if self._port is None:
            from mcp_hub.event_port import EventPort

            self._port = EventPort(self.feeds, hub.views.of, hub.upstreams)
        return self._port

    async def run(self) -> None:
        """Runs the feeds until cancelled, from their first use on."""
        await self._is_used.wait()
        await self.feeds.run()


async def go_on(hub: HubPort, events: EventFeeds, row: StreamInfo, last: Progressed | None) -> None:
    """Continues a claimed durable stream: a feed's, or a call's with its last progress. Raises `HubError`."""
    if row.method == FEED:
        await events.feeds.adopt(row)
    else:
        await hub.starter.take_up(row, last)
