"""Problems that `mcp-hub doctor` can fix. A diff never has a line of a file, which could hold a secret."""

import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.app.logins import grant_store, login_of
from mcp_hub.app.readiness import StartFolders, names_client
from mcp_hub.attach.system import user
from mcp_hub.cli.access.running import dead_records
from mcp_hub.cli.commands.clients.install import Options, install_into
from mcp_hub.cli.setup import check_caller
from mcp_hub.cli.trials import why_not_tried, why_unsupported
from mcp_hub.config.load.foreign import works_where_started
from mcp_hub.config.load.interpolate import CLIENTS_FOLDER
from mcp_hub.config.load.load import Loaded, load
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.trust import close_folder, own_folders, state_dir, untrusted_state
from mcp_hub.errors import ConfigError, ConfigFinding, StartFailed
from mcp_hub.onboarding.changes.entry_options import other_linux
from mcp_hub.onboarding.changes.plan import entry_in
from mcp_hub.onboarding.changes.written import ClientRecords, WrittenEntry, lost_entries
from mcp_hub.onboarding.clients.model import Client, Where
from mcp_hub.onboarding.clients.reading import hub_files
from mcp_hub.onboarding.clients.table import WINDOWS_CLIENTS, find_client
from mcp_hub.onboarding.files import FileRefused
from mcp_hub.onboarding.servers_file.servers_file import Put, ServersFile
from mcp_hub.stores.locks import remove
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.auth.grants import LoginFailed, grant_key
from mcp_hub.upstreams.process import commands

_DESKTOP_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"
"""The PATH that an application started from a desktop has at least, and on macOS at most."""
_OTHERS: Final = 0o022
_PATH: Final = re.compile(r"(?:/|[A-Za-z]:[\\/])[^\\/\0]+[\\/][^\0]+")
"""An absolute path of two names at least: `/mcp` is the path of a URL most often."""
_FILE: Final = re.compile(r"\$\{file:([^}]+)\}")
_CONTAINERS: Final = frozenset(("docker", "podman", "nerdctl"))
_VOLUMES: Final = frozenset(("-v", "--volume", "--mount"))
_SKIPPED: Final = frozenset(("url", "headers", "description", "name", "tools", "enabled", "disabled"))
"""Keys whose values are not paths of this machine."""


class Repair(msgspec.Struct, frozen=True):
    """A problem; `apply` fixes it, raises `ConfigError`, `OSError`.

    `is_problem`: something fails now. `is_fixable`: by `doctor --fix`. `path`: the missing one.
    """

    code: str
    problem: str
    diff: Sequence[str]
    apply: Callable[[], None]
    is_problem: bool = True
    is_fixable: bool = True
    server: str = ""
    path: str = ""


def by_hand(code: str, problem: str, server: str = "", path: str = "") -> Repair:
    """A problem that only a person can fix."""
    return Repair(code, problem, (), lambda: None, is_problem=False, is_fixable=False, server=server, path=path)


def found_repairs(path: Path, env: Mapping[str, str]) -> Iterator[Repair]:
    """Everything fixable around the configuration. Changes nothing."""
    try:
        loaded = load(path, env, partly=True, lenient=True)
    except ConfigError:  # the command says so later
        loaded = None
    yield from _rights(loaded, env)
    if loaded is not None:
        yield from _commands(loaded, env)
        yield from _folders(loaded, env)
        yield from _unlimited(loaded, env)
    yield from (_dead_record(record) for record in dead_records(env))
    for entry in lost_entries(state_dir(env)):
        if (client := find_client(entry.client)) is not None:
            yield _lost_entry(entry, client, env)
    yield from _in_other_linux(env)


def _rights(loaded: Loaded | None, env: Mapping[str, str]) -> Iterator[Repair]:
    if user() is None:
        return  # on Windows, where the error has the command
    for folder in untrusted_state(own_folders(None if loaded is None else loaded.settings, env), env):
        mode = stat.S_IMODE(folder.stat().st_mode)
        diff = [f"- {folder}: mode {mode:04o}", f"+ {folder}: mode {mode & ~_OTHERS:04o}"]
        message = f"{folder} can be written by other users, who could replace what the hub remembers"
        yield Repair("state_untrusted", message, diff, partial(_close, folder))


