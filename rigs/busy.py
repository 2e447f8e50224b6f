"""`make busy`: the tests with processes, again and again beside a load; exit code 1 if any of them fails once.

A test that fails here asserts what a slow machine may do otherwise, or shows a fault that only a slow machine shows.
"""

import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from rigs.report import reported, say

TESTS: Final = Path("tests")
FOLDERS: Final = [str(TESTS / name) for name in ("e2e", "interaction", "rigs")]
LIMIT: Final = 3600
"""Seconds that one run may take; the load ends by itself then, whatever becomes of this program."""
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


def run(tests: list[str], workers: int, limit: int = LIMIT) -> tuple[list[str], str]:
    """One run: the tests that failed, and the report of pytest."""
    line = [sys.executable, "-m", "pytest", "-q", "-rfE", f"--numprocesses={workers}", "--dist=loadfile", *tests]
    try:
        done = subprocess.run(line, capture_output=True, text=True, errors="replace", timeout=limit)
    except subprocess.TimeoutExpired:
        return [f"the run: it took more than {limit} s"], ""
    failed = failures(done.stdout)
    if done.returncode and not failed:
        failed.append(f"the run: pytest ended with {done.returncode}: {done.stderr[-500:]}")
    return failed, done.stdout


def arguments() -> Namespace:
    parser = ArgumentParser(prog="busy", description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--load", type=int, default=8, help="processes that keep the machine busy")
    parser.add_argument("--workers", type=int, default=3, help="test processes side by side")
    parser.add_argument("--write", type=Path, metavar="FILE", help="where the reports of runs with failures go")
    parser.add_argument("tests", nargs="*", help="tests of your own choice instead of all that start processes")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    failed, tests = Counter[str](), given.tests or process_tests()
    for number in range(1, given.runs + 1):
        began = time.perf_counter()
        with load(given.load, LIMIT):
            names, report = run(tests, given.workers)
        failed.update(names)
        say(f"run {number} of {given.runs}: {len(names)} failed, {time.perf_counter() - began:.0f} s")
        for name in names:
            say(f"  {name}")
        if names and given.write is not None:
            with given.write.open("a") as file:
                file.write(report)
    faults = [f"{count} of {given.runs}: {name}" for name, count in failed.most_common()]
    return reported([f"{given.runs} runs beside a load of {given.load}"], faults)


if __name__ == "__main__":
    sys.exit(main())
