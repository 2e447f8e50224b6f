"""`mcp-hub paths`: all files of the hub. `mcp-hub schema` and `mcp-hub completion`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click
import msgspec
from click.shell_completion import ShellComplete, get_completion_class

from mcp_hub.app.limits import own_folders, state_dir
from mcp_hub.attach.folder import base_folders, problem_of
from mcp_hub.cli.commands.running.service import ENVIRONMENT
from mcp_hub.cli.completion import VARIABLE
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import config_option, fail, fail_with
from mcp_hub.config.load.load import load
from mcp_hub.config.load.overrides import overrides_of
from mcp_hub.errors import ConfigError
from mcp_hub.masking import visible
from mcp_hub.onboarding.clients.model import Where
from mcp_hub.onboarding.servers_file.kept_secrets import FOLDER
from mcp_hub.onboarding.servers_file.servers_file import ServersFile
from mcp_hub.stores.history.file import FILE as HISTORY
from mcp_hub.stores.server_logs import log_folder

_STATE: Final = (
    "streams, results, history of calls, logs of servers, approvals, logins, undo records, "
    "homes of servers in a sandbox"
)


class HubPath(msgspec.Struct, frozen=True):
    """A path of the hub, which may not exist."""

    name: str
    path: Path
    description: str

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.path)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def paths(as_json: bool, config: str | None) -> None:
    """Show where the hub keeps its files.

    Configuration, secrets, state, cache, logs and sockets, also those that do not exist yet.
    """
    try:
        hub_files = shown_paths(config, os.environ)
    except ConfigError as error:
        fail_with(error)
    if as_json:
        tables.print_json({item.name: {"path": str(item.path), "exists": item.exists} for item in hub_files})
    else:
        tables.print_lines(path_lines(hub_files))


def shown_paths(config: str | None, env: Mapping[str, str]) -> list[HubPath]:
    """`hub_paths`, and in WSL the Windows user's folder. Raises `ConfigError`."""
    side = Where.here(env).windows
    around = [] if side is None else [HubPath("windows", side.home, f"clients there start the hub in {side.place}")]
    return [*hub_paths(config, env), *around]


def hub_paths(config: str | None, env: Mapping[str, str]) -> list[HubPath]:
    """All of them, the configuration first. Raises `ConfigError`."""
    file = ServersFile.find(config, env)
    try:
        settings = load(file.path, env, partly=True, lenient=True).settings if file.exists else None
    except ConfigError:  # `check` and `doctor` say so
        settings = None
    state = state_dir(env)
    stores = own_folders(settings, env)
    config_place = os.path.abspath(file.path)
    optional = [
        HubPath("overrides", overrides_of(Path(config_place)), "settings that were made in the dashboard"),
        HubPath("environment", Path.home() / ENVIRONMENT, "variables of the service"),
    ]
    hub_files = [
        HubPath("configuration", Path(config_place), "servers and settings"),
        *(item for item in optional if item.exists),
        HubPath("secrets", file.folder / FOLDER, "a file for each secret that was moved out of the configuration"),
        HubPath("state", state, _STATE),
        *(
            HubPath("store", path, "streams, results and history (hub.store.path)")
            for path in stores[1:]
            if path != state
        ),
        HubPath("history", stores[-1] / HISTORY, "calls that have ended, with arguments and results (hub.history)"),
        HubPath("cache", state / "lists", "last lists of the servers; made again"),
        HubPath("logs", log_folder(state, config_place), "stderr and log of the servers"),
    ]
    return [*hub_files, *socket_paths(env)[:1]]


def socket_paths(env: Mapping[str, str]) -> list[HubPath]:
    """The present and earlier folders of background hubs."""
    return [
        HubPath("sockets", Path(path), "background hubs")
        for number, path in enumerate(base_folders(env))
        if not number or _is_private(path)
    ]


def _is_private(path: str) -> bool:
    return problem_of(path) is None


def path_lines(hub_files: list[HubPath]) -> list[tuple[str, str]]:
    """A line for each, and its style."""
    widest = max(len(item.name) for item in hub_files) + 1
    lines = (
        (f"{item.name + ':':{widest}} {item.path}{'' if item.exists else ' (not there yet)'}", item)
        for item in hub_files
    )
    return [(visible(line), "" if item.exists else "dim") for line, item in lines]


_MODE_LINE: Final = "# yaml-language-server: $schema="
_HOW: Final = {
    "bash": 'eval "$(mcp-hub completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(mcp-hub completion zsh)"  # in ~/.zshrc, behind compinit',
    "fish": "mcp-hub completion fish | source  # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_HOW)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes mcp-hub in a SHELL.

    \b
    bash: eval "$(mcp-hub completion bash)" in ~/.bashrc
    zsh:  eval "$(mcp-hub completion zsh)" in ~/.zshrc, behind compinit
    fish: mcp-hub completion fish | source in ~/.config/fish/config.fish

    Names of servers, tools and streams come from the configuration and from what hubs remember; no server is started.
    """
    script_class = get_completion_class(shell)
    assert script_class is not None
    # not its own `source`, which runs bash to see whether it is an old one: that prints the script, too
    script = ShellComplete.source(script_class(ctx.find_root().command, {}, "mcp-hub", VARIABLE))
    put(f"# {_HOW[shell]}\n{script}")


@click.command()
@click.option(
    "--write", "target", metavar="FILE",
    help="Write it to FILE, and print the line with which editors find it from a servers.yaml.",
)  # fmt: skip
def schema(target: str | None) -> None:
    """Print the JSON Schema of servers.yaml.

    Editors with a YAML language server complete keys and mark mistakes by it, without network: write it to a file, and
    put the line that the command prints at the top of servers.yaml.
    """
    from mcp_hub.config.schema.json_schema import json_schema

    text = msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode()
    if target is None:
        put(text)
        return
    path = Path(target).absolute()
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        fail("output_unwritable", f"{path} cannot be written: {problem.strerror}. Choose another file with --write.")
    say(f"Wrote {path}. Put this at the top of servers.yaml; the path may be relative to it:")
    put(f"{_MODE_LINE}{path}")
