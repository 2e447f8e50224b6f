"""The `mcp-hub` command; imports each command only when it is called.

Exit codes: 0 ok, 1 the tool or the output failed, 2 usage or configuration, 3 no server or hub, 130 interrupted.

* `setup`: options, configuration, event loop, exit codes
* `serving`, `http_server`, `signals`, `lean`: a hub that serves
* `arguments`, `completion`: arguments of a call, completion in shells
* `trials`: servers started once, in a sandbox
* `top`: the screen of `mcp-hub top`
* `commands`, `access`, `render`: commands, ways to a hub, output
"""

import errno
import os
import re
import sys
from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from mcp_hub import __version__
from mcp_hub.cli import lean as lean  # before anything that imports structlog
from mcp_hub.cli.completion import VARIABLE
from mcp_hub.cli.render.output import escape_unknown, kept_output
from mcp_hub.cli.setup import EXIT_INTERRUPTED, EXIT_UNAVAILABLE, check_state_folder, fail
from mcp_hub.masking import visible

_GROUPS: Final = {
    "Start": {
        "init": ("clients.import_servers:init", "Create a first configuration."),
        "import": (
            "clients.import_servers:import_servers",
            "Import the servers of other clients into the configuration.",
        ),
        "install": ("clients.install:install", "Put the hub into other MCP clients."),
        "uninstall": ("clients.uninstall:uninstall", "Take the hub out of other MCP clients."),
        "leave": ("clients.leave:leave", "Leave the hub: restore all clients, and stop everything of it."),
        "serve": ("serve:serve", "Run the hub, over stdio or HTTP."),
    },
    "Servers": {
        "list": ("tools:list_servers", "List the servers with their state."),
        "doctor": ("doctor:doctor", "Explain what is wrong with the servers."),
        "logs": ("running.history:logs", "Show what servers wrote to stderr."),
        "add": ("servers.add:add", "Add a server to the configuration."),
        "registry": ("servers.add:registry", "Search the registry at hub.registry."),
        "remove": ("servers.edit:remove", "Remove servers from the configuration."),
        "enable": ("servers.edit:enable", "Enable servers that the configuration disables."),
        "disable": ("servers.edit:disable", "Disable servers in the configuration."),
        "login": ("login:login", "Log in to the remote SERVER in a browser (OAuth)."),
        "logout": ("login:logout", "Remove the login to the remote SERVER."),
        "account": ("account:account", "List, remove and set the accounts that callers have at servers."),
        "access": ("login:access", "List or remove the clients that people let in to the hub."),
        "approve": ("approve:approve", "Review and approve changed or new tools."),
    },
    "Tools and calls": {
        "tools": ("tools:tools", "List the tools under the names that clients use."),
        "search": ("search:search", "Search the tools as find_tools does, one hit on a line."),
        "tokens": ("tools:tokens", "Show what the tools cost in a model's context."),
        "call": ("call:call", "Call the tool NAME and show its progress and result."),
        "run": ("run:run", "Run the script in FILE, or on stdin, over the tools of the hub."),
        "read": ("call:read", "Read the resource URI and print it."),
        "prompt": ("call:prompt", "Get the prompt NAME and print its messages."),
        "events": ("events:events", "List the types of events, or wait for events of type NAME."),
        "streams": ("streams:streams", "List durable calls, newest first."),
        "history": ("running.history:history", "Show the calls that have ended, newest first."),
        "resume": ("streams:resume", "Follow a call by its STREAM id."),
        "cancel": ("streams:cancel", "Cancel a call by its STREAM id."),
    },
    "Configuration": {
        "edit": ("servers.edit:edit", "Open the configuration in $VISUAL or $EDITOR, and check it."),
        "check": ("check:check", "Validate the configuration."),
        "policy": ("check:policy", "Show which rule decides about a call."),
        "sandbox": ("servers.sandbox:sandbox", "Show, switch or learn the sandbox of SERVER, or test a path."),
        "schema": ("running.paths:schema", "Print the JSON Schema of servers.yaml."),
        "export": ("clients.export:export", "Print the servers in the form of another client."),
        "completion": ("running.paths:completion", "Print a script that completes mcp-hub in a SHELL."),
    },
    "Operate": {
        "status": ("running.status:status", "Show the running hubs of the configuration."),
        "paths": ("running.paths:paths", "Show where the hub keeps its files."),
        "audit": ("running.paths:audit", "Verify the lines that hub.audit writes."),
        "stop": ("running.status:stop", "Stop the background hub of the configuration."),
        "open": ("running.operate:open_dashboard", "Open the dashboard of the running hub in a browser."),
        "top": ("running.operate:top", "Watch a running hub on the terminal."),
        "reload": ("running.operate:reload", "Reload the configuration of a running hub."),
        "restart": ("running.operate:restart", "Restart a SERVER of a running hub."),
        "service": ("running.service:service", "Start a hub over HTTP with your session."),
    },
}
"""Heading of the help → command → module in `commands` and function there, and its line of the help.

The lines are here so that `mcp-hub --help` imports no command.
"""
_HIDDEN: Final = {"attached-hub": "running.attached:attached_hub"}
"""Commands that only the hub itself runs."""
_STATELESS: Final = frozenset(("schema", "completion", "doctor"))
"""Commands that read nothing of the state folder, and the one that makes it private again."""
_HELPS: Final = frozenset(("-h", "--help"))
_COMMANDS: Final = {name: function for group in _GROUPS.values() for name, (function, _) in group.items()}
_NAME: Final = max(map(len, _COMMANDS))
_FILE: Final = re.compile(r"[^\s()]+\.(?:ya?ml|json)\b")


