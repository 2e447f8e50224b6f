"""Finds servers in other clients' files, with our keys."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.config.findings import Finding, Findings
from mcp_hub.config.load.foreign import (
    DOUBLED,
    doubled_names,
    is_foreign,
    is_server,
    origin_of,
    place_of_servers,
    sections,
)
from mcp_hub.config.load.foreign_limits import switched_off
from mcp_hub.config.load.foreign_windows import Drives
from mcp_hub.config.load.imported import Translator, ValuePlaces, is_whole
from mcp_hub.config.load.locate import LocatedData, doubled_keys, half_findings, read_document
from mcp_hub.config.load.texts import read_text_file
from mcp_hub.edit.entries import held_at, read_data
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OF_CLIENTS
from mcp_hub.onboarding.changes.plan import KeyPath
from mcp_hub.onboarding.clients.model import Client, Place, Where
from mcp_hub.onboarding.clients.reading import (
    ClientFile,
    astray,
    client_files,
    clients_of,
    drives_of,
    is_disabled,
    is_hub,
    layout_of,
    servers_of,
    unreadable,
)
from mcp_hub.onboarding.clients.table import CLIENTS
from mcp_hub.types import JsonObject

_NOISE: Final = frozenset(
    "name bundled display_name description source version schema dev gallery env_keys disabled enabled settings".split()
)
"""Other clients' keys that do not matter to a hub, and are not reported."""
_DISABLED: Final = "it is disabled there"
_FAILED: Final = "it has failed"
_NO_SERVER: Final = "it has failed: expected a mapping (key: value)"
_SOURCES: Final = frozenset(("command", "url"))
_NO_SOURCE: Final = (
    "it has failed: it has neither a command nor a URL. Functions and skills are for the hub's own configuration"
)
_OF_EXTENSION: Final = "an extension of the client brings its command, and starts it"
_PROJECT_CLIENT: Final = "claude-code"


class FoundServer(msgspec.Struct, frozen=True):
    """Another client's server, from `source`, a client or file. `left_out`: keys that we lack.

    `file`, `place`: of its entry, if known. `is_users`: from the user's own configuration. `renamed`: Windows paths
    with Linux names.
    """

    name: str
    entry: JsonObject
    source: str
    client: str
    left_out: tuple[str, ...] = ()
    file: Path | None = None
    place: KeyPath = ()
    is_users: bool = False
    renamed: tuple[str, ...] = ()


SkippedServer = tuple[str, str, str]
"""The name and source of a server that is not taken, and why."""


class FoundServers(msgspec.Struct):
    """Found servers in client order; `problems`: unreadable files, and warnings."""

    servers: list[FoundServer] = msgspec.field(default_factory=list)
    skipped: list[SkippedServer] = msgspec.field(default_factory=list)
    problems: list[ConfigFinding] = msgspec.field(default_factory=list)
    files: list[Path] = msgspec.field(default_factory=list)

    def add(self, more: "FoundServers") -> None:
        """Appends other results."""
        self.servers += more.servers
        self.skipped += more.skipped
        self.problems += more.problems
        self.files += more.files


def of_clients(clients: Sequence[Client], where: Where, places: ValuePlaces) -> FoundServers:
    return of_files([file for client in clients for file in client_files(client, where)], where, places)


def of_files(files: Sequence[ClientFile], where: Where, places: ValuePlaces) -> FoundServers:
    """Servers of those files that exist."""
    servers = FoundServers()
    for file in files:
        if os.path.isfile(file.path):
            _take_file(servers, file, file.client.title, where, places)
    return servers


def of_file(path: Path, where: Where, places: ValuePlaces) -> FoundServers:
    """Servers of one file of any client or project. Raises `ConfigError`."""
    servers = FoundServers()
    if (file := _table_file(path, where)) is not None:
        _take_file(servers, file, str(path), where, places)
        if servers.servers or servers.skipped:
            return servers
    of_client = FoundServers()
    try:
        _take_document(of_client, path, where, places)
    except ConfigError:
        if servers.problems or file is None:
            raise
        return servers
    return of_client


