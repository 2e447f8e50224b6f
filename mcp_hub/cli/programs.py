"""Looks up the program or address of a configured server, without running or reaching it."""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.errors import StartFailed
from mcp_hub.upstreams.process import commands


def find_program(server: ServerSettings, env: Mapping[str, str], folder: str) -> str:
    """The path of the server's program, its `local` reference, or its URL without the query, which may be secret.

    `folder` is that of the configuration. Of a `local` only the top module is looked for: looking further would import
    it. Raises `StartFailed`.
    """
    if server.url is not None:
        return server.url.partition("?")[0].partition("#")[0]
    if server.local is not None:
        top = server.local.partition(":")[0].partition(".")[0]
        if not _is_module(top, folder):
            raise StartFailed(
                "module_not_found", f"module not found: {top} (searched: {', '.join([*sys.path, folder])})"
            )
        return server.local
    path = server.env.get("PATH", env.get("PATH"))
    return commands.resolve(server.command or "", path, str(Path.home()), folder)


def _is_module(top: str, folder: str) -> bool:
    try:
        found = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return False
    return found is not None or importlib.machinery.PathFinder.find_spec(top, [folder]) is not None
