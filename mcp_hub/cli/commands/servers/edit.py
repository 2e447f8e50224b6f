"""`mcp-hub edit`, and the common end of commands that change `servers.yaml`."""

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

import click

from mcp_hub import windows
from mcp_hub.app.limits import state_dir
from mcp_hub.cli.access.running import running_hub
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import agrees, put, say
from mcp_hub.cli.setup import EXIT_CONFIG, config_option, fail, fail_with
from mcp_hub.config.load.load import load
from mcp_hub.errors import ConfigError
from mcp_hub.masking import hide
from mcp_hub.onboarding.changes.written import ClientRecords, ImportedServer
from mcp_hub.onboarding.servers_file.servers_file import Change, ServersFile, option_for


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
    """Makes the changes; False if there were none. Exits with 2."""
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
    """Records that a command added these servers, for `doctor`."""
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
