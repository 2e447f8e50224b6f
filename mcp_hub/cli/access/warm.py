"""`mcp-hub serve --warm`: starts every server once, so that a hub has its lists before the first client comes."""

from typing import TYPE_CHECKING

from mcp_hub.app.readiness import not_ready
from mcp_hub.cli.access import waiting
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.types import UpstreamState

if TYPE_CHECKING:
    from mcp_hub.app.build import App


async def warm(app: "App") -> int:
    """Waits until every server is ready or has failed; what it listed is on disk when the hub is closed."""
    settings = app.settings
    names = [name for name, own in settings.servers.items() if own.enabled]
    for name in names:
        app.upstream_set.wake(name)
    limits = [settings.effective(name).start_timeout for name in names]
    await waiting.settle(app.hub, 2 * max(limits, default=0.0))  # it may take two processes to find the era
    statuses = app.hub.statuses()
    missing = not_ready(statuses)
    ready = sum(status.state is UpstreamState.READY for status in statuses)
    say(f"{ready} of {tables.plural(len(names), 'server')} ready. Their lists are remembered.")
    tables.print_lines(tables.reasons(missing))
    return EXIT_UNAVAILABLE if missing else 0
