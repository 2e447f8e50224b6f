"""Servers that ask their callers: the clients of a background hub must not wait for each other's answers."""

from mcp_hub.app.build import App
from mcp_hub.logs import get_logger
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.scoped import Scoped

log = get_logger(__name__)


def separate(app: App) -> None:
    """Gives each client its own process of a shared server that was seen to ask. `scope` in the configuration wins.

    Calls that run stay where they are; those that wait for their turn move. It is remembered for the next hubs.
    """
    for name, upstream in list(app.upstreams.items()):
        if not isinstance(upstream, ManagedUpstream) or isinstance(upstream, Scoped) or not upstream.asks:
            continue
        server = app.settings.servers.get(name)
        if server is not None and server.command is not None and server.scope is None:
            log.info("server_separated", upstream=name, reason="it asks its callers")
            app.operations.applier.isolate(name)
