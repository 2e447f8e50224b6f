"""Whether an application runs that would write its file back from memory."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from mcp_hub.cli.clients.places import System

_SECONDS: Final = 5
_STEP: Final = 0.5
_PATIENCE: Final = 600.0


def is_running(programs: Collection[str], system: System) -> bool:
    """Whether a process of one of these names runs; False if the system cannot say."""
    return any(name in programs for name in _names(system))


def is_unclear(programs: Collection[str], system: System) -> bool:
    """Whether one of these programs may run, as far as Windows says: not at all, or by a name in another case.

    The name of a program may be that of another one there: `claude.exe` is Claude Desktop, and Claude Code.
    """
    if system != "windows":
        return False
    names = list(_names(system))
    alike = {program.casefold() for program in programs}
    return not names or any(name.casefold() in alike and name not in programs for name in names)


def wait_for_end(is_there: Callable[[], bool], sleep: Callable[[float], None] = time.sleep) -> bool:
    """Whether the application ended within ten minutes."""
    for _ in range(int(_PATIENCE / _STEP)):
        if not is_there():
            return True
        sleep(_STEP)
    return False


def _names(system: System) -> Iterator[str]:
    if system == "linux":
        for place in Path("/proc").glob("[0-9]*/comm"):
            with suppress(OSError):
                yield place.read_text().strip()
    elif system == "macos":
        for line in _output("ps", "-axo", "comm="):
            yield line.rpartition("/")[2].strip()
    else:
        for line in _output(_tasklist(), "/FO", "CSV", "/NH"):
            yield line.split(",")[0].strip('"').removesuffix(".exe")


def _tasklist() -> str:
    """The program by its path: one of this name in the working directory is never started."""
    if sys.platform == "win32":
        return os.path.join(os.environ.get("SystemRoot", r"C:\Windows"), "System32", "tasklist.exe")
    else:
        path = os.pathsep.join(filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)))
        return shutil.which("tasklist.exe", path=path) or "/nowhere/tasklist.exe"


def _output(*argv: str) -> list[str]:
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()
