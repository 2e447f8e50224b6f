"""`python -m tests.clients`: real client libraries against the hub; prints a table.

Exit code 1 if anything failed that is not a client's own fault, shown without the hub as well, or if a client cannot
be installed; 2 for a usage error.
"""

import argparse
import sys
import time
from pathlib import Path

import anyio

from tests.clients.clients import CLIENTS
from tests.clients.matrix import FRONTS, Choice, measure, rows
from tests.clients.table import failures, markdown


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.clients", description=__doc__)
    add = parser.add_argument
    add("--only", action="append", default=[], metavar="NAME", help=f"names or their beginnings: {', '.join(CLIENTS)}")
    add("--front", choices=FRONTS, help="only this one")
    add("--quick", action="store_true", help="the main steps, and only pairs of client and server that are bridged")
    add("--direct", action="store_true", help="without the hub: what the clients do by themselves")
    add("--logs", type=Path, metavar="FOLDER", help="write what each driver says on stderr there")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    begun = time.perf_counter()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - begun:5.0f} s  {line}", file=sys.stderr, flush=True)

    choice = Choice(tuple(given.only), given.front, is_quick=given.quick, is_direct=given.direct, logs=given.logs)
    if not rows(choice):
        print("no such client on such a front", file=sys.stderr)
        return 2
    if given.logs:
        given.logs.mkdir(parents=True, exist_ok=True)
    measured = anyio.run(measure, choice, say)
    print("\n".join([f"Clients: {', '.join(measured.libraries)}.", ""]))
    print("\n".join(markdown(measured.results, measured.shown)))
    for name, reason in measured.missing.items():
        print(f"* not installed {name}: {reason}")
    failed = failures(measured.results, measured.shown)
    say(f"{len(measured.results)} rows, {len(failed)} failures")
    return 1 if failed or measured.missing else 0


if __name__ == "__main__":
    sys.exit(main())
