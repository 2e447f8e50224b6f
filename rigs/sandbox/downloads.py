"""`python -m rigs.sandbox.downloads`: hubs start one server of a registry for the first time in the same moment.

The starts share the private home of the server, into which npx or uvx downloads. Each hub has to list the tools and get
an answer, and no start may fail. Without a sandbox the same is shown for comparison: there the starts share the home
folder. Exit code 1 for a start in a sandbox that fails. npm before 11 has no lock of its own: put it first in `PATH`.
"""

import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio

from rigs.report import arguments, reported, say
from rigs.sandbox.real import Answered, Entry, entries, tried
from rigs.sandbox.stand_in import home_of

CHOSEN = ("everything", "memory", "time", "calculator")
"""Servers of the list: two of npm, two of PyPI."""


async def first_starts(
    root: Path, entry: Entry, places: Mapping[str, str], sandbox: Any, starts: int
) -> list[Answered]:
    """What came of the starts by hubs with one state folder, which is empty before."""
    answers: list[Answered] = []

    async def start() -> None:
        answers.append(await tried(root, entry, places, sandbox))

    async with anyio.create_task_group() as tasks:
        for _ in range(starts):
            tasks.start_soon(start)
    return answers


async def compared(root: Path, chosen: Sequence[Entry], rounds: int, starts: int) -> tuple[list[str], list[str]]:
    """A row for each server, and the faults."""
    rows, faults = ["| server | package | without a sandbox | `sandbox: on` |", "| --- | --- | --- | --- |"], []
    for entry in chosen:
        good, failures = Counter[str](), Counter[str]()
        for number in range(rounds):
            for label, sandbox in (("outside", None), ("inside", "on")):
                folder = root / f"{entry.name}-{number}-{label}"
                folder.mkdir()
                answers = await first_starts(folder / "hub", entry, home_of(folder), sandbox, starts)
                failed = [answer.error or answer.text[:300] for answer in answers if not _works(answer)]
                good[label] += len(answers) - len(failed)
                failures[label] += (count := sum(answer.failures for answer in answers))
                failed += [f"{count} starts failed before one was good"] if count else []
                faults += [f"{entry.name}, round {number + 1}: {error}" for error in failed if label == "inside"]
        cells = [
            f"{good[label]} of {rounds * starts}, {failures[label]} failed before" for label in ("outside", "inside")
        ]
        rows.append(f"| {entry.name} | {entry.package} {entry.version} | {' | '.join(cells)} |")
        say(rows[-1])
    return rows, faults


def _works(answer: Answered) -> bool:
    return answer.is_good and not answer.is_error


def main() -> int:
    parser = arguments("sandbox.downloads", __doc__)
    parser.add_argument("--only", default="", help="servers with this in their names")
    parser.add_argument("--rounds", type=int, default=2, help="how often each server is started for the first time")
    parser.add_argument("--starts", type=int, default=2, help="hubs at once")
    options = parser.parse_args()
    chosen = [entry for entry in entries() if entry.name in CHOSEN and options.only in entry.name]
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    with TemporaryDirectory(prefix="sandbox-downloads-", ignore_cleanup_errors=True) as folder:
        rows, faults = anyio.run(compared, Path(folder), chosen, options.rounds, options.starts)
    return reported(rows, faults, is_complete=bool(chosen))


if __name__ == "__main__":
    sys.exit(main())
