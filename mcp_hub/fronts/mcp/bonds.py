"""The bond between a client's connection and its calls: what becomes of them when the connection ends."""

from collections.abc import Awaitable, Callable

from mcp_hub.call import StreamInfo
from mcp_hub.errors import HubRestarted, RpcError, StoreError, UnknownStream
from mcp_hub.events import Cancelled, Completed, Failed
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.mcp.results import result_for
from mcp_hub.fronts.mcp.tasks import call_of, ending_of
from mcp_hub.hub import CallHandle, HubPort, StreamHandle
from mcp_hub.protocol.jsonrpc.rpc_errors import for_caller
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era

_LOOK = 10.0
"""Seconds between two looks for the ending of a call that runs elsewhere."""


class ClientBond:
    """The bond of a client that cannot come back: its calls are cancelled.

    `streams` are the durable streams of requests that the client began at another hub, by the id of the request.
    """

    ends_hub = False

    def __init__(self) -> None:
        self.streams: dict[int | str, str] = {}

    def meet(self, era: Era) -> None:
        """The client's era is certain."""

    def left(self, call: CallHandle) -> None:
        """The client is gone."""
        call.cancel("the client is gone")

    def followed(self, id_: bytes, call: CallHandle) -> bytes:
        """A message for the client about a call that does not end at once; empty for none."""
        return b""

    def rest(self, session: Session, key: int | str) -> Awaitable[bytes | CallHandle] | None:
        """The rest of a request that began at another hub; None for any other."""
        return None


class OwnHubBond(ClientBond):
    """The bond of a client with a hub of its own, which ends with it: its calls are left to another hub.

    `meet` gets the era of the client once that is certain: both ask `server/discover`.
    """

    ends_hub = True

    def __init__(self, meet: Callable[[Era], object] = lambda era: None) -> None:
        super().__init__()
        self._meet = meet

    def meet(self, era: Era) -> None:
        """Hands the era on."""
        self._meet(era)

    def left(self, call: CallHandle) -> None:
        """Nothing: the call ends with the hub."""


class AttachedBond(ClientBond):
    """The bond of a client of a background hub: its calls continue as long as their tools may.

    `say` makes the message that names a call's stream, by which another hub can take the request up.
    """

    def __init__(self, hub: HubPort, streams: dict[int | str, str], say: Callable[[bytes, str], bytes]) -> None:
        super().__init__()
        self.streams = streams
        self._hub = hub
        self._say = say

    def left(self, call: CallHandle) -> None:
        """The call is an orphan; one that waits for its turn is cancelled."""
        call.leave(is_final=True)

    def followed(self, id_: bytes, call: CallHandle) -> bytes:
        """The name of its stream."""
        return self._say(id_, call.call.id)

    def rest(self, session: Session, key: int | str) -> Awaitable[bytes | CallHandle] | None:
        """The call, if it runs here, or its result."""
        stream = self.streams.pop(key, None)
        return None if stream is None else _rest(self._hub, session, stream)


async def _rest(hub: HubPort, session: Session, id_: str) -> bytes | CallHandle:
    """Raises `HubRestarted` if nothing is known of the stream, and the error that it ended with."""
    try:
        stream = await hub.stream(session.caller.principal, id_, session.caller.profile)
        call = hub.running_call(stream)
        if call is not None:
            return call
        await _has_ended(stream)
        return await _result(hub, session, stream.info, stream)
    except (UnknownStream, StoreError):
        said = "The background hub ended during this call. Whether the tool has done its work is not known."
        raise HubRestarted(said, data={"outcome": "unknown"}) from None


async def _has_ended(stream: StreamHandle) -> None:
    following = Following(stream, stream.info.last)
    try:
        while not following.closed and not stream.info.has_ended:
            await following.lines(1, _LOOK)
    finally:
        following.close()


async def _result(hub: HubPort, session: Session, row: StreamInfo, stream: StreamHandle) -> bytes:
    match await ending_of(stream):
        case Completed() as done:
            return b"".join(result_for(hub, session, call_of(session, row), done, cursor=row.last))
        case Failed(error):
            raise for_caller(error, session.era, row.server, session.capabilities)
        case Cancelled(reason):
            raise RpcError(reason or "the call was cancelled")
