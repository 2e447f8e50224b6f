"""`make chaos`: prints what 200 kills did to streams and tasks; exit code 1 when anything was lost.

`make chaos CHAOS=--redis` does the same to replicas on one Redis or Valkey: 50 kills of an owner, 20 pauses longer than
the lease, 20 kills of the server, 20 flips of the balancer, 20 cuts of one replica from the server, and 20 steps of a
clock.
"""

import argparse
import sys
from functools import partial

import anyio

from rigs.chaos.chaos import chaos
from rigs.chaos.replicas import Plan, replicas
from rigs.clients.install import NotInstalled
from rigs.report import arguments, reported, say


def options() -> argparse.Namespace:
    parser = arguments("chaos", __doc__)
    parser.add_argument("--redis", action="store_true", help="replicas on one server in place of hubs on one folder")
    parser.add_argument("--kills", type=int, help="kills of a hub (200; 50 with --redis)")
    parser.add_argument("--zombies", type=int, default=20, help="replicas paused for longer than their lease (20)")
    parser.add_argument("--outages", type=int, default=20, help="kills of the server (20)")
    parser.add_argument("--flips", type=int, default=20, help="flips of the balancer (20)")
    parser.add_argument("--cuts", type=int, default=20, help="cuts of one replica from the server (20)")
    parser.add_argument("--steps", type=int, default=20, help="steps of the wall clock of one replica (20)")
    parser.add_argument("--talks", type=float, default=0.4, help="share of calls that ask or are a session's (0.4)")
    parser.add_argument("--lease", type=float, default=3.0, help="seconds of a replica's lease (3)")
    parser.add_argument("--fsync", default="everysec", help="the appendfsync of the server (everysec)")
    parser.add_argument("--hubs", type=int, default=3, help="hubs on one store (3)")
    parser.add_argument("--workers", type=int, default=12, help="jobs at a time (12)")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def main() -> int:
    given = options()
    if given.redis:
        return on_server(given)
    kills = 200 if given.kills is None else given.kills
    outcome = anyio.run(partial(chaos, kills=kills, hubs=given.hubs, workers=given.workers, seed=given.seed, say=say))
    return reported(outcome.lines(), outcome.faults, is_complete=outcome.kills >= kills)


def on_server(given: argparse.Namespace) -> int:
    plan = Plan(
        kills=50 if given.kills is None else given.kills,
        zombies=given.zombies,
        outages=given.outages,
        flips=given.flips,
        cuts=given.cuts,
        steps=given.steps,
        talks=given.talks,
        lease=given.lease,
        replicas=given.hubs,
        fsync=given.fsync,
        workers=given.workers,
        seed=given.seed,
    )
    try:
        outcome = anyio.run(partial(replicas, plan, say=say))
    except NotInstalled as problem:
        print(f"skipped: {problem}")
        return 0
    asked = (plan.kills, plan.zombies, plan.outages, plan.flips, plan.cuts, plan.steps)
    return reported(outcome.lines(), outcome.faults, is_complete=tuple(outcome.done.values()) == asked)


if __name__ == "__main__":
    sys.exit(main())
