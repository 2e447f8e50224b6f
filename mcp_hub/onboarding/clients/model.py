"""A row of the client table: files, forms and abilities."""

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
    """The form of servers in a file: at `key` a mapping, or with `is_list` a list of entries with `name`.

    `http` None: it cannot hold a URL.
    """

    key: tuple[str, ...]
    stdio: Template = PLAIN
    http: Template | None = URL
    is_list: bool = False
    around: Template = {}
    """Further keys of a file that is the hub's alone."""


class Place(msgspec.Struct, frozen=True):
    """One file of a client: JSON with comments, TOML or YAML, by suffix.

    `layouts`: the first whose key exists, else the last. `is_written`: the hub is installed there. `is_own`: the hub's
    alone. `largest`: bytes, above which it is not read.
    """

    paths: Paths
    layouts: tuple[Layout, ...]
    is_written: bool = True
    is_own: bool = False
    largest: int = LARGEST_OF_CLIENTS


class OwnCli(msgspec.Struct, frozen=True):
    """The client's own command for its file.

    `add` has slots {name}, {json} (entry), {named} (entry with name), {command} and {args}. `remove` may be empty.
    `writes_anew`: it reformats files, so it only creates new ones.
    """

    program: str
    add: tuple[str, ...]
    remove: tuple[str, ...] = ()
    writes_anew: bool = False


class Client(msgspec.Struct, frozen=True):
    """One client. `name` is for commands; `kind`, its entry in `hub.clients`, defaults to it."""

    name: str
    title: str
    places: tuple[Place, ...]
    """In the client's order of preference; a new file goes to the last written one."""
    project: tuple[str, ...] = ()
    """Files in a project, with the last layout of the last place."""
    kind: str = ""
    aliases: tuple[str, ...] = ()
    token: str | None = None
    """The reference to the token's variable; None: not supported."""
    cli: OwnCli | None = None
    marks: tuple[str, ...] = ()
    """Further folders that show that the client is installed."""
    has_generations: bool = False
    """Each place whose folder exists is a file of its own; else only the first existing file is read."""
    rewrites: tuple[str, ...] = ()
    """Programs that, while running, write the file back from memory."""
    restart: str = ""
    """Advice to make the client read the file again; empty if it does so itself."""
    windows_of: str = ""
    """The Linux client of which this is the copy on Windows around WSL."""

    @property
    def is_written(self) -> bool:
        return any(location.is_written for location in self.places)

    @property
    def row(self) -> str:
        """Its name in the table on any system."""
        return self.windows_of or self.name

    @property
    def client_kind(self) -> str:
        """Its entry in `hub.clients`; `unknown` if the hub is not installed into it."""
        return self.kind or (self.name if self.is_written else UNKNOWN_CLIENT)
