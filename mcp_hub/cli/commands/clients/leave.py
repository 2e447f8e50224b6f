"""`mcp-hub leave`: the whole way out: clients as they were, nothing of the hub runs, and what is left is listed."""

import os
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import platformdirs

from mcp_hub.app.limits import state_dir
from mcp_hub.cli.access.background import end_hub
from mcp_hub.cli.access.running import running_hubs
from mcp_hub.cli.clients.files.acts import Acts
from mcp_hub.cli.clients.files.replace import BACKUP, FileRefused
from mcp_hub.cli.clients.places import Where
from mcp_hub.cli.clients.table import CLIENTS
from mcp_hub.cli.commands.clients import steps as common
from mcp_hub.cli.commands.clients.uninstall import carry_out, planned
from mcp_hub.cli.commands.running.paths import HubPath, hub_paths
from mcp_hub.cli.commands.running.service import stop_service
from mcp_hub.cli.render.output import agrees, put, say
from mcp_hub.cli.servers_file.servers_file import ServersFile
from mcp_hub.cli.setup import EXIT_TOOL, config_option, fail_with
from mcp_hub.config.load.foreign import client_of
from mcp_hub.config.load.load import USERS_FILE
from mcp_hub.config.trust import STATE_FOLDERS
from mcp_hub.errors import ConfigError
from mcp_hub.masking import hide, visible
from mcp_hub.stores.open import DOCUMENTS

