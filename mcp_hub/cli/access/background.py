"""Background hubs for commands: requests by a hub's own socket, which are not part of REST, and its end."""

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from mcp_hub.attach.arguments import VARIABLE
from mcp_hub.cli.access.running import HubRecord, running_hubs
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, fail, load_config
from mcp_hub.config.load.load import find_config
from mcp_hub.errors import ConfigError

_PATIENCE: Final = 10.0
_LOOK: Final = 0.05


def asked(folder: str, wants: str) -> dict[str, str]:
    """The answer of the hub in that folder. Exits with 3 if it does not give one."""
    from mcp_hub.attach.join import NotJoined, request  # sockets and locks that Windows does not have

    try:
        return request(folder, wants)
    except NotJoined as problem:
        fail("hub_not_answering", f"The background hub in {folder} does not answer: {problem}.", EXIT_UNAVAILABLE)


def started_hub(config: str | None, advice: str) -> str:
    """The folder of the background hub of the configuration, which starts now. Exits with 3 and `advice` if it cannot.

    Not for a file that nobody has named: by its path the hub would take it for one that somebody has.
    """
    loaded = load_config(config, partly=True)
    why = "this system does not have background hubs" if sys.platform == "win32" else "no option names this file"
    if sys.platform != "win32" and loaded.is_named:
        from mcp_hub.attach.join import NotJoined  # sockets and locks that Windows does not have
        from mcp_hub.attach.serve import started_folder

        try:
            folder = started_folder(loaded.place, os.environ.get(VARIABLE) or loaded.settings.hub.attach)
        except NotJoined as problem:
            why = str(problem)
        else:
            say("Started the background hub.")
            return folder
    said = f"No hub serves {loaded.place}, and none was started in the background: {why}. {advice}"
    fail("no_running_hub", said, EXIT_UNAVAILABLE)


def end_hub(folder: str) -> None:
    """Ends the background hub in that folder. Exits with 3 if it does not end within ten seconds."""
    from mcp_hub.attach.locks import is_alive  # not on Windows

    asked(folder, "stop")
    for _ in range(int(_PATIENCE / _LOOK)):
        if not os.path.isdir(folder) or not is_alive(folder):
            return
        time.sleep(_LOOK)
    fail("hub_not_answering", f"The background hub in {folder} has not ended yet.", EXIT_UNAVAILABLE)


def hubs_of(config: str | None) -> tuple[str, list[HubRecord]]:
    """The path of the configuration and the hubs that run for it; without any configuration "", and all hubs.

    Raises `ConfigError`.
    """
    try:
        place = os.path.abspath(find_config(config, Path.cwd(), os.environ))
    except ConfigError as error:
        if error.code != "config_not_found":
            raise
        return "", running_hubs(None, os.environ)
    return place, running_hubs(place, os.environ)


def end_hubs_of(configs: Iterable[str]) -> list[str]:
    """Ends the background hubs of these configurations, which may be gone; the configurations that had one."""
    paths = {os.path.realpath(config) for config in configs}
    hubs = [hub for hub in running_hubs(None, os.environ) if hub.folder and os.path.realpath(hub.place) in paths]
    for hub in hubs:
        end_hub(hub.folder)
    return list(dict.fromkeys(hub.place for hub in hubs))
