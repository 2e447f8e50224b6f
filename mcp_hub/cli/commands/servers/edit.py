"""`mcp-hub edit`."""

import os
import shlex
import subprocess
import sys

import click

from mcp_hub import windows
from mcp_hub.cli.commands.servers.changed import existing_file, report
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import agrees, say
from mcp_hub.cli.setup import EXIT_CONFIG, config_option, fail
from mcp_hub.config.load.load import load
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.servers_file.servers_file import ServersFile


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
