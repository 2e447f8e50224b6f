"""The one form in which every rig reports: progress on stderr, the figures and each fault on stdout, an exit code."""

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence

from mcp_hub.attach.machine import DUMPABLE

_MOST_FAULTS = 20
_CRASH = re.compile(r'Traceback|"event": "\w+_crashed"')
"""An exception that nobody expected; the code of a server that crashed looks similar and is not meant."""


def arguments(rig: str, doc: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m rigs.<rig>`, without its options. Hubs let the rig look into them from now on."""
    os.environ.setdefault(DUMPABLE, "1")
    return argparse.ArgumentParser(prog=f"rigs.{rig}", description=doc)


def say(line: str) -> None:
    """Shows how far a run is."""
    print(line, file=sys.stderr, flush=True)


def reported(lines: Iterable[str], faults: Sequence[str], *, is_complete: bool = True) -> int:
    """Prints what a run came to; the exit code is 1 for a fault, or if it did not do all that it was asked to."""
    print("\n".join(lines), flush=True)
    print(f"{len(faults)} faults", *(f"  {fault}" for fault in faults[:_MOST_FAULTS]), sep="\n", flush=True)
    return 1 if faults or not is_complete else 0


def crashes(log: str) -> list[str]:
    """The lines of a hub's log that show a fault of its own."""
    return [line for line in log.splitlines() if _CRASH.search(line)]
