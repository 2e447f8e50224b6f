"""`mcp-hub tokens`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
from msgspec import structs

from mcp_hub.app import readiness
from mcp_hub.catalog.costs.token_costs import HEAVIEST
from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, ReachedHub, Selection, hub_options, run_with_hub
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.servers import status_of
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.config.schema.clients import UNKNOWN_CLIENT
from mcp_hub.protocol.rest.servers import ServerInfo
from mcp_hub.types import UpstreamStatus

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_hub.protocol.rest.tokens import TokenAccount, Tokens

_ALL: Final = 100_000
_FORMS: Final = ("full", "compact", "signature", "names")
"""Ways to list a tool: its whole definition, the compacted one, its line in an answer of find_tools, its name."""


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

    run_with_hub(reach, counted, Selection([] if server is None else [server], profile, client), lists_servers=True)


def missing(servers: Sequence[ServerInfo], server: str | None) -> list[UpstreamStatus]:
    return [status for status in readiness.not_ready(map(status_of, servers)) if server in (None, status.server)]


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