def _close(folder: Path) -> None:
    if not close_folder(folder):
        message = "belongs to another user. Change its owner (chown)."
        raise ConfigError(ConfigFinding("state_untrusted", message, str(folder)))


def _commands(loaded: Loaded, env: Mapping[str, str]) -> Iterator[Repair]:
    """Servers whose program is on this shell's PATH only."""
    try:
        written = ServersFile(loaded.path, env).servers()
    except ConfigError:  # the file of another client, which that one changes
        return
    for name, server in loaded.settings.servers.items():
        program = _hidden_program(server, env, loaded)
        entry = written.get(name)
        if program is None or not isinstance(entry, dict) or entry.get("command") != server.command:
            continue
        key = f"servers.{name}.command"
        message = f'server "{name}": applications that start from the desktop do not find {server.command}'
        diff = [f"- {key}: {server.command}", f"+ {key}: {program}"]
        apply = partial(_set, loaded.path, env, name, "command", program)
        yield Repair("hidden_command", message, diff, apply, is_problem=False)


def _folders(loaded: Loaded, env: Mapping[str, str]) -> Iterator[Repair]:
    """Servers that work in the folder where they start."""
    if StartFolders.of(Path(loaded.place), state_dir(env)).project is not None:
        return
    for name, server in loaded.settings.servers.items():
        if server.cwd is not None or not server.enabled or names_client(server):
            continue
        if not works_where_started(server.command, server.args):
            continue
        message = (
            f'server "{name}" works on the folder it starts in. Clients start it in theirs, the hub in an empty one'
        )
        apply = partial(_set, loaded.path, env, name, "cwd", CLIENTS_FOLDER)
        yield Repair("start_folder", message, [f"+ servers.{name}.cwd: {CLIENTS_FOLDER}"], apply, is_problem=False)


def _unlimited(loaded: Loaded, env: Mapping[str, str]) -> Iterator[Repair]:
    """Added servers without a sandbox setting, if sandboxes work here."""
    with suppress(OSError):
        added, settings = ClientRecords(state_dir(env)).imported(loaded.place), loaded.settings
        names = [
            name
            for name, server in settings.servers.items()
            if name in added
            and server.enabled
            and server.command is not None
            and server.sandbox is None
            and why_not_tried({"command": server.command, "args": server.args}) is None
        ]
        if names and settings.defaults.sandbox.mode == "off" and why_unsupported() is None:
            which = shlex.quote(names[0]) if len(names) == 1 else "--all"
            message = f"without a sandbox, and able to read all your files: {', '.join(names)}. "
            message += f"Run mcp-hub sandbox {which} on, or off to leave it so."
            yield by_hand("sandbox_off", message)


def _hidden_program(server: ServerSettings, env: Mapping[str, str], loaded: Loaded) -> str | None:
    if server.command is None or not server.enabled or os.path.dirname(server.command) or "PATH" in server.env:
        return None
    find = partial(commands.resolve, server.command, home=str(Path.home()), cwd=str(loaded.path.absolute().parent))
    try:
        program = find(env_path=env.get("PATH"), env=env)
    except StartFailed:
        return None
    try:
        find(env_path=_DESKTOP_PATH)
    except StartFailed:
        return program
    return None


def _set(path: Path, env: Mapping[str, str], name: str, key: str, value: str) -> None:
    try:
        ServersFile(path, env).change([Put(name, value, key)])
    except ConfigError as refused:
        if refused.code != "not_editable":
            raise
        message = f"{refused.findings[0].message} Set the {key} of {name} to {value} yourself."
        raise ConfigError(ConfigFinding("not_editable", message, str(path))) from None


def _dead_record(record: Path) -> Repair:
    message = f"{record} is the record of a hub that was killed"
    return Repair("stale_record", message, [f"- {record}"], partial(remove, record), is_problem=False)


def _lost_entry(entry: WrittenEntry, client: Client, env: Mapping[str, str]) -> Repair:
    message = f"{client.title} has lost the hub: {entry.path} does not have its entry any more"
    apply = partial(_install, entry, client, env)
    return Repair("client_entry_lost", message, [f"+ {entry.path}: the entry of mcp-hub"], apply)


