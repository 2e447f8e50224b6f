"""The `mcp-hub` command: one file a command, imported when it is asked for, so that `serve` starts without the others.

Exit codes: 0 ok, 1 the tool said error or the output cannot be written, 2 usage or configuration, 3 upstream
unavailable, 130 interrupted.
"""

import os
import sys
from importlib import import_module
from typing import Any, Final

import click

from mcp_hub import __version__
from mcp_hub.cli import lean as lean  # before anything that imports structlog
from mcp_hub.cli.output import kept_output
from mcp_hub.cli.setup import EXIT_INTERRUPTED

__all__ = ["main", "open_standard_streams"]

_COMMANDS: Final = {
    "serve": "serve",
    "list": "list_servers",
    "tools": "tools",
    "tokens": "tokens",
    "search": "search",
    "call": "call",
    "streams": "streams",
    "resume": "resume",
    "cancel": "cancel",
    "login": "login",
    "logout": "logout",
    "reload": "reload",
    "restart": "restart",
    "check": "check",
    "doctor": "doctor",
    "approve": "approve",
}
"""Command, which is its module in this package → the function there."""


def open_standard_streams() -> None:
    """Opens the null device for each of stdin, stdout and stderr that this process was started without.

    Else the event loop takes their numbers for its own, and what writes to them ends it. Stdout stays one that cannot
    be written: what a command prints would be lost without a word.
    """
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            stream = open(os.open(os.devnull, flags), mode, encoding="utf-8")  # as long as the process
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


class _Commands(click.Group):
    def main(self, *args: Any, **kwargs: Any) -> Any:
        open_standard_streams()
        with kept_output():
            return super().main(*args, **kwargs)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        if cmd_name == "serve":
            _hold_hangups()
        command = getattr(import_module(f"mcp_hub.cli.{cmd_name}"), _COMMANDS[cmd_name])
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # before a command has its own handler
            raise SystemExit(EXIT_INTERRUPTED) from None


def _hold_hangups() -> None:
    """Before the rest of the hub is imported, which takes a while."""
    from mcp_hub.cli.signals import hold_hangups

    hold_hangups()


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mcp-hub")
def main() -> None:
    """One MCP server in front of many."""
