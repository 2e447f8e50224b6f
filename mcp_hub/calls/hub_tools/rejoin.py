"""Continues to wait for a call that runs at another replica, for a client that has brought the input here.

Source: specification 2026-07-28, basic/patterns/mrtr: a retry is a request of its own, which any process may get.
"""

import math
from typing import Final

import anyio

from mcp_hub.call import Call, CallChannel, CallHandler, Early
from mcp_hub.calls.handle import CallHandle
from mcp_hub.calls.hub_tools.stream_wait import StreamWait
from mcp_hub.calls.reading.stored import ending_of
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.rules import TimeLimits
from mcp_hub.calls.streams.port import StreamHandle, StreamPort
from mcp_hub.errors import CallCancelled, RpcError, StoreError, UnknownState, UnknownStream
from mcp_hub.events import BY_CLIENT, Cancelled, Completed, Ending, Failed
from mcp_hub.types import CallId, RawObject

_DAY: Final = 86400.0
_CANCEL: Final = 1.0
"""Seconds in which the call's own replica has to hear that its client is gone."""
_LIMITS: Final = TimeLimits(_DAY, _DAY, answer=_DAY)
"""Of the call here: none that it could reach. Those of the call itself hold where it runs."""


def rejoined(
    registry: CallRegistry, streams: StreamPort, id_: CallId, call: Call, responses: RawObject, early: Early | None
) -> CallHandle:
    """The call of a client that stands for `id_`, which runs at another replica. Raises `Busy`."""
    return CallHandle(call, registry.start(call, rejoining(streams, id_, responses), _LIMITS), streams, early=early)


def rejoining(streams: StreamPort, id_: CallId, responses: RawObject) -> CallHandler:
    """Hands the responses to the call `id_`, and ends as it does. Cancelling this cancels the call."""

    async def rejoin(call: Call, channel: CallChannel) -> Completed:
        try:
            stream = await streams.open(call.principal, id_, None)
            if stream.record is not None:
                raise UnknownStream
            return _result(await _ending(stream, call, channel, responses))
        except UnknownStream:
            raise UnknownState("params.requestState is unknown: it was used, or its call is no longer kept") from None
        except StoreError as problem:
            raise RpcError(f"the call cannot be continued here: {problem.public}") from None

    return rejoin


async def _ending(stream: StreamHandle, call: Call, channel: CallChannel, responses: RawObject) -> Ending:
    if stream.info.has_ended:
        return ending_of(stream.info, await stream.ending())
    wait = StreamWait(stream, stream.info.last, channel, call.asks_client, responses)
    try:
        for key, response in responses.items():
            await stream.answer(key, response)
        ending = await wait.ending(math.inf, is_modern=False)
    except anyio.get_cancelled_exc_class():
        with anyio.move_on_after(_CANCEL, shield=True):
            await stream.cancel(BY_CLIENT)
        raise
    finally:
        wait.close()
    assert ending is not None  # it has all the time
    return ending


def _result(ending: Ending) -> Completed:
    match ending:
        case Failed(error):
            raise error
        case Cancelled(reason):
            raise CallCancelled(f"The call was cancelled: {reason or 'no reason was given'}.")
        case _:
            return ending
