"""`make model`: a million steps of replicas that share a store; exit code 1 at the first contradiction.

Each walk of 20,000 steps begins anew with a seed of its own, which a contradiction names.
"""

import logging
import sys
from collections import Counter
from dataclasses import asdict

from rigs.model.world import Contradiction, walk
from rigs.report import arguments, reported

_WALK = 20_000


def main() -> int:
    parser = arguments("model", __doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1, help="of the first walk")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    totals, faults = Counter[str](), list[str]()
    for number in range(-(-given.steps // _WALK)):
        try:
            totals.update(asdict(walk(_WALK, given.seed + number)))
        except Contradiction as problem:
            faults.append(f"seed {given.seed + number}: {problem}")
    lines = [", ".join(f"{count:,} {name}" for name, count in totals.items())]
    return reported(lines, faults, is_complete=totals["steps"] >= given.steps)


if __name__ == "__main__":
    sys.exit(main())
