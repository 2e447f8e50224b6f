"""The sessions that were sent to a URL: the server's notice that the user is done there is for that session alone.

Source: specification 2025-11-25, client/elicitation "Completion Notifications"; the modern era has no such message.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from mcp_hub.call import Call
from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc.envelope import read_as
from mcp_hub.protocol.rpc_errors import URL_ELICITATION_REQUIRED
from mcp_hub.types import Era, RawJson

_MOST: Final = 256
"""Elicitations of one server that are remembered; the oldest goes first."""


class _Elicitation(msgspec.Struct):
    elicitationId: str


class _Error(msgspec.Struct):
    class Data(msgspec.Struct):
        elicitations: list[_Elicitation]

    data: Data


class Elicitations:
    """The URL elicitations of one server by their ids, each with the handshake session that got it."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[str, str] = OrderedDict()

    def asked(self, call: Call, params: RawJson) -> None:
        """A question of the server goes to the caller of `call`."""
        if b'"elicitationId"' in bytes(params) and (found := read_as(params, _Elicitation)) is not None:
            self._keep(call, found.elicitationId)

    def refused(self, call: Call, error: RpcError) -> None:
        """A call has failed until the user has visited a URL (-32042)."""
        if error.code == URL_ELICITATION_REQUIRED and (found := read_as(error.encoded(), _Error)) is not None:
            for one in found.data.elicitations:
                self._keep(call, one.elicitationId)

    def finished(self, params: RawJson) -> str | None:
        """The session that `notifications/elicitation/complete` is for; None if there is none (any more)."""
        found = read_as(params, _Elicitation)
        return self._sessions.pop(found.elicitationId, None) if found is not None else None

    def _keep(self, call: Call, id_: str) -> None:
        if call.era is Era.HANDSHAKE:
            self._sessions[id_] = call.session
            if len(self._sessions) > _MOST:
                self._sessions.popitem(last=False)