def _take_document(result: FoundServers, path: Path, where: Where, places: ValuePlaces) -> None:
    text = read_text_file(path, LARGEST_OF_CLIENTS).text
    document = read_document(text, str(path))
    data = document.data
    if not isinstance(data, dict) or not is_foreign(data, str(path), is_yaml=document.is_yaml):
        message = "this is not a file of another client. Use it with --config as it is."
        raise ConfigError(ConfigFinding("not_foreign", message, str(path)))
    report = Findings(str(path), document.lines, errors=list(document.findings))
    servers = sections(data, place_of_servers(data, is_yaml=document.is_yaml), report).get("servers")
    if not isinstance(servers, dict):
        report.error(("servers",), "wrong_type", "expected a mapping (key: value)")
        raise report.failure()
    if halves := half_findings(servers, ("servers",), text):
        report.errors.extend(halves)
        raise report.failure()
    report.excuse(lambda error: error.code == "duplicate_key" and error.path[:1] != ("servers",))
    if any(error.path[:1] != ("servers",) or len(error.path) < 2 for error in report.errors):
        raise report.failure()
    result.files.append(path)
    servers = {
        name: server for name, server in servers.items() if not (isinstance(server, dict) and is_hub(name, server))
    }
    off = {name: _DISABLED for name, server in servers.items() if isinstance(server, dict) and is_disabled(server)}
    off |= switched_off(data, servers)
    file = _table_file(path, where)
    is_users = file is not None and _is_users(file, where)
    origin = origin_of(path, data, where.env, is_users=is_users)
    drives = drives_of(file, where, is_users=is_users)
    translator = Translator(
        origin=origin, data=data, env=_variables(drives, where), places=places, report=report, drives=drives
    )
    if origin.client == _PROJECT_CLIENT and path.name == ".mcp.json":
        off |= dict(_not_approved(servers, path, where))
    _take_servers(result, servers, off, translator, str(path), origin.client or path.stem, is_users=is_users)


def _table_file(path: Path, where: Where) -> ClientFile | None:
    absolute = path.absolute()
    for client in clients_of(where):
        for file in client_files(client, where):
            if file.path == absolute:
                return ClientFile(client, path, file.place)
    for client in CLIENTS.values():
        if any(
            absolute.parts[-len(Path(project_path).parts) :] == Path(project_path).parts
            for project_path in client.project
        ):
            return ClientFile(client, path, client.places[-1])
    return None


def _is_users(file: ClientFile, where: Where) -> bool:
    return any(row.path == file.path.absolute() for row in client_files(file.client, where))


def _take_file(servers: FoundServers, file: ClientFile, source: str, where: Where, places: ValuePlaces) -> None:
    name, client = str(file.path), file.client.row
    try:
        text = read_text_file(file.path, file.place.largest).text
        document = _read(text, name)
        data = document.data
        raw = servers_of(data, file.place)
    except ConfigError as error:
        servers.problems += error.findings
        return
    servers.files.append(file.path)
    for server, reason in unreadable(raw).items():
        servers.skipped.append((server.encode("utf-8", "replace").decode(), source, f"{_FAILED}: {reason}"))
        del raw[server]
    whole = data if isinstance(data, dict) else {}
    servers.problems += (ConfigFinding("misplaced_key", problem, name) for problem in astray(whole, file))
    off = _switched_off(whole, raw, client, file, where)
    servers.skipped += _of_projects(whole, client, file.place, source)
    is_users = _is_users(file, where)
    origin = origin_of(file.path, whole, where.env, client, is_users=is_users)
    key = layout_of(data, file.place).key
    holder = held_at(data, key)
    if isinstance(holder, dict):
        empty = [name for name, server in holder.items() if not isinstance(server, dict)]
        servers.skipped += ((name, source, _NO_SERVER) for name in empty)
    report = Findings(name, errors=[*_doubles(document, key, holder)])
    drives = drives_of(file, where, is_users=is_users)
    translator = Translator(
        origin=origin, data=whole, env=_variables(drives, where), places=places, report=report, drives=drives
    )

    def place_of(key: str) -> tuple[Path | None, KeyPath]:
        return file.path, _key_path(data, file.place, key)

    _take_servers(servers, raw, off, translator, source, file.client.name, place_of, is_users=is_users)


def _variables(drives: Drives | None, where: Where) -> Mapping[str, str]:
    """Servers on Windows get only HOME and PATH."""
    if drives is None or not drives.is_clients:
        return where.env
    return {name: where.env[name] for name in ("HOME", "PATH") if name in where.env}


def _doubles(document: LocatedData, key: KeyPath, holder: object) -> Iterator[Finding]:
    size = len(key)
    for error in document.findings:
        if error.path[:size] == key and len(error.path) > size:
            yield Finding(("servers", *error.path[size:]), error.code, error.message)
    yield from (Finding(("servers", *path), "duplicate_key", DOUBLED) for path in doubled_keys(holder))
    names = doubled_names(holder) if isinstance(holder, list) else ()
    yield from (Finding(("servers", name), "duplicate_key", DOUBLED) for name in names)


def _read(text: str, name: str) -> LocatedData:
    if name.endswith((".toml", ".yaml", ".yml")):
        return read_document(text, name)
    return LocatedData(read_data(text, name))


