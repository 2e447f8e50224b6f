"""The command by which a client starts the hub: absolute, so that a desktop application finds it, and lasting."""

import os
import shutil
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mcp_hub import __version__
from mcp_hub.cli.clients.entries import Command

_THROW_AWAY = ("archive-v0", "environments-v2", "builds-v0")
"""Folders of uv's cache in which `uvx` runs a program."""


class Installation(msgspec.Struct, frozen=True):
    """Where this hub is installed: the folder of its programs, and its interpreter."""

    scripts: Path
    python: Path

    @classmethod
    def current(cls) -> "Installation":
        """That of this process."""
        return cls(Path(sysconfig.get_path("scripts")), Path(os.path.abspath(sys.executable)))


class NoCommand(Exception):
    """There is no command that will still work tomorrow; the message says why."""


def hub_command(installation: Installation, env: Mapping[str, str], args: tuple[str, ...]) -> Command:
    """The program of this installation with these arguments; `uvx` if it is in its cache. Raises `NoCommand`."""
    if _is_throw_away(installation, env):
        uvx = shutil.which("uvx", path=env.get("PATH"))
        if uvx is None:
            raise NoCommand(f"{installation.scripts} is in the cache of uvx, and uvx is not on the PATH")
        return Command(os.path.abspath(uvx), (f"mcp-hub@{__version__}", *args))
    for name in ("mcp-hub", "mcp-hub.exe"):
        program = installation.scripts / name
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return Command(str(program), args)
    return Command(str(installation.python), ("-m", "mcp_hub", *args))


def serve_args(config: Path, kind: str) -> tuple[str, ...]:
    """The arguments of the hub of a client: without `--config`, the hub would take a file of the client's project."""
    return ("serve", "--config", os.path.abspath(config), "--client", kind)


def _is_throw_away(installation: Installation, env: Mapping[str, str]) -> bool:
    cache = env.get("UV_CACHE_DIR")
    in_cache = cache is not None and installation.scripts.is_relative_to(os.path.abspath(cache))
    return (
        in_cache
        or bool({"uv", ".uv-cache"} & set(installation.scripts.parts))
        and any(part in _THROW_AWAY for part in installation.scripts.parts)
    )
