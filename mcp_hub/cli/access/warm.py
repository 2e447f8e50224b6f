"""`mcp-hub serve --warm`: starts every server once, so that a hub has its lists before the first client comes."""

from typing import TYPE_CHECKING

from mcp_hub.app.readiness import not_ready
from mcp_hub.cli.access import waiting
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.types import UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.app.build import App


async def warm(app: "App") -> int:
    """Starts every server once, and says which are ready; the exit code."""
    working, absent = await started_once(app)
    say(f"{working} of {tables.plural(working + len(absent), 'server')} ready. Their lists are remembered.")
    tables.print_lines(tables.reasons(absent, ends=True))
    return EXIT_UNAVAILABLE if absent else 0


async def started_once(app: "App") -> tuple[int, list[UpstreamStatus]]:
    """Waits until every server is ready or has failed; the number of those that work, and the others.

    What the servers listed is on disk when the hub is closed.
    """
    settings = app.settings
    names = [name for name, own in settings.servers.items() if own.enabled]
    for name in names:
        app.upstream_set.wake(name)
    limits = [settings.effective(name).start_timeout for name in names]
    await waiting.settle(app.hub, 2 * max(limits, default=0.0))  # it may take two processes to find the era
    statuses = [status for status in app.hub.statuses() if status.state is not UpstreamState.DISABLED]
    absent = not_ready(statuses)
    return len(statuses) - len(absent), absent
