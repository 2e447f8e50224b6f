"""`mcp-hub registry`: searches the registry at `hub.registry`."""

from collections.abc import Sequence

import click

from mcp_hub.cli.commands.servers.edit import end_with, found_file
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import EXIT_TOOL, config_option, fail
from mcp_hub.errors import ConfigError
from mcp_hub.masking import hide_head
from mcp_hub.onboarding.registry.documents import search
from mcp_hub.onboarding.registry.server_json import ServerDetail
from mcp_hub.types import JsonObject

_LONGEST = 200
"""Characters of a text of the registry."""


@click.group()
def registry() -> None:
    """Search the registry at hub.registry."""


@registry.command("search")
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option(
    "--limit", type=click.IntRange(1, 100), default=20, show_default=True, metavar="N",
    help="Maximum number of servers.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def search_command(words: Sequence[str], limit: int, as_json: bool, config: str | None) -> None:
    """Search the registry for servers whose name has WORD.

    `mcp-hub add NAME` adds one of them. Exit code 1 if there is none.
    """
    try:
        base = found_file(config).registry()
        if base is None:
            fail("no_registry", "There is no registry to search. Set hub.registry to the URL of one.")
        details = search(base, " ".join(words), limit)
    except ConfigError as error:
        end_with(error)
    if as_json:
        tables.print_json({"registry": base, "servers": [_data(detail) for detail in details]})
    elif details:
        _print(details)
    else:
        say("The registry has no such server.")
    if not details:
        raise SystemExit(EXIT_TOOL)


def _print(details: Sequence[ServerDetail]) -> None:
    content = tables.table("name", "version", "as", "description", whole=("version",))
    for detail in details:
        note = f"{detail.status}: " if detail.status == "deprecated" else ""
        cells = (detail.name, detail.version or "", ", ".join(detail.kinds), f"{note}{detail.description or ''}")
        content.add_row(*(tables.short_cell(hide_head(text, _LONGEST, "…")) for text in cells))
    tables.print_table(content)
    say(f"Add one: mcp-hub add {hide_head(details[0].name, _LONGEST, '…')}")


def _data(detail: ServerDetail) -> JsonObject:
    return {
        "name": detail.name,
        "title": detail.title,
        "version": detail.version,
        "description": detail.description,
        "kinds": detail.kinds,
        "status": detail.status,
        "website": detail.website_url,
    }
