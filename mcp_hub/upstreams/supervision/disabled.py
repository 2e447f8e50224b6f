"""An upstream that is configured but not run: it has a state, offers nothing, and says so when it is called."""

from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.types import Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.local_source import LocalSource


class DisabledUpstream(LocalSource):
    """`enabled: false` in the configuration."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        raise self._disabled()

    async def subscribe(self, uri: str) -> None:
        raise self._disabled()

    def status(self) -> UpstreamStatus:
        return UpstreamStatus(self.name, UpstreamState.DISABLED, code="disabled")

    def snapshot(self) -> Snapshot | None:
        return None

    def _disabled(self) -> UpstreamUnavailable:
        return UpstreamUnavailable(
            f'server "{self.name}" is disabled. Set `enabled: true` in the configuration to use it.'
        )
