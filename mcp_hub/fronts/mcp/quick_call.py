"""A request whose call has said nothing yet. Most calls end with a plain result, which needs no reader of their log.

As soon as a call says anything else, asks, fails or lasts, a `CallResponder` takes over.
"""

from collections.abc import Callable

from mcp_hub.calls.pending_input import CallHandle
from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import RpcError
from mcp_hub.fronts.mcp.client_requests import ClientRequests
from mcp_hub.fronts.mcp.early_answer import early_answer
from mcp_hub.fronts.mcp.responder import CallResponder
from mcp_hub.fronts.mcp.results import result_for
from mcp_hub.hub import HubPort
from mcp_hub.protocol.jsonrpc.envelope import result_frame
from mcp_hub.sessions.session import Session

__all__ = ["QuickCall"]

_SOON = 1.0
"""Seconds: what takes the place of a result sooner is looked after from the start."""


class QuickCall:
    """One request, by its encoded `id_`, and its call; `asking` reaches a handshake client, `token` is for progress.

    Where it `is_quick`, nothing has to be looked after from the start.
    """

    __slots__ = ("_asking", "_handle", "_hub", "_session", "_token", "id", "is_quick", "record")

    def __init__(
        self,
        hub: HubPort,
        id_: bytes,
        session: Session,
        handle: CallHandle,
        token: bytes | None,
        asking: ClientRequests,
    ) -> None:
        self.id = id_
        self.record: CallRecord = handle.record
        self._hub = hub
        self._session = session
        self._handle = handle
        self._token = token
        self._asking = asking
        is_late = handle.early is None or handle.early >= _SOON
        self.is_quick = is_late and not handle.after and self.record.stream is None

    def answer(self) -> bytes | None:
        """The answer of a call that has ended with a result and said nothing else; None: use `responder`."""
        record = self.record
        done = record.log.plain_result
        if done is None or record.stream is not None:
            return None
        call = record.call
        shared = call.method == "resources/read" and self._hub.is_shared(self._session, record)
        try:
            return result_frame(self.id, *result_for(self._hub, self._session, call, done, shared=shared))
        except RpcError:
            return None

    def responder(self, wake: Callable[[], None]) -> CallResponder:
        """Follows the call from here on; `wake` is called when there is something to take."""
        record, handle = self.record, self._handle
        instead = early_answer(self._hub, self._session, record) if handle.early is not None else None
        lasts = instead is not None and self.is_late
        made = CallResponder(
            self._hub,
            self.id,
            self._session,
            record,
            self._token,
            wake,
            self._asking,
            handle.after,
            instead=None if lasts else instead,
        )
        if lasts and instead is not None:
            made.expect(instead)
        return made

    @property
    def is_late(self) -> bool:
        """Whether the call runs for a while already, so that an early answer is due from its start on."""
        return not self._handle.after and self.record.stream is not None

    def close(self) -> None:
        """Nobody waits for the call any more. Idempotent."""
        self.record.log.unwatch()

    def withdrawn(self) -> list[bytes]:
        """The client was asked nothing."""
        return []
