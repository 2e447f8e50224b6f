"""The parts of a configuration that are not on this machine, after it was copied to it: files and logins."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mcp_hub.app.limits import state_dir
from mcp_hub.app.logins import grant_store, login_of
from mcp_hub.cli.commands.running.repairs import Repair, by_hand
from mcp_hub.cli.servers_file.servers_file import ServersFile
from mcp_hub.config.load.load import Loaded, load
from mcp_hub.errors import ConfigError
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.auth.grants import LoginFailed, grant_key

_PATH: Final = re.compile(r"(?:/|[A-Za-z]:[\\/])[^\\/\0]+[\\/][^\0]+")
"""An absolute path of two names at least: `/mcp` is the path of a URL most often."""
_FILE: Final = re.compile(r"\$\{file:([^}]+)\}")
_CONTAINERS: Final = frozenset(("docker", "podman", "nerdctl"))
_VOLUMES: Final = frozenset(("-v", "--volume", "--mount"))
_SKIPPED: Final = frozenset(("url", "headers", "description", "name", "tools", "enabled", "disabled"))
"""Keys whose values are not paths of this machine."""


def missing_parts(path: Path, env: Mapping[str, str]) -> Iterator[Repair]:
    """Each absolute path of the configuration that is not there, and each login to do again. Nothing is changed."""
    try:
        loaded = load(path, env, partly=True, lenient=True)
        servers = ServersFile(path, env).servers()
    except ConfigError:  # the command says so later
        return
    for name, entry in servers.items():
        if isinstance(entry, dict) and entry.get("enabled") is not False and entry.get("disabled") is not True:
            yield from _missing_paths(name, entry)
    yield from _missing_logins(loaded, env)


def _missing_paths(name: str, entry: JsonObject) -> Iterator[Repair]:
    listed: dict[str, str] = {}
    for key, text in _texts(entry, f"servers.{name}"):
        for candidate in _candidates(text):
            if not os.path.lexists(candidate):
                listed.setdefault(candidate, key)
    for candidate, key in listed.items():
        yield by_hand("path_missing", f'server "{name}": {candidate} is not there ({key})', name, candidate)


def _missing_logins(loaded: Loaded, env: Mapping[str, str]) -> Iterator[Repair]:
    store = grant_store(state_dir(env))
    for name, server in loaded.settings.servers.items():
        login = login_of(server)
        if login is None or server.oauth is None or not server.enabled or login[1].is_machine:
            continue
        try:
            is_there = store.load(grant_key(*login)) is not None
        except LoginFailed:
            is_there = False
        if not is_there:
            said = f'server "{name}" has no login on this machine. Run mcp-hub login {name}'
            yield by_hand("login_missing", said, name)


def _texts(value: object, place: str) -> Iterator[tuple[str, str]]:
    """The texts in which a path of this machine may stand, each with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{place}[{index}]")
    elif isinstance(value, dict):
        is_container = os.path.basename(str(value.get("command"))) in _CONTAINERS
        for key, item in value.items():
            if key in _SKIPPED or key.endswith("PATH"):
                yield from _texts([file for text in _strings(item) for file in _FILE.findall(text)], f"{place}.{key}")
            elif key == "args" and is_container and isinstance(item, list):
                yield from _texts(list(_volumes(item)), f"{place}.{key}")
            else:
                yield from _texts(item, f"{place}.{key}")


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings(item)


def _volumes(args: list[object]) -> Iterator[str]:
    """The folders of this machine that a container gets: all other paths are its own."""
    for before, arg in zip(["", *map(str, args)], map(str, args), strict=False):
        option, _, value = arg.partition("=")
        text = arg if before in _VOLUMES else value if option in _VOLUMES else ""
        source = re.search(r"(?:source|src)=([^,]+)", text)
        yield source[1] if source else text.partition(":")[0]


def _candidates(text: str) -> Iterator[str]:
    """The absolute paths that a text is, or that stand in it behind `=` or as `${file:…}`."""
    yield from (file for file in _FILE.findall(text) if _PATH.fullmatch(file))
    tail = text.partition("=")[2] if re.match(r"-*[\w.-]+=", text) else text
    for one in (text, tail):
        if one.startswith("~/"):
            yield os.path.expanduser(one)
        elif _PATH.fullmatch(one) and "${" not in one and "*" not in one:
            yield one
