"""`make events`: kills hubs and their servers while events happen, and looks for lost, doubled and misplaced ones.

`python -m rigs.events` does it with one hub on SQLite, with `--redis` with two replicas on one server, which is killed,
too, and of which one is suspended at times.
"""

import math
import sys
from functools import partial

import anyio

from rigs.clients.install import NotInstalled
from rigs.events.run import Plan, events
from rigs.report import arguments, reported, say


def main() -> int:
    parser = arguments("events", __doc__)
    parser.add_argument("--kills", type=int, default=50, help="kills of any kind (50)")
    parser.add_argument("--events", type=int, default=2500, help="events, about (2500)")
    parser.add_argument("--pause", type=float, default=1.0, help="seconds between two acts at most (1)")
    parser.add_argument("--lease", type=float, default=1.5, help="seconds of a replica's lease (1.5)")
    parser.add_argument("--minutes", type=float, default=math.inf, help="after which nothing is killed any more")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--redis", action="store_true", help="two replicas on one server in place of one hub")
    options = parser.parse_args()
    plan = Plan(
        kills=options.kills, events=options.events, seed=options.seed, hubs=2 if options.redis else 1,
        pause=options.pause, lease=options.lease, seconds=60 * options.minutes,
    )  # fmt: skip
    try:
        outcome = anyio.run(partial(events, plan, say=say))
    except NotInstalled as problem:
        print(f"skipped: {problem}")
        return 0
    return reported(outcome.lines(), outcome.faults, is_complete=outcome.kills >= plan.kills)


if __name__ == "__main__":
    sys.exit(main())
