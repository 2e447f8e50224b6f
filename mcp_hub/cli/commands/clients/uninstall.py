"""`mcp-hub uninstall`: takes the hub out of the files of clients."""

import os

import click

from mcp_hub.cli import completion
from mcp_hub.cli.clients.find import client_files
from mcp_hub.cli.clients.places import Where
from mcp_hub.cli.clients.plan import Step, plan_uninstall
from mcp_hub.cli.commands.clients import steps as common


@click.command()
@click.argument("clients", nargs=-1, metavar="[CLIENT]...", shell_complete=completion.applications)
@click.option("--all", "every", is_flag=True, help="All clients that are found on this machine.")
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option("--wait", "waits", is_flag=True, help="Wait until a client that would undo the change has been quit.")
def uninstall(clients: tuple[str, ...], every: bool, dry_run: bool, waits: bool) -> None:
    """Take the hub out of other MCP clients.

    Removes the hub's entry from the file of each CLIENT and changes nothing else in it. `mcp-hub install --undo` puts
    it back. Exit code 1 if a client could not be changed.
    """
    where = Where.here(os.environ)
    chosen = common.chosen_clients(clients, every, where)
    planned: list[Step] = []
    for client in chosen:
        files = [file for file in client_files(client, where) if file.place.is_written]
        steps = [plan_uninstall(file, where.env) for file in files if os.path.lexists(file.path)]
        needed = [step for step in steps if step.is_needed or step.problem is not None]
        planned += needed or steps[-1:] or [plan_uninstall(file, where.env) for file in files[-1:]]
    common.show(planned)
    if dry_run:
        raise SystemExit(common.tell_problems(planned))
    planned = [common.unless_running(step, where, waits) for step in planned]
    raise SystemExit(common.do("uninstall from", planned, ()))
