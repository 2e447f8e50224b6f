"""The servers in other clients' files, in the keys of `servers.yaml`, and those that are not to be taken."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.cli.clients.find import ClientFile, client_files
from mcp_hub.cli.clients.model import Client, Place
from mcp_hub.cli.clients.places import Where
from mcp_hub.cli.clients.plan import KeyPath
from mcp_hub.cli.clients.reading import check_texts, held_at, layout_of, read_data, servers_of
from mcp_hub.cli.clients.table import CLIENTS
from mcp_hub.cli.imports.placeholders import in_our_notation, names_a_file
from mcp_hub.config.findings import Findings
from mcp_hub.config.load.foreign_server import is_name
from mcp_hub.config.load.imported import ValuePlaces, imported, in_our_keys
from mcp_hub.config.load.texts import read_text_file
from mcp_hub.config.quantities import as_flag
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.types import JsonObject

_GOOSE: Final = {"cmd": "command", "envs": "env", "available_tools": "includeTools"}
_NOISE: Final = frozenset(
    "name bundled display_name description source version schema dev gallery timeout env_keys disabled enabled".split()
)
"""Keys of other clients that mean nothing to a hub, or nothing that it does not do otherwise; `timeout` is in the unit
of its client. Nobody needs to hear of them."""
_DISABLED: Final = "it is disabled there"
_NO_FILES: Final = "{file:…} stays text, because a file of a project reads no files of yours. Set the value yourself."
_SOURCES: Final = frozenset(("command", "url"))
_NO_SOURCE: Final = "it has neither a command nor a URL. Functions and skills are for the hub's own configuration"
_PROJECT_CLIENT: Final = "claude-code"


class FoundServer(msgspec.Struct, frozen=True):
    """A server of another client: `source` is the client's title or the file, `left_out` its keys that we have not.

    `file` and `place`: where its entry is, if the form of the file is known.
    """

    name: str
    own: JsonObject
    source: str
    client: str
    left_out: tuple[str, ...] = ()
    file: Path | None = None
    place: KeyPath = ()


class SkippedServer(msgspec.Struct, frozen=True):
    """A server that is not taken, and why."""

    name: str
    source: str
    reason: str


class FoundServers(msgspec.Struct):
    """All that was found, in the order of the clients; `problems` are files that cannot be read, and warnings."""

    servers: list[FoundServer] = msgspec.field(default_factory=list)
    skipped: list[SkippedServer] = msgspec.field(default_factory=list)
    problems: list[ConfigFinding] = msgspec.field(default_factory=list)
    files: list[Path] = msgspec.field(default_factory=list)

    def add(self, more: "FoundServers") -> None:
        """Takes in what was found elsewhere."""
        self.servers += more.servers
        self.skipped += more.skipped
        self.problems += more.problems
        self.files += more.files


def of_clients(clients: Sequence[Client], where: Where, places: ValuePlaces) -> FoundServers:
    """The user's servers of these clients; files of projects are not looked for."""
    return of_files([file for client in clients for file in client_files(client, where)], where, places)


def of_files(files: Sequence[ClientFile], where: Where, places: ValuePlaces) -> FoundServers:
    """The servers of these files of clients, as far as they exist."""
    found = FoundServers()
    for file in files:
        if os.path.isfile(file.path):
            _take_file(found, file, file.client.title, where, places)
    return found


def of_file(path: Path, where: Where, places: ValuePlaces) -> FoundServers:
    """The servers of one file, also of a project's, whatever client it is of. Raises `ConfigError`."""
    found = FoundServers()
    if (file := _known(path, where)) is not None:
        _take_file(found, file, str(path), where, places)
        if found.problems and not found.servers:
            raise ConfigError(*found.problems)
        return found
    servers, warnings = imported(path, where.env, places)
    found.files.append(path)
    found.problems += warnings
    for name, own in servers.items():
        if _is_disabled(own):
            found.skipped.append(SkippedServer(name, str(path), _DISABLED))
        elif not _SOURCES & own.keys():
            found.skipped.append(SkippedServer(name, str(path), _NO_SOURCE))
        else:
            found.servers.append(FoundServer(name, _plain(own), str(path), path.stem))
    return found


def _known(path: Path, where: Where) -> ClientFile | None:
    """The row of the table for this file: by its path, or as a file in a client's folder of a project."""
    absolute = path.absolute()
    for client in CLIENTS.values():
        for file in client_files(client, where):
            if file.path == absolute:
                return ClientFile(client, path, file.place)
        if any(absolute.parts[-len(Path(own).parts) :] == Path(own).parts for own in client.project):
            return ClientFile(client, path, client.places[-1])
    return None


