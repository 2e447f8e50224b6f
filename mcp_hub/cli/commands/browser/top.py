"""`mcp-hub top`: the hub that runs, on the terminal."""

import os
import sys
from importlib.util import find_spec

import click

from mcp_hub.cli.access.background import dashboard_of
from mcp_hub.cli.access.running import dashboard_address, running_hub
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_option, config_path, fail, fail_with
from mcp_hub.errors import ConfigError
from mcp_hub.extras import with_extra


@click.command()
@click.option(
    "--url", help="Use the hub at this URL, e.g. http://127.0.0.1:8765, not the one that runs for the configuration."
)
@click.option(
    "--token", envvar="MCP_HUB_TOKEN", help="Bearer token for --url. Prefer $MCP_HUB_TOKEN: arguments show up in `ps`."
)
@config_option
def top(url: str | None, token: str | None, config: str | None) -> None:
    """Watch a running hub on the terminal.

    Shows servers, and calls as they run. Keys: o overview, c calls, Enter opens a call, x cancels it, Escape goes
    back, q quits. Needs the extra mcp-hub[top].
    """
    if find_spec("textual") is None:
        fail("no_textual", f"mcp-hub top needs Textual. Install it with: {with_extra('top')}", EXIT_UNAVAILABLE)
    page, key = _page(url, token, config)
    if not sys.stdout.isatty():
        fail("no_display", "mcp-hub top needs a terminal. For programs: mcp-hub list --json, mcp-hub streams --json")
    from mcp_hub.cli.top.app import TopApp
    from mcp_hub.client.http import HttpTransport
    from mcp_hub.client.hub_client import HubClient
    from mcp_hub.client.hub_feed import HubFeed

    try:
        transport = HttpTransport(page, key)
    except ConfigError as error:
        fail_with(error)
    refused = TopApp(HubFeed(page, transport), HubClient(f"{page}api/mcp", transport)).run()
    if refused is not None:
        fail_with(refused)


def _page(url: str | None, token: str | None, config: str | None) -> tuple[str, str | None]:
    """The dashboard, and the token for it."""
    from mcp_hub.client.http import endpoint

    if url is not None:
        try:
            return endpoint(url).removesuffix("mcp"), token
        except ConfigError as error:
            fail_with(error)
    path = config_path(config)
    hub = running_hub(os.path.abspath(path), os.environ)
    if hub is None:
        said = f"No hub serves {path}. Start one with: mcp-hub serve --http, or in the background: mcp-hub open"
        fail("no_running_hub", said, EXIT_UNAVAILABLE)
    page, operator = dashboard_of(hub)
    return dashboard_address(page), operator
