"""Handshake sessions with a stored record: clients can resume streams after a restart or at another process."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec

from mcp_hub.clock import wall_time
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.protocol import eras
from mcp_hub.sessions.session import Caller, ClientOffer, Session
from mcp_hub.stores.base import Replicas, SessionRow, SessionRows
from mcp_hub.types import Era, JsonObject

log = get_logger(__name__)

_AHEAD: Final = 3600.0
"""Extra seconds of a record, so that not every stream writes it."""

_BEGUN: Final = 86400.0
"""Seconds of streams that a new session's record covers, so that a second write is rare."""
_COUNTABLE: Final = 1 << 53
"""Above the number of any record."""
_ATTEMPTS: Final = 8
"""To write a change beside those of other processes; the last one overwrites them."""


class _Body(msgspec.Struct, omit_defaults=True):
    version: str
    profile: str | None = None
    capabilities: JsonObject = {}
    client_info: JsonObject = {}
    log_level: str | None = None
    subscriptions: list[str] = []
    apps: list[str] = []
    """Servers whose apps the client has read, the first one first."""
    number: int = 0
    """The version of the record, higher after each change."""


Changed = Callable[["StoredSession", str | None, Sequence[str]], None]
"""Takes another process's changes of a session, which may be over: a new log level, ended subscriptions."""


class StoredSession(msgspec.Struct):
    """A session and its record.

    `until` is the record's expiry in Unix seconds (0: none), `stored_until` the stored one. `record` is the newest
    shared record, with its `number`. After `was_elsewhere` another hub may run its calls.
    """

    session: Session
    until: float = 0.0
    stored_until: float = 0.0
    lapsed: dict[str, None] = msgspec.field(default_factory=dict)
    is_over: bool = False
    was_elsewhere: bool = False
    record: SessionRow | None = None
    number: int = 0

    def take(self, record: SessionRow) -> tuple[str | None, list[str]]:
        """Merges another process's record; the caller must apply the returned log level and ended subscriptions.

        New subscriptions become `lapsed`. Raises `ValueError` for an invalid record.
        """
        session = self.session
        theirs = _body(record)
        if theirs.number <= self.number:  # it comes by two ways
            return None, []
        mine = msgspec.json.decode(self.encoded(), type=_Body)
        before = mine if self.record is None else _body(self.record)
        self.lapsed |= dict.fromkeys(uri for uri in theirs.subscriptions if uri not in before.subscriptions)
        gone = [uri for uri in before.subscriptions if uri not in theirs.subscriptions]
        for uri in gone:
            self.lapsed.pop(uri, None)
        if session.offer.apps is not None:
            session.offer.apps |= dict.fromkeys(theirs.apps)
        self.until = max(self.until, record.expires)
        self.seen(record, theirs.number)
        self.stored_until = max(self.stored_until, record.expires)
        is_other = theirs.log_level != before.log_level == mine.log_level
        return theirs.log_level if is_other else None, gone

    def seen(self, record: SessionRow | None, number: int) -> None:
        """Notes a stored record; None if no other process can change it."""
        if number > self.number:
            self.record, self.number = record, number

    def end(self) -> None:
        self.is_over = True

    def encoded(self) -> bytes:
        """The next record."""
        session = self.session
        return msgspec.json.encode(
            _Body(
                version=session.version,
                profile=session.caller.profile,
                capabilities=session.capabilities,
                client_info=session.client_info,
                log_level=session.log_level,
                subscriptions=list(dict.fromkeys([*session.subscriptions.values(), *self.lapsed])),
                apps=list(session.offer.apps or ()),
                number=self.number + 1,
            )
        )


def _body(record: SessionRow) -> _Body:
    """Raises `ValueError` for an invalid record."""
    try:
        body = msgspec.json.decode(record.body, type=_Body)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not 0 <= body.number < _COUNTABLE or body.log_level not in (None, *eras.LOG_LEVELS):
        raise ValueError("a field is out of range")
    return body


class SessionStore:
    """Session records in a store; `retention` of ended streams is in seconds."""

    def __init__(self, records: SessionRows, replicas: Replicas | None, retention: float) -> None:
        self._records = records
        self._replicas = replicas
        self._retention = retention

    async def begun(self, stored: StoredSession) -> None:
        """Stores a new session if there are replicas."""
        if self._replicas is not None:
            await self.keep(stored, _BEGUN)

    async def keep(self, stored: StoredSession, seconds: float) -> None:
        """Makes the record outlast a stream of so many seconds. Never raises."""
        until = wall_time() + seconds + self._retention
        if stored.stored_until < until:
            stored.until = max(stored.until, until + _AHEAD)
            await self.update(stored)

    async def update(self, stored: StoredSession) -> None:
        """Stores a changed session that has a record."""
        if not stored.until or stored.is_over:
            return
        until = stored.until
        try:
            await self._put(stored)
        except StoreError as error:
            log.warning("session_not_kept", session=stored.session.id, reason=str(error))
        stored.stored_until = max(stored.stored_until, until)

    async def _put(self, stored: StoredSession) -> None:
        session = stored.session
        for attempt in range(_ATTEMPTS):
            number = stored.number + 1
            row = SessionRow(session.id, session.caller.principal, stored.encoded(), stored.until)
            written = await self._records.put(row, stored.record if attempt < _ATTEMPTS - 1 else None)
            replicas = self._replicas
            if replicas is None or written is None or written == row:
                stored.seen(None if replicas is None else written, number)
                return
            replicas.sessions.changed(session.id, written)

    def join(self, stored: StoredSession, changed: Changed) -> None:
        """Calls `changed` for other replicas' changes, and at the end, until `leave`."""
        if self._replicas is not None:
            self._replicas.sessions.join(stored.session.id, partial(_take, stored, changed))

    def leave(self, id_: str) -> None:
        if self._replicas is not None:
            self._replicas.sessions.leave(id_)

    async def find(self, id_: str, caller: Caller) -> StoredSession | None:
        """The caller's. Raises `StoreError`."""
        row = await self._records.find(id_)
        if row is None or row.principal != caller.principal or row.expires <= wall_time():
            return None
        try:
            body = _body(row)
        except ValueError as error:
            log.warning("session_unreadable", session=id_, reason=str(error))
            return None
        if body.profile != caller.profile or body.version not in eras.HANDSHAKE_VERSIONS:
            return None
        declared = body.version, body.capabilities, body.client_info, body.log_level
        session = Session(id_, caller, Era.HANDSHAKE, *declared, offer=ClientOffer(apps=dict.fromkeys(body.apps)))
        lapsed = dict.fromkeys(body.subscriptions)
        record = None if self._replicas is None else row
        return StoredSession(
            session, row.expires, row.expires, lapsed, was_elsewhere=True, record=record, number=body.number
        )

    async def drop(self, stored: StoredSession) -> None:
        stored.end()
        if stored.until:
            try:
                await self._records.drop(stored.session.id)
            except StoreError as error:
                log.warning("session_not_dropped", session=stored.session.id, reason=str(error))


def _take(stored: StoredSession, changed: Changed, record: SessionRow | None) -> None:
    if record is None:
        stored.end()
        changed(stored, None, ())
    elif record.principal == stored.session.caller.principal:
        try:
            changed(stored, *stored.take(record))
        except ValueError as error:
            log.warning("session_unreadable", session=stored.session.id, reason=str(error))