def open_standard_streams() -> None:
    """Opens the null device for missing standard streams. Stdout is read-only: a print must fail."""
    for name, mode, flags in (("stdin", "r", os.O_RDONLY), ("stdout", "w", os.O_RDONLY), ("stderr", "w", os.O_WRONLY)):
        if getattr(sys, name) is None:
            from mcp_hub.files import open_null

            stream = open(open_null(flags), mode, encoding="utf-8")  # as long as the process
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _lacks_files(problem: BaseException) -> bool:
    if isinstance(problem, BaseExceptionGroup):
        return any(map(_lacks_files, problem.exceptions))
    return isinstance(problem, OSError) and problem.errno in (errno.EMFILE, errno.ENFILE)


class _Commands(click.Group):
    def main(self, *args: Any, **kwargs: Any) -> Any:
        open_standard_streams()
        escape_unknown(sys.stdout, sys.stderr)
        try:
            with kept_output():
                return super().main(*args, **{"complete_var": VARIABLE, **kwargs})
        except (OSError, BaseExceptionGroup) as problem:
            if not _lacks_files(problem):
                raise
            fail("too_many_files", f"{os.strerror(errno.EMFILE)}. Raise the limit: ulimit -n", EXIT_UNAVAILABLE)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_NAME), text) for name, (_, text) in group.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in _COMMANDS and not (name in _STATELESS or ctx.resilient_parsing or _HELPS.intersection(args)):
            check_state_folder()
        if name in _COMMANDS or args[0] in _HIDDEN or args[0].startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        from mcp_hub.config.findings import nearest, quoted

        guess = next((advice for words, advice in _GUESSES.items() if args[0].casefold() in words.split()), "")
        hint = f". {guess}" if guess else nearest(args[0], _COMMANDS) or "."
        raise click.UsageError(f"There is no command {quoted(args[0])}{hint}", ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        target = _COMMANDS.get(cmd_name) or _HIDDEN.get(cmd_name)
        if target is None:
            return None
        if cmd_name in ("serve", "attached-hub"):  # before the rest of the hub is imported, which takes a while
            from mcp_hub.cli.signals import hold_hangups

            hold_hangups()
        module, _, function = target.partition(":")
        command = getattr(import_module(f"mcp_hub.cli.commands.{module}"), function)
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Names without help: that would import all commands."""
        names = [CompletionItem(name) for name in sorted(_COMMANDS) if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except click.ClickException as error:
            vars(error)["message"] = visible(error.message)  # it repeats words and names of files
            raise _with_advice(error) from None

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            vars(error)["message"] = visible(error.message)
            if "unexpected extra argument" in error.message and (file := _FILE.search(error.message)):
                message = f"{error.message}. Name the configuration with --config {file[0]}."
                raise click.UsageError(message, error.ctx) from None
            raise _with_advice(error) from None
        except KeyboardInterrupt:  # before a command has its own handler
            raise SystemExit(EXIT_INTERRUPTED) from None


_GUESSES: Final = {
    "start up launch hub daemon": (
        "Clients start the hub themselves. mcp-hub open starts it in the background, mcp-hub serve --http for others."
    ),
    "secret secrets key keys env token": (
        "mcp-hub edit opens the configuration, which names them; mcp-hub paths shows the folder of their files."
    ),
    "config configure configuration settings": (
        "mcp-hub edit opens the configuration, mcp-hub paths shows where it is."
    ),
    "ls ps servers show info": "mcp-hub list shows the servers, mcp-hub status the hub.",
    "validate lint test verify ping health": "mcp-hub check reads the configuration, mcp-hub doctor tries servers.",
    "delete rm del": "mcp-hub remove SERVER removes a server.",
    "kill quit down shutdown": "mcp-hub stop ends the background hub.",
    "dashboard ui web": "mcp-hub open opens the dashboard.",
    "upgrade update": "Upgrade mcp-hub with what installed it, such as pipx upgrade mcp-hub.",
    "version": "mcp-hub --version prints it.",
    "help": "mcp-hub --help lists all commands.",
    "undo": "mcp-hub install --undo takes the last change of clients back.",
}
"""Words for which there is no command, and what people look for by them."""
_WORDS_OF_ADD: Final = ("--command", "--args", "--arg", "--url", "-c")
_MISSING: Final = {
    "call": "mcp-hub tools lists the names.",
    "run": "Name a script, or - for standard input.",
    "add": "For example: mcp-hub add time -- uvx mcp-server-time",
    "search": "For example: mcp-hub search create an issue",
    "read": "For example: mcp-hub read file:///tmp/notes.txt",
    **dict.fromkeys(("resume", "cancel"), "mcp-hub streams lists them."),
    **dict.fromkeys(("restart", "login", "logout", "remove", "enable", "disable"), "mcp-hub list names the servers."),
}
"""The place of a word that a command lacks."""


def _with_advice(error: click.ClickException) -> click.ClickException:
    context = getattr(error, "ctx", None)
    command = "" if context is None else context.command.name or ""
    message = ""
    if isinstance(error, click.NoSuchOption) and context is not None and context.parent is None:
        message = f"Options stand behind the command: mcp-hub COMMAND {error.option_name} …"
    elif isinstance(error, click.NoSuchOption) and command == "add" and error.option_name in _WORDS_OF_ADD:
        message = "The command stands behind --, and a URL behind the name: mcp-hub add NAME -- COMMAND ARG…"
    elif isinstance(error, click.MissingParameter):
        message = _MISSING.get(command, "")
    return click.UsageError(f"{_first_sentence(error)} {message}", context) if message else error


def _first_sentence(error: click.ClickException) -> str:
    return error.format_message().partition(" Did you mean ")[0]


@click.group(cls=_Commands, context_settings={"help_option_names": sorted(_HELPS)})
@click.version_option(__version__, prog_name="mcp-hub")
def main() -> None:
    """One MCP server in front of many.

    Begin with `mcp-hub init`, then `mcp-hub install --all --import`. Help on a command: mcp-hub COMMAND --help
    """
