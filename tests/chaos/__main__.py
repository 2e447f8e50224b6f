"""`make chaos`: prints what 200 kills did to streams and tasks; exit code 1 when anything was lost."""

import argparse
import sys

import anyio

from tests.chaos.chaos import Outcome, chaos


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--hubs", type=int, default=3, help="hubs on one store (3)")
    parser.add_argument("--workers", type=int, default=12, help="jobs at a time (12)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    async def run() -> Outcome:
        return await chaos(kills=given.kills, hubs=given.hubs, workers=given.workers, seed=given.seed, say=say)

    outcome = anyio.run(run)
    print("\n".join(outcome.lines()))
    return 1 if outcome.faults or outcome.kills < given.kills else 0


if __name__ == "__main__":
    sys.exit(main())
