"""`make attach`: one hub for all clients of a user, shown from outside; prints a line for each case.

Exit code 1 for a promise that was not kept. What this machine cannot do is skipped with its reason.
"""

import sys

import anyio

from rigs.attach.cases import CASES, Outcome, run
from rigs.report import arguments, reported, sandbox_option, say


def main() -> int:
    parser = arguments("attach", __doc__)
    parser.add_argument("--short", action="store_true", help="as `make test` runs them")
    parser.add_argument("--only", default="", help="cases with this in their names")
    sandbox_option(parser)
    given = parser.parse_args()
    outcomes: list[Outcome] = []
    for name in (name for name in CASES if given.only in name):
        outcomes.append(anyio.run(run, name, given.short))
        say("\n".join(_lines(outcomes[-1])))
    faults = [f"{outcome.name}: {outcome.fault}" for outcome in outcomes if outcome.fault]
    return reported([line for outcome in outcomes for line in _lines(outcome)], faults, is_complete=bool(outcomes))


def _lines(outcome: Outcome) -> list[str]:
    verdict = "FAULT" if outcome.fault else "skipped" if outcome.skipped else "ok"
    return [
        f"{verdict:7} {outcome.seconds:5.1f} s  {outcome.name}",
        *(f"                 {line}" for line in [*outcome.figures, outcome.skipped, outcome.fault] if line),
    ]


if __name__ == "__main__":
    sys.exit(main())
