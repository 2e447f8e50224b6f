"""Questions to one handshake client: requests of the hub's own on the client's wire, and what comes back.

A modern client is asked by the result of its request instead (`responder`). An answer counts once; one that is late,
given twice or to nothing is dropped (2025-11-25, basic/index "Responses").
"""

import secrets
from typing import Final

import msgspec

from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import RpcError
from mcp_hub.events import InputRequired
from mcp_hub.ids import new_session_id
from mcp_hub.protocol import questions
from mcp_hub.protocol.jsonrpc.envelope import Envelope, Unset, id_key, notification_frame, request_frame
from mcp_hub.protocol.rpc_errors import from_wire
from mcp_hub.types import CallId, RawJson
from mcp_hub.wire.base import Pending, Requests

__all__ = ["ClientRequests"]

_IDS: Final = 1 << 30
"""Where ids may begin: they stay what clients with 32 bits for them can keep."""


class ClientRequests:
    """What one client is being asked. `requests` is the table of its wire, or its own where the wire has none.

    A session without a wire may be had at several hubs, one after the other or side by side: the ids of its own table
    begin anywhere, so that an answer to one hub's question is none to another's.
    `ends_hub` if the hub ends with the wire: what is open then stays so, for the hub that goes on with the call.
    """

    def __init__(self, requests: Requests | None = None, *, ends_hub: bool = False) -> None:
        self._requests = requests if requests is not None else Requests(1 + secrets.randbelow(_IDS))
        self._ends_hub = ends_hub
        self._open: dict[tuple[CallId, str], Pending] = {}

    def ask(self, record: CallRecord, question: InputRequired, version: str) -> bytes | None:
        """The request frame, the same for every reading of the call's log; None if it is settled already."""
        place = record.call.id, question.key
        if question.key not in record.open_questions:
            return None
        pending = self._open.get(place)
        if pending is None:
            pending = self._open[place] = self._requests.expect(question.method)
            pending.then(lambda: self._answered(record, question.key, pending))
        params = questions.for_version(question.method, question.params, version, new_session_id())
        return request_frame(pending.id, question.method, params)

    def withdraw(self, record: CallRecord, key: str) -> bytes | None:
        """The notification that the question is off; None if the client has answered it or was never asked."""
        pending = self._open.pop((record.call.id, key), None)
        if pending is None or not self._requests.abandon(pending):
            return None
        return notification_frame("notifications/cancelled", b'{"requestId":%d}' % pending.id)

    def take(self, message: Envelope) -> None:
        """An answer that did not come over the wire of the requests themselves."""
        if message.id is not Unset:
            key = id_key(bytes(message.id))
            pending = self._requests.pending.pop(key, None) if isinstance(key, int) else None
            if pending is not None:
                pending.settle(message)

    def close(self) -> None:
        """The client is gone."""
        self._requests.fail_all("the client is gone")

    def _answered(self, record: CallRecord, key: str, pending: Pending) -> None:
        self._open.pop((record.call.id, key), None)
        if pending.answer is not None:
            outcome = _outcome(pending.answer, pending.method)
        elif self._ends_hub:
            return
        else:
            outcome = RpcError(f"{pending.method} was not answered: {pending.failure}")
        record.answer(key, outcome)


def _outcome(message: Envelope, method: str) -> RawJson | RpcError:
    """The client's result as sent, or the error that it gave in its place."""
    if message.error is not Unset:
        return from_wire(message.error, "client")
    if message.result is Unset or bytes(memoryview(message.result)[:1]) != b"{":
        return RpcError(f"the client answered {method} with something that is no result")
    return msgspec.Raw(bytes(message.result))
