"""`mcp-hub leave`: restores clients, stops the hub, and lists what stays."""

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import click
import platformdirs

from mcp_hub.attach.folder import is_alive, take_start
from mcp_hub.attach.system import user
from mcp_hub.cli.access.running import HubRecord, end_folders, running_hubs
from mcp_hub.cli.commands.clients import steps as common
from mcp_hub.cli.commands.clients.uninstall import carry_out, planned
from mcp_hub.cli.commands.running.paths import HubPath, hub_paths, socket_paths
from mcp_hub.cli.commands.running.service import service_file, stop_service
from mcp_hub.cli.render.output import agrees, put, say
from mcp_hub.cli.setup import EXIT_TOOL, config_option, fail, fail_with
from mcp_hub.config.load.foreign import client_of
from mcp_hub.config.load.load import USERS_FILE, usual_place
from mcp_hub.config.trust import SECRETS, STATE_FOLDERS, state_dir
from mcp_hub.errors import ConfigError
from mcp_hub.files import HISTORY_FILE, entries_below, remove_tree
from mcp_hub.masking import hide, visible
from mcp_hub.onboarding.changes.acts import Acts
from mcp_hub.onboarding.changes.plan import Step
from mcp_hub.onboarding.changes.written import ClientRecords
from mcp_hub.onboarding.clients.model import Where
from mcp_hub.onboarding.clients.reading import client_files, clients_of
from mcp_hub.onboarding.files import BACKUP, FileRefused
from mcp_hub.onboarding.servers_file.servers_file import ServersFile, option_for
from mcp_hub.stores.long_results import DOCUMENTS

