"""The form of a row in the table of clients: its files, how they hold servers, and the ways of the client."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from mcp_hub.config.schema.clients import UNKNOWN_CLIENT
from mcp_hub.files import LARGEST_OF_CLIENTS
from mcp_hub.onboarding.clients.entries import Slot
from mcp_hub.onboarding.clients.places import Paths

Template = Mapping[str, object]
"""An entry with slots."""

PLAIN: Final[Template] = MappingProxyType({"command": Slot.COMMAND, "args": Slot.ARGS})
URL: Final[Template] = MappingProxyType({"url": Slot.URL, "headers": Slot.HEADERS})


class Layout(msgspec.Struct, frozen=True):
    """The form of servers in a file: at `key` a mapping by name, or with `is_list` a list of entries with a `name`.

    `http` None: the client does not take the URL of a server in this file.
    """

    key: tuple[str, ...]
    stdio: Template = PLAIN
    http: Template | None = URL
    is_list: bool = False
    around: Template = {}
    """Further keys of a file that the hub has for itself."""


class Place(msgspec.Struct, frozen=True):
    """One file of a client; its format is that of its suffix: JSON with comments, TOML or YAML.

    `layouts`: the first whose key the file has, else the last. `is_written`: whether the hub is put there, not only
    imported from. `is_own`: the whole file is the hub's. `largest`: its bytes, above which it is not read.
    """

    paths: Paths
    layouts: tuple[Layout, ...]
    is_written: bool = True
    is_own: bool = False
    largest: int = LARGEST_OF_CLIENTS


class OwnCli(msgspec.Struct, frozen=True):
    """The client's own command, for a file that it owns. Slots of the arguments are texts in braces.

    `add` with {name}, {json} (the entry), {named} (the entry with its name), {command} and {args} (several).
    `remove` is empty if it cannot. `writes_anew`: it loses the form of a file, so it only makes new ones.
    """

    program: str
    add: tuple[str, ...]
    remove: tuple[str, ...] = ()
    writes_anew: bool = False


class Client(msgspec.Struct, frozen=True):
    """One client. `name` is that of the command line; `kind` the entry of `hub.clients` (default: the name)."""

    name: str
    title: str
    places: tuple[Place, ...]
    """In the order in which the client prefers them; a new file is made at the last that is written."""
    project: tuple[str, ...] = ()
    """Files in the folder of a project, in the last layout of the last place."""
    kind: str = ""
    aliases: tuple[str, ...] = ()
    token: str | None = None
    """The text by which an entry refers to the variable with the hub's token; None: it cannot."""
    cli: OwnCli | None = None
    marks: tuple[str, ...] = ()
    """Templates of folders that show that the client is installed, besides the folder of its file."""
    has_generations: bool = False
    """Each of its places whose folder exists is a file of its own; otherwise the first file that exists is read."""
    rewrites: tuple[str, ...] = ()
    """Names of the program that, while it runs, writes the file back from memory."""
    restart: str = ""
    """The advice that makes the client read the file again; empty: it does so by itself."""
    windows_of: str = ""
    """The name of the client whose copy on Windows, around the Linux in WSL, this is."""

    @property
    def is_written(self) -> bool:
        """Whether the hub can be installed into it."""
        return any(location.is_written for location in self.places)

    @property
    def row(self) -> str:
        """The name of its row in the table, whichever system it is on."""
        return self.windows_of or self.name

    @property
    def client_kind(self) -> str:
        """The entry of `hub.clients` for it; those that the hub is not installed into have none of their own."""
        return self.kind or (self.name if self.is_written else UNKNOWN_CLIENT)
