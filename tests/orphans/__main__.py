"""`make orphans`: prints what a hundred kills have left behind; exit code 1 when it was anything."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.orphans.orphans import orphans


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.orphans", description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        outcome = orphans(given.kills, given.seed, Path(folder), say)
    print("\n".join(outcome.lines()))
    return 1 if outcome.faults or outcome.total < given.kills else 0


if __name__ == "__main__":
    sys.exit(main())
