"""Events for one caller: the types that its profile lets through, and readers of their feeds."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mcp_hub.call import Upstream
from mcp_hub.calls.feeds.lines import Topic, topic
from mcp_hub.calls.feeds.reading import FeedReader
from mcp_hub.calls.feeds.table import Feeds
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.errors import StoreError, StoreUnavailable
from mcp_hub.masking import hide_head
from mcp_hub.protocol.shape.occurrences import EventParams, delivered, forbidden, not_found
from mcp_hub.sessions.session import Session
from mcp_hub.types import Kind

_PAGE: Final = 100
_MOST: Final = 1000
"""Occurrences of one poll, by default and at most."""
_NEXT_POLL: Final = 5000
"""Milliseconds between two polls of a client; they cost no request to the server."""


class EventPort:
    """The port. `view` returns what a session is listed."""

    def __init__(self, feeds: Feeds, view: Callable[[Session], CatalogView], upstreams: Mapping[str, Upstream]) -> None:
        self.feeds = feeds
        self._view = view
        self._upstreams = upstreams

    def entry(self, session: Session, name: str) -> Entry:
        """An event type. Raises the extension's NotFound, and Forbidden for one that has to be approved."""
        view = self._view(session)
        if (entry := view.find(Kind.EVENT, name)) is not None:
            return entry
        if (finding := view.withheld.get((Kind.EVENT, name))) is not None:
            raise forbidden(f"event type {hide_head(name, 200)} {finding.text}. A person has to approve it.")
        near = view.nearest(Kind.EVENT, name, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise not_found("event", f"there is no event type {hide_head(name, 200)}.{hint}")

    def topic(self, session: Session, params: EventParams) -> tuple[Entry, Topic]:
        """Raises as `entry`, and `InvalidParams`."""
        entry = self.entry(session, params.name)
        upstream = self._upstreams.get(entry.server)
        has_accounts = upstream is not None and upstream.status().scope == "principal"
        account = session.caller.principal if has_accounts else ""
        return entry, topic(entry.server, entry.key, params.arguments, account)

    async def open(self, session: Session, params: EventParams) -> FeedReader:
        """A reader behind the cursor of `params`. Raises the server's `RpcError`, `Busy`, `StoreUnavailable`."""
        entry, subscription = self.topic(session, params)
        try:
            return await self.feeds.open(
                subscription, entry.modes, params.cursor, session.caller.principal, params.max_age
            )
        except StoreError as problem:
            raise StoreUnavailable(problem.public) from None

    async def poll(self, session: Session, params: EventParams) -> bytes:
        """The result of `events/poll`. Raises as `open`."""
        reader = await self.open(session, params)
        try:
            occurrences, is_truncated = await reader.read(min(max(params.maxEvents or _PAGE, 1), _MOST))
            if reader.ended is not None and not occurrences:
                raise reader.ended
            return msgspec.json.encode(
                {
                    "resultType": "complete",
                    "events": [delivered(occurrence, params.name) for occurrence, _ in occurrences],
                    "cursor": reader.cursor,
                    "truncated": is_truncated,
                    "hasMore": reader.has_more,
                    "nextPollMs": _NEXT_POLL,
                }
            )
        except StoreError as problem:
            raise StoreUnavailable(problem.public) from None
        finally:
            reader.close()
