"""Servers that ask their callers: the clients of a background hub must not wait for each other's answers."""

from mcp_hub.app.attached.isolation import is_to_separate
from mcp_hub.app.build import App
from mcp_hub.logs import get_logger

log = get_logger(__name__)


def separate(app: App) -> None:
    """Gives each client its own process of a shared server that was seen to ask. `scope` in the configuration wins.

    Clients that have called the shared one stay there, with what it keeps of them in memory, until they end; calls of
    others that wait for their turn move. It is remembered for the next hubs.
    """
    for status in app.hub.statuses():
        server = app.settings.servers.get(status.server)
        if server is not None and is_to_separate(status, server):
            log.info("server_separated", upstream=status.server, reason="it asks its callers")
            app.operations.applier.isolate(status.server)
