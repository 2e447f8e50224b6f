"""The client's own command, which writes the hub's entry where the client owns its file. No shell is involved."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Final

from mcp_hub.cli.clients.entries import HUB
from mcp_hub.cli.clients.model import OwnCli
from mcp_hub.types import JsonObject

_SECONDS: Final = 60
_SHELLS: Final = (".cmd", ".bat", ".ps1")
"""Windows starts these through a shell, which would read the arguments as its own."""


def find_cli(cli: OwnCli | None, env: Mapping[str, str]) -> str | None:
    """The path of the client's command; None if it is not installed, or cannot be started without a shell."""
    found = None if cli is None else shutil.which(cli.program, path=env.get("PATH"))
    return None if found is None or found.lower().endswith(_SHELLS) else os.path.abspath(found)


def add_args(cli: OwnCli, entry: JsonObject) -> list[str]:
    """The arguments that add the entry."""
    texts = {
        "{name}": HUB,
        "{json}": json.dumps(entry),
        "{named}": json.dumps({"name": HUB, **entry}),
        "{command}": str(entry.get("command", "")),
    }
    args = entry.get("args")
    words = list(args) if isinstance(args, list) else []
    return [word for part in cli.add for word in (words if part == "{args}" else [texts.get(part, part)])]


def remove_args(cli: OwnCli, name: str) -> list[str]:
    """The arguments that remove a server."""
    return [name if part == "{name}" else part for part in cli.remove]


def run_cli(program: str, args: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether the command ended well. Its output is not shown: it may hold the secrets of other servers."""
    try:
        done = subprocess.run(
            [program, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            env=dict(env),
            cwd=os.path.expanduser("~"),
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