_ABOUT: Final = {"secrets": "a secret of the configuration"}
_FOLDERS: Final = "folders"
"""The folder of the state folder with those that servers start in; servers may write there."""
_SCOPE: Final = re.compile(r"[0-9a-f]{16}")
"""The name of the folder of a background hub (`attach.folder`)."""


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option(
    "--purge", is_flag=True, help="Also remove what would stay behind, with the servers in the configuration."
)
@click.option("--wait", "waits", is_flag=True, help="Wait until a client that would undo the change has been quit.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@config_option
def leave(dry_run: bool, purge: bool, waits: bool, yes: bool, config: str | None) -> None:
    """Leave the hub: restore all clients, and stop everything of it.

    Each client's file becomes what it was before the hub; in one that the client has changed since, the hub goes and
    the client's own servers come back. Then the background hubs and the service are stopped, and the files that stay
    behind are listed. Exit code 1 if a client could not be restored; then --purge removes nothing.
    """
    where = Where.here(os.environ)
    clients = [client for client in CLIENTS.values() if client.is_written]
    every = planned(clients, where, restores=True, leaves=True)
    steps = [step for step in every if step.is_needed or step.problem or step.problems]
    try:
        left = _left(config, [step.file.path for step in steps])
    except ConfigError as error:
        fail_with(error)
    common.show(steps)
    _tell_servers(left, purge)
    if dry_run:
        _list("Would remove" if purge else "Would stay", left)
        raise SystemExit(common.tell_problems(steps))
    if not yes and sys.stdin.isatty() and not agrees("Leave the hub?", default=True):
        say("Nothing is changed.")
        raise SystemExit(EXIT_TOOL)
    code = carry_out(steps, where, waits=waits, verb="leave", ends=purge) if steps else 0
    _stop_all()
    raise SystemExit(_purge(left) if purge and not code else _end(code, left, purge))


def _stop_all() -> None:
    """Stops the background hubs and the service, and names hubs that run otherwise."""
    for hub in running_hubs(None, os.environ):
        if hub.folder:
            end_hub(hub.folder)
            put(f"Stopped the background hub of {visible(hub.place or hub.folder)}.")
    if (unit := stop_service()) is not None:
        put(f"Stopped the service and removed {visible(str(unit))}.")
    for hub in running_hubs(None, os.environ):
        if hub.url:
            say(visible(f"A hub over HTTP runs for {hub.place} (process {hub.pid}). Stop it where it was started."))


def _is_dead(folder: Path) -> bool:
    from mcp_hub.attach.locks import is_alive, take_start  # not on Windows

    with suppress(OSError):
        if (lock := take_start(str(folder))) is not None:
            os.close(lock)
            return not is_alive(str(folder))
    return False


def _end(code: int, left: Sequence[HubPath], purge: bool) -> int:
    if purge:
        say("Nothing is removed, because a client could not be restored.")
    _list("Still there", left)
    if any(one.exists for one in left):
        say("To remove these, too: mcp-hub leave --purge")
    return code


def _left(config: str | None, steps_files: Sequence[Path]) -> list[HubPath]:
    """The files and folders that stay behind. Of a configuration that nobody named, only the user's own."""
    state = state_dir(os.environ)
    chosen = config if config is not None or "MCP_HUB_CONFIG" in os.environ else USERS_FILE
    places = [chosen, *sorted(common.installed_configs(state))]
    found: dict[Path, HubPath] = {}
    for place in places:
        for one in hub_paths(place, os.environ):
            for path in _parts(one, place):
                found.setdefault(path, HubPath(one.name, path, _ABOUT.get(one.name, one.about)))
    try:
        changed = Acts(state).paths()
    except FileRefused as problem:
        say(str(problem))
        changed = []
    for path in [*changed, *steps_files]:
        backup = Path(os.path.realpath(path)).with_name(path.name + BACKUP)
        found.setdefault(backup, HubPath("backup", backup, "a client's file before the last change"))
    state_parts = [one for one in found.values() if one.name in ("cache", "logs")]
    return [one for one in found.values() if one not in state_parts]


def _parts(one: HubPath, config: str | None) -> list[Path]:
    """The files of secrets that the configuration names, and every other file or folder as a whole.

    A configuration that is the file of another client is not the hub's.
    """
    if one.name == "configuration" and _is_of_client(one.path):
        return []
    if one.name != "secrets":
        return [one.path]
    try:
        return sorted(ServersFile.find(config, os.environ).secret_files())
    except ConfigError:
        return []


def _is_of_client(path: Path) -> bool:
    try:
        ServersFile(path, os.environ).servers()
    except ConfigError as error:
        return error.code == "foreign_file" or client_of(path, None) != ""
    return False


def _list(title: str, left: Sequence[HubPath]) -> None:
    there = [one for one in left if one.exists]
    if there:
        put(f"{title}:")
    for one in there:
        put(visible(f"  {one.path} ({one.name}: {one.about})"))


def _tell_servers(left: Sequence[HubPath], purge: bool) -> None:
    """Says which servers are in a configuration that is left or removed."""
    for one in left:
        if one.name == "configuration" and one.exists:
            with suppress(ConfigError):
                names = ", ".join(ServersFile(one.path, os.environ).servers())
                end = "is removed with these servers" if purge else "keeps its servers"
                say(visible(hide(f"{one.path} {end}: {names}")))


def _purge(left: Sequence[HubPath]) -> int:
    """Removes all of it; the exit code. Of a folder that a person has chosen only what the hub made there."""
    code = 0
    for one in left:
        try:
            for path in _pieces(one):
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
                put(f"removed {visible(str(path))}")
        except OSError as problem:
            say(visible(f"{one.path} is not removed: {problem.strerror}. Remove it yourself."))
            code = EXIT_TOOL
        if one.name == "state" and (one.path / _FOLDERS).is_dir():
            say(visible(f"{one.path / _FOLDERS} stays: servers have written files there."))
        if one.name == "sockets" and os.path.isdir(one.path) and os.listdir(one.path) == ["key"]:
            one.path.joinpath("key").unlink(missing_ok=True)
    for one in reversed(left):  # the folder of the secrets is in that of the configuration
        for folder in (one.path, one.path.parent) if one.name != "backup" else ():
            with suppress(OSError):  # not empty, or a file
                folder.rmdir()
    return code


def _pieces(one: HubPath) -> list[Path]:
    """The files and folders of it to remove, which exist; of sockets none whose hub lives or starts just now."""
    if one.name == "sockets":
        return [path for path in one.path.glob("*/") if _SCOPE.fullmatch(path.name) and _is_dead(path)]
    if one.name not in ("state", "store"):
        return [one.path] if one.exists else []
    if one.path == Path(platformdirs.user_state_dir("mcp-hub")) and not one.path.is_symlink():
        made = sorted(one.path.glob("*"))
    else:
        names = {DOCUMENTS, "instances"}  # of a store
        if one.name == "state":
            names = {name.partition("/")[0] for name in STATE_FOLDERS} | {"attach", _FOLDERS}
        made = [one.path / name for name in sorted(names)] + sorted(one.path.glob("streams.db*"))
        made += sorted(one.path.glob("eras.json*"))
    return [path for path in made if os.path.lexists(path) and not (path.name == _FOLDERS and _has_files(path))]


def _has_files(folder: Path) -> bool:
    return any(files for _, _, files in os.walk(folder))
