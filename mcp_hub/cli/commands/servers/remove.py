"""`mcp-hub remove`, `enable` and `disable`: take servers out of the configuration, or switch them or their sandbox."""

from collections.abc import Sequence

import click
from msgspec.structs import replace

from mcp_hub.cli import completion
from mcp_hub.cli.commands.servers.changed import existing_file, make, report
from mcp_hub.cli.imports.trials import OFF, ON, Boxed, Trial, in_sandbox, is_local, print_boxed, tried, why_unsupported
from mcp_hub.cli.render.output import say
from mcp_hub.cli.servers_file.servers_file import Change, PutKey, RemoveServer, ServersFile, SwitchServer
from mcp_hub.cli.setup import EXIT_TOOL, check_servers, config_option, fail, load_config


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


def switch_sandbox(names: Sequence[str], word: str, config: str | None) -> int:
    """Puts local servers that start in a sandbox into one, or takes their sandbox off (`off`); the exit code.

    Without names it is for all that say nothing about a sandbox, and for `off` for all.
    """
    file, is_on = existing_file(config), word == "on"
    loaded = load_config(config, partly=True)
    check_servers(loaded, names)
    servers = {name: own for name, own in file.servers().items() if name in names or not names and is_local(own)}
    if not names and is_on:
        servers = {
            name: own for name, own in servers.items() if "sandbox" not in own and own.get("enabled") is not False
        }
    for name in [name for name, own in servers.items() if not is_local(own)]:
        fail("misplaced_key", f"{name} is not a local program: only those have a sandbox")
    if is_on and (reason := why_unsupported()) is not None:
        fail("sandbox_unsupported", reason)
    trial = tried(file, servers) if is_on else Trial(tuple(servers))
    changes = [
        PutKey(name, "sandbox", in_sandbox(servers[name], ON if is_on else OFF)["sandbox"]) for name in trial.passed
    ]
    if changes and make(file, changes):
        report(file, f"sandbox: {word} for {', '.join(trial.passed)}")
        trial = replace(trial, passed=())
    elif not trial.refused and not trial.untried:
        which = "each enabled local server says on or off already. To change one: mcp-hub sandbox SERVER on"
        say(f"Nothing to do: {f'{word} already' if servers or not is_on else which}.")
    print_boxed(Boxed({}, tuple(trial.lines(file)) if is_on else ()))
    return EXIT_TOOL if trial.refused or trial.untried else 0


def _change(file: ServersFile, changes: Sequence[Change], done: str) -> None:
    names = ", ".join(change.name for change in changes)
    report(file, f"{done} {names}" if make(file, changes) else f"Nothing to do, already {done.lower()}: {names}")
