"""`make chaos`: prints what 200 kills did to streams and tasks; exit code 1 when anything was lost."""

import sys

import anyio

from rigs.chaos.chaos import Outcome, chaos
from rigs.report import arguments, reported, say


def main() -> int:
    parser = arguments("chaos", __doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--hubs", type=int, default=3, help="hubs on one store (3)")
    parser.add_argument("--workers", type=int, default=12, help="jobs at a time (12)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()

    async def run() -> Outcome:
        return await chaos(kills=given.kills, hubs=given.hubs, workers=given.workers, seed=given.seed, say=say)

    outcome = anyio.run(run)
    return reported(outcome.lines(), outcome.faults, is_complete=outcome.kills >= given.kills)


if __name__ == "__main__":
    sys.exit(main())
