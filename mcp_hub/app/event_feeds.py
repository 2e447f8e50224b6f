"""Events of servers in a hub: loaded where a client asks for them, or an earlier hub has left some."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import anyio

from mcp_hub.app.limits import Current
from mcp_hub.call import LOCAL_PRINCIPAL, StreamInfo, Upstream
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.events import Progressed
from mcp_hub.hub import HubPort
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.notifications import FEED, HOOK
from mcp_hub.protocol.shape.occurrences import forbidden
from mcp_hub.sessions.session import Caller

if TYPE_CHECKING:
    from mcp_hub.calls.feeds.incoming import Incoming
    from mcp_hub.calls.feeds.lines import Topic
    from mcp_hub.calls.feeds.table import Feeds
    from mcp_hub.calls.feeds.webhooks import Webhooks
    from mcp_hub.event_port import EventPort
    from mcp_hub.protocol.shape.webhooks import Webhook


class EventFeeds:
    """The feeds and webhooks of one hub, once they are used. `key` returns the deployment's key."""

    def __init__(
        self, table: StreamTable, upstreams: Mapping[str, Upstream], current: Current, key: Callable[[], bytes]
    ) -> None:
        self._table = table
        self._upstreams = upstreams
        self._current = current
        self._key = key
        self._feeds: Feeds | None = None
        self._port: EventPort | None = None
        self._webhooks: Webhooks | None = None
        self._incoming: Incoming | None = None
        self._is_used, self._has_webhooks = anyio.Event(), anyio.Event()

    @property
    def feeds(self) -> "Feeds":
        """The feeds, made at first use."""
        if self._feeds is None:
            from mcp_hub.calls.feeds.table import Feeds

            self._feeds = Feeds(self._table, self._upstreams, lambda: self._current.settings.hub.events.keep)
            self._feeds.sources["webhook"] = self.incoming.source
            self._feeds.leaving["webhook"] = self.incoming.leave
            self._is_used.set()
        return self._feeds

    @property
    def incoming(self) -> "Incoming":
        """The webhooks of servers, made at first use."""
        if self._incoming is None:
            from mcp_hub.calls.feeds.incoming import Incoming

            self._incoming = Incoming(self._table, lambda: self._current.settings.hub.http.public_url, self._key)
            self._is_used.set()
        return self._incoming

    async def receive(self, id_: str, headers: Mapping[bytes, bytes], body: bytes) -> tuple[int, bytes]:
        """Takes a message of a server's webhook: status and body of the answer. Raises nothing."""
        reply = await self.incoming.receive(id_, headers, body)
        return reply.status, reply.body or object_bytes({"error": reply.reason})

    def takes(self, id_: str) -> bool:
        """Whether this hub has made the address with this id."""
        return self._current.settings.hub.http.public_url is not None and self.incoming.takes(id_)

    def port(self, hub: HubPort) -> "EventPort":
        """The port of fronts, made at first use."""
        if self._port is None:
            from mcp_hub.event_port import EventPort

            self._port = EventPort(
                self.feeds, hub.views.of, hub.upstreams, partial(self.webhooks, hub), self._is_lasting
            )
        return self._port

    def webhooks(self, hub: HubPort) -> "Webhooks":
        """The subscriptions of webhooks, made at first use."""
        if self._webhooks is None:
            from mcp_hub.calls.feeds.deliveries import Callbacks
            from mcp_hub.calls.feeds.webhooks import Webhooks

            callbacks = Callbacks(lambda: self._current.settings.hub.events.webhook_hosts)
            self._webhooks = Webhooks(self._table, self.feeds, callbacks, partial(self._rights, hub), self._key)
            self._has_webhooks.set()
        return self._webhooks

    def figure(self, name: str) -> int:
        """A figure of webhooks, by the name of its metric."""
        webhooks, incoming = self._webhooks, self._incoming
        match name:
            case "webhooks":
                return 0 if webhooks is None else len(webhooks)
            case "webhooks_incoming":
                return 0 if incoming is None else len(incoming)
            case "webhooks_refused_total":
                return 0 if incoming is None else incoming.refused
        return 0 if webhooks is None else webhooks.counts[name.removeprefix("webhooks_").removesuffix("_total")]

    def look(self) -> None:
        """Lets webhooks look at their rights after a change of settings."""
        if self._webhooks is not None:
            self._webhooks.look()

    async def run(self) -> None:
        """Runs the feeds until cancelled, from their first use on."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run_webhooks)
            await self._is_used.wait()
            tasks.start_soon(self.incoming.run)
            await self.feeds.run()

    async def _run_webhooks(self) -> None:
        await self._has_webhooks.wait()
        if self._webhooks is not None:
            await self._webhooks.run()

    def _is_lasting(self, principal: str) -> bool:
        tokens = self._current.settings.hub.tokens
        return principal == LOCAL_PRINCIPAL or any(token.principal == principal for token in tokens)

    def _rights(self, hub: HubPort, webhook: "Webhook") -> tuple["Topic", Sequence[str]] | None:
        """Raises the extension's Forbidden for a principal or a profile that the settings do not have any more."""
        settings, profile = self._current.settings, webhook.profile
        profiles = {token.profile for token in settings.hub.tokens if token.principal == webhook.principal}
        has_issuers = settings.hub.http.oauth is not None or settings.hub.http.authorization is not None
        if not (profiles or webhook.principal == LOCAL_PRINCIPAL or has_issuers):
            raise forbidden("the principal of this subscription is not let in any more")
        if profiles and None not in profiles and profile not in profiles:
            raise forbidden("the principal of this subscription does not have its profile any more")
        if profile is not None and profile not in settings.profiles and profile not in self._current.projects:
            raise forbidden("the profile of this subscription is gone")
        caller = Caller(webhook.principal, profile, claims=webhook.claims)
        return self.port(hub).rights(caller, webhook)


async def go_on(hub: HubPort, events: EventFeeds, row: StreamInfo, last: Progressed | None) -> None:
    """Continues a claimed durable stream: a feed's, a webhook's, or a call's. Raises `HubError`."""
    if row.method == FEED:
        await events.feeds.adopt(row)
    elif row.method == HOOK:
        await events.webhooks(hub).adopt(row)
    else:
        await hub.starter.take_up(row, last)
