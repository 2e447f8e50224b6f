"""`make followers`: prints what cut connections and kills did to calls that clients follow; exit code 1 for a fault."""

import sys

import anyio

from rigs.clients.install import NotInstalled
from rigs.followers.rig import Outcome, followers
from rigs.report import arguments, reported, say


def main() -> int:
    parser = arguments("followers", __doc__)
    parser.add_argument("--rounds", type=int, default=200, help="calls that each client follows (200)")
    parser.add_argument("--workers", type=int, default=16, help="calls at a time (16)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()

    async def run() -> Outcome:
        return await followers(rounds=given.rounds, workers=given.workers, seed=given.seed, say=say)

    try:
        outcome = anyio.run(run)
    except NotInstalled as problem:
        print(f"skipped: {problem}")
        return 0
    return reported(outcome.lines(), outcome.faults)


if __name__ == "__main__":
    sys.exit(main())
