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
    hub: HubPort, session: Session, call: Call, done: Completed, *, cursor: int | None = None, shared: bool = False
) -> tuple[RawJson | memoryview, ...]:
    """The encoded result, in parts. `cursor`: the client's in the durable stream.

    Raises `RpcError` for a result without a form in the era.
    """
    if done.is_plain and cursor is None and done.era is session.era is HANDSHAKE:
        return (done.result,)
    result = hub.exported(session, call, done.result)
    if result is not done.result:
        done = Completed(result, done.era)
    if cursor is not None:
        done = marked(done, call.id, cursor, "completed")
    if done.era is MODERN and session.era is MODERN and questions.may_ask(done.result):
        done = _with_own_state(hub, call, done)
    return results.call_result(call.method, done, session.era, shared=shared)


def _with_own_state(hub: HubPort, call: Call, done: Completed) -> Completed:
    """Raises `RpcError` unless the state is text."""
    members = raw_object(done.result) or {}
    state = members.get("requestState")
    if state is None or members.get("resultType") != _ASKS:
        return done
    try:
        own = msgspec.json.decode(state, type=str)
    except (msgspec.DecodeError, RecursionError):
        raise RpcError("the server asked for input in an unreadable way: requestState must be a string") from None
    return Completed(object_bytes({**members, "requestState": hub.mark_state(call, own)}), done.era)
