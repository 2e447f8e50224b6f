"""Waits until a run's state is safe, and says whether this hub may still send its calls.

Where a durable store is configured, a commit that only memory has does not count.
"""

from collections.abc import Callable
from typing import Final

import anyio

from mcp_hub.call import Call, CallChannel
from mcp_hub.calls.reading.stored import event_of, fetched
from mcp_hub.calls.streams.owners import lost_call
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.errors import RpcError, StoreError, UnknownStream
from mcp_hub.events import ToolCall, ToolResult
from mcp_hub.types import CallId, JsonObject

_LOOK: Final = 0.25
"""Seconds between looks at a store that has failed."""
_PAGE: Final = 1000


def may_send(call: Call, channel: CallChannel, streams: StreamTable, *, is_lasting: bool) -> bool:
    """Whether all events so far are safe, no other hub can have the run, and it was not cancelled."""
    writer = streams.owned(call.id)
    if writer is None or writer.is_over or channel.stopping is not None:
        return False
    stream, log = writer.stream, streams.store.log
    has_failed = writer.error is not None or stream.failed is not None or stream.is_lost
    return not has_failed and log.is_held(call.id) and (not is_lasting or log.survives(call.id))


async def until_safe(
    call: Call,
    channel: CallChannel,
    streams: StreamTable,
    again: Callable[[], None],
    *,
    is_lasting: bool,
    seconds: float,
) -> None:
    """Returns once all so far is stored; `again` writes the state anew. Raises `RpcError` (`code_not_stored`)."""
    with anyio.move_on_after(seconds):
        while True:
            await channel.until_stored(whole=False)
            if may_send(call, channel, streams, is_lasting=is_lasting):
                return
            writer = streams.owned(call.id)
            if writer is None or writer.is_over or writer.stream.is_lost:
                break
            await anyio.sleep(_LOOK)
            again()
    writer = streams.owned(call.id)
    if writer is not None and writer.stream.is_lost:
        raise lost_call(call.upstream)
    reason = "The script was ended: its state could not be stored, and nothing is sent before it is."
    raise RpcError(reason, symbol="code_not_stored", data={"seconds": seconds})


async def calls_made(streams: StreamTable, id_: CallId) -> list[JsonObject]:
    """The calls in the log: of each its tool, and whether it failed or has no result."""
    made: dict[str, JsonObject] = {}
    after = 0
    try:
        row = await streams.store.log.find(id_)
        while row is not None and after < row.last and (lines := await fetched(streams.store.log, id_, after, _PAGE)):
            after += len(lines)
            for event in map(event_of, lines):
                if isinstance(event, ToolCall):
                    made[event.call] = {"call": event.call, "tool": event.name, "outcome": "unknown"}
                elif isinstance(event, ToolResult) and event.call in made:
                    made[event.call]["outcome"] = "error" if event.is_error else "ok"
    except (StoreError, UnknownStream):
        return []
    return list(made.values())
