"""`mcp-hub leave`: the whole way out: clients as they were, nothing of the hub runs, and what is left is listed."""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import platformdirs

from mcp_hub.app.limits import state_dir
from mcp_hub.attach.folder import is_alive, take_start
from mcp_hub.attach.system import user
from mcp_hub.cli.access.background import end_folders
from mcp_hub.cli.access.running import HubRecord, running_hubs
from mcp_hub.cli.commands.clients import steps as common
from mcp_hub.cli.commands.clients.uninstall import carry_out, planned
from mcp_hub.cli.commands.running.paths import HubPath, hub_paths, socket_paths
from mcp_hub.cli.commands.running.service import service_file, stop_service
from mcp_hub.cli.render.output import agrees, put, say
from mcp_hub.cli.setup import EXIT_TOOL, config_option, fail, fail_with
from mcp_hub.config.load.foreign import client_of
from mcp_hub.config.load.load import USERS_FILE, usual_place
from mcp_hub.config.trust import STATE_FOLDERS
from mcp_hub.errors import ConfigError
from mcp_hub.files import entries_below, remove_tree
from mcp_hub.masking import hide, visible
from mcp_hub.onboarding.changes.acts import Acts
from mcp_hub.onboarding.changes.plan import Step
from mcp_hub.onboarding.changes.written import WrittenEntries
from mcp_hub.onboarding.clients.places import Where
from mcp_hub.onboarding.clients.reading import client_files, clients_of
from mcp_hub.onboarding.files import BACKUP, FileRefused
from mcp_hub.onboarding.servers_file.kept_secrets import FOLDER
from mcp_hub.onboarding.servers_file.servers_file import ServersFile
from mcp_hub.stores.history.file import FILE as HISTORY
from mcp_hub.stores.open import DOCUMENTS

