"""`make busy`: the tests with processes, again and again beside a load; exit code 1 if any of them fails once.

A test that fails here asserts what a slow machine may do otherwise, or shows a fault that only a slow machine shows.

The output of pytest goes to a file as it comes. Behind each run the file has a line about it, such as
`run 7: 0 failed, 512 s, head abc1234, load 9.8 up to 11.2, slowest 9.3 s: tests/e2e/test_rest.py::test_name`. A later
sitting with this file counts on from the last of these lines; a run that was interrupted does not have a line.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from rigs.report import head, reported, say

TESTS: Final = Path("tests")
FOLDERS: Final = [str(TESTS / name) for name in ("e2e", "interaction", "rigs")]
LIMIT: Final = 3600
"""Seconds that one run may take; the load ends by itself then, whatever becomes of this program."""
_LOOK: Final = 5.0
"""Seconds between two looks at the load average."""
_RUN: Final = re.compile(r"^run (\d+): \d+ failed, \d+ s, head ", re.MULTILINE)
_SLOWEST: Final = re.compile(r"^([\d.]+)s (?:call|setup|teardown) +(\S.*)$", re.MULTILINE)
_BUSY: Final = """
import os, signal, sys
signal.alarm(int(sys.argv[1]))
while os.getppid() == int(sys.argv[2]): pass
"""
"""It ends with the program that started it, too."""


def process_tests() -> list[str]:
    """The folders and files whose tests start processes."""
    marked = (path for path in (TESTS / "unit").rglob("test_*.py") if "mark.processes" in path.read_text("utf-8"))
    return [*FOLDERS, *sorted(map(str, marked))]


@contextmanager
def load(count: int, seconds: int) -> Iterator[None]:
    """So many processes that do nothing but use a core, for so many seconds at most."""
    line = [sys.executable, "-I", "-S", "-c", _BUSY, str(seconds), str(os.getpid())]
    running = [subprocess.Popen(line) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def failures(report: str) -> list[str]:
    """The tests that failed by the short summary of pytest."""
    lines = [line.split(" - ")[0] for line in report.splitlines()]
    return [line.partition(" ")[2] for line in lines if line.startswith(("FAILED ", "ERROR "))]


class Run(msgspec.Struct, frozen=True):
    """One run: the tests that failed, its seconds, the mean and the highest load of a minute, and the slowest test."""

    failed: list[str]
    seconds: float
    mean_load: float
    highest_load: float
    slowest: str

    def line(self, number: int, head: str) -> str:
        """The line about run `number` in the file."""
        parts = [
            f"{len(self.failed)} failed",
            f"{self.seconds:.0f} s",
            f"head {head}",
            f"load {self.mean_load:.1f} up to {self.highest_load:.1f}",
        ]
        return f"run {number}: {', '.join([*parts, *([f'slowest {self.slowest}'] if self.slowest else [])])}"


def run(tests: list[str], workers: int, output: Path, limit: float = LIMIT) -> Run:
    """Runs the tests once. Pytest writes to the end of `output` as it goes; after `limit` seconds the run ends."""
    options = ["-q", "-rfE", "--durations=1", "--durations-min=0", f"--numprocesses={workers}", "--dist=loadfile"]
    began, loads = time.perf_counter(), list[float]()
    with output.open("a+b") as file:
        before = file.seek(0, os.SEEK_END)
        process = subprocess.Popen([sys.executable, "-u", "-m", "pytest", *options, *tests], stdout=file, stderr=file)
        try:
            while process.poll() is None and time.perf_counter() - began < limit:
                loads.append(os.getloadavg()[0])
                with suppress(subprocess.TimeoutExpired):
                    process.wait(min(_LOOK, limit))
            is_late = process.poll() is None
        finally:
            process.kill()
            process.wait()
        file.seek(before)
        report = file.read().decode(errors="replace")
    failed = failures(report)
    if is_late:
        failed.append(f"the run: it took more than {limit} s")
    elif process.returncode and not failed:
        failed.append(f"the run: pytest ended with {process.returncode}: {report[-500:]}")
    slowest = _SLOWEST.search(report)
    name = f"{slowest[1]} s: {slowest[2]}" if slowest else ""
    return Run(failed, time.perf_counter() - began, fmean(loads), max(loads), name)


def runs_in(output: Path) -> int:
    """The number of the last run that has its line in the file; 0 without any."""
    text = output.read_text("utf-8", "replace") if output.exists() else ""
    return max(map(int, _RUN.findall(text)), default=0)


def arguments() -> Namespace:
    parser = ArgumentParser(prog="busy", description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="runs of this sitting at most")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after them no further run begins")
    parser.add_argument("--load", type=int, default=8, help="processes that keep the machine busy")
    parser.add_argument("--workers", type=int, default=3, help="test processes side by side")
    default = Path(tempfile.gettempdir(), f"mcp-hub-busy-{os.getuid()}.log")
    parser.add_argument("--write", type=Path, metavar="FILE", default=default, help=f"for the output; {default}")
    parser.add_argument("tests", nargs="*", help="tests of your own choice instead of all that start processes")
    return parser.parse_args()


def main() -> int:
    given, began = arguments(), time.perf_counter()
    failed, tests = Counter[str](), given.tests or process_tests()
    before = done = runs_in(given.write)
    say(f"the output goes to {given.write}" + (f", which has {before} runs" if before else ""))
    while done < before + given.runs and time.perf_counter() - began < given.minutes * 60:
        tested = head()
        with load(given.load, LIMIT):
            outcome = run(tests, given.workers, given.write)
        failed.update(outcome.failed)
        done += 1
        with given.write.open("a") as file:
            file.write(f"\n{outcome.line(done, tested)}\n")
        for line in (outcome.line(done, tested), *(f"  {name}" for name in outcome.failed)):
            say(line)
    count = done - before
    faults = [f"{number} of {count}: {name}" for name, number in failed.most_common()]
    return reported([f"{count} runs beside a load of {given.load}; {done} in {given.write}"], faults)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what runs is ended, too
    sys.exit(main())
