"""A call that another hub has left behind, and what this one makes of it."""

from functools import partial
from typing import Final, Self

import msgspec

from mcp_hub import aio
from mcp_hub.call import Call, CallChannel, StreamInfo, Upstream
from mcp_hub.calls.plan import WITHOUT_PLAN, CallPlan
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.rules import TimeLimits
from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import HubRestarted, RpcError
from mcp_hub.events import Cancelled, Completed

_CONNECTING: Final = 1.0
"""Seconds that the server of a call which was cancelled already has to be there, so that it hears of it."""


class Continuation(msgspec.Struct):
    """A `StreamInfo.continuation`: the call, what its upstream said of it, and why it was cancelled, if it was."""

    call: Call
    how: msgspec.Raw
    revoked: str | None = None

    @classmethod
    def of(cls, row: StreamInfo) -> Self:
        """Raises `msgspec.DecodeError`."""
        return msgspec.json.decode(row.continuation or b"", type=cls)

    def started(
        self, upstream: Upstream | None, registry: CallRegistry, limits: TimeLimits, plan: CallPlan = WITHOUT_PLAN
    ) -> CallRecord:
        """Continues the call, or ends it as its caller wanted. Raises `Busy`."""

        async def resumed(call: Call, channel: CallChannel) -> Completed:
            if upstream is None:
                raise HubRestarted(f'upstream "{call.upstream}" is not configured here', data={"outcome": "unknown"})
            try:
                return await upstream.resume(call, channel, self.how)
            except RpcError:
                if self.revoked is not None:  # its server knows already, or cannot know
                    record.give_up(Cancelled(self.revoked))
                raise

        record = registry.start(self.call, resumed, limits, plan)
        if self.revoked is not None:
            aio.call_later(_CONNECTING, partial(registry.cancel, record, self.revoked))
        return record
