"""A call that another hub has left behind, and what this one makes of it (streams.md §6, "hub `kill -9`")."""

from functools import partial
from typing import Final, Self

import msgspec

from mcp_hub.calls import runner
from mcp_hub.calls.registry import Registry
from mcp_hub.calls.runner import CallRecord, TimeLimits
from mcp_hub.errors import HubRestarted, RpcError
from mcp_hub.events import Cancelled, Completed
from mcp_hub.stores.base import StreamRow
from mcp_hub.upstreams.base import Call, CallChannel, Upstream

__all__ = ["Left"]

_CONNECTING: Final = 1.0
"""Seconds that the server of a call which was cancelled already has to be there, so that it hears of it."""


class Left(msgspec.Struct):
    """A `StreamRow.continuation`: the call, what its upstream said of it, and why it was cancelled, if it was."""

    call: Call
    how: msgspec.Raw
    revoked: str | None = None

    @classmethod
    def of(cls, row: StreamRow) -> Self:
        """Raises `msgspec.DecodeError`."""
        return msgspec.json.decode(row.continuation or b"", type=cls)

    def started(self, upstream: Upstream | None, registry: Registry, limits: TimeLimits) -> CallRecord:
        """Goes on with it, or ends it as its caller wanted. Raises `Busy`."""

        async def resumed(call: Call, channel: CallChannel) -> Completed:
            if upstream is None:
                raise HubRestarted(f'upstream "{call.upstream}" is not configured here', data={"outcome": "unknown"})
            try:
                return await upstream.resume(call, channel, self.how)
            except RpcError:
                if self.revoked is not None:  # it has been told already, or cannot be
                    record.stopping = Cancelled(self.revoked)
                raise

        record = registry.start(self.call, resumed, limits)
        if self.revoked is not None:
            runner.call_later(_CONNECTING, partial(registry.cancel, record, self.revoked))
        return record
