"""`mcp-hub uninstall`."""

import os
import sys
from collections.abc import Iterable, Sequence
from hashlib import sha256

import click
import msgspec

from mcp_hub.cli import completion
from mcp_hub.cli.commands.clients import steps as common
from mcp_hub.cli.render.output import agrees, say
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.setup import EXIT_TOOL, fail
from mcp_hub.config.trust import state_dir
from mcp_hub.masking import hide, visible
from mcp_hub.onboarding.changes.acts import Acts
from mcp_hub.onboarding.changes.plan import Step, plan_uninstall
from mcp_hub.onboarding.changes.restore import FileState
from mcp_hub.onboarding.clients.model import Client, Where
from mcp_hub.onboarding.clients.reading import ClientFile, client_files
from mcp_hub.onboarding.files import FileRefused, target_of


@click.command()
@click.argument("clients", nargs=-1, metavar="[CLIENT]...", shell_complete=completion.applications)
@click.option("--all", "every", is_flag=True, help="All clients that are found on this machine.")
@click.option(
    "--restore/--keep", "restores", default=None,
    help="Put the servers that moved into the hub back into the client's file; or leave them in the hub only. "
    "Default: ask.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option("--wait", "waits", is_flag=True, help="Wait until a client that would undo the change has been quit.")
def uninstall(clients: tuple[str, ...], every: bool, restores: bool | None, dry_run: bool, waits: bool) -> None:
    """Take the hub out of other MCP clients.

    Removes only the hub's entry from each CLIENT's file. Servers that `install --import` took out come back: the
    command asks, and without a terminal needs --restore or --keep. `mcp-hub install --undo` takes the change back. Exit
    code 1 if a client could not be changed.
    """
    where = Where.here(os.environ)
    chosen = common.chosen_clients(clients, every, where)
    plain, restoring = planned(chosen, where, restores=False), planned(chosen, where, restores=True)
    missing = [step for step in restoring if step.back]
    if missing and restores is None:
        restores = _restores(missing, dry_run=dry_run)
    steps = plain if restores is False else restoring
    common.show(steps)
    if dry_run:
        raise SystemExit(common.tell_problems(steps))
    state = state_dir(os.environ)
    configs = common.installed_configs(state)
    code = carry_out(steps, where, waits=waits)
    for step in missing if restores is False else ():
        client = step.file.client
        say(f"{_missing(step)}. To put them there: mcp-hub export {client.name} --write")
    common.end_unused(configs - common.installed_configs(state))
    raise SystemExit(code)


def planned(clients: Iterable[Client], where: Where, *, restores: bool, leaves: bool = False) -> list[Step]:
    """The steps that take the hub out of clients; `restores` their servers.

    `leaves`: restores unchanged files byte for byte.
    """
    if leaves:
        where = msgspec.structs.replace(where, env={**where.env, "PATH": ""})
    steps: list[Step] = []
    for client in clients:
        files = [file for file in client_files(client, where) if restores or file.place.is_written]
        there = [_step(file, where, restores, leaves) for file in files if os.path.lexists(file.path) or _states(file)]
        needed = [step for step in there if step.is_needed or step.problem is not None or step.problems]
        steps += needed or there[-1:] or [plan_uninstall(file, where.env) for file in files[-1:]]
    return steps


def carry_out(
    steps: Sequence[Step],
    where: Where,
    *,
    waits: bool = False,
    verb: str = "uninstall from",
    ends: bool = False,
) -> int:
    """Makes the changes; returns the exit code. `ends`: removes the undo record after success."""
    has_problems = any(step.problems for step in steps)
    todo = [common.unless_running(step, where, waits) for step in steps]
    common.tell_unclear(todo, where)
    code = common.do(verb, todo, (), ends=ends and not has_problems)
    for step in steps:
        if step.problems or step.problem is not None:
            _save(step)
    return code or (EXIT_TOOL if has_problems else 0)


def _step(file: ClientFile, where: Where, restores: bool, leaves: bool) -> Step:
    return plan_uninstall(file, where.env, _states(file) if restores else (), as_before=leaves)


def _states(file: ClientFile) -> list[FileState]:
    try:
        return Acts(state_dir(os.environ)).states(target_of(file.path))
    except FileRefused:  # the step says so
        return []


def _save(step: Step) -> None:
    contents = [content for state in _states(step.file) if (content := state.content()) is not None]
    if contents:
        path = step.file.path
        digest = sha256(os.fsencode(path)).hexdigest()[:6]
        saved = Acts(state_dir(os.environ)).save(f"{step.file.client.name}-{digest}-{path.name}", contents[-1])
        say(visible(f"  The content of {step.file.path} from before is in {saved}"))


def _restores(missing: Sequence[Step], *, dry_run: bool) -> bool:
    """Whether the servers come back. Exits with 2 without a terminal."""
    for step in missing:
        say(f"{_missing(step)}.")
    if dry_run:
        return True
    if not sys.stdin.isatty():
        advice = "Add --restore to put these servers back, or --keep to leave them in the hub."
        fail("usage", f"Nothing is changed. {advice}")
    return agrees("Put these servers back into the files of their clients?", default=True)


def _missing(step: Step) -> str:
    message = f"{step.file.client.title}: {plural(len(step.back), 'server')} would be only in the hub"
    return visible(hide(f"{message}: {', '.join(step.back)}"))
