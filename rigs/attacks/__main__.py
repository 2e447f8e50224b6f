"""`make attacks`: plays known attacks on MCP on a real hub; prints what it stops, shows or passes on. Exit code 1 if a
page that was given says something else.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from rigs.attacks.cases import ATTACKS
from rigs.attacks.run import Outcome, run_attacks
from rigs.attacks.table import tables, totals, with_tables
from rigs.report import arguments, reported, say


def main() -> int:
    parser = arguments("attacks", __doc__)
    parser.add_argument("--only", default="", help="attacks with this in their names or their servers' names")
    parser.add_argument("--write", type=Path, help="a page whose tables are replaced")
    parser.add_argument("--check", type=Path, help="a page whose tables have to be the same")
    given = parser.parse_args()
    attacks = [one for one in ATTACKS if given.only in one.name or given.only in one.server]
    say(f"{len(attacks)} attacks on two hubs")

    async def run() -> list[Outcome]:
        with TemporaryDirectory(prefix="attacks-") as folder:
            return await run_attacks(Path(folder), attacks)

    outcomes = anyio.run(run)
    found = tables(outcomes)
    if given.write is not None:
        given.write.write_text(with_tables(given.write.read_text("utf-8"), found), "utf-8")
    faults = []
    if given.check is not None and with_tables(text := given.check.read_text("utf-8"), found) != text:
        faults = [f"{given.check} says something else: python -m rigs.attacks --write {given.check}"]
    lines = [line for source, table in found.items() for line in ("", f"{source}:", *table)]
    return reported([*lines, "", totals(outcomes)], faults)


if __name__ == "__main__":
    sys.exit(main())
