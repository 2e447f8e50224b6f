"""`make orphans`: prints what a hundred kills have left behind; exit code 1 when it was anything."""

import sys
import tempfile
from pathlib import Path

from rigs.orphans.orphans import orphans
from rigs.report import arguments, reported, say


def main() -> int:
    parser = arguments("orphans", __doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        outcome = orphans(given.kills, given.seed, Path(folder), say)
    return reported(outcome.lines(), outcome.faults, is_complete=outcome.total >= given.kills)


if __name__ == "__main__":
    sys.exit(main())
