"""The files of a client on a machine, and whether it is there. Looks at names of files only, never into them."""

import os
from pathlib import Path

import msgspec

from mcp_hub.cli.clients.model import Client, Place
from mcp_hub.cli.clients.places import Where, expanded


class ClientFile(msgspec.Struct, frozen=True):
    """A file of a client, whether it exists or not."""

    client: Client
    path: Path
    place: Place


def client_files(client: Client, where: Where) -> list[ClientFile]:
    """All files that the client, or an older version of it, reads its user's servers from, existing or not."""
    found = [ClientFile(client, path, place) for place in client.places for path in place.paths.at(where)]
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
    marks = (expanded(mark, where) for mark in client.marks)
    if any(mark is not None and os.path.exists(mark) for mark in marks):
        return True
    files = client_files(client, where)
    return any(
        os.path.lexists(file.path) or file.path.parent != where.home and os.path.isdir(file.path.parent)
        for file in files
    )
