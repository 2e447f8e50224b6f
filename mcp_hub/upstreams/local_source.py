"""Upstreams without a connection: the common part of sources that run in the hub, and a server that is disabled."""

from collections.abc import Awaitable, Callable

import msgspec

from mcp_hub.call import Call, CallChannel, CallerConnection
from mcp_hub.errors import HubRestarted, InvalidParams, MethodNotFound, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.types import Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.supervision.server import HubLifecycle


class LocalSource:
    """The base of an `Upstream` without updates of resources; nothing of it outlives the hub or is of one session.

    `task` is what runs for it, until cancelled.
    """

    def __init__(self, name: str, task: Callable[[], Awaitable[None]] | None = None) -> None:
        self.name = name
        self.lifecycle = HubLifecycle(task)

    def begin(self, call: Call, channel: CallChannel) -> None:
        """Never in place: there is no request to write."""

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Raises `HubRestarted`: a call ends with the hub that ran it."""
        raise HubRestarted(f'server "{self.name}" cannot continue a call of another hub.')

    def set_log_level(self, level: str) -> None:
        """Ignored: every message is sent, and the front passes on the levels that its client wants."""

    def session_ended(self, session: str) -> None:
        """Ignored."""

    async def subscribe(self, uri: str, call: Call) -> None:
        """Raises `MethodNotFound`."""
        raise MethodNotFound(f'server "{self.name}" does not announce updates of resources.')

    def unsubscribe(self, uri: str, call: Call) -> None:
        """Ignored."""

    def apart(self, call: Call) -> CallerConnection | None:
        """None: there is one source for all callers."""
        return None

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        """None: its lists are always of now."""
        return None

    def tool_of(self, call: Call) -> str:
        """The name of the tool that is called. Raises `MethodNotFound` and `InvalidParams`."""
        if call.method != "tools/call":
            raise MethodNotFound(f'server "{self.name}" has tools only and does not support {call.method}.')
        try:
            return msgspec.json.decode(call.params.get("name", b""), type=str)
        except msgspec.MsgspecError:
            raise InvalidParams("The name of the tool has to be a string.") from None


class DisabledUpstream(LocalSource):
    """`enabled: false` in the configuration: it has a state, offers nothing, and says so when it is called."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        raise self._disabled()

    async def subscribe(self, uri: str, call: Call) -> None:
        raise self._disabled()

    def status(self) -> UpstreamStatus:
        return UpstreamStatus(self.name, UpstreamState.DISABLED, code="disabled")

    def snapshot(self) -> Snapshot | None:
        return None

    def _disabled(self) -> UpstreamUnavailable:
        advice = "Set `enabled: true` in the configuration to use it."
        return UpstreamUnavailable(f'server "{self.name}" is disabled. {advice}')
