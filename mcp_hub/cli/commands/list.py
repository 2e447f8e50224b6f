"""`mcp-hub list`."""

import click

from mcp_hub.app.readiness import not_ready
from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_hub
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.notices import notices, project_warnings
from mcp_hub.cli.render.output import put
from mcp_hub.cli.render.servers import server_data, server_table, status_of
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.masking import visible
from mcp_hub.types import UpstreamState


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@hub_options
def list_servers(as_json: bool, reach: Reach) -> None:
    """List the servers with their state.

    Shows state, protocol version and number of tools, resources, prompts and skills, and why a server is not ready.
    Asks the running hub, or starts the servers. Exit code 3 if an enabled server is not ready.
    """
    run_with_hub(reach, lambda hub: _list(hub, as_json), operates=True, lists_servers=True)


async def _list(hub: ReachedHub, as_json: bool) -> int:
    await hub.settle()
    servers = await hub.client.servers()
    statuses = [status_of(server) for server in servers]
    missing = not_ready(statuses)
    if hub.loaded is not None:
        tables.print_warnings(project_warnings(hub.loaded.settings))
    if as_json:
        tables.print_json({"servers": [*map(server_data, servers)]})
    elif not servers:
        put(f"There are no servers in {hub.location}.")
    else:
        tables.print_table(server_table(servers, ends=hub.app is not None))
        partly = [s for s in statuses if s.rests or (s.reason and s.version and s.state is UpstreamState.READY)]
        lines = [*tables.reasons([*partly, *missing], ends=hub.app is not None), *tables.warnings(statuses)]
        lines += [(visible(str(notice)), "yellow") for notice in notices(servers, ends=hub.app is not None)]
        if lines and tables.console().is_terminal:
            put()
        tables.print_lines(lines)
    return EXIT_UNAVAILABLE if missing else 0
