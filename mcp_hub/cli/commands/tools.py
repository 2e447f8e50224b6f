"""`mcp-hub tools`: the tools as clients get them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mcp_hub.cli.access import waiting
from mcp_hub.cli.access.remote import run_with_hub, url_options
from mcp_hub.cli.access.remote_servers import status_there
from mcp_hub.cli.commands.check import unmatched_patterns
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.results import visible, with_code
from mcp_hub.cli.setup import (
    EXIT_CONFIG,
    EXIT_UNAVAILABLE,
    config_option,
    fail,
    load_config,
    quiet_logs,
    run_with_app,
    verbose_option,
    wait_option,
)
from mcp_hub.config.findings import nearest
from mcp_hub.config.load.load import Loaded
from mcp_hub.errors import ConfigError, ConfigFinding, RpcError
from mcp_hub.types import Era, Kind, RawJson

if TYPE_CHECKING:
    from mcp_hub.app.build import App
    from mcp_hub.catalog.view import Entry
    from mcp_hub.client import HubClient

__all__ = ["check_profile", "check_servers", "tools"]


@click.command()
@click.option("--server", metavar="NAME", help="Show only the tools of this server.")
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as a JSON array.")
@url_options
@wait_option
@verbose_option
@config_option
def tools(
    server: str | None,
    as_json: bool,
    wait: float,
    verbose: int,
    config: str | None,
    url: str | None,
    token: str | None,
) -> None:
    """List the tools under the names that clients use.

    Starts the servers itself; with --url, it asks a running hub instead. Exit code 3 if a server that may have tools is
    not ready.
    """
    if url is not None:
        run_with_hub(url, token, lambda client: _tools_there(client, server, as_json))
    loaded = load_config(config)
    check_servers(loaded, [server] if server is not None else [])
    quiet_logs(verbose)
    run_with_app(loaded, lambda app: _tools(app, loaded, server, wait, as_json))


def check_servers(loaded: Loaded, names: Sequence[str]) -> None:
    """Exits with 2 for a name that is not configured."""
    known = loaded.settings.servers
    for name in names:
        if name not in known:
            hint = nearest(name, known) or f"; configured: {', '.join(known) or 'none'}"
            fail("unknown_server", f'{loaded.path}: no server "{name}"{hint}', EXIT_CONFIG)


def check_profile(loaded: Loaded, name: str | None) -> None:
    """Exits with 2 for a profile that is not configured."""
    known = loaded.settings.profiles
    if name is not None and name not in known:
        hint = nearest(name, known) or f"; configured: {', '.join(known) or 'none'}"
        fail("unknown_profile", visible(f'{loaded.path}: no profile "{name}"{hint}'), EXIT_CONFIG)


async def _tools(app: "App", loaded: Loaded, server: str | None, wait: float, as_json: bool) -> int:
    # all servers, whichever is asked for: a name can depend on what the others have
    hub = app.hub
    await waiting.settle(hub, wait)
    statuses, view = hub.statuses(), hub.catalog.view(None)
    entries = [entry for entry in view.entries(Kind.TOOL) if server in (None, entry.server)]
    _print(entries, as_json)
    missing = [status for status in waiting.not_ready(statuses) if server in (None, status.server)]
    for text, _ in tables.reasons(missing, loaded.secrets):
        click.echo(text, err=True)
    for warning in unmatched_patterns(app, loaded):
        click.echo(visible(f"warning: {warning}"), err=True)
    return EXIT_UNAVAILABLE if missing else 0


async def _tools_there(client: "HubClient", server: str | None, as_json: bool) -> int:
    try:
        statuses = [] if server is None else [status_there(own) for own in await client.servers()]
        definitions = await client.tools()
        owners = {} if server is None else await client.owners()
    except RpcError as error:
        click.echo(visible(with_code(error)), err=True)
        return EXIT_UNAVAILABLE
    known = {status.server for status in statuses} | set(owners.values())
    if server is not None and server not in known:
        hint = nearest(server, known) or f"; there are: {', '.join(sorted(known)) or 'none'}"
        raise ConfigError(ConfigFinding("unknown_server", f'no server "{server}"{hint}', client.url))
    entries = [entry for entry in _listed(definitions) if server in (None, owners.get(entry.exported))]
    _print(entries, as_json, with_server=False)
    for name, reason in client.left_out.items():
        if server in (None, owners.get(name)):
            click.echo(visible(f"warning: {name} cannot be used over HTTP: {reason}"), err=True)
    missing = waiting.not_ready(status for status in statuses if status.server == server)
    for text, _ in tables.reasons(missing, ()):
        click.echo(text, err=True)
    return EXIT_UNAVAILABLE if missing else 0


def _listed(definitions: Sequence[RawJson]) -> list["Entry"]:
    from mcp_hub.catalog.definitions import encode_as, parse
    from mcp_hub.catalog.view import Entry

    found, _ = parse(Kind.TOOL, [bytes(raw) for raw in definitions], "")
    return [Entry(Kind.TOOL, "", tool.key, tool.key, encode_as(tool, tool.key), tool.summary) for tool in found]


def _print(entries: Sequence["Entry"], as_json: bool, *, with_server: bool = True) -> None:
    if as_json:
        _print_definitions(entries)
    else:
        _print_table(entries, with_server)


def _print_definitions(entries: Sequence["Entry"]) -> None:
    from mcp_hub.catalog.definitions import in_era

    definitions = [bytes(in_era(Kind.TOOL, entry.raw, Era.HANDSHAKE)) for entry in entries]
    click.echo(b"[" + b",\n ".join(definitions) + b"]")


def _print_table(entries: Sequence["Entry"], with_server: bool) -> None:
    from rich.text import Text

    listed = tables.table(*(("tool", "server", "description") if with_server else ("tool", "description")))
    for entry in entries:
        said = (entry.exported, entry.server, entry.summary) if with_server else (entry.exported, entry.summary)
        listed.add_row(*(Text(visible(text)) for text in said))
    if entries:
        tables.print_table(listed)
    else:
        click.echo("no tools", err=True)
