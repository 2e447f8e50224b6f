"""Finds a client's files by name, and reads servers from their text, unresolved."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from mcp_hub.attach.environment import SYSTEM_PLACES, home_places
from mcp_hub.config.findings import quoted
from mcp_hub.config.load import foreign, foreign_server
from mcp_hub.config.load.foreign_windows import Drives
from mcp_hub.config.load.locate import halves, is_deep
from mcp_hub.config.schema.fields import as_flag
from mcp_hub.edit.entries import held_at, read_data
from mcp_hub.onboarding.clients.entries import HUB
from mcp_hub.onboarding.clients.model import Client, Layout, Place, Where, expanded
from mcp_hub.onboarding.clients.table import CLIENTS, WINDOWS_CLIENTS
from mcp_hub.types import JsonObject


def layout_of(data: object, location: Place) -> Layout:
    """The first layout whose key exists, else the last."""
    *earlier, last = location.layouts
    return next((layout for layout in earlier if _holds_servers(data, layout)), last)


def servers_of(data: object, location: Place) -> dict[str, JsonObject]:
    """Servers by name, without the hub and built-in parts."""
    layout = layout_of(data, location)
    holder = held_at(data, layout.key)
    if isinstance(holder, list):
        named = {str(entry.get("name")): entry for entry in holder if isinstance(entry, dict)}
    else:
        named = holder if isinstance(holder, dict) else {}
    return {
        name: entry
        for name, entry in named.items()
        if isinstance(entry, dict) and not foreign.is_built_in(entry) and not is_hub(name, entry)
    }


def unreadable(servers: Mapping[str, object]) -> dict[str, str]:
    """Servers that cannot be written to our files, with reasons."""
    reasons: dict[str, str] = {}
    for name, server in servers.items():
        if is_deep(server):
            reasons[name] = "it is nested too deep. Make it flatter."
        elif any(halves([name, server])):
            reasons[name] = "it holds half of a character (a lone surrogate)"
    return reasons


def astray(data: Mapping[str, object], file: "ClientFile") -> Iterator[str]:
    """Problems of servers at places that the client does not read."""
    keys = [".".join(layout.key) for layout in file.place.layouts]
    holder = quoted(".".join(layout_of(data, file.place).key))
    for key, section in _sections_of(data):
        entries = section.values() if isinstance(section, dict) else section if isinstance(section, list) else ()
        if key not in keys and foreign.may_hold_servers(key) and any(map(foreign.is_server, entries)):
            yield f"{quoted(key)} holds servers, but {file.client.title} reads {holder}. Move them there."
        elif "mcp" in file.path.name and "." not in key and foreign.is_server(section):
            yield f"{quoted(key)} is a server beside {holder}. Move it in there."


def _sections_of(data: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    for key, section in data.items():
        yield key, section
        if key == "mcp" and isinstance(section, dict):
            yield "mcp.servers", section.get("servers")


def is_hub(name: str, entry: Mapping[str, object]) -> bool:
    """Whether the entry is this hub, by name or program."""
    return name == HUB or foreign_server.is_hub(entry)


def is_disabled(entry: Mapping[str, object]) -> bool:
    return as_flag(entry.get("disabled")) is True or as_flag(entry.get("enabled")) is False


def read_servers(text: str, name: str, location: Place) -> dict[str, JsonObject]:
    """`servers_of` a text. Raises `ConfigError`."""
    return servers_of(read_data(text, name), location)


def _holds_servers(data: object, layout: Layout) -> bool:
    """A server may have the key's name, so all values must be mappings."""
    holder = held_at(data, layout.key)
    return isinstance(holder, dict) and all(isinstance(entry, dict) for entry in holder.values())


class ClientFile(msgspec.Struct, frozen=True):
    """A client's file, existing or not."""

    client: Client
    path: Path
    place: Place


def clients_of(where: Where) -> Sequence[Client]:
    """This system's clients, then those on the Windows around it."""
    return [*CLIENTS.values(), *(() if where.windows is None else WINDOWS_CLIENTS.values())]


def client_files(client: Client, where: Where) -> list[ClientFile]:
    """Every file, existing or not, from which any version reads user servers."""
    there = where.for_clients(are_on_windows=bool(client.windows_of))
    if there is None:
        return []
    files = [ClientFile(client, path, location) for location in client.places for path in location.paths.at(there)]
    return list({file.path: file for file in files}.values())


def project_files(client: Client, folder: Path) -> list[ClientFile]:
    """The client's files in a project, existing or not."""
    location = client.places[-1]
    return [ClientFile(client, folder / path, location) for path in client.project]


def hub_files(client: Client, where: Where) -> list[ClientFile]:
    """Files to install the hub into: existing ones, else one to create."""
    files = [file for file in client_files(client, where) if file.place.is_written]
    if client.has_generations:
        return [file for file in files if os.path.isdir(file.path.parent)] or files[-1:]
    return [file for file in files if os.path.lexists(file.path)][:1] or files[-1:]


def is_present(client: Client, where: Where) -> bool:
    """Whether a file or folder of the client exists."""
    there = where.for_clients(are_on_windows=bool(client.windows_of))
    if there is None:
        return False
    marks = (expanded(mark, there) for mark in client.marks)
    if any(mark is not None and os.path.exists(mark) for mark in marks):
        return True
    files = client_files(client, where)
    return any(
        os.path.lexists(file.path) or file.path.parent != there.home and os.path.isdir(file.path.parent)
        for file in files
    )


def drives_of(file: ClientFile | None, where: Where, *, is_users: bool) -> Drives | None:
    """Drives and programs for servers that may be for Windows, as in a project's file; None for a Linux file."""
    side, is_clients = where.windows, file is not None and bool(file.client.windows_of)
    if side is None or is_users and not is_clients:
        return None
    folders = os.pathsep.join((where.env.get("PATH", ""), *SYSTEM_PLACES, *home_places(str(where.home))))
    return Drives(
        str(side.root), side.distribution, lambda name: shutil.which(name, path=folders) is not None, is_clients
    )
