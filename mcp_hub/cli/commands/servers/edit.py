"""`mcp-hub edit`, `remove`, `enable`, `disable`, and the common end of changes to `servers.yaml`."""

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import click
from msgspec.structs import replace

from mcp_hub import windows
from mcp_hub.app.readiness import StartFolders
from mcp_hub.cli import completion
from mcp_hub.cli.access.running import running_hub
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import agrees, put, say
from mcp_hub.cli.setup import EXIT_CONFIG, EXIT_TOOL, check_servers, config_option, fail, fail_with, load_config
from mcp_hub.cli.trials import OFF, ON, Trial, in_sandbox, is_local, print_trial, tried, why_unsupported
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.load import Loaded, load
from mcp_hub.config.trust import state_dir
from mcp_hub.errors import ConfigError
from mcp_hub.masking import hide, visible
from mcp_hub.onboarding.changes.written import ClientRecords, ImportedServer
from mcp_hub.onboarding.servers_file.servers_file import Change, Put, Remove, ServersFile, SwitchServer, option_for
from mcp_hub.sandbox.home import PrivateHome


def found_file(config: str | None) -> ServersFile:
    try:
        return ServersFile.find(config, os.environ)
    except ConfigError as error:
        fail_with(error)


def existing_file(config: str | None) -> ServersFile:
    """The existing file. Exits with 2."""
    file = found_file(config)
    if not file.exists:
        fail("config_not_found", f"{file.path} does not exist. Create it with: mcp-hub init")
    return file


def make(file: ServersFile, changes: Sequence[Change]) -> bool:
    """Makes the changes; False without changes. Exits with 2."""
    try:
        return file.change(changes) is not None
    except ConfigError as error:
        end_with(error)


def end_with(error: ConfigError) -> NoReturn:
    """Exits with the findings, masked, and the text to paste."""
    if error.code != "not_editable":
        fail_with(error)
    say(hide(str(error)))
    if error.snippet:
        put(hide(error.snippet))
    raise SystemExit(EXIT_CONFIG)


def report(file: ServersFile, message: str) -> None:
    """Reports a change, and that the running hub follows."""
    say(hide(f"{message} ({file.path})"))
    if (hub := running_hub(os.path.abspath(file.path), os.environ)) is not None:
        say(f"The running hub (process {hub.pid}) reloads the file.")


def note_added(file: ServersFile, names: Sequence[str]) -> None:
    """Records added servers, for `doctor`."""
    config = os.path.abspath(file.path)
    with suppress(OSError):  # it is only a help
        ClientRecords(state_dir(os.environ)).add_imported([ImportedServer("", config, name, name) for name in names])


def tell_next(file: ServersFile, *, are_imported: bool) -> None:
    """Says how the servers reach clients; `are_imported`: client files still have them."""
    moves, option = (", and take these servers out of their files", " --import") if are_imported else ("", "")
    say(f"Next, connect your clients{moves}:\n  mcp-hub install --all{option}{option_for(file)}")


