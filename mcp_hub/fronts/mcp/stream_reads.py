"""`dev.mcp-hub/streams.read`: stored events behind a cursor.

`{stream, cursor, maxEvents, waitMs}` → `{events, cursor, truncated, closed}`. `truncated`: earlier events are no longer
kept; `closed`: the ending was read.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.errors import EventsGone, InvalidParams, MethodNotFound, StoreError, StoreUnavailable
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.mcp.tasks import Answer
from mcp_hub.hub import HubPort
from mcp_hub.masking import hide_head
from mcp_hub.protocol.extensions import STREAMS, declares
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, RawObject

READ: Final = f"{STREAMS}.read"

_MOST_EVENTS: Final = 1000
_MOST_WAIT: Final = 60_000
"""Milliseconds. More of either is not refused, but not granted."""
_CURSOR: Final = re.compile("0|[1-9][0-9]{0,14}")
"""One way only to write each, as in the specification."""


class _ReadParams(msgspec.Struct, forbid_unknown_fields=True):
    stream: str
    cursor: str | None = None
    maxEvents: int = _MOST_EVENTS
    waitMs: int = 0

    def after(self) -> int:
        """The cursor's event number. Raises `InvalidParams`."""
        text = self.cursor if self.cursor is not None else "0"
        if not _CURSOR.fullmatch(text):
            raise InvalidParams(f"params.cursor: {hide_head(text, 50)!r} is not a cursor of this stream")
        return int(text)


_decode = msgspec.json.Decoder(_ReadParams).decode


def stream_methods(hub: HubPort) -> Mapping[str, Answer]:
    """The extension's methods by name."""

    async def read(session: Session, params: RawObject) -> bytes:
        if not declares(session.capabilities, session.era, STREAMS):
            raise MethodNotFound(f"Method not found: {READ}")
        try:
            return await _read(hub, session, _query(params))
        except StoreError as problem:
            raise StoreUnavailable(f"the stream cannot be read: {problem.public}") from None

    return {READ: read}


def _query(params: RawObject) -> _ReadParams:
    try:
        query = _decode(object_bytes(params))
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidParams(f"{READ}: {problem}") from None
    if query.maxEvents < 1:
        raise InvalidParams("params.maxEvents must be at least 1")
    if query.waitMs < 0:
        raise InvalidParams("params.waitMs must not be negative")
    return query


async def _read(hub: HubPort, session: Session, query: _ReadParams) -> bytes:
    after = query.after()
    stream = await hub.stream(session.caller.principal, query.stream, session.caller.profile)
    was_orphan = stream.is_orphan
    is_truncated = False
    try:
        while True:
            try:
                following = Following(stream, after)
                try:
                    seconds = min(query.waitMs, _MOST_WAIT) / 1000
                    lines = await following.page(min(query.maxEvents, _MOST_EVENTS), seconds)
                    return _result(session, lines, following, is_truncated)
                finally:
                    following.close()
            except EventsGone as gone:
                after, is_truncated = gone.earliest - 1, True
    finally:
        stream.let_go(was_orphan=was_orphan)


def _result(session: Session, lines: list[bytes], following: Following, is_truncated: bool) -> bytes:
    head = b'"resultType":"complete",' if session.era is Era.MODERN else b""
    truncated, closed = map(msgspec.json.encode, (is_truncated, following.closed))
    fields = b",".join(lines), following.cursor, truncated, closed
    return b'{%b"events":[%b],"cursor":"%d","truncated":%b,"closed":%b}' % (head, *fields)
