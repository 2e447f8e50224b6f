"""Events for one caller: the types of its profile, and readers of their feeds."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from mcp_hub.call import Upstream
from mcp_hub.calls.feeds.reading import FeedReader, Topic, topic
from mcp_hub.calls.feeds.table import Feeds
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.errors import RpcError, StoreError, StoreUnavailable
from mcp_hub.masking import hide_head
from mcp_hub.protocol.eras import LATEST_MODERN
from mcp_hub.protocol.jsonrpc.rpc_errors import for_others
from mcp_hub.protocol.shape.occurrences import EventParams, delivered, forbidden, not_found
from mcp_hub.protocol.shape.webhooks import Webhook, check_delivery, delivery_of, granted, subscription_id
from mcp_hub.sessions.session import Caller, Session, call_of
from mcp_hub.types import Era, Kind

if TYPE_CHECKING:
    from mcp_hub.calls.feeds.webhooks import Webhooks

_PAGE: Final = 100
_MOST: Final = 1000
"""Occurrences of one poll, by default and at most."""
_NEXT_POLL: Final = 5000
"""Milliseconds between two polls of a client; they cost no request to the server."""


class EventPort:
    """The port. `view` returns what a session is listed; `webhooks` loads them.

    `is_lasting`: whether a principal is known as long as the settings name it, not only while its token is valid.
    """

    def __init__(
        self,
        feeds: Feeds,
        view: Callable[[Session], CatalogView],
        upstreams: Mapping[str, Upstream],
        webhooks: "Callable[[], Webhooks]",
        is_lasting: Callable[[str], bool],
    ) -> None:
        self.feeds = feeds
        self._view = view
        self._upstreams = upstreams
        self._webhooks = webhooks
        self._is_lasting = is_lasting

    def entry(self, session: Session, name: str) -> Entry:
        """An event type. Raises the extension's NotFound, and Forbidden for one that has to be approved."""
        if not name:
            raise not_found("event", "the name of an event type is missing")
        view = self._view(session)
        if (entry := view.find(Kind.EVENT, name)) is not None:
            return entry
        if (finding := view.withheld.get((Kind.EVENT, name))) is not None:
            raise forbidden(f"event type {hide_head(name, 200)} {finding.text}. A person has to approve it.")
        near = view.nearest(Kind.EVENT, name, 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise not_found("event", f"there is no event type {hide_head(name, 200)}.{hint}")

    def check(self, session: Session, name: str, reader: FeedReader) -> None:
        """Raises like `entry`, and if the name now means another event type."""
        entry = self.entry(session, name)
        if (entry.server, entry.key) != (reader.topic.server, reader.topic.name):
            raise _another(name)

    def topic(self, session: Session, params: EventParams) -> tuple[Entry, Topic]:
        """Raises as `entry`, and `InvalidParams`."""
        entry = self.entry(session, params.name)
        upstream = self._upstreams.get(entry.server)
        has_accounts = upstream is not None and upstream.status().scope == "principal"
        account = session.caller.principal if has_accounts else ""
        return entry, topic(entry.server, entry.key, params.arguments, account)

    def public(self, session: Session, error: RpcError) -> RpcError:
        """The error without paths of this machine that are not for the caller."""
        return error if session.caller.shows_paths else for_others(error)

    async def open(self, session: Session, params: EventParams) -> FeedReader:
        """A reader behind the cursor of `params`. Raises the server's `RpcError`, `Busy`, `StoreUnavailable`."""
        entry, subscription = self.topic(session, params)
        try:
            return await self.feeds.open(
                subscription, entry.modes, params.cursor, session.caller.principal, params.max_age
            )
        except RpcError as error:
            raise self.public(session, error) from None
        except StoreError as problem:
            raise StoreUnavailable(problem.public) from None

    async def poll(self, session: Session, params: EventParams) -> bytes:
        """The result of `events/poll`. Raises as `open`."""
        reader = await self.open(session, params)
        try:
            occurrences, is_truncated = await reader.read(_count(params.maxEvents))
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

    async def subscribe(self, session: Session, params: EventParams) -> bytes:
        """The result of `events/subscribe`. Raises as `open`, and errors of the extension."""
        webhooks, caller, delivery = self._webhooks(), session.caller, delivery_of(params.delivery)
        check_delivery(delivery, webhooks.callbacks.is_allowed)
        entry, subscription = self.topic(session, params)
        webhook = Webhook(
            id=subscription_id(caller.principal, delivery.url, params.name, subscription.arguments),
            principal=caller.principal, url=delivery.url, name=params.name, server=entry.server, key=entry.key,
            secret=delivery.secret,
            arguments=subscription.arguments.decode(), profile=caller.profile, claims=caller.claims,
        )  # fmt: skip
        try:
            return await webhooks.subscribe(
                webhook, subscription, entry.modes, after=params.cursor, max_age=params.max_age,
                ttl=granted(params.ttlMs, may_last=self._is_lasting(caller.principal)),
            )  # fmt: skip
        except RpcError as error:
            raise self.public(session, error) from None

    async def unsubscribe(self, session: Session, params: EventParams) -> bytes:
        """The result of `events/unsubscribe`. Raises the extension's NotFound, `StoreUnavailable`."""
        principal, url = session.caller.principal, delivery_of(params.delivery).url
        arguments = topic("", params.name, params.arguments).arguments
        await self._webhooks().unsubscribe(principal, subscription_id(principal, url, params.name, arguments))
        return b'{"resultType":"complete"}'

    def rights(self, caller: Caller, webhook: Webhook) -> tuple[Topic, Sequence[str]] | None:
        """Topic and modes of a webhook's events; None while the server, or the caller's account, has listed nothing.

        Raises as `topic`.
        """
        upstream, session = self._upstreams.get(webhook.server), Session("", caller, Era.MODERN, LATEST_MODERN)
        apart = None if upstream is None else upstream.apart(call_of(session))
        if upstream is not None and (upstream.snapshot() is None or (apart is not None and apart.arrival is not None)):
            return None
        params = EventParams(webhook.name, msgspec.Raw(webhook.arguments.encode()))
        entry, subscription = self.topic(session, params)
        if (entry.server, entry.key) != (webhook.server, webhook.key):
            raise _another(webhook.name)
        return subscription, entry.modes


def _another(name: str) -> RpcError:
    return not_found("event", f"{hide_head(name, 200)} is another event type now")


def _count(wish: float | None) -> int:
    """Occurrences of a poll, at least one: a page without any would look like the end."""
    return _PAGE if wish is None else int(min(max(wish, 1), _MOST))
