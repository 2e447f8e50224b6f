"""Checks whether a client runs, and runs its own command, without a shell."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from mcp_hub import windows
from mcp_hub.onboarding.clients.entries import HUB
from mcp_hub.onboarding.clients.model import OwnCli, System
from mcp_hub.types import JsonObject

_SECONDS: Final = 5
_CLI_SECONDS: Final = 60
_STEP: Final = 0.5
_PATIENCE: Final = 600.0


def is_running(programs: Collection[str], system: System) -> bool:
    """Whether a process has one of these names; False if unknown."""
    return any(name in programs for name in _names(system))


def is_unclear(programs: Collection[str], system: System) -> bool:
    """Whether Windows cannot say if one runs: no list, or another case (`claude.exe` is ambiguous)."""
    if system != "windows":
        return False
    names = list(_names(system))
    alike = {program.casefold() for program in programs}
    return not names or any(name.casefold() in alike and name not in programs for name in names)


def wait_for_end(is_there: Callable[[], bool], sleep: Callable[[float], None] = time.sleep) -> bool:
    """Whether it ended within ten minutes."""
    for _ in range(int(_PATIENCE / _STEP)):
        if not is_there():
            return True
        sleep(_STEP)
    return False


def _names(system: System) -> Iterator[str]:
    if system == "linux":
        for file in Path("/proc").glob("[0-9]*/comm"):
            with suppress(OSError):
                yield file.read_text().strip()
    elif system == "macos":
        for line in _output("ps", "-axo", "comm="):
            yield line.rpartition("/")[2].strip()
    else:
        for line in _output(_tasklist(), "/FO", "CSV", "/NH"):
            yield line.split(",")[0].strip('"').removesuffix(".exe")


def _tasklist() -> str:
    """Never a program of that name in the working directory."""
    if sys.platform == "win32":
        return os.path.join(os.environ.get("SystemRoot", r"C:\Windows"), "System32", "tasklist.exe")
    else:
        path = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)))
        return shutil.which("tasklist.exe", path=path) or "/nowhere/tasklist.exe"


def _output(*argv: str) -> list[str]:
    try:
        process = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return process.stdout.splitlines()


def find_cli(cli: OwnCli | None, env: Mapping[str, str]) -> str | None:
    """The command's path; None if missing, or a batch file, which cannot take JSON."""
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
    return [name if part == "{name}" else part for part in cli.remove]


def run_cli(program: str, args: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether it succeeded. Output is dropped: it may hold secrets."""
    try:
        run = windows.run_program if sys.platform == "win32" else _run
        return run(program, args, env, os.path.expanduser("~"), _CLI_SECONDS) == 0
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return False


def _run(program: str, args: Sequence[str], env: Mapping[str, str], cwd: str, seconds: float) -> int:
    null = subprocess.DEVNULL
    line = [program, *args]
    process = subprocess.run(line, stdin=null, stdout=null, stderr=null, timeout=seconds, env=dict(env), cwd=cwd)
    return process.returncode
