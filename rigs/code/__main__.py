"""Prints what became of scripts whose hubs and engines were killed; exit code 1 when a write was sent twice, or an
account was wrong.

`python -m rigs.code` runs 200 scripts over hubs on one folder; with `--redis` over replicas on a server, which is
killed, too, while replicas are paused beyond their lease.
"""

import sys
from functools import partial

import anyio

from rigs.clients.install import NotInstalled
from rigs.code.kills import Plan, kills
from rigs.report import arguments, reported, say


def main() -> int:
    parser = arguments("code", __doc__)
    parser.add_argument("--scripts", type=int, default=200, help="scripts of 20 to 40 calls (200)")
    parser.add_argument("--hubs", type=int, default=2, help="hubs on one store (2)")
    parser.add_argument("--workers", type=int, default=8, help="scripts at a time (8)")
    parser.add_argument("--pause", type=float, default=1.5, help="seconds between two kills at most (1.5)")
    parser.add_argument("--lease", type=float, default=1.0, help="seconds of a replica's lease (1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--redis", action="store_true", help="replicas on one server in place of hubs on one folder")
    given = parser.parse_args()
    plan = Plan(
        given.scripts, given.hubs, given.workers, given.seed, pause=given.pause, lease=given.lease,
        on_server=given.redis,
    )  # fmt: skip
    try:
        outcome = anyio.run(partial(kills, plan, say=say))
    except NotInstalled as problem:
        print(f"skipped: {problem}")
        return 0
    return reported(outcome.lines(), outcome.faults, is_complete=sum(outcome.ended.values()) >= plan.scripts)


if __name__ == "__main__":
    sys.exit(main())
