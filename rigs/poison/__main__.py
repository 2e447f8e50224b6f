"""`make poison`: prints what replicas on one Redis or Valkey server made of bad records; exit code 1 for a fault."""

import sys
from functools import partial

import anyio

from rigs.clients.install import NotInstalled
from rigs.poison.run import Plan, poisoned
from rigs.poison.values import EVERY
from rigs.report import arguments, reported, say


def main() -> int:
    parser = arguments("poison", __doc__)
    parser.add_argument("--most", type=int, default=len(EVERY), help=f"poisons ({len(EVERY)})")
    parser.add_argument("--restarts", type=int, default=4, help="starts of a replica with the poison there (4)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    try:
        outcome = anyio.run(partial(poisoned, Plan(given.most, given.restarts, seed=given.seed), say))
    except NotInstalled as problem:
        print(f"skipped: {problem}")
        return 0
    return reported(outcome.lines(), outcome.faults, is_complete=outcome.written.total() >= min(given.most, 200))


if __name__ == "__main__":
    sys.exit(main())
