"""`python -m rigs.sandbox`: ways out of the sandbox of a server, tried by a hostile one in Python, in Node and as a
static C program. Each has to get through outside of the sandbox and to be refused inside. Exit code 1 for a hole, and
if a page lacks a kind. It runs in namespaces of its own: Linux with uid 0 or user namespaces.
"""

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from rigs.report import arguments, reported, say
from rigs.sandbox.cases import kinds
from rigs.sandbox.run import Outcome, run_escapes
from rigs.sandbox.spaces import enter, prepare
from rigs.sandbox.table import each_row, missing, table, totals, with_table


def main() -> int:
    parser = arguments("sandbox", __doc__)
    only = "escapes with this in their names, or in the title of their kind; scenarios: those of more than one step"
    parser.add_argument("--only", default="", help=only)
    parser.add_argument("--languages", default="Python,Node,C", help="of the hostile server (Python,Node,C)")
    parser.add_argument("--abi", type=int, help="limit Landlock to this version")
    parser.add_argument("--user", default="", help="the number of a user who runs hub and servers, instead of root")
    parser.add_argument("--outside", action="store_true", help="the control runs alone")
    parser.add_argument("--each", action="store_true", help="show a line for each escape, not for each kind")
    parser.add_argument("--write", type=Path, help="a page whose table is replaced")
    parser.add_argument("--check", type=Path, help="a page whose table has to have the same kinds")
    given = parser.parse_args()
    enter()
    chosen = kinds(given.only)
    say(f"{sum(len(kind.names) for kind in chosen)} escapes")

    async def run(folder: Path) -> Outcome:
        with_scenarios = given.only in ("", "scenarios") and not (given.outside or given.abi)
        alone = {"is_outside": given.outside, "with_scenarios": with_scenarios}
        return await run_escapes(folder, chosen, given.languages.split(","), given.abi, user=given.user, **alone)

    with TemporaryDirectory(prefix="sandbox-") as folder:
        os.chmod(folder, 0o755)
        prepare(Path(folder))
        outcome = anyio.run(run, Path(folder))
    lines = table(outcome)
    if given.write is not None:
        given.write.write_text(with_table(given.write.read_text("utf-8"), lines), "utf-8")
    faults = outcome.faults
    if given.check is not None and (heads := missing(given.check.read_text("utf-8"), lines)):
        faults = [*faults, f"{given.check} lacks {heads}: python -m rigs.sandbox --write {given.check}"]
    return reported([*(each_row(outcome) if given.each else lines), "", totals(outcome)], faults)


if __name__ == "__main__":
    sys.exit(main())
