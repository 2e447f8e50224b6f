"""`make hostile`: one bad server after the other beside a good one; prints what came of it. Exit code 1 for a fault."""

import sys
from pathlib import Path

import anyio

from rigs.hostile.plan import every_row, run_groups, usual_rows
from rigs.hostile.run import Outcome
from rigs.hostile.table import failures, markdown, with_table
from rigs.report import arguments, reported, say


def main() -> int:
    parser = arguments("hostile", __doc__)
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
                say(line)
        return outcomes

    outcomes = sorted(anyio.run(run), key=lambda outcome: rows.index(outcome.row))
    if given.write is not None:
        given.write.write_text(with_table(given.write.read_text("utf-8"), markdown(outcomes)), "utf-8")
    return reported([*markdown(outcomes), "", f"{len(outcomes)} rows"], failures(outcomes))


if __name__ == "__main__":
    sys.exit(main())
