"""`mcp-hub list`, `tokens`, `tools` and `tools export`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import structs

from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, ReachedHub, hub_options, run_with_hub
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, put_json, say
from mcp_hub.cli.render.servers import (
    account_line,
    has_overlay,
    notices,
    project_warnings,
    server_data,
    server_table,
    status_of,
)
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.masking import visible
from mcp_hub.protocol.rest.servers import HEAVIEST, ServerInfo
from mcp_hub.types import CONNECTORS, UNKNOWN_CLIENT, Era, Format, Kind, UpstreamState, UpstreamStatus, not_ready

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_hub.protocol.rest.servers import TokenAccount, Tokens

_ALL: Final = 100_000
_FORMS: Final = ("full", "compact", "signature", "names")
"""Ways to list a tool: its whole definition, the compacted one, its line in an answer of find_tools, its name."""
_WIDEST: Final = 200
"""Characters of a description on one line."""
_server_option: Final = click.option(
    "--server", metavar="NAME", shell_complete=completion.servers, help="Show only the tools of this server."
)


@click.command()
@click.option(
    "--server",
    metavar="NAME",
    shell_complete=completion.servers,
    help="Show only the tools of this server; all of them unless --top is given.",
)
@click.option(
    "--profile", metavar="NAME", shell_complete=completion.profiles, help="Count only what this profile exposes."
)
@click.option(
    "--client", metavar="KIND", shell_complete=completion.clients, default=UNKNOWN_CLIENT, show_default=True,
    help="Kind of client, as in `serve --client`.",
)  # fmt: skip
@click.option(
    "--top", type=click.IntRange(min=0), metavar="N", help=f"Show the N most expensive tools.  [default: {HEAVIEST}]"
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document, the same as GET /v1/tokens.")
@hub_options
def tokens(
    server: str | None,
    profile: str | None,
    client: str,
    top: int | None,
    as_json: bool,
    reach: Reach,
) -> None:
    """Show what the tools cost in a model's context.

    Compares the ways to list a tool: its definition whole (full) or compacted, its line in a find_tools answer
    (signature), and its name alone (names). Estimates, mostly within 10 % of the o200k tokenizer. Exit code 3 if a
    server is not ready.
    """
    limit = top if top is not None else HEAVIEST if server is None else _ALL

    async def counted(hub: ReachedHub) -> int:
        await hub.settle()
        listed = await hub.client.lists.servers()
        absent = missing(listed.servers, server)
        account = await hub.client.lists.account(client, server, max(limit, 1))
        account = structs.replace(account, heaviest=account.heaviest[:limit])
        if as_json:
            tables.print_json(account)
        else:
            print_account(account)
        tables.print_missing(absent, ends=hub.app is not None, has_output=False)
        tables.print_warnings(hub.unmatched(listed))
        return EXIT_UNAVAILABLE if absent else 0

    run_with_hub(reach, counted, servers=_named(server), profile=profile, client=client, lists_servers=True)


def missing(servers: Sequence[ServerInfo], server: str | None) -> list[UpstreamStatus]:
    return [status for status in not_ready(map(status_of, servers)) if server in (None, status.server)]


def print_account(account: "TokenAccount") -> None:
    """Prints tables of listings, servers and the heaviest tools."""
    current = account.current
    mode = current.mode if current.expose == current.mode else f"{current.expose} → {current.mode}"
    listed, cost = tables.plural(current.listed, "tool"), _tokens(current.tokens)
    who = "A client that the hub does not recognize" if account.client == UNKNOWN_CLIENT else account.client
    put(f"{who} gets {listed}: {cost} in each session ({mode})")
    if account.apps is not None:
        listed, cost = tables.plural(account.apps.listed, "tool"), _tokens(account.apps.tokens)
        put(f"Where it shows apps, its model gets {listed} ({cost}).")
    if account.instructions:
        put(f"The hub's instructions take {tables.plural(account.instructions, 'more token')}.")
    if account.defers:
        put("These clients show their model a definition only when it is asked for.")
    table = tables.table("expose", "comes to", "listed", "tokens", right=("listed", "tokens"))
    for listing in account.modes:
        table.add_row(listing.expose, listing.mode, str(listing.listed), f"{listing.tokens:,}")
    _print(table)
    if not account.tools:
        say("no tools")
        return
    put("These lists have the hub's own tools too. The tables below count whole tools of servers only.")
    _print(_servers(account))
    if account.heaviest:
        _print(_heaviest(account))


def _tokens(count: int) -> str:
    return f"{count:,} token{'' if count == 1 else 's'}"


def _print(table: "Table") -> None:
    put()
    tables.print_table(table)


def _servers(account: "TokenAccount") -> "Table":
    table = tables.table("server", "tools", *_FORMS, right=("tools", *_FORMS))
    for server in account.servers:
        table.add_row(tables.cell(server.server), str(server.tools), *_figures(server.tokens))
    if len(account.servers) > 1:
        table.add_section()
        table.add_row("together", str(len(account.tools)), *_figures(account.total))
    return table


def _heaviest(account: "TokenAccount") -> "Table":
    table = tables.table("heaviest", *_FORMS, right=_FORMS)
    by_name = {tool.name: tool for tool in account.tools}
    for name in account.heaviest:
        table.add_row(tables.cell(name), *_figures(by_name[name].tokens))
    return table


def _figures(tokens: "Tokens") -> list[str]:
    return [f"{getattr(tokens, form):,}" for form in _FORMS]


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--accounts", is_flag=True, help="Also list the accounts of callers, without their secrets.")
@hub_options
def list_servers(as_json: bool, accounts: bool, reach: Reach) -> None:
    """List the servers with their state.

    Shows state, protocol version and number of tools, resources, prompts and skills, and why a server is not ready.
    Asks the running hub, or starts the servers. Exit code 3 if an enabled server is not ready.
    """
    run_with_hub(reach, lambda hub: _list(hub, as_json, with_accounts=accounts), operates=True, lists_servers=True)


async def _list(hub: ReachedHub, as_json: bool, *, with_accounts: bool) -> int:
    await hub.settle()
    listed, outdated = await hub.listed()
    servers = listed.servers
    statuses = [status_of(server) for server in servers]
    missing = not_ready(statuses)
    tables.print_warnings(outdated)
    if has_overlay() and hub.loaded is not None:
        tables.print_warnings(project_warnings(hub.loaded.settings))
    accounts = (await hub.client.accounts.listed()).accounts if with_accounts else []
    if as_json:
        more = {"accounts": accounts} if with_accounts else {}
        tables.print_json({"servers": [*map(server_data, servers)], **more})
    elif not servers:
        put(f"There are no servers in {hub.location}.")
    else:
        tables.print_table(server_table(servers, ends=hub.app is not None))
        partly = [s for s in statuses if s.rests or (s.reason and s.version and s.state is UpstreamState.READY)]
        lines = [*tables.reasons([*partly, *missing], ends=hub.app is not None), *tables.warnings(statuses)]
        lines += [(visible(str(notice)), "yellow") for notice in notices(servers, ends=hub.app is not None)]
        if lines and tables.console().is_terminal:
            put()
        tables.print_lines([*lines, *((visible(account_line(info)), "") for info in accounts)])
    return EXIT_UNAVAILABLE if missing else 0


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
        run_with_hub(reach, lambda hub: _tools(hub, server, full, as_json), servers=_named(server), lists_servers=True)


@tools.command()
@click.argument("form", metavar="FORMAT", type=click.Choice([*map(str, Format), *CONNECTORS]))
@_server_option
@click.option("--strict", is_flag=True, help="Let the provider enforce the schemas that it supports.")
@click.option("--defer", is_flag=True, help="Let the provider load tools that a search returned.")
@click.option("--group", is_flag=True, help="With openai-responses: namespaces for each server, as --defer has them.")
@click.option("--tools", "names", metavar="A,B", help="Only these tools.")
@click.option("--public-url", metavar="URL", help="The hub's https address, for connectors.")
@click.option("--profile", metavar="NAME", shell_complete=completion.profiles, help="Only what this profile exposes.")
@hub_options
def export(form: str, server: str | None, profile: str | None, reach: Reach, **options: Any) -> None:
    """Print the tools as the request of a model provider takes them.

    FORMAT is mcp, anthropic, openai, openai-responses, gemini or gemini-interactions; anthropic-mcp, openai-mcp and
    gemini-mcp are the entries by which a provider itself connects to the hub. Exit code 3 if a server that may have
    tools is not ready.
    """
    values = {"format": form, "server": server, "tools": options["names"], "url": options["public_url"]}
    values |= {name: "1" for name in ("strict", "defer") if options[name]}
    values |= {"group": "server"} if options["group"] else {}
    params = {name: value for name, value in values.items() if value is not None}
    run_with_hub(
        reach, lambda hub: _print_exported(hub, params), servers=_named(server), profile=profile, lists_servers=True
    )


def _named(server: str | None) -> list[str]:
    return [] if server is None else [server]


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
    from mcp_hub.catalog.texts import first_sentence

    listed = tables.table("tool", "server", "description", whole=("tool", "server"))
    for name, server, summary in rows:
        listed.add_row(tables.cell(name), tables.cell(server), tables.short_cell(first_sentence(summary, _WIDEST)))
    if rows:
        tables.print_table(listed)
    else:
        say("no tools")
