"""`python -m bench`: measures, prints the tables and the goals.

Exit code 0 also when a goal is missed (times depend on the machine), 1 when an answer of the hub was wrong
or missing, 2 for a usage error.
"""

import argparse
import dataclasses
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import earlier, measure, peers
from bench.attach import CASES as OF_ATTACH
from bench.attach import measure_attach
from bench.cases import CASES, Options, Run, measure_all
from bench.costs import CASES as OF_COSTS
from bench.costs import measure_costs
from bench.formats import CASES as OF_FORMATS
from bench.formats import measure_formats
from bench.goals import goals, verdicts
from bench.history import CASES as OF_HISTORY
from bench.history import measure_history
from bench.ledger import RelayFailed
from bench.relays import HISTORIES, HUBS, RELAYS
from bench.replicas import measured
from bench.report import machine_lines, tables
from bench.sandbox import CASES as OF_SANDBOX
from bench.sandbox import measure_sandbox
from bench.streams import measure_streams
from bench.trace import TraceFailed, traced, written
from rigs.clients.install import NotInstalled

# a thousand connections on each side of a socket, and room for the rest
OPEN_FILES = 4096
EVERY = (*CASES, *OF_FORMATS, *OF_ATTACH, *OF_SANDBOX, *OF_HISTORY, *OF_COSTS)
# the hub without its history is what the goals of a call are about
USUAL = ("direct", "limit", "hub", "history off", "sdk", "fastmcp", *peers.PEERS)


def names(allowed: tuple[str, ...]) -> Callable[[str], list[str]]:
    """An argparse type: comma-separated names out of these."""

    def parse(text: str) -> list[str]:
        given = [name.strip() for name in text.split(",") if name.strip()]
        if unknown := [name for name in given if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: not one of {', '.join(allowed)}")
        return given

    return parse


def setting(text: str) -> tuple[str, object]:
    """An argparse type: KEY=VALUE, the value JSON or plain text."""
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text}: not KEY=VALUE")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--trace", action="store_true", help="the way of one quick call, function by function")
    parser.add_argument("--replicas", action="store_true", help="several hubs on one Redis or Valkey server")
    parser.add_argument("--accounts", action="store_true", help="memory and start-up with accounts of principals")
    parser.add_argument("--quick", action="store_true", help="two minutes: short rounds, fewer variants")
    parser.add_argument("--only", type=names(EVERY), default=[], help="cases: " + ", ".join(EVERY))
    sides = (*RELAYS, *HISTORIES)
    parser.add_argument("--relays", type=names(sides), default=list(USUAL), help=", ".join(sides))
    parser.add_argument("--against", metavar="REV", help="an earlier commit, which is installed as the relay `before`")
    parser.add_argument("--rounds", type=int, default=0, help="alternating rounds of each case, instead of 5")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures to this file as well")
    parser.add_argument(
        "--hub", type=setting, action="append", default=[], metavar="KEY=VALUE", help="a further `hub:` setting"
    )
    return parser.parse_args()


def add_earlier(revision: str, relays: list[str]) -> list[str]:
    """The relays with `before` beside the hub, which is that commit. Raises: `NoSuchCommit`."""
    os.environ["BENCH_BEFORE"] = str(earlier.installed(revision))
    others = [relay for relay in relays if relay != "before"]
    at = others.index("hub") + 1 if "hub" in others else len(others)
    return [*others[:at], "before", *others[at:]]


def save(file: Path, machine: dict[str, str], run: Run) -> None:
    """Everything of the run as JSON."""
    results = [dataclasses.asdict(result) for result in run.results]
    found = [dataclasses.asdict(goal) | {"verdict": goal.verdict} for goal in goals(run.results)]
    document: dict[str, object] = {"machine": machine, "quick": run.options.quick, "results": results, "goals": found}
    document["worse"] = [dataclasses.asdict(row) for row in earlier.rows(run.results) if row.is_worse]
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


def replicas(hub: dict[str, object], quick: bool, say: Callable[[str], None]) -> int:
    """The report on replicas, as far as it comes."""
    print("\n".join(machine_lines(measure.machine())), flush=True)
    try:
        for line in measured(hub, quick, say):
            print(line, flush=True)
    except NotInstalled as problem:
        print(f"skipped: {problem}")
    except RelayFailed as failed:
        print(f"wrong answers of the hub: {failed}", file=sys.stderr)
        return 1
    return 0


def special(given: argparse.Namespace) -> int | None:
    """The exit code of a report of another kind; None when the cases are wanted."""
    if given.trace:
        try:
            print(written(traced()))
        except TraceFailed as failed:
            print(f"no trace: {failed}", file=sys.stderr)
            return 1
        return 0
    if given.accounts:
        from bench import accounts

        print("\n".join(machine_lines(measure.machine())), flush=True)
        for line in accounts.measured():
            print(line, flush=True)
        return 0
    return None


def prepare() -> None:
    """Room for connections, and bytecode on the disk as an installer leaves it: else each start would compile it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < OPEN_FILES <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def measure_everything(run: Run) -> None:
    for part in (
        measure_all,
        measure_streams,
        measure_formats,
        measure_attach,
        measure_sandbox,
        measure_history,
        measure_costs,
    ):
        part(run)


def main() -> int:
    given = arguments()
    if (code := special(given)) is not None:
        return code
    prepare()
    begun = time.perf_counter()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - begun:5.0f} s  {line}", file=sys.stderr, flush=True)

    # every tool in the list and under its own name, results uncut: all sides must be asked for the same
    hub: dict[str, object] = {"expose": "full", "prefix": "always", "max_result_tokens": 0, **dict(given.hub)}
    if given.replicas:
        return replicas(hub, given.quick, say)
    machine = measure.machine() | {"commit": earlier.here(), "peers": peers.versions(given.relays)}
    if given.against:
        try:
            given.relays = add_earlier(given.against, given.relays)
        except earlier.NoSuchCommit as problem:
            print(f"--against: {problem}", file=sys.stderr)
            return 2
        machine["before"] = earlier.commit(given.against)
    run = Run(Options(given.relays, hub, given.only, given.quick, given.rounds), say)
    measure_everything(run)
    took = f"took:     {time.perf_counter() - begun:.0f} s" + (", quick" if given.quick else "")
    compared = earlier.lines(run.results)
    print("\n".join([*machine_lines(machine), took, *tables(run.results), *verdicts(run.results), *compared]))
    if given.json:
        save(given.json, machine, run)
    wrong = [result for result in run.results if result.failed and (result.side in HUBS or result.case in OF_FORMATS)]
    for result in wrong:
        print(
            f"wrong answers of the hub: {result.case}, {result.variant}, {result.side}: {result.note}", file=sys.stderr
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
