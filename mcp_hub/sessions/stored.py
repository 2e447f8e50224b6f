"""Handshake sessions that outlive the hub: one whose client can come back for a stream is stored."""

from typing import Final

import msgspec

from mcp_hub.clock import wall_time
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.protocol import eras
from mcp_hub.sessions.session import Caller, ClientOffer, Session
from mcp_hub.stores.base import EventStore, SessionRow
from mcp_hub.types import Era, JsonObject

log = get_logger(__name__)

_AHEAD: Final = 3600.0
"""Seconds that a record lives longer than it has to, so that not every stream of a session writes it anew."""

_BEGUN: Final = 86400.0
"""Seconds of streams for which a record lasts that is made when the session begins: seldom is there a second write."""


class _Body(msgspec.Struct, omit_defaults=True):
    version: str
    profile: str | None = None
    capabilities: JsonObject = {}
    client_info: JsonObject = {}
    log_level: str | None = None
    subscriptions: list[str] = []


class StoredSession(msgspec.Struct):
    """A session, and what it is to subscribe to again.

    `until` is when its record ends (Unix seconds; 0 without a record), `stored` the last such time that the store has.
    One that `was_elsewhere` has been accepted again: calls of it may run that this hub was not sent.
    """

    session: Session
    until: float = 0.0
    stored_until: float = 0.0
    lapsed: dict[str, None] = msgspec.field(default_factory=dict)
    is_over: bool = False
    was_elsewhere: bool = False

    def encoded(self) -> bytes:
        session = self.session
        return msgspec.json.encode(
            _Body(
                session.version,
                session.caller.profile,
                session.capabilities,
                session.client_info,
                session.log_level,
                list(dict.fromkeys([*session.subscriptions.values(), *self.lapsed])),
            )
        )


class SessionStore:
    """The records in the store. `retention` in seconds, of streams that have ended."""

    def __init__(self, store: EventStore, retention: float) -> None:
        self._store = store
        self._retention = retention

    async def begun(self, stored: StoredSession) -> None:
        """A session has begun: where its next request may come to another process, it has to be found there."""
        if self._store.is_shared:
            await self.keep(stored, _BEGUN)

    async def keep(self, stored: StoredSession, seconds: float) -> None:
        """Returns when the record will last as long as a stream of so many seconds; never fails with the store."""
        until = wall_time() + seconds + self._retention
        if stored.stored_until < until:
            stored.until = max(stored.until, until + _AHEAD)
            await self.update(stored)

    async def update(self, stored: StoredSession) -> None:
        """The session has changed: so has its record, if it has one, when this returns."""
        if not stored.until or stored.is_over:
            return
        session, until = stored.session, stored.until
        try:
            await self._store.put_session(SessionRow(session.id, session.caller.principal, stored.encoded(), until))
        except StoreError as error:
            log.warning("session_not_kept", session=session.id, reason=str(error))
        stored.stored_until = max(stored.stored_until, until)

    async def find(self, id_: str, caller: Caller) -> StoredSession | None:
        """The session of that id if there is a record, and it is this caller's. Raises `StoreError`."""
        row = await self._store.session(id_)
        if row is None or row.principal != caller.principal or row.expires <= wall_time():
            return None
        try:
            body = msgspec.json.decode(row.body, type=_Body)
        except msgspec.DecodeError:
            log.warning("session_unreadable", session=id_)
            return None
        if body.profile != caller.profile or body.version not in eras.HANDSHAKE_VERSIONS:
            return None
        about = body.version, body.capabilities, body.client_info, body.log_level
        session = Session(id_, caller, Era.HANDSHAKE, *about, offer=ClientOffer(apps={}))
        lapsed = dict.fromkeys(body.subscriptions)
        return StoredSession(session, row.expires, row.expires, lapsed, was_elsewhere=True)

    async def drop(self, stored: StoredSession) -> None:
        """The client has ended the session."""
        stored.is_over = True
        if stored.until:
            try:
                await self._store.drop_session(stored.session.id)
            except StoreError as error:
                log.warning("session_not_dropped", session=stored.session.id, reason=str(error))
