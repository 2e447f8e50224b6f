"""The search path of a background hub: the folders of the account, and behind them those that only clients have.

A desktop application knows few folders, a terminal many: a server that one client could start is found for all.
"""

import os
from collections.abc import MutableMapping
from typing import Final

from mcp_hub.app.build import App
from mcp_hub.attach.environment import shared_folders

_MOST: Final = 128
"""Folders in all."""


def widened(path: str, more: str) -> str:
    """The path with the absolute folders that only `more` has at its end."""
    own = path.split(os.pathsep)
    new = [folder for folder in dict.fromkeys(more.split(os.pathsep)) if os.path.isabs(folder) and folder not in own]
    return os.pathsep.join([*own, *new[: max(0, _MOST - len(own))]])


async def widen(app: App, env: MutableMapping[str, str], more: str) -> None:
    """Searches for programs of servers there, too, and starts those again that were not found before."""
    path = widened(env.get("PATH", ""), os.pathsep.join(shared_folders(more)))
    if path == env.get("PATH", ""):
        return
    env["PATH"] = path
    if any(one.code == "command_not_found" for one in app.hub.statuses()):
        await app.reloader.reload("search path")
