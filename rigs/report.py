"""What rigs share: how one reports (progress on stderr, figures and faults on stdout, an exit code), and a sandbox for
the servers of its hubs.
"""

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mcp_hub.attach.machine import DUMPABLE

_MOST_FAULTS = 20
_CRASH = re.compile(r'Traceback|"event": "\w+_crashed"')
"""An exception that nobody expected; the code of a server that crashed looks similar and is not meant."""


def arguments(rig: str, doc: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m rigs.<rig>`, without its options. Hubs let the rig look into them from now on."""
    os.environ.setdefault(DUMPABLE, "1")
    return argparse.ArgumentParser(prog=f"rigs.{rig}", description=doc)


NETS: Mapping[str, object] = {"any": "any", "none": "none", "hosts": ["allowed.example"]}
"""The values of `--sandbox`: what the servers of a rig may reach in the network."""
_ROOT = Path(__file__).parents[1]
"""Where the servers of the rigs are."""
_RULE: dict[str, object] = {}
"""The rule of all servers, without the folder of a hub; empty for none."""


def sandbox_option(parser: argparse.ArgumentParser) -> None:
    """Adds `--sandbox`, which puts every local server of the rig into one."""
    parser.add_argument("--sandbox", choices=NETS, type=use_sandbox, help="all servers in a sandbox with this network")


def use_sandbox(net: str) -> str:
    """From now on `sandboxed` settings have a rule with this network; with an empty text they have none."""
    _RULE.clear()
    _RULE.update({"net": NETS[net]} if net in NETS else {})
    return net


def has_sandbox() -> bool:
    """Whether servers of this run are in a sandbox."""
    return bool(_RULE)


def sandboxed(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The settings with the sandbox of this run for all servers, which may write to this folder; it is made."""
    folder.mkdir(exist_ok=True)
    if not has_sandbox():
        return dict(settings)
    rule = {"sandbox": {**_RULE, "read": [str(_ROOT)], "write": [str(folder)]}}
    return {**settings, "defaults": {**rule, **settings.get("defaults", {})}}


def say(line: str) -> None:
    """Shows how far a run is."""
    print(line, file=sys.stderr, flush=True)


def reported(lines: Iterable[str], faults: Sequence[str], *, is_complete: bool = True) -> int:
    """Prints what a run came to; the exit code is 1 for a fault, or if it did not do all that it was asked to."""
    print("\n".join(lines), flush=True)
    print(f"{len(faults)} faults", *(f"  {fault}" for fault in faults[:_MOST_FAULTS]), sep="\n", flush=True)
    return 1 if faults or not is_complete else 0


def head() -> str:
    """The commit that is tested, with a `+` behind it if files were changed since."""
    line = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    return subprocess.run(line, capture_output=True, text=True).stdout.strip() or "unknown"


def crashes(log: str) -> list[str]:
    """The lines of a hub's log that show a fault of its own."""
    return [line for line in log.splitlines() if _CRASH.search(line)]
