"""An upstream that is configured but not run: it has a state, offers nothing, and says so when it is called."""

from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import HubRestarted, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.types import RawJson, Snapshot, UpstreamState, UpstreamStatus

__all__ = ["DisabledUpstream"]


class DisabledUpstream:
    """`enabled: false` in the configuration."""

    def __init__(self, name: str) -> None:
        self.name = name

    def begin(self, call: Call, channel: CallChannel) -> None:
        """Nothing is sent."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        raise UpstreamUnavailable(f'upstream "{self.name}" is disabled in the configuration')

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        """Nothing here outlives a hub."""
        raise HubRestarted(f'upstream "{self.name}" cannot go on with a call of another hub')

    def status(self) -> UpstreamStatus:
        return UpstreamStatus(self.name, UpstreamState.DISABLED, code="disabled")

    def snapshot(self) -> Snapshot | None:
        return None

    def set_log_level(self, level: str) -> None:
        """There is nobody to tell."""

    def session_ended(self, session: str) -> None:
        """Nothing is kept for one session."""

    async def subscribe(self, uri: str) -> None:
        raise UpstreamUnavailable(f'upstream "{self.name}" is disabled in the configuration')

    def unsubscribe(self, uri: str) -> None:
        """Nobody is subscribed."""