_ABOUT: Final = {"secrets": "a secret of the configuration"}
_FOLDERS: Final = "folders"
"""The folder of the state folder with those that servers start in; servers may write there."""
_FILES: Final = ("streams.db", HISTORY_FILE, "eras.json")
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

    Client files become what they were before the hub. In a file that changed since, the hub's entry goes and the
    client's own servers come back. Stops background hubs and the service, and lists the files that stay. Without a
    terminal --purge needs --yes. Exit code 1 if a client could not be restored, or something still runs or could not be
    removed.
    """
    where = Where.here(os.environ)
    stays = common.tell_no_windows(where)
    clients = [client for client in clients_of(where) if client.is_written]
    every = planned(clients, where, restores=True, leaves=True)
    steps = [step for step in every if step.is_needed or step.problem or step.problems]
    steps = [step for step in steps if not _tell_removed(step)]
    try:
        remaining = _remaining_paths(config, [file.path for client in clients for file in client_files(client, where)])
    except ConfigError as error:
        fail_with(error)
    if not steps and not _runs() and not (purge and any(map(_has_parts, remaining))) and not stays:
        raise SystemExit(_nothing(remaining, purge))
    common.show(steps)
    _tell_running()
    _tell_servers(remaining, purge)
    if dry_run or purge:
        _list("To be removed" if not dry_run else "Would remove" if purge else "Would stay", remaining)
    if dry_run:
        raise SystemExit(common.tell_problems(steps))
    if not yes:
        _ask(purge)
    code = (carry_out(steps, where, waits=waits, verb="leave", ends=purge and not stays) if steps else 0) or stays
    running, stop_code = _stop_all()
    if purge and not code:
        raise SystemExit(_purge(remaining, running) or stop_code)
    if purge:
        say("Nothing is removed, because a client could not be restored. Correct what the lines above name, and give a")
        say("server that was changed since another name. Then run the command again: those from before come back.")
        for step in steps:
            if step.problems and step.problem is None and not os.path.lexists(step.file.path):
                say(visible(f"Or leave without {step.file.path}: mcp-hub install --undo {step.file.client.name}"))
    raise SystemExit(_end(code or stop_code, remaining, purge))


def _nothing(remaining: Sequence[HubPath], purge: bool) -> int:
    """Says that there is nothing to restore; returns the exit code."""
    is_served = bool(_http_hubs())
    say(f"Nothing to do: no client has the hub{'' if is_served else ', and nothing of it runs'}.")
    _tell_servers(remaining, purge)
    return _end(EXIT_TOOL if is_served else 0, remaining, purge)


def _tell_removed(step: Step) -> bool:
    """Whether the client was uninstalled with its folder; says so."""
    folder = step.file.path.parent
    is_removed = bool(step.problems) and not step.is_needed and step.problem is None and not os.path.lexists(folder)
    for problem in step.problems if is_removed else ():
        message = f"{step.file.client.title}: {problem} Its folder is gone, too, so nothing is restored there."
        say(visible(hide(message)))
    return is_removed


def _ask(purge: bool) -> None:
    """Exits unless the person agrees; a script only to a purge."""
    if sys.stdin.isatty():
        question = "Leave the hub, and remove these files? It cannot be undone." if purge else "Leave the hub?"
        if not agrees(question, default=not purge):
            say("Nothing is changed.")
            raise SystemExit(EXIT_TOOL)
    elif purge:
        fail("usage", "Nothing is changed: --purge cannot be undone, so without a terminal it needs --yes.")


def _runs() -> bool:
    return service_file() is not None or any(hub.folder for hub in running_hubs(None, os.environ))


def _stop_all() -> tuple[list[HubRecord], int]:
    """Stops background hubs and the service; returns hubs that run still, and the exit code."""
    hubs = [hub for hub in running_hubs(None, os.environ) if hub.folder]
    alive = end_folders([hub.folder for hub in hubs])
    for hub in hubs:
        if hub.folder not in alive:
            put(f"Stopped the background hub of {visible(hub.config or hub.folder)}.")
        else:
            problem = f"The background hub of {hub.config} (process {hub.pid}) has not ended: {alive[hub.folder]}"
            say(visible(f"{problem}. End that process, then run the command once more. [hub_not_answering]"))
    code = EXIT_TOOL if alive else 0
    try:
        if (unit := stop_service()) is not None:
            put(f"Stopped the service and removed {visible(str(unit))}.")
    except SystemExit:  # it has said why; all else is still to be done
        code = EXIT_TOOL
    serving = _http_hubs()
    return [*(hub for hub in hubs if hub.folder in alive), *serving], EXIT_TOOL if serving else code


def _tell_running() -> None:
    """Says what is stopped, before it is."""
    for hub in running_hubs(None, os.environ):
        if hub.folder:
            put(f"Stops the background hub of {visible(hub.config or hub.folder)} (process {hub.pid}).")
    if (unit := service_file()) is not None:
        put(f"Stops the service {visible(str(unit))}.")


def _http_hubs() -> list[HubRecord]:
    """Hubs that serve HTTP, which the command does not stop; names them."""
    serving = [hub for hub in running_hubs(None, os.environ) if hub.url]
    for hub in serving:
        say(visible(f"A hub over HTTP runs for {hub.config} (process {hub.pid}). Stop it where it was started."))
    return serving


def _is_dead(folder: Path) -> bool:
    with suppress(OSError):
        if (lock := take_start(str(folder))) is not None:
            os.close(lock)
            return not is_alive(str(folder))
    return False


def _end(code: int, remaining: Sequence[HubPath], purge: bool = False) -> int:
    _list("Still there", remaining)
    if any(map(_has_parts, remaining)) and not purge:
        say("To remove these, too: mcp-hub leave --purge")
    return code


def _remaining_paths(config: str | None, client_paths: Sequence[Path]) -> list[HubPath]:
    """The files that stay: of this configuration, and of those in client files."""
    state = state_dir(os.environ)
    chosen = config if config is not None or "MCP_HUB_CONFIG" in os.environ else USERS_FILE
    try:
        configs = ClientRecords(state).configs()
    except OSError as problem:
        say(visible(f"{state}: {problem.strerror}. Configurations outside of your configuration folder are not known."))
        configs = []
    places = [chosen, *sorted(configs)]
    by_path: dict[Path, HubPath] = {}
    for config_path in places:
        for item in hub_paths(config_path, os.environ):
            for path in _parts(item, config_path):
                by_path.setdefault(path, HubPath(item.name, path, _ABOUT.get(item.name, item.description)))
    by_path |= {item.path: item for item in socket_paths(os.environ)}
    try:
        changed = list(dict.fromkeys(Path(item.path) for item in Acts(state).states()))
    except FileRefused as problem:
        say(str(problem))
        changed = []
    for path in [*changed, *client_paths, *(item.path for item in by_path.values() if item.name == "configuration")]:
        backup = Path(os.path.realpath(path)).with_name(path.name + BACKUP)
        by_path.setdefault(backup, HubPath("backup", backup, "the file before the last change"))
    state_parts = [item for item in by_path.values() if item.name in ("cache", "history", "logs")]
    return [item for item in by_path.values() if item not in state_parts]


def _parts(item: HubPath, config: str | None) -> list[Path]:
    """The secret files that the configuration names, or the path; none of another client's file."""
    if item.name == "configuration" and not _is_of_hub(item.path):
        return []
    if item.name != "secrets":
        return [item.path]
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


def _list(title: str, remaining: Sequence[HubPath]) -> None:
    there = [item for item in remaining if _has_parts(item)]
    if there:
        put(f"{title}:")
    for item in there:
        put(visible(f"  {item.path} ({item.name}: {item.description})"))


def _tell_servers(remaining: Sequence[HubPath], purge: bool) -> None:
    for item in remaining:
        if item.name == "configuration" and item.exists:
            with suppress(ConfigError):
                file = ServersFile(item.path, os.environ)
                servers = list(file.servers())
                end = "is removed with these servers" if purge else "keeps its servers"
                say(visible(hide(f"{item.path} {end}: {', '.join(servers)}")))
                if names := ", ".join(_in_no_client(file, servers)):
                    aim = "To put all servers into one first" if purge else "To put all servers into one"
                    advice = f"{aim}: mcp-hub export CLIENT --write --all{option_for(file)}"
                    say(visible(hide(f"  In no client, only there: {names}. {advice}")))