def _take_servers(
    servers: FoundServers,
    raw: Mapping[str, object],
    off: Mapping[str, str],
    translator: Translator,
    source: str,
    client: str,
    place_of: Callable[[str], tuple[Path | None, KeyPath]] = lambda _: (None, ()),
    *,
    is_users: bool = False,
) -> None:
    report = translator.report
    servers.skipped += ((key, source, reason) for key, reason in off.items())
    enabled = {key: server for key, server in raw.items() if key not in off}
    translated = translator.servers({key: server for key, server in enabled.items() if is_whole(key, report)})
    problems = {str(error.path[1]): error for error in report.errors if error.path[1] in enabled}
    servers.skipped += ((key, source, _reason(error)) for key, error in problems.items())
    for key, entry in translated.items():
        if not _SOURCES & entry.keys():
            servers.skipped.append((key, source, _sourceless(raw[key])))
        elif entry.get("enabled") is False:
            limits = (item for item in report.warnings if item.path[:2] == ("servers", key) and _is_limit(item))
            reasons = [limit.message for limit in limits]
            servers.skipped.append((key, source, "; ".join(reasons) or _DISABLED))
        else:
            file, key_path = place_of(key)
            left_out = _left_out(report, key)
            renamed = tuple(item.message for item in report.warnings if _is_renamed(item) and item.path[1] == key)
            servers.servers.append(
                FoundServer(
                    name=key, entry=_plain(entry), source=source, client=client, left_out=left_out, file=file,
                    place=key_path, is_users=is_users, renamed=renamed,
                )
            )  # fmt: skip
    warnings = (item for item in report.warnings if not _is_renamed(item))
    servers.problems += report.located(item for item in warnings if item.code != "ignored_key" or _is_told(item))


def _sourceless(server: object) -> str:
    entry = server if isinstance(server, dict) else {}
    if any(map(is_server, entry.values())):
        return f"{_FAILED}: it holds servers itself. Take away this level of the file"
    return _OF_EXTENSION if entry.get("source") == "extension" else _NO_SOURCE


def _is_renamed(warning: Finding) -> bool:
    return warning.code == "windows_path"


def _reason(error: Finding) -> str:
    return error.message if error.code.startswith("windows_") else f"{_FAILED}: {error.message}"


def _is_told(warning: Finding) -> bool:
    return "does not have this key" not in warning.message and str(warning.path[-1]) not in _NOISE


def _is_limit(warning: Finding) -> bool:
    return "the server is disabled" in warning.message


def _key_path(data: object, location: Place, name: str) -> KeyPath:
    key = layout_of(data, location).key
    holder = held_at(data, key)
    if not isinstance(holder, list):
        return (*key, name)
    named = [index for index, entry in enumerate(holder) if isinstance(entry, dict) and str(entry.get("name")) == name]
    return (*key, named[-1])


def _plain(entry: JsonObject) -> JsonObject:
    plain = {key: value for key, value in entry.items() if key not in ("disabled", "enabled")}
    if plain.get("tools") == {"allow": ["*"]}:
        del plain["tools"]
    return plain


def _left_out(report: Findings, server: str) -> tuple[str, ...]:
    paths = (
        warning.path
        for warning in report.warnings
        if warning.code == "ignored_key" and warning.path[:2] == ("servers", server)
    )
    return tuple(str(path[2]) for path in paths if path[2] not in _NOISE)


def _switched_off(
    data: JsonObject, raw: Mapping[str, JsonObject], client: str, file: ClientFile, where: Where
) -> dict[str, str]:
    off = {name: _DISABLED for name, entry in raw.items() if is_disabled(entry)}
    off |= switched_off(data, raw)
    if client == _PROJECT_CLIENT and file.path.name == ".mcp.json":
        off |= dict(_not_approved(raw, file.path, where))
    return off


def _not_approved(servers: Iterable[str], path: Path, where: Where) -> Iterator[tuple[str, str]]:
    settings = next(
        (file.path for file in client_files(CLIENTS[_PROJECT_CLIENT], where) if os.path.isfile(file.path)), None
    )
    if settings is None:
        return
    try:
        data = read_data(read_text_file(settings, CLIENTS[_PROJECT_CLIENT].places[0].largest).text, str(settings))
    except ConfigError:
        data = None
    project = held_at(data, ("projects", str(path.absolute().parent)))
    rules: Mapping[str, object] = project if isinstance(project, dict) else {}
    approved, rejected = rules.get("enabledMcpjsonServers"), rules.get("disabledMcpjsonServers")
    for name in servers:
        if isinstance(rejected, list) and name in rejected:
            yield name, "it was rejected in Claude Code"
        elif not (rules.get("enableAllProjectMcpServers") or isinstance(approved, list) and name in approved):
            yield name, "it is not approved in Claude Code. Approve it there, or use mcp-hub add"


def _of_projects(data: JsonObject, client: str, location: Place, source: str) -> Iterator[SkippedServer]:
    projects = data.get("projects") if client == _PROJECT_CLIENT else None
    for folder, project in projects.items() if isinstance(projects, dict) else ():
        if isinstance(project, dict):
            for name in servers_of(project, location):
                yield (name, source, f"it belongs to the project {folder}")
