"""The hub's entry in a client's file: set, removed, shown and remembered; servers that came from clients."""

import difflib
import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.config.trust import state_dir
from mcp_hub.edit import json_text, toml_text, writing, yaml_text
from mcp_hub.edit.entries import form_of, held_at, plain_data, put, read_data, remove
from mcp_hub.edit.writing import STEP, CannotEdit, nested, newline_of
from mcp_hub.errors import ConfigError
from mcp_hub.masking import MASK, hide
from mcp_hub.onboarding.clients.entries import HUB
from mcp_hub.onboarding.clients.model import Client, Layout, Place, Where
from mcp_hub.onboarding.clients.reading import client_files, clients_of, hub_files, is_present, layout_of
from mcp_hub.onboarding.clients.table import WINDOWS_CLIENTS, find_client
from mcp_hub.onboarding.files import FileRefused, content_of, target_of
from mcp_hub.protocol.rest.overview import ClientInstall, InstallState
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.types import JsonObject

_SECRET = ("env", "envs", "environment", "headers", "http_headers", "bearer_token")


def with_hub(text: str | None, file: str, location: Place, entry: Callable[[Layout], JsonObject]) -> str:
    """The text with the hub's entry, made by `entry` for a layout; `text` None: no file. Raises `CannotEdit`."""
    data = plain_data(text or "", file)
    layout = layout_of(data, location)
    if location.is_own:
        return _own_file(text, data, layout, entry(layout))
    return put(text or "", file, (*layout.key, HUB), entry(layout))


def without_hub(text: str, file: str, location: Place) -> str | None:
    """The text without the hub's entry; None if the file is to go. Raises `CannotEdit`."""
    data = plain_data(text, file)
    if location.is_own:
        content = held_at(data, location.layouts[-1].key)
        _check_is_own(content)
        return None
    key = (*layout_of(data, location).key, HUB)
    return text if held_at(data, key) is None else remove(text, file, key)


def snippet(file: str, location: Place, layout: Layout, entry: JsonObject) -> str:
    """A whole file with only the entry."""
    only = Place(location.paths, (layout,), is_own=location.is_own)
    return with_hub(None, file, only, lambda _: entry)


def difference(file: str, layout: Layout, before: object, after: JsonObject | None) -> Iterator[str]:
    """The diff of the entry's lines, with secrets masked."""
    for line in difflib.ndiff(_lines(file, layout, before), _lines(file, layout, after)):
        if not line.startswith("?"):
            yield hide(line)


def _lines(file: str, layout: Layout, entry: object) -> list[str]:
    if not isinstance(entry, dict):
        return []
    masked = _masked(entry)
    if layout.is_list:
        return yaml_text.document({layout.key[-1]: [masked]}).splitlines()
    form = form_of(file)
    if form == "toml":
        return toml_text.rendered([*layout.key, HUB], masked, "\n").splitlines()
    if form == "yaml":
        return writing.entry(layout.key[0], nested([*layout.key[1:], HUB], masked), 0, STEP, "client")
    return [line[2:] for line in json_text.rendered({HUB: masked}, "  ")[1:-1]]


def _masked(entry: Mapping[str, object]) -> JsonObject:
    masked: JsonObject = {}
    for key, value in entry.items():
        if key in _SECRET and isinstance(value, dict):
            masked[key] = dict.fromkeys(value, MASK)
        else:
            masked[key] = MASK if key in _SECRET else _masked(value) if isinstance(value, dict) else value
    return masked


def _own_file(text: str | None, data: object, layout: Layout, entry: JsonObject) -> str:
    if text is not None and data is not None:
        _check_is_own(held_at(data, layout.key))
    content = {**layout.around, **(data if isinstance(data, dict) else {}), layout.key[0]: [entry]}
    return text if text is not None and data == content else yaml_text.document(content, newline_of(text or ""))


def _check_is_own(content: object) -> None:
    foreign = (
        [entry for entry in content if not isinstance(entry, dict) or entry.get("name") != HUB]
        if isinstance(content, list)
        else 1
    )
    if foreign:
        raise CannotEdit("it should contain only the hub, and contains something else")


_KEY: Final = "written"
_IMPORTED: Final = "imported"
_CONFIGS: Final = "configurations"
_MOST: Final = 2000
"""Imported servers remembered."""
_MOST_CONFIGS: Final = 200
"""Configurations remembered."""
_STATES: Final[Mapping[bool | None, InstallState]] = {True: "installed", False: "missing", None: "unreadable"}


class WrittenEntry(msgspec.Struct, frozen=True):
    """A hub entry in a client's file; `args` install it again."""

    client: str
    path: str
    args: tuple[str, ...] = ()

    @property
    def config(self) -> str | None:
        return self._option("--config")

    @property
    def profile(self) -> str | None:
        return self._option("--profile")

    def _option(self, name: str) -> str | None:
        return self.args[self.args.index(name) + 1] if name in self.args[:-1] else None


class ImportedServer(msgspec.Struct, frozen=True):
    """A server of `config` and its `name` in the client; without client: from `mcp-hub add`."""

    client: str
    config: str
    server: str
    name: str


