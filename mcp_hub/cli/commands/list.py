"""`mcp-hub list`: the state of every server, the number of its tools, and why a server is not ready."""

import click

from mcp_hub.app.readiness import not_ready
from mcp_hub.cli.access.hub import ReachedHub, run_with_hub, url_options
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.notices import notices
from mcp_hub.cli.render.servers import server_data, server_table, status_of
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_option, verbose_option, wait_option
from mcp_hub.masking import visible
from mcp_hub.types import UpstreamState


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@url_options
@wait_option
@verbose_option
@config_option
def list_servers(
    as_json: bool, wait: float, verbose: int, config: str | None, url: str | None, token: str | None
) -> None:
    """List the servers with their state.

    Shows state, protocol version and number of tools, resources and prompts, and why a server is not ready. Starts the
    servers itself; with --url, it asks a running hub instead. Exit code 3 if an enabled server is not ready.
    """
    run_with_hub(url, token, config, lambda hub: _list(hub, as_json), wait=wait, verbose=verbose)


async def _list(hub: ReachedHub, as_json: bool) -> int:
    await hub.settle()
    servers = await hub.client.servers()
    statuses = [status_of(own) for own in servers]
    missing = not_ready(statuses)
    if as_json:
        tables.print_json({"servers": [*map(server_data, servers)]})
    elif not servers:
        click.echo(visible(f"There are no servers in {hub.place}."))
    else:
        tables.print_table(server_table(servers))
        partly = [s for s in statuses if s.rests or (s.reason and s.version and s.state is UpstreamState.READY)]
        tables.print_lines(tables.reasons([*partly, *missing]))
        tables.print_lines(tables.warnings(statuses))
        tables.print_lines([(visible(str(own)), "yellow") for own in notices(servers)])
    return EXIT_UNAVAILABLE if missing else 0