def confirm(question: str, *, yes: bool, default: bool = True) -> None:
    """Exits unless a person agrees; `default` answers an empty line."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail("no_terminal", "The command cannot ask: stdin is not a terminal. Add --yes.")
    if not agrees(question, default=default):
        say("Nothing is changed.")
        raise SystemExit(1)


@click.command()
@config_option
def edit(config: str | None) -> None:
    """Open the configuration in $VISUAL or $EDITOR, and check it.

    If the file has mistakes, the command shows them and offers to edit again. A running hub keeps its settings until
    the file is valid. Exit code 2 if mistakes are left.
    """
    file = existing_file(config)
    while True:
        _open(file)
        if _is_right(file):
            report(file, "The configuration is valid")
            return
        if not sys.stdin.isatty() or not agrees("Edit again?", default=True):
            raise SystemExit(EXIT_CONFIG)


def _default(file: ServersFile) -> str:
    if sys.platform == "win32":
        return "notepad"
    elif not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail(
            "editor_failed",
            f"There is no terminal for the editor. Set VISUAL or EDITOR, or change {file.path} yourself.",
        )
    else:
        return "vi"


def _open(file: ServersFile) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or _default(file)
    try:
        code = subprocess.call(_line(editor, str(file.path)))
    except (OSError, ValueError) as problem:
        fail("editor_failed", f"The editor {editor!r} cannot be started: {problem}. Set VISUAL or EDITOR.")
    if code:
        fail("editor_failed", f"The editor {editor!r} ended with {code}. {file.path} stays as it left it.")


def _line(editor: str, path: str) -> str | list[str]:
    return windows.editor_line(editor, path, os.environ) if sys.platform == "win32" else [*shlex.split(editor), path]


def _is_right(file: ServersFile) -> bool:
    try:
        loaded = load(file.path, os.environ, lenient=True)
    except ConfigError as error:
        for finding in error.findings:
            say(str(finding))
        return False
    tables.print_warnings(loaded.warnings)
    return True


PATIENCE: Final = 10.0
"""Seconds for a running hub to end a removed server."""
_LOOK: Final = 0.1


@click.command()
@click.argument("names", metavar="SERVER...", nargs=-1, required=True, shell_complete=completion.servers)
@click.option("--purge", is_flag=True, help="Also remove what they have written into the private home of a sandbox.")
@click.option("--yes", "-y", is_flag=True, help="With --purge: do not ask.")
@config_option
def remove(names: tuple[str, ...], purge: bool, yes: bool, config: str | None) -> None:
    """Remove servers from the configuration.

    Every other byte of the file stays. A running hub lets the calls of a removed server end. The private homes of
    sandboxes stay, and are named; --purge removes them, also those of servers that were removed before. Exit code 1 if
    a hub still uses one.
    """
    file = existing_file(config)
    secrets, homes = file.secret_files(), _homes(file, names)
    if purge and homes and not yes and sys.stdin.isatty():
        put("\n".join(visible(home.folder) for home in homes.values()))
        confirm("Remove the servers, and these private homes? It cannot be undone.", yes=False, default=False)
    there = file.servers() if purge else {}
    chosen = [name for name in dict.fromkeys(names) if not purge or name in there or name not in homes]
    if chosen:
        _change(file, [Remove(name) for name in chosen], "Removed")
    for path in sorted(secrets - file.secret_files()):
        say(f"{path} holds a secret that no server uses now. Delete it if you do not need it.")
    raise SystemExit(max((_leave_home(name, home, purge=purge) for name, home in homes.items()), default=0))


def _homes(file: ServersFile, names: Sequence[str]) -> dict[str, PrivateHome]:
    starts = StartFolders.of(Path(os.path.abspath(file.path)), state_dir(os.environ))
    homes = {name: PrivateHome(starts.home(name)) for name in names}
    return {name: home for name, home in homes.items() if os.path.lexists(home.folder)}


def _leave_home(name: str, home: PrivateHome, *, purge: bool) -> int:
    """Names a private home, or removes it when its server has ended; returns the exit code."""
    if not purge:
        command = f"mcp-hub remove --purge -- {shlex.quote(name)}"
        message = f"{home.folder} is its private home, with what {name} has written in its sandbox."
        say(visible(f"{message} If you do not need it: {command}"))
        return 0
    clock = SystemClock()
    until = clock.now() + PATIENCE
    while not (is_gone := home.remove()) and clock.now() < until:
        time.sleep(_LOOK)
    if is_gone:
        put(f"removed {visible(home.folder)}")
        return 0
    say(visible(f"{home.folder} stays: a hub still uses it, or a file in it resists. Run the command once more later."))
    return EXIT_TOOL


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
    """Switches the sandbox of local servers, on if they start in one; returns the exit code.

    Without names: `on` for servers without the key, `off` for all.
    """
    file, is_on = existing_file(config), word == "on"
    loaded = load_config(config, partly=True)
    check_servers(loaded, names)
    servers = {name: entry for name, entry in file.servers().items() if name in names or not names and is_local(entry)}
    if not names and is_on:
        servers = {
            name: entry
            for name, entry in servers.items()
            if "sandbox" not in entry and entry.get("enabled") is not False
        }
    for name in [name for name, entry in servers.items() if not is_local(entry)]:
        fail("misplaced_key", f"{name} is not a local program: only those have a sandbox")
    if is_on and (reason := why_unsupported()) is not None:
        fail("sandbox_unsupported", reason)
    trial = _with_own(tried(file, servers), loaded) if is_on else Trial(tuple(servers))
    changes = [
        Put(name, in_sandbox(servers[name], ON if is_on else OFF)["sandbox"], "sandbox") for name in trial.passed
    ]
    if changes and make(file, changes):
        report(file, f"sandbox: {word} for {', '.join(trial.passed)}")
        trial = replace(trial, passed=())
    elif not (trial.refused or trial.untried or trial.failed):
        which = "each enabled local server says on or off already. To change one: mcp-hub sandbox SERVER on"
        say(f"Nothing to do: {f'{word} already' if servers or not is_on else which}.")
    if is_on:
        print_trial(trial, file)
    return EXIT_TOOL if trial.refused or trial.untried or trial.failed else 0


def _with_own(trial: Trial, loaded: Loaded) -> Trial:
    """The trial of servers of which some have a sandbox already, and keep it."""
    effective = loaded.settings.effective
    failed = {name: reason for name, reason in trial.refused.items() if effective(name).sandbox.mode != "off"}
    refused = {name: reason for name, reason in trial.refused.items() if name not in failed}
    return replace(trial, refused=refused, failed=failed)


def _change(file: ServersFile, changes: Sequence[Change], verb: str) -> None:
    names = ", ".join(change.name for change in changes)
    report(file, f"{verb} {names}" if make(file, changes) else f"Nothing to do, already {verb.lower()}: {names}")
