"""The last step of every command that changes `servers.yaml`: the change, its failure, and whether a hub follows."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from mcp_hub.app.limits import state_dir
from mcp_hub.cli.access.running import running_hub
from mcp_hub.cli.render.output import agrees, put, say
from mcp_hub.cli.setup import EXIT_CONFIG, fail, fail_with
from mcp_hub.errors import ConfigError
from mcp_hub.masking import hide
from mcp_hub.onboarding.changes.written import ImportedServer, ImportedServers
from mcp_hub.onboarding.servers_file.servers_file import Change, EditRefused, ServersFile, option_for


def found_file(config: str | None) -> ServersFile:
    """The file to change. Exits with 2 if it cannot be."""
    try:
        return ServersFile.find(config, os.environ)
    except ConfigError as error:
        fail_with(error)


def existing_file(config: str | None) -> ServersFile:
    """The same; exits with 2, too, if there is no file yet."""
    file = found_file(config)
    if not file.exists:
        fail("config_not_found", f"{file.path} does not exist. Create it with: mcp-hub init")
    return file


def make(file: ServersFile, changes: Sequence[Change]) -> bool:
    """Makes the changes; whether there was something to do. Exits with 2 and the reason if they cannot be made."""
    try:
        return file.change(changes) is not None
    except ConfigError as error:
        end_with(error)


def end_with(error: ConfigError) -> NoReturn:
    """Ends the command with the findings, without a secret; below them stands the text to paste, if there is one."""
    if not isinstance(error, EditRefused):
        fail_with(error)
    say(hide(str(error)))
    if error.snippet:
        put(hide(error.snippet))
    raise SystemExit(EXIT_CONFIG)


def report(file: ServersFile, message: str) -> None:
    """Says on stderr what was done, and that the running hub of the file follows."""
    say(hide(f"{message} ({file.path})"))
    if (hub := running_hub(os.path.abspath(file.path), os.environ)) is not None:
        say(f"The running hub (process {hub.pid}) reloads the file.")


def note_added(file: ServersFile, names: Sequence[str]) -> None:
    """Remembers that nobody has written these servers by hand: `doctor` names those without a sandbox."""
    config = os.path.abspath(file.path)
    with suppress(OSError):  # it is only a help
        ImportedServers(state_dir(os.environ)).add([ImportedServer("", config, name, name) for name in names])


def tell_next(file: ServersFile, *, are_imported: bool) -> None:
    """Says how the servers come to the clients; those that `are_imported` are still in the clients' own files, too."""
    moves, how = (", and take these servers out of their files", " --import") if are_imported else ("", "")
    say(f"Next, connect your clients{moves}:\n  mcp-hub install --all{how}{option_for(file)}")


def confirm(question: str, *, yes: bool, default: bool = True) -> None:
    """Ends the command unless a person says yes, or said so before; `default` is the answer of an empty line."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail("no_terminal", "The command cannot ask: stdin is not a terminal. Add --yes.")
    if not agrees(question, default=default):
        say("Nothing is changed.")
        raise SystemExit(1)
