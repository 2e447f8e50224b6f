"""`make chaos`: prints what 200 kills did to streams and tasks; exit code 1 when anything was lost.

In its long form (`--minutes M --write FILE`) runs follow each other until the time is over or one finds a fault, and
what the file has of earlier ones is added up.

`make chaos CHAOS=--redis` does the same to replicas on one Redis or Valkey: 50 kills of an owner, 20 pauses longer than
the lease, 20 kills of the server, 20 flips of the balancer, 20 cuts of one replica from the server, and 20 steps of a
clock.
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import anyio
import msgspec

from rigs.chaos.chaos import chaos
from rigs.chaos.jobs import Job
from rigs.chaos.replicas import Plan, replicas
from rigs.clients.install import NotInstalled
from rigs.report import arguments, head, reported, say


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
    parser.add_argument("--seed", type=int, default=1, help="of the first run (1); the next ones count on")
    parser.add_argument("--write", type=Path, metavar="FILE", help="a file that each run adds its figures to")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where the logs of the replicas stay (nowhere)")
    parser.add_argument("--minutes", type=float, default=0.0, help="further runs begin within this time (none)")
    return parser.parse_args()


def main() -> int:
    given, began, worst = options(), time.monotonic(), 0
    while not worst:
        worst = on_server(given) if given.redis else on_folder(given)
        given.seed += 1
        if time.monotonic() - began >= given.minutes * 60:
            break
    return worst


def on_folder(given: argparse.Namespace) -> int:
    kills = 200 if given.kills is None else given.kills
    outcome = anyio.run(partial(chaos, kills=kills, hubs=given.hubs, workers=given.workers, seed=given.seed, say=say))
    added = written(given.write, "folder", {"kills": outcome.kills}, outcome.jobs, outcome.faults)
    return reported([*outcome.lines(), *added], outcome.faults, is_complete=outcome.kills >= kills)


class _Run(msgspec.Struct):
    """A line of the file: `counts` has kills, cuts, streams, events, faults."""

    store: str
    head: str
    counts: dict[str, int]


def written(
    file: Path | None, store: str, done: dict[str, int], jobs: Sequence[Job], faults: Sequence[str]
) -> list[str]:
    """Adds a run to the file; lines with the sums of all runs there."""
    if file is None:
        return []
    begun = [job for job in jobs if job.stream]
    counts = {**done, "streams": len(begun), "events": sum(len(job.lines) for job in begun), "faults": len(faults)}
    with file.open("ab") as end:
        end.write(msgspec.json.encode(_Run(store, head(), counts)) + b"\n")
    runs = [msgspec.json.decode(line, type=_Run) for line in file.read_bytes().splitlines()]
    sums: dict[str, Counter[str]] = {}
    for run in runs:
        sums.setdefault(run.store, Counter()).update(run.counts)
    heads = ", ".join(dict.fromkeys(run.head for run in runs))
    every = (f"{store}: {', '.join(f'{count} {name}' for name, count in sum_.items())}" for store, sum_ in sums.items())
    return [f"{file}: {len(runs)} runs of {heads}", *(f"  {line}" for line in every)]


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
        outcome = anyio.run(partial(replicas, plan, keep=given.keep, say=say))
    except NotInstalled as problem:
        print(f"skipped: {problem}")
        return 0
    asked = (plan.kills, plan.zombies, plan.outages, plan.flips, plan.cuts, plan.steps)
    added = written(given.write, "server", outcome.done, outcome.jobs, outcome.faults)
    lines = [*outcome.lines(), *added]
    return reported(lines, outcome.faults, is_complete=tuple(outcome.done.values()) == asked)


if __name__ == "__main__":
    sys.exit(main())
