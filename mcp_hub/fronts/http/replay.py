"""A handshake client's request, kept with its call's stream."""

from contextlib import suppress
from typing import Final, Self

import msgspec

from mcp_hub.call import Call, MakeInfo, StreamInfo
from mcp_hub.errors import StoreError, UnknownStream
from mcp_hub.hub import HubPort
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.envelope import id_key
from mcp_hub.sessions.session import Session

log = get_logger(__name__)

_MOST_ROWS: Final = 1000


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """A stream's request, kept in `StreamInfo.info`. `exported` is the client's URI."""

    id: msgspec.Raw
    progress: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    uri: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    exported: str | None = None

    @classmethod
    def of(cls, id_: bytes, token: bytes | None, call: Call) -> Self:
        progress = msgspec.Raw(token) if token is not None else msgspec.UNSET
        return cls(msgspec.Raw(id_), progress, call.params.get("uri", msgspec.UNSET), call.exported_uri)

    @classmethod
    def maker(cls, id_: bytes, token: bytes | None) -> MakeInfo:
        """Makes the encoded origin of a call with this request id and progress token."""
        return lambda call: cls.of(id_, token, call).encoded()

    @classmethod
    def stored(cls, row: StreamInfo) -> Self:
        """Raises `UnknownStream` if the stream cannot be resumed."""
        try:
            return msgspec.json.decode(row.info or b"", type=cls)
        except msgspec.DecodeError:
            raise UnknownStream from None

    @property
    def key(self) -> int | str:
        return id_key(bytes(self.id))

    @property
    def token(self) -> bytes | None:
        return bytes(self.progress) if self.progress is not msgspec.UNSET else None

    def encoded(self) -> bytes:
        return msgspec.json.encode(self)

    def call(self, row: StreamInfo, session: Session) -> Call:
        """The call, as it shapes messages."""
        return Call(
            id=row.id,
            upstream=row.server,
            method=row.method,
            params={"uri": self.uri} if self.uri is not msgspec.UNSET else {},
            meta={},
            session=session.id,
            principal=row.principal,
            era=session.era,
            capabilities=session.capabilities,
            version=session.version,
            exported_uri=self.exported,
            wants_progress=self.token is not None,
        )


async def cancel_stored(hub: HubPort, session: Session, reason: str, key: int | str | None = None) -> None:
    """Cancels a session's calls at any hub, among its newest `_MOST_ROWS`; with `key`, one request's."""
    caller = session.caller
    try:
        for row in await hub.durable.newest(caller.principal, _MOST_ROWS, caller.profile):
            if row.session == session.id and not row.has_ended and key in (None, _key_in(row)):
                await (await hub.durable.open(caller.principal, row.id, caller.profile)).cancel(reason)
    except (UnknownStream, StoreError) as error:
        log.warning("cancel_not_passed_on", session=session.id, reason=str(error))


def _key_in(row: StreamInfo) -> int | str | None:
    with suppress(UnknownStream):
        return Origin.stored(row).key
    return None
