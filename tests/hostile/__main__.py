"""`make hostile`: one bad server after the other beside a good one; prints what came of it. Exit code 1 for a fault."""

import argparse
import sys
from pathlib import Path

import anyio

from tests.hostile.plan import every_row, run_groups, usual_rows
from tests.hostile.run import Outcome
from tests.hostile.table import failures, markdown, with_table


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.hostile", description=__doc__)
    parser.add_argument("--all", action="store_true", help="every fault in each era over each transport")
    parser.add_argument("--together", type=int, default=1, help="bad servers behind one hub (1)")
    parser.add_argument("--only", default="", help="faults with this in their names")
    parser.add_argument("--write", type=Path, help="a page whose table is replaced")
    given = parser.parse_args()
    rows = [row for row in (every_row() if given.all else usual_rows()) if given.only in row.case.name]

    async def run() -> list[Outcome]:
        outcomes: list[Outcome] = []
        async for some in run_groups(rows, given.together):
            outcomes += some
            for line in markdown(some)[2:] + failures(some):
                print(line, file=sys.stderr, flush=True)
        return outcomes

    outcomes = sorted(anyio.run(run), key=lambda outcome: rows.index(outcome.row))
    print("\n".join(markdown(outcomes)))
    if given.write is not None:
        given.write.write_text(with_table(given.write.read_text("utf-8"), markdown(outcomes)), "utf-8")
    wrong = failures(outcomes)
    print("", *(f"* {line}" for line in wrong), f"{len(outcomes)} rows, {len(wrong)} faults", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
