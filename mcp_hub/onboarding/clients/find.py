"""The files of a client on a machine, and whether it is there. Looks at names of files only, never into them."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from mcp_hub.attach.environment import SYSTEM_PLACES, home_places
from mcp_hub.config.load.foreign_windows import Drives
from mcp_hub.onboarding.clients.model import Client, Place
from mcp_hub.onboarding.clients.places import Where, expanded
from mcp_hub.onboarding.clients.table import CLIENTS, WINDOWS_CLIENTS


class ClientFile(msgspec.Struct, frozen=True):
    """A file of a client, whether it exists or not."""

    client: Client
    path: Path
    place: Place


def clients_of(where: Where) -> Sequence[Client]:
    """The clients of this system, then those on the Windows around it."""
    return [*CLIENTS.values(), *(() if where.windows is None else WINDOWS_CLIENTS.values())]


def client_files(client: Client, where: Where) -> list[ClientFile]:
    """All files that the client, or an older version of it, reads its user's servers from, existing or not."""
    there = where.for_clients(are_on_windows=bool(client.windows_of))
    if there is None:
        return []
    found = [ClientFile(client, path, place) for place in client.places for path in place.paths.at(there)]
    return list({file.path: file for file in found}.values())


def project_files(client: Client, folder: Path) -> list[ClientFile]:
    """The client's files in the folder of a project, existing or not."""
    place = client.places[-1]
    return [ClientFile(client, folder / path, place) for path in client.project]


def hub_files(client: Client, where: Where) -> list[ClientFile]:
    """The files that the hub is put into: those that the client reads, or the one to make."""
    files = [file for file in client_files(client, where) if file.place.is_written]
    if client.has_generations:
        return [file for file in files if os.path.isdir(file.path.parent)] or files[-1:]
    return [file for file in files if os.path.lexists(file.path)][:1] or files[-1:]


def is_present(client: Client, where: Where) -> bool:
    """Whether the person has this client: one of its files or folders exists."""
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
    """The drives and programs for the servers of a file that is for Windows, or may be; None for a file of Linux.

    A client's own file is for the system of the client. Any other one, such as a project's, may be for both.
    """
    side, is_clients = where.windows, file is not None and bool(file.client.windows_of)
    if side is None or is_users and not is_clients:
        return None
    folders = os.pathsep.join((where.env.get("PATH", ""), *SYSTEM_PLACES, *home_places(str(where.home))))
    return Drives(
        str(side.root), side.distribution, lambda name: shutil.which(name, path=folders) is not None, is_clients
    )