_ABOUT: Final = {"secrets": "a secret of the configuration"}
_FOLDERS: Final = "folders"
"""The folder of the state folder with those that servers start in; servers may write there."""
_FILES: Final = ("streams.db", HISTORY, "eras.json")
"""Files in a state folder or a store, each with others beside it."""
_NAMES: Final = ("servers.yaml", "servers.yml", "servers.json")
"""Names of a configuration that is the hub's also if nobody can read it."""
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
    behind are listed. Without a terminal --purge needs --yes. Exit code 1 if a client could not be restored, or if
    something still runs or could not be removed.
    """
    where = Where.here(os.environ)
    stays = common.tell_no_windows(where)
    clients = [client for client in clients_of(where) if client.is_written]
    every = planned(clients, where, restores=True, leaves=True)
    steps = [step for step in every if step.is_needed or step.problem or step.problems]
    steps = [step for step in steps if not _tell_removed(step)]
    try:
        left = _left(config, [file.path for client in clients for file in client_files(client, where)])
    except ConfigError as error:
        fail_with(error)
    if not steps and not _runs() and not (purge and any(map(_has_parts, left))) and not stays:
        say("Nothing to do: no client has the hub, and nothing of it runs.")
        raise SystemExit(0 if purge else _end(0, left))
    common.show(steps)
    _tell_servers(left, purge)
    if dry_run or purge:
        _list("To be removed" if not dry_run else "Would remove" if purge else "Would stay", left)
    if dry_run:
        raise SystemExit(common.tell_problems(steps))
    if not yes:
        _ask(purge)
    code = (carry_out(steps, where, waits=waits, verb="leave", ends=purge and not stays) if steps else 0) or stays
    running, stop_code = _stop_all()
    if purge and not code:
        raise SystemExit(_purge(left, running) or stop_code)
    if purge:
        say("Nothing is removed, because a client could not be restored. Correct what the lines above name, and give a")
        say("server that was changed since another name. Then run the command again: those from before come back.")
        for step in steps:
            if step.problems and step.problem is None and not os.path.lexists(step.file.path):
                say(visible(f"Or leave without {step.file.path}: mcp-hub install --undo {step.file.client.name}"))
    raise SystemExit(_end(code or stop_code, left, purge))


def _tell_removed(step: Step) -> bool:
    """Whether the client was removed with the folder of its file, so nothing is restored there; says so."""
    folder = step.file.path.parent
    is_removed = bool(step.problems) and not step.is_needed and step.problem is None and not os.path.lexists(folder)
    for problem in step.problems if is_removed else ():
        message = f"{step.file.client.title}: {problem} Its folder is gone, too, so nothing is restored there."
        say(visible(hide(message)))
    return is_removed


def _ask(purge: bool) -> None:
    """Exits unless the person at the terminal agrees. A script need not be asked, but for what cannot be undone."""
    if sys.stdin.isatty():
        question = "Leave the hub, and remove these files? It cannot be undone." if purge else "Leave the hub?"
        if not agrees(question, default=not purge):
            say("Nothing is changed.")
            raise SystemExit(EXIT_TOOL)
    elif purge:
        fail("usage", "Nothing is changed: --purge cannot be undone, so without a terminal it needs --yes.")


def _runs() -> bool:
    """Whether the command has something to stop."""
    return service_file() is not None or any(hub.folder for hub in running_hubs(None, os.environ))


def _stop_all() -> tuple[list[HubRecord], int]:
    """Stops the background hubs and the service, and names hubs that run otherwise.

    The background hubs that have not ended, and the exit code.
    """
    hubs = [hub for hub in running_hubs(None, os.environ) if hub.folder]
    alive = end_folders([hub.folder for hub in hubs])
    for hub in hubs:
        if hub.folder not in alive:
            put(f"Stopped the background hub of {visible(hub.place or hub.folder)}.")
        else:
            about = f"The background hub of {hub.place} (process {hub.pid}) has not ended: {alive[hub.folder]}"
            say(visible(f"{about}. End that process, then run the command once more. [hub_not_answering]"))
    code = EXIT_TOOL if alive else 0
    try:
        if (unit := stop_service()) is not None:
            put(f"Stopped the service and removed {visible(str(unit))}.")
    except SystemExit:  # it has said why; all else is still to be done
        code = EXIT_TOOL
    for hub in running_hubs(None, os.environ):
        if hub.url:
            say(visible(f"A hub over HTTP runs for {hub.place} (process {hub.pid}). Stop it where it was started."))
    return [hub for hub in hubs if hub.folder in alive], code


def _is_dead(folder: Path) -> bool:
    with suppress(OSError):
        if (lock := take_start(str(folder))) is not None:
            os.close(lock)
            return not is_alive(str(folder))
    return False


def _end(code: int, left: Sequence[HubPath], purge: bool = False) -> int:
    _list("Still there", left)
    if any(map(_has_parts, left)) and not purge:
        say("To remove these, too: mcp-hub leave --purge")
    return code


def _left(config: str | None, client_paths: Sequence[Path]) -> list[HubPath]:
    """The files and folders that stay behind. Of a configuration that nobody named, only the user's own.

    The others are those that clients have now or had once, as far as the state folder still has the record of that.
    """
    state = state_dir(os.environ)
    chosen = config if config is not None or "MCP_HUB_CONFIG" in os.environ else USERS_FILE
    try:
        configs = WrittenEntries(state).configs()
    except OSError as problem:
        say(visible(f"{state}: {problem.strerror}. Configurations outside of your configuration folder are not known."))
        configs = []
    places = [chosen, *sorted(configs)]
    found: dict[Path, HubPath] = {}
    for place in places:
        for one in hub_paths(place, os.environ):
            for path in _parts(one, place):
                found.setdefault(path, HubPath(one.name, path, _ABOUT.get(one.name, one.about)))
    found |= {one.path: one for one in socket_paths(os.environ)}
    try:
        changed = list(dict.fromkeys(Path(one.path) for one in Acts(state).states()))
    except FileRefused as problem:
        say(str(problem))
        changed = []
    for path in [*changed, *client_paths, *(one.path for one in found.values() if one.name == "configuration")]:
        backup = Path(os.path.realpath(path)).with_name(path.name + BACKUP)
        found.setdefault(backup, HubPath("backup", backup, "a client's file before the last change"))
    state_parts = [one for one in found.values() if one.name in ("cache", "history", "logs")]
    return [one for one in found.values() if one not in state_parts]


def _parts(one: HubPath, config: str | None) -> list[Path]:
    """The files of secrets that the configuration names, and every other file or folder as a whole.

    A configuration that is the file of another client, or in which the hub finds no servers, is not the hub's.
    """
    if one.name == "configuration" and not _is_of_hub(one.path):
        return []
    if one.name != "secrets":
        return [one.path]
    try:
        return sorted(ServersFile.find(config, os.environ).secret_files())
    except ConfigError:
        return []


def _is_of_hub(path: Path) -> bool:
    if os.path.isdir(path) or client_of(path, None):
        return False
    try:
        has_servers = bool(ServersFile(path, os.environ).servers())
    except ConfigError as error:
        has_servers = False
        if error.code == "foreign_file":
            return False
    return has_servers or path.name in _NAMES


def _list(title: str, left: Sequence[HubPath]) -> None:
    there = [one for one in left if _has_parts(one)]
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


def _purge(left: Sequence[HubPath], running: Sequence[HubRecord]) -> int:
    """Removes all of it; the exit code. Of a folder that a person has chosen only what the hub made there.

    What a hub that still runs uses stays. If anything does, the record of the configurations stays, too: the next purge
    needs it.
    """
    code = 0
    used = {path for hub in running for one in hub_paths(hub.place, os.environ) for path in _parts(one, hub.place)}
    folders = [_usual_state(), usual_place().parent, usual_place().parent / FOLDER, *_made_folders()]
    for one in sorted(left, key=lambda one: one.name == "state"):
        if one.path in used and one.name != "sockets":
            if one.exists:
                say(visible(f"{one.path} stays ({one.name}): a background hub that has not ended uses it."))
            code = code or EXIT_TOOL
            continue
        try:
            for path in _pieces(one, keeps_records=bool(code)):
                remove_tree(path)
                put(f"removed {visible(str(path))}")
                folders += [path.parent] if one.name == "secrets" else []
        except OSError as problem:
            say(visible(f"{one.path} is not removed: {problem.strerror}. Remove it yourself."))
            code = EXIT_TOOL
        _say_what_stays(one)
        if one.name == "sockets":
            _drop_key(one.path)
            folders.append(one.path)
    for folder in sorted(set(folders), key=lambda path: -len(path.parts)):  # those in others first
        with suppress(OSError):  # not empty, or not there
            folder.rmdir()
    for hub in running:
        say(visible(f"{hub.folder} stays (sockets): its hub has not ended."))
    return code


def _made_folders() -> list[Path]:
    """The folders that the hub has made for files of clients and its configuration."""
    with suppress(FileRefused):
        return [Path(folder) for state in Acts(state_dir(os.environ)).states() for folder in state.folders]
    return []


def _say_what_stays(one: HubPath) -> None:
    if one.name == "state" and (one.path / _FOLDERS).is_dir():
        say(visible(f"{one.path / _FOLDERS} stays: servers have written files there."))
    for path in _uncertain(one):
        message = "others than you can enter it, so the hub may not have made it. Look at it, and remove it yourself"
        say(visible(f"{path} stays: {message}."))


def _drop_key(folder: Path) -> None:
    """Removes the key of background hubs where there are none any more."""
    if os.path.isdir(folder) and os.listdir(folder) == ["key"]:
        folder.joinpath("key").unlink(missing_ok=True)


def _usual_state() -> Path:
    """The state folder that nobody has chosen, so the hub has made it."""
    return Path(platformdirs.user_state_dir("mcp-hub"))


def _pieces(one: HubPath, *, keeps_records: bool = False) -> list[Path]:
    """The files and folders of it to remove, which exist; of sockets none whose hub lives or starts just now."""
    if one.name == "sockets":
        return [path for path in one.path.glob("*/") if _SCOPE.fullmatch(path.name) and _is_dead(path)]
    if one.name not in ("state", "store"):
        return [one.path] if one.exists and not one.path.is_dir() else []  # the others are files
    if _is_usual(one):
        made = sorted(one.path.glob("*"))
    else:
        uncertain = _uncertain(one)
        made = [path for path in _folders(one) if path not in uncertain]
        made += [path for name in _FILES for path in sorted(one.path.glob(f"{name}*"))]
    made = [path for path in made if not (keeps_records and one.name == "state" and path.name == "clients")]
    return [path for path in made if os.path.lexists(path) and not (path.name == _FOLDERS and _has_files(path))]


def _is_usual(one: HubPath) -> bool:
    return one.path == _usual_state() and not one.path.is_symlink()


def _folders(one: HubPath) -> list[Path]:
    """The folders with the names of the hub's in a folder that a person has chosen, by name."""
    names = {DOCUMENTS, "instances"}  # of a store
    if one.name == "state":
        names = {name.partition("/")[0] for name in STATE_FOLDERS} | {"attach", _FOLDERS}
    return [path for name in sorted(names) if (path := one.path / name).is_dir()]


def _uncertain(one: HubPath) -> list[Path]:
    """Those of them with files which somebody else may have made: the hub lets nobody else enter its own."""
    if one.name not in ("state", "store") or _is_usual(one) or user() is None:
        return []
    return [
        path for path in _folders(one) if path.stat().st_mode & 0o077 and not path.is_symlink() and _has_files(path)
    ]


def _has_parts(one: HubPath) -> bool:
    """Whether there is something of the hub in it."""
    if one.name == "sockets":
        return any(_SCOPE.fullmatch(path.name) for path in one.path.glob("*/"))
    return bool(_pieces(one)) or one.name == "state" and (one.path / _FOLDERS).is_dir()


def _has_files(folder: Path) -> bool:
    return any(entry is None or not entry.is_dir(follow_symlinks=False) for entry in entries_below(str(folder)))
