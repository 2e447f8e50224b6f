"""Which lists of a profile have changed, for handshake clients: compared by content, debounced (protocol.md §3)."""

from typing import Final

import anyio

from mcp_hub.catalog.view import same_list
from mcp_hub.hub import Facade
from mcp_hub.protocol.envelope import notification_frame
from mcp_hub.types import Kind

__all__ = ["Announcer"]

_DEBOUNCE: Final = 0.1
"""Seconds between a change and its announcement: servers come up together."""
_METHODS: Final = {
    Kind.TOOL: "notifications/tools/list_changed",
    Kind.RESOURCE: "notifications/resources/list_changed",
    Kind.TEMPLATE: "notifications/resources/list_changed",
    Kind.PROMPT: "notifications/prompts/list_changed",
}


class Announcer:
    """Follows the catalog for one client, from the view of this moment on."""

    def __init__(self, hub: Facade, profile: str | None) -> None:
        self._hub = hub
        self._profile = profile
        self._view = hub.catalog.view(profile)
        self._version = hub.catalog.version

    async def next(self) -> list[bytes]:
        """The notifications of the next change that a client can see."""
        while True:
            self._version = await self._hub.catalog.wait_changed(self._version)
            await anyio.sleep(_DEBOUNCE)
            old, self._view = self._view, self._hub.catalog.view(self._profile)
            methods = {_METHODS[kind]: None for kind in Kind if not same_list(old, self._view, kind)}
            if methods:
                return [notification_frame(method) for method in methods]
