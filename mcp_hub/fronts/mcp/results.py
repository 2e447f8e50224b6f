"""A call's result for one client: its URIs, mark and era."""

from typing import Final

import msgspec

from mcp_hub.call import Call
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed
from mcp_hub.fronts.mcp.partials import marked
from mcp_hub.hub import HubPort
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.shape import questions, results
from mcp_hub.sessions.session import Session
from mcp_hub.types import HANDSHAKE, MODERN, RawJson

_ASKS: Final = msgspec.Raw(b'"input_required"')


def result_for(
    hub: HubPort, session: Session, call: Call, completed: Completed, *, cursor: int | None = None, shared: bool = False
) -> tuple[RawJson | memoryview, ...]:
    """The encoded result, in parts. `cursor`: the client's in the durable stream.

    Raises `RpcError` for a result without a form in the era.
    """
    if completed.is_plain and cursor is None and completed.era is session.era is HANDSHAKE:
        return (completed.result,)
    result = hub.exported(session, call, completed.result)
    if result is not completed.result:
        completed = Completed(result, completed.era)
    if cursor is not None:
        completed = marked(completed, call.id, cursor, "completed")
    if completed.era is MODERN and session.era is MODERN and questions.may_ask(completed.result):
        completed = _with_own_state(hub, call, completed)
    return results.call_result(call.method, completed, session.era, shared=shared)


def _with_own_state(hub: HubPort, call: Call, completed: Completed) -> Completed:
    """Raises `RpcError` unless the state is text."""
    members = raw_object(completed.result) or {}
    state = members.get("requestState")
    if state is None or members.get("resultType") != _ASKS:
        return completed
    try:
        text = msgspec.json.decode(state, type=str)
    except (msgspec.DecodeError, RecursionError):
        raise RpcError("the server asked for input in an unreadable way: requestState must be a string") from None
    return Completed(object_bytes({**members, "requestState": hub.mark_state(call, text)}), completed.era)
