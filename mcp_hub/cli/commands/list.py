"""`mcp-hub list`: starts every server and says which ones are ready, with what, and why the others are not.

With `--url` it asks a hub that runs (`access.remote_servers`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from mcp_hub.cli.access import waiting
from mcp_hub.cli.access.remote import run_with_hub, url_options
from mcp_hub.cli.access.remote_servers import list_there
from mcp_hub.cli.render import notices, tables
from mcp_hub.cli.setup import (
    EXIT_UNAVAILABLE,
    config_option,
    load_config,
    quiet_logs,
    run_with_app,
    verbose_option,
    wait_option,
)
from mcp_hub.config.load.load import Loaded
from mcp_hub.types import UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.app.build import App

__all__ = ["list_servers"]


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
    if url is not None:
        run_with_hub(url, token, lambda client: list_there(client, as_json))
    loaded = load_config(config)
    quiet_logs(verbose)
    run_with_app(loaded, lambda app: _list(app, loaded, wait, as_json))


async def _list(app: "App", loaded: Loaded, wait: float, as_json: bool) -> int:
    hub = app.hub
    await waiting.settle(hub, wait)
    statuses, view = hub.statuses(), hub.catalog.view(None)
    if as_json:
        findings, flagged = app.approvals.findings(), app.flagged()
        servers = [
            {
                **tables.server_data(status, view, loaded.secrets),
                **notices.notices_of(status.server, findings, flagged, loaded.secrets),
            }
            for status in statuses
        ]
        click.echo(msgspec.json.format(msgspec.json.encode({"servers": servers}), indent=2))
    elif not statuses:
        click.echo(f"no servers in {loaded.path}")
    else:
        tables.print_table(tables.server_table(statuses, tables.counts_of(view)))
        resting = [status for status in statuses if status.rests]
        tables.print_lines(tables.reasons([*resting, *waiting.not_ready(statuses)], loaded.secrets))
        tables.print_lines(tables.warnings(statuses, loaded.secrets))
        tables.print_lines([(str(own), "yellow") for own in notices.notices(app, loaded.secrets)])
        if view.quarantined:
            tables.print_table(tables.quarantine_table(view, loaded.secrets))
    return exit_code(statuses)


def exit_code(statuses: Sequence[UpstreamStatus]) -> int:
    return EXIT_UNAVAILABLE if waiting.not_ready(statuses) else 0