class ClientRecords:
    """This user's entries, and servers that came from clients, in the state folder. Methods raise `OSError`."""

    def __init__(self, state: Path) -> None:
        self._files = KeyedFiles(state / "clients")

    def entries(self) -> list[WrittenEntry]:
        """Entries written and not removed by the hub."""
        return _decoded(self._files.read(_KEY))

    def configs(self) -> list[str]:
        """The configurations of all entries, removed ones included."""
        present = [entry.config for entry in self.entries() if entry.config is not None]
        return list(dict.fromkeys([*_paths(self._files.read(_CONFIGS)), *present]))

    def add_entry(self, entry: WrittenEntry) -> None:
        """Remembers an entry, and its configuration permanently."""
        if (config := entry.config) is not None and config not in _paths(self._files.read(_CONFIGS)):
            self._files.update(_CONFIGS, lambda text: msgspec.json.encode([*_paths(text), config][-_MOST_CONFIGS:]))
        self._files.update(_KEY, lambda text: _encoded([*_without(_decoded(text), entry.path), entry]))

    def remove_entry(self, path: Path) -> None:
        self._files.update(_KEY, lambda text: _encoded(_without(_decoded(text), str(path))))

    def names(self, client: str, config: str) -> dict[str, str]:
        """Names in the client by names in the configuration."""
        every = _imported(self._files.read(_IMPORTED))
        return {server.server: server.name for server in every if (server.client, server.config) == (client, config)}

    def imported(self, config: str) -> set[str]:
        """The servers of the configuration that came from clients or a command."""
        return {server.server for server in _imported(self._files.read(_IMPORTED)) if server.config == config}

    def client_of(self, config: str, server: str) -> str:
        """The client that the server came from last, or empty."""
        every = _imported(self._files.read(_IMPORTED))
        return next(
            (imported.client for imported in reversed(every) if (imported.config, imported.server) == (config, server)),
            "",
        )

    def add_imported(self, servers: Sequence[ImportedServer]) -> None:
        """Remembers servers; drops the oldest beyond the limit."""

        def added(text: bytes | None) -> bytes:
            return msgspec.json.encode(
                [*(server for server in _imported(text) if server not in servers), *servers][-_MOST:]
            )

        if servers:
            self._files.update(_IMPORTED, added)


def lost_entries(state: Path) -> list[WrittenEntry]:
    """Entries gone from their files while the client exists. Raises `OSError`."""
    every = ((entry, find_client(entry.client)) for entry in ClientRecords(state).entries())
    return [entry for entry, client in every if client is not None and _is_lost(entry, client)]


def _is_lost(entry: WrittenEntry, client: Client) -> bool:
    path = Path(entry.path)
    # a file that the client cannot read either is another problem
    return os.path.isdir(path.parent) and has_hub(path, client) is False


def has_hub(path: Path, client: Client) -> bool | None:
    """Whether the client's file has the hub's entry; None if unreadable."""
    try:
        content = content_of(target_of(path))
        data = None if content is None else read_data(content.decode("utf-8-sig"), path.name)
    except (FileRefused, ConfigError, UnicodeDecodeError):
        return None
    return any(_holds_hub(data, location) for location in client.places)


def _holds_hub(data: object, location: Place) -> bool:
    holder = held_at(data, layout_of(data, location).key)
    if isinstance(holder, list):
        return any(isinstance(entry, dict) and entry.get("name") == HUB for entry in holder)
    return isinstance(holder, dict) and HUB in holder


def _imported(text: bytes | None) -> list[ImportedServer]:
    try:
        return [] if text is None else msgspec.json.decode(text, type=list[ImportedServer])
    except (ValueError, RecursionError):
        return []  # the next import is written anew


def _paths(text: bytes | None) -> list[str]:
    try:
        return [] if text is None else msgspec.json.decode(text, type=list[str])
    except (ValueError, RecursionError):
        return []  # the next entry begins it anew


def _decoded(text: bytes | None) -> list[WrittenEntry]:
    try:
        return [] if text is None else msgspec.json.decode(text, type=list[WrittenEntry])
    except (ValueError, RecursionError):
        return []  # it is only a help: the next entry is written anew


def _without(entries: list[WrittenEntry], path: str) -> list[WrittenEntry]:
    return [entry for entry in entries if entry.path != path]


def _encoded(entries: list[WrittenEntry]) -> bytes:
    return msgspec.json.encode(entries)


def client_installs(env: Mapping[str, str]) -> list[ClientInstall]:
    """All clients in table order, then those found on the Windows around WSL. Blocks; only reads files."""
    where, missing = Where.here(env), dict[str, WrittenEntry]()
    with suppress(OSError):
        missing = {entry.client: entry for entry in lost_entries(state_dir(env))}
    every = [_install(client, where, missing.get(client.name)) for client in clients_of(where)]
    return [install for install in every if install.client not in WINDOWS_CLIENTS or install.state != "absent"]


def _install(client: Client, where: Where, missing: WrittenEntry | None) -> ClientInstall:
    if missing is not None:
        start = () if missing.args[:1] == ("install",) else ("install", client.name)
        again = shlex.join(["mcp-hub", *start, *missing.args]) if missing.args else _command(client)
        return ClientInstall(client=client.name, title=client.title, state="lost", command=again, path=missing.path)
    if not is_present(client, where):
        return ClientInstall(client.name, client.title, "absent", _command(client))
    files = hub_files(client, where) if client.is_written else client_files(client, where)
    states = {file.path: has_hub(file.path, client) for file in files}
    path_shown = next((path for path, has in states.items() if has), next(iter(states), None))
    state = "missing" if path_shown is None else _STATES[states[path_shown]]
    return ClientInstall(
        client=client.name,
        title=client.title,
        state=state,
        command=_command(client),
        path="" if path_shown is None else str(path_shown),
    )


def _command(client: Client) -> str:
    if not client.is_written:
        return ""
    takes_url = all(
        layout.http is not None for location in client.places if location.is_written for layout in location.layouts
    )
    return f"mcp-hub install {client.name}{' --http' if takes_url else ''}"
