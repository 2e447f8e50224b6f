"""The hub's entry in a client's file: templates, and their command or URL."""

import base64
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

from mcp_hub import __version__
from mcp_hub.errors import HubError
from mcp_hub.types import JsonObject

HUB: Final = "mcp-hub"
"""The name of the hub's entry in every client."""
TOKEN_VARIABLE: Final = "HUB_TOKEN"
_THROW_AWAY = ("archive-v0", "environments-v2", "builds-v0")
"""Temporary folders of uv's cache."""


class Slot(Enum):
    """A placeholder in a template."""

    NAME = "name"
    COMMAND = "command"
    ARGS = "args"
    ARGV = "argv"
    """The command and its arguments in one list."""
    HOST_ARGS = "host args"
    """The arguments of a program that starts the command on the machine outside of a sandbox."""
    URL = "url"
    HEADERS = "headers"
    """Left out, with its key, without a token."""
    TOKEN_VARIABLE = "token variable"
    """Left out without a token."""


class Command(msgspec.Struct, frozen=True):
    """An absolute program with arguments."""

    program: str
    args: tuple[str, ...]


def filled(template: Mapping[str, object], command: Command, name: str = HUB) -> JsonObject:
    """The entry `name`; slots without a value are left out."""
    program, args = command.program, list(command.args)
    values = {Slot.NAME: name, Slot.COMMAND: program, Slot.ARGS: args, Slot.ARGV: [program, *args]}
    values[Slot.HOST_ARGS] = ["--host", "--watch-bus", program, *args]
    return _filled(template, values)


def filled_with_url(template: Mapping[str, object], url: str, token: str | None = None) -> JsonObject:
    """The entry of a hub that serves HTTP. `token`: the client's notation for the token's variable, if needed."""
    values: dict[Slot, object] = {Slot.NAME: HUB, Slot.URL: url}
    if token is not None:
        values |= {Slot.HEADERS: {"Authorization": f"Bearer {token}"}, Slot.TOKEN_VARIABLE: TOKEN_VARIABLE}
    return _filled(template, values)


def _filled(template: Mapping[str, object], values: Mapping[Slot, object]) -> JsonObject:
    entry: JsonObject = {}
    for key, part in template.items():
        if isinstance(part, Slot):
            if part in values:
                entry[key] = values[part]
        else:
            entry[key] = _filled(part, values) if isinstance(part, Mapping) else part
    return entry


def hub_command(
    env: Mapping[str, str], args: tuple[str, ...], scripts: Path | None = None, python: str | None = None
) -> Command:
    """The program in `scripts` (of this installation), or `uvx` if in its cache, else the interpreter.

    Raises `HubError` if there is no lasting one.
    """
    scripts = scripts or Path(sysconfig.get_path("scripts"))
    if _is_throw_away(scripts, env):
        uvx = shutil.which("uvx", path=env.get("PATH"))
        if uvx is None:
            raise HubError(f"{scripts} is in the cache of uvx, and uvx is not on the PATH")
        return Command(os.path.abspath(uvx), (f"mcp-hub@{__version__}", *args))
    for name in ("mcp-hub", "mcp-hub.exe"):
        program = scripts / name
        if os.path.isfile(program) and os.access(program, os.X_OK):
            return Command(str(program), args)
    return Command(os.path.abspath(python or sys.executable), ("-m", "mcp_hub", *args))


def serve_args(config: Path, kind: str, profile: str | None = None) -> tuple[str, ...]:
    """Arguments of a client's hub; without `--config` it would read the project's file."""
    narrow = () if profile is None else ("--profile", profile)
    return ("serve", "--config", os.path.abspath(config), "--client", kind, *narrow)


def _is_throw_away(scripts: Path, env: Mapping[str, str]) -> bool:
    cache = env.get("UV_CACHE_DIR")
    in_cache = cache is not None and scripts.is_relative_to(os.path.abspath(cache))
    return (
        in_cache
        or bool({"uv", ".uv-cache"} & set(scripts.parts))
        and any(part in _THROW_AWAY for part in scripts.parts)
    )


def cursor_link(command: Command) -> str:
    """An install link of Cursor."""
    # https://cursor.com/docs/context/mcp/install-links
    config = {"name": HUB, "config": _base64(_entry(command))}
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode(config)}"


def vscode_link(scheme: str) -> Callable[[Command], str]:
    """Makes links of a VS Code whose URLs have this scheme."""

    def link(command: Command) -> str:
        return f"{scheme}:mcp/install?{quote(_json({'name': HUB, 'type': 'stdio', **_entry(command)}), safe='')}"

    return link


def lm_studio_link(command: Command) -> str:
    return f"lmstudio://add_mcp?{urlencode({'name': HUB, 'config': _base64(_entry(command))})}"


def goose_link(command: Command) -> str:
    """An install link of Goose."""
    words = [("cmd", command.program), *(("arg", arg) for arg in command.args)]
    facts = [("id", HUB), ("name", HUB), ("description", "All MCP servers behind one"), ("timeout", "3600")]
    return f"goose://extension?{urlencode([*words, *facts], quote_via=quote)}"


def _entry(command: Command) -> JsonObject:
    return {"command": command.program, "args": list(command.args)}


def _json(value: JsonObject) -> str:
    return json.dumps(value, separators=(",", ":"))


def _base64(value: JsonObject) -> str:
    return base64.b64encode(_json(value).encode()).decode()
