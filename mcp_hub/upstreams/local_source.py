"""Upstreams without a connection: the base of local sources, and disabled servers."""

from collections.abc import Awaitable, Callable

import msgspec

from mcp_hub.call import Call, CallChannel, CallerConnection, Heard
from mcp_hub.errors import HubRestarted, InvalidParams, UpstreamUnavailable, method_not_found
from mcp_hub.events import Completed
from mcp_hub.types import Kind, RawJson, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.supervision.server import Lifecycle, OwnedUpstream


class LocalSource:
    """The base of an `Upstream` without sessions and resource updates. `task` runs until cancelled."""

    def __init__(self, name: str, task: Callable[[], Awaitable[None]] | None = None) -> None:
        self.name = name
        self.lifecycle = Lifecycle(task)

    def begin(self, call: Call, channel: CallChannel) -> None:
        """None: there is no request to write."""

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        raise HubRestarted(f'server "{self.name}" cannot continue a call of another hub.')

    def set_log_level(self, level: str) -> None:
        """Ignored: all messages are sent, and the front filters them."""

    def session_ended(self, session: str) -> None:
        """Ignored."""

    async def subscribe(self, uri: str, call: Call) -> None:
        raise method_not_found(f'server "{self.name}" does not announce updates of resources.')

    def unsubscribe(self, uri: str, call: Call) -> None:
        """Ignored."""

    async def ask(self, call: Call, heard: Heard | None = None) -> RawJson:
        raise method_not_found(f'server "{self.name}" does not have events.')

    def apart(self, call: Call) -> CallerConnection | None:
        return None

    def refresh(self, kind: Kind, *, is_new: bool = False) -> Callable[[], Awaitable[None]] | None:
        return None

    def tool_of(self, call: Call) -> str:
        """The name of the called tool. Raises `method_not_found` and `InvalidParams`."""
        if call.method != "tools/call":
            raise method_not_found(f'server "{self.name}" has tools only and does not support {call.method}.')
        try:
            return msgspec.json.decode(call.params.get("name", b""), type=str)
        except msgspec.MsgspecError:
            raise InvalidParams("The name of the tool has to be a string.") from None


def disabled_upstream(name: str) -> OwnedUpstream:
    """A server with `enabled: false`."""
    return _DisabledUpstream(name)


class _DisabledUpstream(LocalSource):
    """Lists nothing and refuses calls."""

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