def _in_no_client(file: ServersFile, servers: Sequence[str]) -> list[str]:
    """Servers that neither came from a client nor went into one by `export`."""
    state, config = state_dir(os.environ), os.path.abspath(file.path)
    with suppress(OSError, FileRefused):
        records = ClientRecords(state)
        changed = [item for item in Acts(state).states() if item.path != os.path.realpath(config)]
        written = {path[-1] for item in changed for path in item.entries}
        return [name for name in servers if name not in written and not records.client_of(config, name)]
    return []


def _purge(remaining: Sequence[HubPath], running: Sequence[HubRecord]) -> int:
    """Removes the hub's files; returns the exit code.

    Keeps what a running hub uses, and then also the record of configurations.
    """
    code = 0
    used = {path for hub in running for item in hub_paths(hub.config, os.environ) for path in _parts(item, hub.config)}
    folders = [_usual_state(), usual_place().parent, usual_place().parent / SECRETS, *_made_folders()]
    for item in sorted(remaining, key=lambda path: path.name == "state"):
        if item.path in used and item.name != "sockets":
            if item.exists:
                say(visible(f"{item.path} stays ({item.name}): a hub that runs uses it."))
            code = code or EXIT_TOOL
            continue
        try:
            for path in _pieces(item, keeps_records=bool(code)):
                remove_tree(path)
                put(f"removed {visible(str(path))}")
                folders += [path.parent] if item.name == "secrets" else []
        except OSError as problem:
            say(visible(f"{item.path} is not removed: {problem.strerror}. Remove it yourself."))
            code = EXIT_TOOL
        _say_what_stays(item)
        if item.name == "sockets":
            _drop_key(item.path)
            folders.append(item.path)
    for folder in sorted(set(folders), key=lambda path: -len(path.parts)):  # those in others first
        with suppress(OSError):  # not empty, or not there
            folder.rmdir()
    for hub in running:
        if hub.folder:
            say(visible(f"{hub.folder} stays (sockets): its hub has not ended."))
    return code


def _made_folders() -> list[Path]:
    with suppress(FileRefused):
        return [Path(folder) for state in Acts(state_dir(os.environ)).states() for folder in state.folders]
    return []


def _say_what_stays(item: HubPath) -> None:
    if item.name == "state" and (item.path / _FOLDERS).is_dir():
        say(visible(f"{item.path / _FOLDERS} stays: servers have written files there."))
    for path in _uncertain(item):
        message = "others than you can enter it, so the hub may not have made it. Look at it, and remove it yourself"
        say(visible(f"{path} stays: {message}."))


def _drop_key(folder: Path) -> None:
    if os.path.isdir(folder) and os.listdir(folder) == ["key"]:
        folder.joinpath("key").unlink(missing_ok=True)


def _usual_state() -> Path:
    return Path(platformdirs.user_state_dir("mcp-hub"))


def _pieces(item: HubPath, *, keeps_records: bool = False) -> list[Path]:
    """The existing parts to remove; of sockets only those of dead hubs."""
    if item.name == "sockets":
        return [path for path in item.path.glob("*/") if _SCOPE.fullmatch(path.name) and _is_dead(path)]
    if item.name not in ("state", "store"):
        return [item.path] if item.exists and not item.path.is_dir() else []  # the others are files
    if _is_usual(item):
        pieces = sorted(item.path.glob("*"))
    else:
        uncertain = _uncertain(item)
        pieces = [path for path in _folders(item) if path not in uncertain]
        pieces += [path for name in _FILES for path in sorted(item.path.glob(f"{name}*"))]
    pieces = [path for path in pieces if not (keeps_records and item.name == "state" and path.name == "clients")]
    return [path for path in pieces if os.path.lexists(path) and not (path.name == _FOLDERS and _has_files(path))]


def _is_usual(item: HubPath) -> bool:
    return item.path == _usual_state() and not item.path.is_symlink()


def _folders(item: HubPath) -> list[Path]:
    names = {DOCUMENTS, "instances"}  # of a store
    if item.name == "state":
        names = {name.partition("/")[0] for name in STATE_FOLDERS} | {"attach", _FOLDERS}
    return [path for name in sorted(names) if (path := item.path / name).is_dir()]


def _uncertain(item: HubPath) -> list[Path]:
    if item.name not in ("state", "store") or _is_usual(item) or user() is None:
        return []
    return [
        path for path in _folders(item) if path.stat().st_mode & 0o077 and not path.is_symlink() and _has_files(path)
    ]


def _has_parts(item: HubPath) -> bool:
    if item.name == "sockets":
        return any(_SCOPE.fullmatch(path.name) for path in item.path.glob("*/"))
    return bool(_pieces(item)) or item.name == "state" and (item.path / _FOLDERS).is_dir()


def _has_files(folder: Path) -> bool:
    return any(entry is None or not entry.is_dir(follow_symlinks=False) for entry in entries_below(str(folder)))
