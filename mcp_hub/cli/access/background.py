"""Requests to background hubs by their own sockets."""

import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from mcp_hub.attach.arguments import VARIABLE
from mcp_hub.attach.folder import is_alive
from mcp_hub.cli.access.running import HubRecord, running_hubs
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, fail, load_config
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.load import find_config
from mcp_hub.errors import ConfigError

if TYPE_CHECKING:
    from mcp_hub.sessions.clients import HubUse

_PATIENCE: Final = 10.0
"""Seconds for background hubs to end."""
_SHORTEST: Final = 1.0
_LOOK: Final = 0.05


def hub_fields(folder: str, wants: str) -> dict[str, str]:
    """The answer of the hub in that folder. Exits with 3."""
    from mcp_hub.attach.join import NotJoined, request  # sockets and locks that Windows does not have

    try:
        return request(folder, wants)
    except NotJoined as problem:
        fail("hub_not_answering", f"The background hub in {folder} does not answer: {problem}.", EXIT_UNAVAILABLE)


def use_of(folder: str) -> "HubUse | None":
    """The use of a background hub; None if it does not say."""
    from mcp_hub.attach.join import NotJoined, request  # not on Windows
    from mcp_hub.sessions.clients import HubUse

    try:
        return msgspec.json.decode(request(folder, "use", _SHORTEST).get("use", ""), type=HubUse)
    except (NotJoined, msgspec.DecodeError):
        return None


def dashboard_of(hub: HubRecord) -> tuple[str, str]:
    """The URL and operator token of the dashboard. Exits with 3."""
    url, operator = hub.url, hub.operator if hub.has_dashboard else ""
    if hub.folder and not url:
        fields = hub_fields(hub.folder, "dashboard")
        url, operator = fields.get("url", ""), fields.get("operator", "")
    if not operator:
        fail("no_dashboard", "The running hub does not have a dashboard (hub.http.dashboard: off).", EXIT_UNAVAILABLE)
    return url, operator


def started_hub(config: str | None, advice: str) -> str:
    """Starts the background hub; returns its folder. Exits with 3 and `advice`."""
    loaded = load_config(config, partly=True)
    why = "this system does not have background hubs" if sys.platform == "win32" else "no option names this file"
    if sys.platform != "win32" and not loaded.needs_name:
        from mcp_hub.attach.join import NotJoined  # sockets and locks that Windows does not have
        from mcp_hub.attach.serve import started_folder

        try:
            folder = started_folder(loaded.place, os.environ.get(VARIABLE) or loaded.settings.hub.attach)
        except NotJoined as problem:
            why = str(problem)
        else:
            say("Started the background hub.")
            return folder
    message = f"No hub serves {loaded.place}, and none was started in the background: {why}. {advice}"
    fail("no_running_hub", message, EXIT_UNAVAILABLE)


def end_hub(folder: str) -> None:
    """Ends a background hub. Exits with 3 after ten seconds."""
    for why in end_folders([folder]).values():
        fail("hub_not_answering", f"The background hub in {folder} has not ended: {why}.", EXIT_UNAVAILABLE)


def end_folders(folders: Sequence[str]) -> dict[str, str]:
    """Ends background hubs in ten seconds; returns the others, with reasons."""
    if not folders:
        return {}
    from mcp_hub.attach.join import NotJoined, request  # sockets, which Windows does not have

    clock = SystemClock()
    until = clock.now() + _PATIENCE
    alive = dict.fromkeys(folders, "it still works")
    for folder in folders:
        try:
            request(folder, "stop", max(until - clock.now(), _SHORTEST))
        except NotJoined as problem:
            alive[folder] = str(problem)
    while True:
        alive = {folder: why for folder, why in alive.items() if os.path.isdir(folder) and is_alive(folder)}
        if not alive or clock.now() >= until:
            return alive
        time.sleep(_LOOK)


def hubs_of(config: str | None) -> tuple[str, list[HubRecord]]:
    """The path of the configuration and its hubs; without one, all hubs. Raises `ConfigError`."""
    try:
        path = os.path.abspath(find_config(config, Path.cwd(), os.environ))
    except ConfigError as error:
        if error.code != "config_not_found":
            raise
        return "", running_hubs(None, os.environ)
    return path, running_hubs(path, os.environ)


def end_hubs_of(configs: Iterable[str]) -> list[str]:
    """Ends their background hubs; returns the configurations that had one. Exits with 3."""
    paths = {os.path.realpath(config) for config in configs}
    hubs = [hub for hub in running_hubs(None, os.environ) if hub.folder and os.path.realpath(hub.config) in paths]
    for folder, why in end_folders([hub.folder for hub in hubs]).items():
        fail("hub_not_answering", f"The background hub in {folder} has not ended: {why}.", EXIT_UNAVAILABLE)
    return list(dict.fromkeys(hub.config for hub in hubs))
