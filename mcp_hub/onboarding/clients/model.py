"""A row of the client table: files, forms, abilities.

Paths are templates, filled in for a system, home and environment.
"""

import glob
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from mcp_hub.files import LARGEST_OF_CLIENTS
from mcp_hub.onboarding.clients.entries import Command, Slot
from mcp_hub.onboarding.clients.wsl import WindowsSide, windows_side
from mcp_hub.types import UNKNOWN_CLIENT

System = Literal["linux", "macos", "windows"]
SYSTEMS: Final[tuple[System, ...]] = ("linux", "macos", "windows")
_VARIABLE: Final = re.compile(r"\$([A-Z_]+)")
_USUAL: Final[Mapping[str, str]] = {
    "APPDATA": "~/AppData/Roaming",
    "LOCALAPPDATA": "~/AppData/Local",
    "XDG_CONFIG_HOME": "~/.config",
}
"""Default values of variables."""
_EDITORS: Final = ("Windsurf", "Cursor", "VSCodium", "Code - Insiders", "Code")
_REMOTE: Final = (".windsurf-server", ".cursor-server", ".vscodium-server", ".vscode-server-insiders", ".vscode-server")
_PACKAGES: Final = (
    "snap/code/current/.config/Code",
    "snap/code-insiders/current/.config/Code - Insiders",
    "snap/codium/current/.config/VSCodium",
    ".var/app/com.visualstudio.code/config/Code",
    ".var/app/com.vscodium.codium/config/VSCodium",
)
Template = Mapping[str, object]
"""An entry with slots."""
PLAIN: Final[Template] = MappingProxyType({"command": Slot.COMMAND, "args": Slot.ARGS})
URL: Final[Template] = MappingProxyType({"url": Slot.URL, "headers": Slot.HEADERS})


class Where(msgspec.Struct, frozen=True):
    """A machine and its user. `windows`: Windows around WSL; `no_windows`: why its files were not found."""

    system: System
    home: Path
    env: Mapping[str, str]
    windows: WindowsSide | None = None
    no_windows: str = ""

    @classmethod
    def here(cls, env: Mapping[str, str]) -> "Where":
        """This machine, with the home of `env` if set."""
        system: System = "windows" if sys.platform == "win32" else "macos" if sys.platform == "darwin" else "linux"
        home = env.get("USERPROFILE" if system == "windows" else "HOME")
        around = windows_side(env)
        side, reason = (None, around) if isinstance(around, str) else (around, "")
        return cls(system=system, home=Path(home) if home else Path.home(), env=env, windows=side, no_windows=reason)

    def for_clients(self, *, are_on_windows: bool) -> "Where | None":
        """The system of these clients, if it exists; variables on Windows are unknown."""
        if not are_on_windows:
            return self
        return None if self.windows is None else Where("windows", self.windows.home, {}, self.windows)


class Paths(msgspec.Struct, frozen=True):
    """Path templates per system; the first whose variables are all set counts.

    `~` is the home, `$NAME` a variable, `*` any text within a name.
    """

    linux: tuple[str, ...]
    macos: tuple[str, ...]
    windows: tuple[str, ...]

    def at(self, where: Where) -> tuple[Path, ...]:
        """The file; with a `*` all matches in existing folders."""
        templates: tuple[str, ...] = getattr(self, where.system)
        path = next((path for template in templates if (path := expanded(template, where)) is not None), None)
        return () if path is None else _matching(path)


def everywhere(*templates: str) -> Paths:
    return Paths(templates, templates, templates)


def linux(template: str) -> Paths:
    return Paths((template,), (), ())


def config(name: str, windows: str | None = None) -> Paths:
    """Below each system's configuration folder; `windows`: another name there."""
    return Paths(
        (f"$XDG_CONFIG_HOME/{name}",), (f"~/Library/Application Support/{name}",), (f"$APPDATA/{windows or name}",)
    )


def dot_config(name: str, windows: str | None = None) -> Paths:
    return Paths((f"$XDG_CONFIG_HOME/{name}",), (f"~/.config/{name}",), (f"$APPDATA/{windows or name}",))


def in_storage(file: str) -> Iterator[Paths]:
    """An extension's file in each editor: in packages, servers for remote windows, and the usual folder."""
    path = f"User/globalStorage/{file}"
    yield from (linux(f"~/{folder}/{path}") for folder in _PACKAGES)
    yield from (everywhere(f"~/{folder}/data/{path}") for folder in _REMOTE)
    yield from (config(f"{folder}/{path}") for folder in _EDITORS)


def expanded(template: str, where: Where) -> Path | None:
    """The path; None if a variable has no value."""
    path = template
    for name in _VARIABLE.findall(template):
        value = where.env.get(name) or _USUAL.get(name)
        if not value:
            return None
        path = path.replace(f"${name}", value)
    return where.home / path.removeprefix("~/") if path.startswith("~/") else where.home / path


def _matching(path: Path) -> tuple[Path, ...]:
    starred = next((index for index, part in enumerate(path.parts) if "*" in part), None)
    if starred is None:
        return (path,)
    above = Path(*path.parts[:starred])
    inner = path.parts[starred + 1 :]
    # unlike `Path.glob` it passes over folders that may not be read
    folders = glob.glob(os.path.join(glob.escape(str(above)), path.parts[starred]), include_hidden=True)
    paths = (Path(folder, *inner) for folder in sorted(folders))
    return tuple(candidate for candidate in paths if os.path.isdir(candidate.parent))


class ServerKeys(msgspec.Struct, frozen=True):
    """Keys of servers other than the hub; an empty one does not exist.

    `units`: time units per second. `off`: key and value of a disabled server. `headers`: if missing in the hub's entry.
    `passed`: a list of variables that keep their names. `sandbox`: a switch.
    """

    timeout: str = ""
    units: int = 1
    start_timeout: str = ""
    has_fractions: bool = False
    allow: str = ""
    deny: str = ""
    off: tuple[str, bool] | None = None
    env: str = "env"
    passed: str = ""
    folder: str = "cwd"
    headers: str = ""
    sandbox: str = ""


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
    keys: ServerKeys = ServerKeys()


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
    """The client's command for its file.

    `add` has slots {name}, {json} (entry), {named} (entry with name), {command} and {args}. `remove` may be empty.
    `writes_anew`: it reformats files, so only creates them.
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
    fills_defaults: bool = False
    """It fills in `${NAME:-default}`."""
    link: Callable[[Command], str] | None = None
    """Makes its install link."""
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
    remote_of: str = ""
    """The client whose windows on other machines read this row's files. Beside it on the Windows around WSL, `--all`
    leaves this out: its windows would start the hub twice.
    """

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
