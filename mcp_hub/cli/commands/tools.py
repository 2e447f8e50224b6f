"""`mcp-hub tools`: the tools as clients get them."""

from collections.abc import Sequence

import click

from mcp_hub.app.readiness import not_ready
from mcp_hub.cli.access.hub import Reach, ReachedHub, Selection, hub_options, run_with_hub
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.servers import status_of
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.types import Era, Kind


@click.command()
@click.option("--server", metavar="NAME", help="Show only the tools of this server.")
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as a JSON array.")
@hub_options
def tools(server: str | None, as_json: bool, reach: Reach) -> None:
    """List the tools under the names that clients use.

    Asks the hub that runs for the configuration; without one, starts the servers. Exit code 3 if a server that
    may have tools is not ready.
    """
    run_with_hub(reach, lambda hub: _tools(hub, server, as_json), Selection([] if server is None else [server]))


async def _tools(hub: ReachedHub, server: str | None, as_json: bool) -> int:
    # all servers, whichever is asked for: a name can depend on what the others have
    await hub.settle()
    client = hub.client
    listed = await client.lists.servers()
    servers = listed.servers
    definitions = await client.tools()
    owners = await client.lists.owners() if server is not None or not as_json else {}
    entries = [(owners.get(name, ""), name, raw, summary) for name, raw, summary in _parsed(definitions)]
    if server is not None:
        _check_there(server, {*(own.server for own in servers), *owners.values()}, client.url)
        entries = [entry for entry in entries if entry[0] == server]
    if as_json:
        click.echo(b"[" + b",\n ".join(raw for _, _, raw, _ in entries) + b"]")
    else:
        _print_table([(name, own, summary) for own, name, _, summary in entries])
    missing = [own for own in not_ready(map(status_of, servers)) if server in (None, own.server)]
    tables.print_missing(missing)
    tables.print_warnings(hub.unmatched(listed))
    return EXIT_UNAVAILABLE if missing else 0


def _check_there(server: str, known: set[str], place: str) -> None:
    """Raises `ConfigError` for a server that the hub does not have."""
    from mcp_hub.config.findings import nearest

    if server not in known:
        hint = nearest(server, known) or f". Servers: {', '.join(sorted(known)) or 'none'}."
        raise ConfigError(ConfigFinding("unknown_server", f'no server "{server}"{hint}', place))


def _parsed(definitions: Sequence[bytes]) -> list[tuple[str, bytes, str]]:
    """Name, definition as a client of the handshake era gets it, and summary of each tool."""
    from mcp_hub.catalog.definitions import encode_as, in_era, parse

    found, _ = parse(Kind.TOOL, [bytes(raw) for raw in definitions], "")
    return [
        (tool.key, bytes(in_era(Kind.TOOL, encode_as(tool, tool.key), Era.HANDSHAKE)), tool.summary) for tool in found
    ]


def _print_table(rows: Sequence[tuple[str, str, str]]) -> None:
    listed = tables.table("tool", "server", "description")
    for row in rows:
        listed.add_row(*(tables.cell(text) for text in row))
    if rows:
        tables.print_table(listed)
    else:
        say("no tools")
