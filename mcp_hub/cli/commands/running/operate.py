"""`mcp-hub open` and `top` show a running hub, `reload` and `restart` change it."""

import os
import sys
import webbrowser
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click

from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, run_with_client, url_options
from mcp_hub.cli.access.running import HubRecord, dashboard_address, dashboard_of, running_hub, started_hub
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.servers import status_of
from mcp_hub.cli.render.tables import plural, print_missing
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_option, config_path, fail, fail_with
from mcp_hub.clock import SystemClock
from mcp_hub.config.trust import state_dir
from mcp_hub.errors import ConfigError
from mcp_hub.extras import with_extra
from mcp_hub.types import UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.client import HubClient

_PAGE = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={0}"><a href="{0}">mcp-hub</a>\n'
)


@click.command("open")
@click.option("--print", "only_print", is_flag=True, help="Print the address instead; it contains a token.")
@config_option
def open_dashboard(only_print: bool, config: str | None) -> None:
    """Open the dashboard of the running hub in a browser.

    Uses the hub over HTTP, or the background hub, which opens a port on 127.0.0.1 for it and is started if none runs.
    Without a browser, prints the address. It contains the operator token: anyone who has it can operate the hub until
    it stops.
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
    """A private file that leads to the address, which `ps` would show otherwise."""
    page = state_dir(os.environ) / "hubs" / "open.html"
    page.unlink(missing_ok=True)
    with open(
        os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding=sys.getdefaultencoding()
    ) as file:
        file.write(_PAGE.format(escape(address)))
    return page


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
    from mcp_hub.cli.top import TopApp
    from mcp_hub.client.http import HttpTransport
    from mcp_hub.client.hub_client import HubClient, HubFeed

    try:
        transport = HttpTransport(page, key)
    except ConfigError as error:
        fail_with(error)
    refused = TopApp(HubFeed(page, transport), HubClient(f"{page}api/mcp", transport)).run()
    if refused is not None:
        fail_with(refused)


def _page(url: str | None, token: str | None, config: str | None) -> tuple[str, str | None]:
    from mcp_hub.client.rest import endpoint

    if url is not None:
        try:
            return endpoint(url).removesuffix("mcp"), token
        except ConfigError as error:
            fail_with(error)
    path = config_path(config)
    hub = running_hub(os.path.abspath(path), os.environ)
    if hub is None:
        message = f"No hub serves {path}. Start one with: mcp-hub serve --http, or in the background: mcp-hub open"
        fail("no_running_hub", message, EXIT_UNAVAILABLE)
    page, operator = dashboard_of(hub)
    return dashboard_address(page), operator


_PATIENCE: Final = 60.0
"""Seconds that a server is waited for."""
_SHORTEST: Final = 0.05
_LONGEST: Final = 1.0
"""Seconds between two looks at it, which get longer."""
_UNSETTLED: Final = (UpstreamState.STARTING, UpstreamState.STOPPED)
_WORDS: Final = {
    "added": "added",
    "removed": "removed",
    "restarted": "restarted",
    "revived": "tried again after a failure",
    "adjusted": "adjusted",
    "kept": "unchanged",
    "settings": "settings",
    "next_start": "from the hub's next start",
}


@click.command()
@url_options
def reload(reach: Reach) -> None:
    """Reload the configuration of a running hub.

    The hub is the one at --url, else the running one of the configuration. Prints what changed. If the file is invalid,
    nothing changes and the exit code is 2.
    """
    run_with_client(reach, _reload, operates=True)


async def _reload(client: "HubClient") -> int:
    outcome = await client.reload()
    if not any(getattr(outcome, key) for key in _WORDS if key != "kept"):
        put(f"No changes ({plural(len(outcome.kept), 'server')}).")
        return 0
    for key, word in _WORDS.items():
        if names := getattr(outcome, key):
            put(f"{word}: {', '.join(names)}")
    return 0


@click.command()
@click.argument("name", metavar="SERVER", shell_complete=completion.servers)
@url_options
def restart(name: str, reach: Reach) -> None:
    """Restart a SERVER of a running hub.

    The hub is the one at --url, else the running one of the configuration. Also restarts a failed server. Running calls
    may finish on the old process; new calls wait for the new one. Exit code 3 if the server is not ready after 60 s.
    """
    run_with_client(reach, lambda client: _restart(client, name), operates=True)


async def _restart(client: "HubClient", server: str) -> int:
    began = SystemClock.now()
    await client.restart(server)
    pause = _SHORTEST
    status = await _status(client, server)
    while status is not None and status.state in _UNSETTLED and SystemClock.now() - began < _PATIENCE:
        await anyio.sleep(pause)
        pause = min(2 * pause, _LONGEST)
        status = await _status(client, server)
    if status is None:
        say(f"{server} has been removed from the configuration.")
        return EXIT_UNAVAILABLE
    if status.state is not UpstreamState.READY:
        print_missing([status])
        return EXIT_UNAVAILABLE
    say(f"{server} is ready again ({SystemClock.now() - began:.1f} s).")
    return 0


async def _status(client: "HubClient", server: str) -> UpstreamStatus | None:
    return next((status_of(info) for info in await client.servers() if info.server == server), None)
