"""The client's own command, which writes the hub's entry where the client owns its file. No shell is involved."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Final

from mcp_hub import windows
from mcp_hub.cli.clients.entries import HUB
from mcp_hub.cli.clients.model import OwnCli
from mcp_hub.types import JsonObject

_SECONDS: Final = 60


def find_cli(cli: OwnCli | None, env: Mapping[str, str]) -> str | None:
    """The path of the client's command; None if it is not installed, or is a batch file, which JSON cannot be given."""
    if cli is None:
        return None
    if sys.platform == "win32":
        program = windows.find_program(cli.program, env)
        return None if program is None or windows.is_script(program) else program
    else:
        program = shutil.which(cli.program, path=env.get("PATH"))
        return None if program is None else os.path.abspath(program)


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
        run = windows.run_program if sys.platform == "win32" else _run
        return run(program, args, env, os.path.expanduser("~"), _SECONDS) == 0
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False


def _run(program: str, args: Sequence[str], env: Mapping[str, str], cwd: str, seconds: float) -> int:
    null = subprocess.DEVNULL
    line = [program, *args]
    done = subprocess.run(line, stdin=null, stdout=null, stderr=null, timeout=seconds, env=dict(env), cwd=cwd)
    return done.returncode
