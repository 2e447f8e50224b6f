"""`mcp-hub remove`, `enable` and `disable`: take servers out of the configuration, or switch them."""

from collections.abc import Sequence

import click

from mcp_hub.cli import completion
from mcp_hub.cli.commands.servers.changed import existing_file, make, report
from mcp_hub.cli.render.output import say
from mcp_hub.cli.servers_file.servers_file import Change, RemoveServer, ServersFile, SwitchServer
from mcp_hub.cli.setup import config_option


@click.command()
@click.argument("names", metavar="SERVER...", nargs=-1, required=True, shell_complete=completion.servers)
@config_option
def remove(names: tuple[str, ...], config: str | None) -> None:
    """Remove servers from the configuration.

    Comments, order and every other byte of the file stay. A running hub lets the calls of a removed server end.
    """
    file = existing_file(config)
    kept = file.secret_files()
    _change(file, [RemoveServer(name) for name in dict.fromkeys(names)], "Removed")
    for path in sorted(kept - file.secret_files()):
        say(f"{path} holds a secret that no server uses now. Delete it if you do not need it.")


@click.command()
@click.argument("names", metavar="SERVER...", nargs=-1, required=True, shell_complete=completion.servers)
@config_option
def enable(names: tuple[str, ...], config: str | None) -> None:
    """Enable servers that the configuration disables."""
    _change(existing_file(config), [SwitchServer(name, True) for name in names], "Enabled")


@click.command()
@click.argument("names", metavar="SERVER...", nargs=-1, required=True, shell_complete=completion.servers)
@config_option
def disable(names: tuple[str, ...], config: str | None) -> None:
    """Disable servers in the configuration."""
    _change(existing_file(config), [SwitchServer(name, False) for name in names], "Disabled")


def _change(file: ServersFile, changes: Sequence[Change], done: str) -> None:
    names = ", ".join(change.name for change in changes)
    report(file, f"{done} {names}" if make(file, changes) else f"Nothing to do, already {done.lower()}: {names}")
