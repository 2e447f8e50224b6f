"""`make soak`: 100,000 calls over HTTP and stdio, servers killed all the time; exit code 1 when a promise is broken."""

import asyncio
import sys
from dataclasses import replace

from rigs.report import arguments, reported, sandbox_option, say
from rigs.soak.soak import Plan, soak


def main() -> int:
    parser = arguments("soak", __doc__)
    parser.add_argument("--calls", type=int, default=100_000, help="in all (100000); half of them over each front")
    parser.add_argument("--front", choices=("http", "stdio", "both"), default="both")
    parser.add_argument("--workers", type=int, default=24, help="clients at a time (24)")
    parser.add_argument("--rounds", type=int, default=20, help="with a rest after each (20)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slope", type=float, default=400, help="kB that may be added in 10,000 calls (400)")
    parser.add_argument("--trace", action="store_true", help="tell where what grows was allocated; slow")
    parser.add_argument("--every", type=int, default=100, help="calls to a kill (100)")
    sandbox_option(parser)
    given = parser.parse_args()
    shares = {"http": 0.5, "stdio": 0.5} if given.front == "both" else {given.front: 1.0}
    code = 0
    for front, share in shares.items():
        calls = int(given.calls * share)
        plan = Plan(calls, front, given.rounds, given.workers, given.seed, given.slope, given.trace, given.every)
        plan = replace(plan, dials=given.sandbox is not None)
        outcome = asyncio.run(soak(plan, say))
        code |= reported(outcome.lines(), outcome.faults)
    return code


if __name__ == "__main__":
    sys.exit(main())
