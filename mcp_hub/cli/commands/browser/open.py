"""`mcp-hub open`: opens the dashboard of the running hub of the configuration."""

import os
import sys
import webbrowser
from html import escape
from pathlib import Path

import click

from mcp_hub.app.limits import state_dir
from mcp_hub.cli.access.background import dashboard_of, started_hub
from mcp_hub.cli.access.running import HubRecord, dashboard_address, running_hub
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import config_option, config_path

_PAGE = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={0}"><a href="{0}">mcp-hub</a>\n'
)


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the address instead; it contains a token.")
@config_option
def open_dashboard(only_print: bool, config: str | None) -> None:
    """Open the dashboard of the running hub in a browser.

    The hub is the one that serves the configuration over HTTP, or in the background: that one opens a port on
    127.0.0.1 for the dashboard alone. If none runs, the background hub is started. Without a browser the address is
    printed. It contains the operator token of the hub's start: anyone who has it can operate the hub until it stops.
    """
    hub = running_hub(os.path.abspath(config_path(config)), os.environ)
    if hub is None:
        hub = HubRecord("", 0, folder=started_hub(config, "Start one with: mcp-hub serve --http"))
    url, operator = dashboard_of(hub)
    address = dashboard_address(url, operator)
    if only_print:
        put(address)
    elif webbrowser.open(_leading_to(address).as_uri()):
        say(f"opened the dashboard at {dashboard_address(url)}")
    else:
        say("There is no browser on this machine. Open this address, which contains a token:")
        put(address)


def _leading_to(address: str) -> Path:
    """A file for nobody else's eyes that leads to the address: arguments of programs show up in `ps`."""
    place = state_dir(os.environ) / "hubs" / "open.html"
    place.unlink(missing_ok=True)
    with open(
        os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding=sys.getdefaultencoding()
    ) as file:
        file.write(_PAGE.format(escape(address)))
    return place
