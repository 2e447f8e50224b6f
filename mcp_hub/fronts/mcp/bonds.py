"""The fate of a client's calls when it leaves."""

from collections.abc import Callable, Coroutine

from mcp_hub.call import StreamInfo
from mcp_hub.errors import HubRestarted, RpcError, StoreError, UnknownStream
from mcp_hub.events import BY_CLIENT, Cancelled, Completed, Failed
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.mcp.results import result_for
from mcp_hub.fronts.mcp.tasks import call_of, ending_of
from mcp_hub.hub import CallHandle, HubPort, StreamHandle, is_elsewhere
from mcp_hub.protocol.jsonrpc.rpc_errors import for_caller
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era

_LOOK = 10.0
"""Seconds between two looks for the ending of a call that runs elsewhere."""


class ClientBond:
    """Cancels a client's calls, or leaves them to the next hub if this one ends with its client (`ends_hub`).

    `meet` gets the client's era. `streams`: durable streams of requests to another hub, by request id.
    """

    def __init__(self, *, ends_hub: bool = False, meet: Callable[[Era], object] = lambda era: None) -> None:
        self.ends_hub = ends_hub
        self.meet = meet
        self.streams: dict[int | str, str] = {}

    def on_left(self, call: CallHandle) -> None:
        """The client has left."""
        if not self.ends_hub:
            call.cancel(BY_CLIENT if is_elsewhere(call) else "the client is gone")

    def followed(self, id_: bytes, call: CallHandle) -> bytes:
        """A message about a long call; empty for none."""
        return b""

    def continuation(self, session: Session, key: int | str) -> Coroutine[object, object, bytes | CallHandle] | None:
        """The rest of a request from another hub."""
        return None


class AttachedBond(ClientBond):
    """Continues calls at a background hub. `say` announces a call's stream."""

    def __init__(self, hub: HubPort, streams: dict[int | str, str], say: Callable[[bytes, str], bytes]) -> None:
        super().__init__()
        self.streams = streams
        self._hub = hub
        self._say = say

    def on_left(self, call: CallHandle) -> None:
        """Orphans the call; a queued one is cancelled."""
        call.leave(is_final=True)

    def followed(self, id_: bytes, call: CallHandle) -> bytes:
        return self._say(id_, call.call.id)

    def continuation(self, session: Session, key: int | str) -> Coroutine[object, object, bytes | CallHandle] | None:
        stream = self.streams.pop(key, None)
        return None if stream is None else _continuation(self._hub, session, stream)


async def _continuation(hub: HubPort, session: Session, id_: str) -> bytes | CallHandle:
    """Raises `HubRestarted` for an unknown stream, and the call's error."""
    try:
        stream = await hub.durable.open(session.caller.principal, id_, session.caller.profile)
        call = hub.running_call(stream)
        if call is not None:
            return call
        await _has_ended(stream)
        return await _result(hub, session, stream.info, stream)
    except (UnknownStream, StoreError):
        reason = "The background hub ended during this call. Whether the tool has done its work is not known."
        raise HubRestarted(reason, data={"outcome": "unknown"}) from None


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
