"""The state of every known client on this machine: whether the hub is in its file, for people who watch the hub."""

import shlex
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from mcp_hub.app.limits import state_dir
from mcp_hub.cli.clients.files.written import WrittenEntry, has_hub, lost_entries
from mcp_hub.cli.clients.find import client_files, clients_of, hub_files, is_present
from mcp_hub.cli.clients.model import Client
from mcp_hub.cli.clients.places import Where
from mcp_hub.cli.clients.table import WINDOWS_CLIENTS
from mcp_hub.protocol.rest.overview import ClientInstall, InstallState

_STATES: Final[Mapping[bool | None, InstallState]] = {True: "installed", False: "missing", None: "unreadable"}


def client_installs(env: Mapping[str, str]) -> list[ClientInstall]:
    """All clients, in the order of the table, and those on the Windows around WSL that are there.

    Reads their files and changes nothing; blocks.
    """
    where, lost = Where.here(env), dict[str, WrittenEntry]()
    with suppress(OSError):
        lost = {entry.client: entry for entry in lost_entries(state_dir(env))}
    every = [_install(client, where, lost.get(client.name)) for client in clients_of(where)]
    return [one for one in every if one.client not in WINDOWS_CLIENTS or one.state != "absent"]


def _install(client: Client, where: Where, lost: WrittenEntry | None) -> ClientInstall:
    if lost is not None:
        start = () if lost.args[:1] == ("install",) else ("install", client.name)
        again = shlex.join(["mcp-hub", *start, *lost.args]) if lost.args else _command(client)
        return ClientInstall(client.name, client.title, "lost", again, lost.path)
    if not is_present(client, where):
        return ClientInstall(client.name, client.title, "absent", _command(client))
    files = hub_files(client, where) if client.is_written else client_files(client, where)
    found = {file.path: has_hub(file.path, client) for file in files}
    place = next((path for path, has in found.items() if has), next(iter(found), None))
    state = "missing" if place is None else _STATES[found[place]]
    return ClientInstall(client.name, client.title, state, _command(client), "" if place is None else str(place))


def _command(client: Client) -> str:
    """The command that connects the client to a hub that runs, or lets it start one; empty if there is none."""
    if not client.is_written:
        return ""
    takes_url = all(layout.http is not None for place in client.places if place.is_written for layout in place.layouts)
    return f"mcp-hub install {client.name}{' --http' if takes_url else ''}"
