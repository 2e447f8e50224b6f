"""A call without an event: its log needs no reader."""

from collections.abc import Callable
from typing import final

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.fronts.mcp.client_requests import ClientRequests
from mcp_hub.fronts.mcp.responder import CallResponder
from mcp_hub.fronts.mcp.results import result_for
from mcp_hub.hub import CallHandle, HubPort
from mcp_hub.protocol.jsonrpc.envelope import LONG, Frame, response, result_frame
from mcp_hub.sessions.session import Session
from mcp_hub.types import HANDSHAKE

_SOON = 1.0
"""Seconds: a call that is answered early, and sooner than that, is followed from the start."""


@final
class QuickCall(msgspec.Struct, eq=False):
    """A request, by its encoded `id`, and its call; `token` is for progress."""

    hub: HubPort
    id: bytes
    session: Session
    call: CallHandle
    token: bytes | None
    asking: ClientRequests | None = None
    by_cursor: bool = False

    @property
    def is_quick(self) -> bool:
        """Whether the call need not be followed yet."""
        call = self.call
        return not call.after and (call.early is None or call.early.after >= _SOON)

    def answer(self) -> Frame | None:
        """The response of a plain result; None: use `responder`."""
        call = self.call
        completed = call.plain_result
        if completed is None:
            return None
        if completed.is_plain and completed.era is self.session.era is HANDSHAKE:  # as in `result_for`, a call less
            frame = response if len(completed.result) >= LONG else result_frame
            return frame(self.id, completed.result)
        shared = call.call.method == "resources/read" and self.hub.is_public(self.session, call)
        try:
            return response(self.id, *result_for(self.hub, self.session, call.call, completed, shared=shared))
        except RpcError:
            return None

    def responder(self, wake: Callable[[], None]) -> CallResponder:
        """Follows the call; `wake` announces something to take."""
        return CallResponder(
            hub=self.hub,
            id_=self.id,
            session=self.session,
            call=self.call,
            token=self.token,
            wake=wake,
            asking=self.asking,
            by_cursor=self.by_cursor,
        )

    def close(self) -> None:
        self.call.watch(None)

    def withdrawn(self) -> list[bytes]:
        return []
