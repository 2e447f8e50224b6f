"""`make clients`: real client libraries against the hub; prints a table.

Exit code 1 for a failure that is not a client's own fault, or a client that is not installed; 2 for a usage error.
"""

import sys
import time
from argparse import Namespace
from pathlib import Path

import anyio

from rigs import report
from rigs.clients.clients import CLIENTS
from rigs.clients.matrix import FRONTS, Choice, measure, rows
from rigs.clients.table import failures, markdown


def arguments() -> Namespace:
    parser = report.arguments("clients", __doc__)
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
        report.say(f"{time.perf_counter() - begun:5.0f} s  {line}")

    choice = Choice(tuple(given.only), given.front, is_quick=given.quick, is_direct=given.direct, logs=given.logs)
    if not rows(choice):
        report.say("no such client on such a front")
        return 2
    if given.logs:
        given.logs.mkdir(parents=True, exist_ok=True)
    measured = anyio.run(measure, choice, say)
    lines = [f"Clients: {', '.join(measured.libraries)}.", "", *markdown(measured.results, measured.shown)]
    faults = [f"{row}, {found.step}: {found.detail}" for row, found in failures(measured.results, measured.shown)]
    faults += [f"not installed: {name}: {reason}" for name, reason in measured.missing.items()]
    return report.reported([*lines, f"{len(measured.results)} rows"], faults)


if __name__ == "__main__":
    sys.exit(main())
