"""`mcp-hub tools` and `tools export`."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from mcp_hub.app.readiness import not_ready
from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, ReachedHub, Selection, hub_options, run_with_hub
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put_json, say
from mcp_hub.cli.render.servers import status_of
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.formats.connectors import Connector
from mcp_hub.formats.providers import Format
from mcp_hub.types import Era, Kind

_WIDEST: Final = 200
"""Characters of a description on one line."""


_server_option: Final = click.option(
    "--server", metavar="NAME", shell_complete=completion.servers, help="Show only the tools of this server."
)


@click.group(invoke_without_command=True)
@_server_option
@click.option("--full", is_flag=True, help="Show whole descriptions, and the parameters.")
@click.option("--json", "as_json", is_flag=True, help="Print the definitions as a JSON array.")
@hub_options
@click.pass_context
def tools(context: click.Context, /, server: str | None, full: bool, as_json: bool, reach: Reach) -> None:
    """List the tools under the names that clients use.

    Asks the running hub, or starts the servers. Exit code 3 if a server that may have tools is not ready.
    """
    if context.invoked_subcommand is None:
        chosen = Selection([] if server is None else [server], None)
        run_with_hub(reach, lambda hub: _tools(hub, server, full, as_json), chosen, lists_servers=True)


@tools.command()
@click.argument("form", metavar="FORMAT", type=click.Choice([form.value for form in (*Format, *Connector)]))
@_server_option
@click.option("--strict", is_flag=True, help="Let the provider enforce the schemas that it supports.")
@click.option("--defer", is_flag=True, help="Let the provider load tools that a search returned.")
@click.option("--group", is_flag=True, help="With openai-responses: one namespace for each server.")
@click.option("--tools", "names", metavar="A,B", help="Only these tools.")
@click.option("--public-url", metavar="URL", help="The hub's https address, for connectors.")
@click.option("--profile", metavar="NAME", shell_complete=completion.profiles, help="Only what this profile exposes.")
@hub_options
def export(form: str, server: str | None, profile: str | None, reach: Reach, **options: Any) -> None:
    """Print the tools as the request of a model provider takes them.

    FORMAT is mcp, anthropic, openai, openai-responses or gemini; anthropic-mcp and openai-mcp are the entries by which
    a provider itself connects to the hub. Exit code 3 if a server that may have tools is not ready.
    """
    values = {"format": form, "server": server, "tools": options["names"], "url": options["public_url"]}
    values |= {name: "1" for name in ("strict", "defer") if options[name]}
    values |= {"group": "server"} if options["group"] else {}
    params = {name: value for name, value in values.items() if value is not None}
    chosen = Selection([] if server is None else [server], profile)
    run_with_hub(reach, lambda hub: _print_exported(hub, params), chosen, lists_servers=True)


async def _print_exported(hub: ReachedHub, params: Mapping[str, str]) -> int:
    await hub.settle()
    put_json(bytes(await hub.client.lists.exported(**params)))
    listed = await hub.client.lists.servers()
    missing = [
        status for status in not_ready(map(status_of, listed.servers)) if params.get("server") in (None, status.server)
    ]
    tables.print_missing(missing, ends=hub.app is not None, has_output=False)
    return EXIT_UNAVAILABLE if missing else 0


async def _tools(hub: ReachedHub, server: str | None, full: bool, as_json: bool) -> int:
    # all servers, whichever is asked for: a name can depend on what the others have
    await hub.settle()
    client = hub.client
    listed = await client.lists.servers()
    servers = listed.servers
    definitions = await client.tools(explains_hints=as_json)
    owners = await client.lists.owners() if server is not None or not as_json else {}
    entries = [(owners.get(name, ""), name, raw, summary) for name, raw, summary in _parsed(definitions)]
    if server is not None:
        _check_there(server, {*(info.server for info in servers), *owners.values()}, client.url)
        entries = [entry for entry in entries if entry[0] == server]
    if as_json:
        put_json(b"[" + b",\n ".join(raw for _, _, raw, _ in entries) + b"]")
    elif full:
        for info, name, raw, _ in entries:
            tables.print_page(name, info, raw)
    else:
        _print_table([(name, info, summary) for info, name, _, summary in entries])
    missing = [info for info in not_ready(map(status_of, servers)) if server in (None, info.server)]
    tables.print_missing(missing, ends=hub.app is not None, has_output=False)
    tables.print_warnings(hub.unmatched(listed))
    return EXIT_UNAVAILABLE if missing else 0


def _check_there(server: str, servers: set[str], hub_url: str) -> None:
    from mcp_hub.config.findings import nearest

    if server not in servers:
        hint = nearest(server, servers) or f". Servers: {', '.join(sorted(servers)) or 'none'}."
        raise ConfigError(ConfigFinding("unknown_server", f'there is no server "{server}"{hint}', hub_url))


def _parsed(definitions: Sequence[bytes]) -> list[tuple[str, bytes, str]]:
    from mcp_hub.catalog.offers.definitions import encode_as, in_era, parse

    entries, _ = parse(Kind.TOOL, [bytes(raw) for raw in definitions], "")
    return [
        (tool.key, bytes(in_era(Kind.TOOL, encode_as(tool, tool.key), Era.HANDSHAKE)), tool.summary) for tool in entries
    ]


def _print_table(rows: Sequence[tuple[str, str, str]]) -> None:
    from mcp_hub.catalog.texts.plain_text import first_sentence

    listed = tables.table("tool", "server", "description", whole=("tool", "server"))
    for name, server, summary in rows:
        listed.add_row(tables.cell(name), tables.cell(server), tables.short_cell(first_sentence(summary, _WIDEST)))
    if rows:
        tables.print_table(listed)
    else:
        say("no tools")
