"""Announces changed lists and updated resources to one client: pulled, compared by content, debounced."""

from collections.abc import Iterator
from typing import Final

import anyio
import msgspec

from mcp_hub.hub import HubPort
from mcp_hub.notices import Origin
from mcp_hub.protocol.jsonrpc.envelope import notification_frame, object_bytes, raw_object
from mcp_hub.protocol.notifications import SUBSCRIPTION_ID, UPDATED, list_changed
from mcp_hub.sessions.session import Session
from mcp_hub.types import Kind, RawObject

_DEBOUNCE: Final = 0.05
"""Seconds between a change and its announcement: servers come up together, resources change in bursts."""
EVERY_LIST: Final = frozenset(map(list_changed, Kind))


class Announcer:
    """Announces lists of `methods` and subscriptions. `stamp`: the id of a `subscriptions/listen`."""

    def __init__(
        self, hub: HubPort, session: Session, methods: frozenset[str] = EVERY_LIST, stamp: bytes | None = None
    ) -> None:
        self._hub = hub
        self._session = session
        self._methods = methods
        self._stamp: RawObject = {} if stamp is None else {SUBSCRIPTION_ID: msgspec.Raw(stamp)}
        self._position = hub.changes.version, hub.changes.noted
        self._lists = self._digests()
        session.offer.follow(self._lists)
        self._unsent = self._lists, self._position

    async def next(self) -> list[bytes]:
        """Waits for notifications; repeats them until `sent`."""
        while True:
            await self._hub.changes.wait_any(*self._position)
            if not self._hub.changes.messages(self._session.id, self._position[1]):
                await anyio.sleep(_DEBOUNCE)
            position = self._hub.changes.version, self._hub.changes.noted
            lists = self._digests() if position[0] != self._position[0] else {}
            self._unsent = lists, position
            messages = self._hub.changes.messages(self._session.id, self._position[1])
            frames = [*self._changed(lists), *self._updated(), *messages]
            if frames:
                return frames
            self.sent()

    def sent(self) -> None:
        """Confirms the last `next`."""
        lists, self._position = self._unsent
        self._lists.update(lists)

    def _digests(self) -> dict[Kind, int]:
        return {kind: self._hub.list_digest(self._session, kind) for kind in Kind}

    def _changed(self, lists: dict[Kind, int]) -> Iterator[bytes]:
        methods = {list_changed(kind): None for kind, digest in lists.items() if digest != self._lists[kind]}
        params = object_bytes({"_meta": self._stamp}) if self._stamp else None
        return (notification_frame(method, params) for method in methods if method in self._methods)

    def _updated(self) -> Iterator[bytes]:
        noted = self._position[1]
        for origin, subscribed in self._session.subscriptions.items():
            for uri, params in self._hub.subscriptions.updates(self._session, origin, noted):
                if (exported := self._exported_uri(origin, subscribed, uri)) is not None:
                    yield notification_frame(UPDATED, self._readdressed(exported, params))

    def _exported_uri(self, origin: Origin, subscribed: str, uri: str) -> str | None:
        """The client's URI of a resource; None if it may not read it."""
        server, original = origin
        view = self._hub.view(self._session)
        if uri != original or view.resolve_uri(subscribed) != origin:
            subscribed = view.exported_uri(server, uri)
        return subscribed if view.resolve_uri(subscribed) == (server, uri) else None

    def _readdressed(self, exported: str, params: bytes) -> bytes:
        """The server's params with the client's URI."""
        members = raw_object(params) or {}
        meta = raw_object(members.pop("_meta", msgspec.UNSET)) or {}
        meta.pop(SUBSCRIPTION_ID, None)
        meta.update(self._stamp)
        readdressed = {**members, "uri": msgspec.Raw(object_bytes(exported))}
        return object_bytes({"_meta": meta, **readdressed} if meta else readdressed)