def _in_other_linux(env: Mapping[str, str]) -> Iterator[Repair]:
    """Windows entries that start the hub in another WSL distribution."""
    where = Where.here(env)
    side, paths = where.windows, {entry.path for entry in ClientRecords(state_dir(env)).entries()}
    if side is None:
        return
    for file in (file for client in WINDOWS_CLIENTS.values() for file in hub_files(client, where)):
        with suppress(FileRefused):
            written = entry_in(file) if os.path.realpath(file.path) in paths else None
            if isinstance(written, dict) and (there := other_linux(written, side.distribution, side.user)):
                message = f"{file.client.title} starts the hub {there}, and this is {side.place}"
                yield by_hand("client_entry_differs", message)


def _install(entry: WrittenEntry, client: Client, env: Mapping[str, str]) -> None:
    loaded = load(Path(entry.config or ""), env, partly=True, lenient=True)
    options = Options(over_http="--http" in entry.args, profile=entry.profile)
    check_caller(loaded, entry.profile)
    code, _ = install_into([client], loaded, Where.here(env), options)
    if code:
        raise ConfigError(
            ConfigFinding("client_entry_lost", f"it was not put back. Run mcp-hub install {entry.client}.")
        )


def missing_parts(path: Path, env: Mapping[str, str]) -> Iterator[Repair]:
    """Missing absolute paths and logins. Changes nothing."""
    try:
        loaded = load(path, env, partly=True, lenient=True)
        servers = ServersFile(path, env).servers()
    except ConfigError:  # the command says so later
        return
    for name, entry in servers.items():
        if isinstance(entry, dict) and entry.get("enabled") is not False and entry.get("disabled") is not True:
            yield from _missing_paths(name, entry)
    yield from _missing_logins(loaded, env)


def _missing_paths(name: str, entry: JsonObject) -> Iterator[Repair]:
    listed: dict[str, str] = {}
    for key, text in _texts(entry, f"servers.{name}"):
        for candidate in _candidates(text):
            if not os.path.lexists(candidate):
                listed.setdefault(candidate, key)
    for candidate, key in listed.items():
        yield by_hand("path_missing", f'server "{name}": {candidate} is not there ({key})', name, candidate)


def _missing_logins(loaded: Loaded, env: Mapping[str, str]) -> Iterator[Repair]:
    store = grant_store(state_dir(env))
    for name, server in loaded.settings.servers.items():
        login = login_of(server)
        if login is None or server.oauth is None or not server.enabled or login[1].is_machine:
            continue
        try:
            is_there = store.load(grant_key(*login)) is not None
        except LoginFailed:
            is_there = False
        if not is_there:
            message = f'server "{name}" has no login on this machine. Run mcp-hub login {name}'
            yield by_hand("login_missing", message, name)


def _texts(value: object, key_path: str) -> Iterator[tuple[str, str]]:
    """The texts that may hold local paths, each with its place."""
    if isinstance(value, str):
        yield key_path, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{key_path}[{index}]")
    elif isinstance(value, dict):
        is_container = os.path.basename(str(value.get("command"))) in _CONTAINERS
        for key, item in value.items():
            if key in _SKIPPED or key.endswith("PATH"):
                yield from _texts(
                    [file for text in _strings(item) for file in _FILE.findall(text)], f"{key_path}.{key}"
                )
            elif key == "args" and is_container and isinstance(item, list):
                yield from _texts(list(_volumes(item)), f"{key_path}.{key}")
            else:
                yield from _texts(item, f"{key_path}.{key}")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)


def _volumes(args: list[object]) -> Iterator[str]:
    for before, arg in zip(["", *map(str, args)], map(str, args), strict=False):
        option, _, value = arg.partition("=")
        text = arg if before in _VOLUMES else value if option in _VOLUMES else ""
        source = re.search(r"(?:source|src)=([^,]+)", text)
        yield source[1] if source else text.partition(":")[0]


def _candidates(text: str) -> Iterator[str]:
    """The absolute paths in a text: all of it, behind `=`, or in `${file:…}`."""
    yield from (file for file in _FILE.findall(text) if _PATH.fullmatch(file))
    tail = text.partition("=")[2] if re.match(r"-*[\w.-]+=", text) else text
    for candidate in (text, tail):
        if candidate.startswith("~/"):
            yield os.path.expanduser(candidate)
        elif _PATH.fullmatch(candidate) and "${" not in candidate and "*" not in candidate:
            yield candidate