def _take_file(found: FoundServers, file: ClientFile, source: str, where: Where, places: ValuePlaces) -> None:
    name, client = str(file.path), file.client.name
    report = Findings(name)
    try:
        text = read_text_file(file.path, file.place.largest).text
        data = read_data(text, name)
        raw = servers_of(data, file.place)
        check_texts(raw, text, layout_of(data, file.place).key, name)
    except ConfigError as error:
        found.problems += error.findings
        return
    found.files.append(file.path)
    whole = data if isinstance(data, dict) else {}
    off = _switched_off(whole, raw, client, file, where)
    found.skipped += (SkippedServer(key, source, reason) for key, reason in off.items())
    found.skipped += _of_projects(whole, client, file.place, source)
    is_users = any(row.path == file.path.absolute() for row in client_files(file.client, where))
    folder = file.path.absolute().parent if is_users else None
    wanted = {
        key: in_our_notation(_prepared(own, client), client, folder) for key, own in raw.items() if key not in off
    }
    for key in wanted:
        if folder is None and names_a_file(raw[key], client):
            report.warn(("servers", key), "invalid_placeholder", _NO_FILES)
    for key, own in in_our_keys(wanted, whole, file.path, where.env, places, report, is_users=is_users).items():
        if not _SOURCES & own.keys():
            found.skipped.append(SkippedServer(key, source, _NO_SOURCE))
            continue
        place = _key_path(data, file.place, key)
        found.servers.append(FoundServer(key, _plain(own), source, client, _left_out(report, key), file.path, place))
    found.problems += report.located(one for one in report.warnings if one.code != "ignored_key")


def _key_path(data: object, place: Place, name: str) -> KeyPath:
    key = layout_of(data, place).key
    held = held_at(data, key)
    if not isinstance(held, list):
        return (*key, name)
    named = [index for index, one in enumerate(held) if isinstance(one, dict) and str(one.get("name")) == name]
    return (*key, named[-1])


def _plain(own: JsonObject) -> JsonObject:
    """The server without keys that say what holds anyway, and without a timeout in the unit of its client."""
    plain = {key: value for key, value in own.items() if key not in ("disabled", "enabled", "timeout")}
    if plain.get("tools") == {"allow": ["*"]}:
        del plain["tools"]
    return plain


def _left_out(report: Findings, server: str) -> tuple[str, ...]:
    """The keys of a server that the hub does not have, but for those that nobody needs to hear of."""
    paths = (one.path for one in report.warnings if one.code == "ignored_key" and one.path[:2] == ("servers", server))
    return tuple(str(path[2]) for path in paths if path[2] not in _NOISE)


def _prepared(raw: JsonObject, client: str) -> JsonObject:
    """The server with the names of keys that `config.load.foreign_server` knows."""
    own = dict(raw)
    if client == "goose":
        own = {_GOOSE.get(key, key): value for key, value in raw.items()}
        named = [key for key in raw.get("env_keys") or () if is_name(key)]
        given = own.get("env") or {}
        if named and isinstance(given, dict):  # Goose has their values in its own keyring
            own["env"] = {**{key: f"${{{key}}}" for key in named}, **given}
        if not own.get("includeTools"):
            own.pop("includeTools", None)
    if client == "cline" and "url" in own and not {"type", "transport", "transportType"} & own.keys():
        own["type"] = "sse"
    return own


def _is_disabled(raw: JsonObject) -> bool:
    return as_flag(raw.get("disabled")) is True or as_flag(raw.get("enabled")) is False


def _switched_off(
    data: JsonObject, raw: Mapping[str, JsonObject], client: str, file: ClientFile, where: Where
) -> dict[str, str]:
    """Servers that the client does not start, and the reason."""
    off = {name: _DISABLED for name, own in raw.items() if _is_disabled(own)}
    if client in ("gemini", "qwen"):
        rules = held_at(data, ("mcp",))
        excluded = rules.get("excluded") if isinstance(rules, dict) else None
        off |= {
            name: "it is excluded there" for name in (excluded if isinstance(excluded, list) else ()) if name in raw
        }
    if client == _PROJECT_CLIENT and file.path.name == ".mcp.json":
        off |= dict(_not_approved(raw, file.path, where))
    return off


def _not_approved(servers: Iterable[str], path: Path, where: Where) -> Iterator[tuple[str, str]]:
    """Servers of a project's file that the user of Claude Code has not approved; none without that client."""
    known = next((own.path for own in client_files(CLIENTS[_PROJECT_CLIENT], where) if os.path.isfile(own.path)), None)
    if known is None:
        return
    try:
        data = read_data(read_text_file(known, CLIENTS[_PROJECT_CLIENT].places[0].largest).text, str(known))
    except ConfigError:
        data = None
    found = held_at(data, ("projects", str(path.absolute().parent)))
    rules: Mapping[str, object] = found if isinstance(found, dict) else {}
    approved, rejected = rules.get("enabledMcpjsonServers"), rules.get("disabledMcpjsonServers")
    for name in servers:
        if isinstance(rejected, list) and name in rejected:
            yield name, "it was rejected in Claude Code"
        elif not (rules.get("enableAllProjectMcpServers") or isinstance(approved, list) and name in approved):
            yield name, "it is not approved in Claude Code. Approve it there, or use mcp-hub add"


def _of_projects(data: JsonObject, client: str, place: Place, source: str) -> Iterator[SkippedServer]:
    """Servers that a user has for one project only."""
    projects = data.get("projects") if client == _PROJECT_CLIENT else None
    for folder, own in projects.items() if isinstance(projects, dict) else ():
        if isinstance(own, dict):
            for name in servers_of(own, place):
                yield SkippedServer(name, source, f"it belongs to the project {folder}")
