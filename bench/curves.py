"""`python -m bench.curves`: CPU and memory of the hub over servers, tools, sessions, streams and the size of events.

Prints for each cost its points, and the exponent p of y = c + a·xᵖ: 1 is linear, 0 does not grow. A curve takes three
minutes at most (`--quick`: half a minute, with few points); points that would come later are left out. Exit code 1
when a cost grows faster than linearly or an answer was wrong; nothing about the time of this machine is asserted.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench import measure
from bench.__main__ import names, prepare
from bench.cases import echoes
from bench.cold import QUIET, SETTLED
from bench.costs import opened, with_room
from bench.fit import LEAST, Fit, fit
from bench.follow import Requests
from bench.ledger import Call, RelayFailed, Stats
from bench.load import PipeClient
from bench.relays import Setup, Side, Unavailable, await_port, spawn
from bench.report import machine_lines

# the list of 200 servers is one page, as that of one server is
HUB: dict[str, object] = {"expose": "full", "prefix": "always", "max_result_tokens": 0, "page_size": 2000}
# no limit is to be met
LIMITS = {"detached_calls": 20_000, "running_calls": 20_000, "tools_per_server": 50_000, "stream_events": 200_000}
# seconds for a curve, with --quick
SECONDS, QUICK = 150.0, 30.0
# seconds until a list of many servers is complete
LIST_LIMIT = 90.0
# seconds between looks at it: each one is work of the hub, too
ASK = 1.0
CALLS = 5_000
# where a hub has its files, if there is such a folder: ext4 gives no number of a file again that was removed a moment
# ago, and looks at each of them for every new file; so many starts in a row would be measured as one that is worse
# than linear
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
# turns of which a point is the median, where one differs from the next by a tenth
TURNS = 3
# seconds in which lists are asked for again and again, so many times, and those of these that only warm up
LISTING, LISTINGS, WARMING = 0.4, 5, 2
# a hub is quiet when it uses less than this share of a core for so long, which is more than it waits before it searches
# all texts for flags; at the latest after so many seconds
IDLE, LOOK, QUIET_LIMIT = 0.01, 1.5, 15.0
# seconds for which an idle hub is watched, one with calls for a heartbeat of each, and how many more are made then
WATCHED, BEATEN, FEW = 2.0, 10.0, 30
# of what is less than this, in its unit, nothing is said
LEAST_COST = 0.1
# events of one point and how many a second: slow enough that each goes alone and none is merged for a slow reader
EVENTS, PER_SECOND = 12, 6

Costs = dict[str, float]
"""Name with unit → value, above 0."""
Curve = Generator[tuple[int, Costs], None, None]


@contextmanager
def hub(relay: str, setup: Setup) -> Iterator[Side]:
    """A hub that nobody has asked anything. Raises RelayFailed, Unavailable."""
    with TemporaryDirectory(prefix="bench-", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        side = spawn(relay, setup, Path(folder) / relay, with_room(HUB | {"limits": LIMITS}))
        try:
            if side.port:
                await_port(side)
            yield side
        finally:
            side.stop()


def listed(side: Side) -> None:
    """Waits for the tools of every server."""
    client = PipeClient(side.process)
    client.initialize()
    until, wanted = time.monotonic() + LIST_LIMIT, side.setup.upstreams * side.setup.tools
    while (count := len(client.list_tools().names)) < wanted:
        if time.monotonic() > until:
            raise RelayFailed(f"{count} of {wanted} tools listed in {LIST_LIMIT:g} s")
        time.sleep(ASK)


def sound(stats: Stats) -> Stats:
    """Raises RelayFailed when an answer or an event was wrong or missing."""
    if stats.failed or stats.lost:
        raise RelayFailed(stats.errors[0] if stats.errors else f"{stats.lost} events lost")
    return stats


def idle_share(side: Side, seconds: float = WATCHED) -> float:
    """CPU seconds in a second in which nobody asks for anything."""
    before = side.cpu_seconds()
    time.sleep(seconds)
    return (side.cpu_seconds() - before) / seconds


def each_call(side: Side, count: int = CALLS) -> float:
    """CPU µs of an echo call, over all servers in turn."""
    client = side.client()
    sound(client.run(echoes(side, count=max(count // 10, side.setup.upstreams)), 32))
    before = side.cpu_seconds()
    sound(client.run(echoes(side, count=count), 32))
    return (side.cpu_seconds() - before) / count * 1e6


def each_list(side: Side) -> float:
    """CPU µs of the complete list of tools."""
    side.client().list_tools()
    costs = []
    for _ in range(LISTINGS):
        before, until, count = side.cpu_seconds(), time.monotonic() + LISTING, 0
        while not count or time.monotonic() < until:
            side.client().list_tools()
            count += 1
        costs.append((side.cpu_seconds() - before) / count * 1e6)
    return median(costs[WARMING:])


def quiet(side: Side) -> float:
    """CPU ms of the hub since it was started, once it has finished what it does by itself."""
    until = time.monotonic() + QUIET_LIMIT
    before = side.cpu_seconds()
    while time.monotonic() < until:
        time.sleep(LOOK)
        now = side.cpu_seconds()
        if now - before < IDLE * LOOK:
            break
        before = now
    return side.cpu_seconds() * 1e3


def of_start(relay: str, setup: Setup) -> Costs:
    """A start until the list is complete and nothing more is done, a list and a call then."""
    with hub(relay, setup) as side:
        listed(side)
        side.learn()
        costs = {"start, CPU ms": quiet(side), "memory, MB": measure.rss_mb(side.pid)}
        return costs | {"list, CPU µs": each_list(side), "call, CPU µs": each_call(side)}


def over_servers(relay: str, points: tuple[int, ...]) -> Curve:
    yield from by_turns(points, lambda count: of_start(relay, Setup("stdio", count)))


def by_turns(points: tuple[int, ...], costs: Callable[[int], Costs]) -> Curve:
    """The medians of several turns over all points: a machine may get slower while it is busy.

    Of memory the least, since a hub keeps what a point before has taken.
    """
    turns: dict[int, list[Costs]] = {point: [] for point in points}
    for _ in range(TURNS):
        for point in points:
            turns[point].append(costs(point))
    for point, found in turns.items():
        typical = {cost: min if cost.endswith("MB") else median for cost in found[0]}
        yield point, {cost: choose([one[cost] for one in found]) for cost, choose in typical.items()}


def over_tools(relay: str, points: tuple[int, ...]) -> Curve:
    for count in points:
        yield count, of_start(relay, Setup("stdio", tools=count))


def over_sessions(relay: str, points: tuple[int, ...]) -> Curve:
    """Sessions of one hub, each with one list, so many more each time."""
    with hub(relay, Setup("http")) as side:
        side.learn()
        yield from grown(side, points, lambda count: opened(side.port, count))


def over_streams(relay: str, points: tuple[int, ...]) -> Curve:
    """Calls that nobody waits for and that do not end, each with its stream."""
    with hub(relay, Setup("http")) as side, Requests(side.port) as requests:
        side.learn()

        def begin(count: int) -> None:
            for _ in range(count):
                requests.begin(side.tool("slow"), QUIET)

        yield from grown(side, points, begin)


def grown(side: Side, points: tuple[int, ...], more: Callable[[int], None]) -> Curve:
    """One hub that gets so many: memory and idle CPU then, and the CPU of one more.

    The cost of all is linear when that of one more is constant.
    """
    quiet(side)
    there = 0
    for count in points:
        more(count - there)
        time.sleep(SETTLED)
        memory, idle = measure.rss_mb(side.pid), idle_share(side, BEATEN)
        begun, before = time.monotonic(), side.cpu_seconds()
        more(FEW)
        spent = side.cpu_seconds() - before - idle * (time.monotonic() - begun)
        there = count + FEW
        yield count, {"one more, CPU µs": spent / FEW * 1e6, "idle, CPU ms/s": idle * 1e3, "memory, MB": memory}


def over_size(relay: str, points: tuple[int, ...]) -> Curve:
    """Progress notifications of so many bytes, over stdio and over HTTP."""
    with hub(relay, Setup("stdio")) as pipes, hub(relay, Setup("http")) as http:
        idle: dict[str, float] = {}
        for side in (pipes, http):
            side.learn()
            quiet(side)
            idle[side.setup.front] = idle_share(side)

        def each(size: int) -> Costs:
            costs: Costs = {}
            for side in (pipes, http):
                arguments = b'{"n":%d,"per_second":%d,"bytes":%d}' % (EVENTS, PER_SECOND, size)
                before, begun = side.cpu_seconds(), time.monotonic()
                call = Call(side.tool("tick"), arguments, str(EVENTS), EVENTS)
                sound(side.client().run(iter([call]), 1))
                spent = side.cpu_seconds() - before - idle[side.setup.front] * (time.monotonic() - begun)
                costs[f"event, {side.setup.front}, CPU µs"] = spent / EVENTS * 1e6
                costs[f"memory, {side.setup.front}, MB"] = measure.rss_mb(side.pid)
            return costs

        yield from by_turns(points, each)


CURVES: dict[str, tuple[Callable[[str, tuple[int, ...]], Curve], tuple[int, ...], tuple[int, ...]]] = {
    "servers": (over_servers, (1, 5, 20, 50, 100, 200), (1, 3, 10, 20)),
    "tools": (over_tools, (10, 100, 1_000, 5_000, 20_000), (10, 100, 500, 2_000)),
    "sessions": (over_sessions, (1, 50, 200, 1_000, 2_500, 5_000), (1, 50, 200, 500)),
    "streams": (over_streams, (1, 50, 200, 1_000, 2_500, 5_000), (1, 50, 200, 500)),
    "event size": (over_size, (100, 1_000, 10_000, 100_000, 1_000_000), (100, 1_000, 10_000, 100_000)),
}
"""Name → how it is measured, its points, and those of --quick."""


def measured(name: str, relay: str, quick: bool, say: Callable[[str], None]) -> list[tuple[int, Costs]]:
    """The points of a curve, as far as there is time for them. Raises RelayFailed, Unavailable."""
    way, usual, few = CURVES[name]
    points, found = few if quick else usual, list[tuple[int, Costs]]()
    until = time.monotonic() + (QUICK if quick else SECONDS)
    with closing(way(relay, points)) as curve:
        for point in curve:
            say(f"  {name}: {point[0]:,}")
            found.append(point)
            if time.monotonic() > until:
                break
    return found


def fits(points: list[tuple[int, Costs]]) -> dict[str, Fit]:
    """The fit of each cost; none where there are too few points."""
    if len(points) < LEAST:
        return {}
    return {cost: fit([(x, max(costs[cost], LEAST_COST)) for x, costs in points]) for cost in points[0][1]}


def lines(name: str, points: list[tuple[int, Costs]], found: dict[str, Fit]) -> list[str]:
    """A curve as a table: a row for each cost, a column for each point, then what the fit says."""
    costs = list(points[0][1]) if points else []
    width = max(map(len, [name, *costs]))
    said = ["", f"{name:{width}}  " + "".join(f"{x:>11,}" for x, _ in points)]
    for cost in costs:
        cells = "".join(f"{values[cost]:11,.1f}" for _, values in points)
        said.append(f"{cost:{width}}  {cells}  " + told(found.get(cost)))
    return said


def told(found: Fit | None) -> str:
    if found is None:
        return "too few points"
    return f"p = {found.exponent:.2f} above {found.constant:,.1f} (±{found.error:.0%}): {found.verdict}"


def save(file: Path, curves: dict[str, object]) -> None:
    """Adds the curves to the document, which may have the figures of a run already."""
    document = json.loads(file.read_text()) if file.exists() else {"machine": measure.machine()}
    file.write_text(json.dumps(document | {"curves": curves}, indent=1, ensure_ascii=False) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.curves", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few points")
    parser.add_argument("--only", type=names(tuple(CURVES)), default=list(CURVES), help=", ".join(CURVES))
    parser.add_argument("--relay", choices=("hub", "before"), default="hub", help="before: what BENCH_BEFORE names")
    parser.add_argument("--json", type=Path, metavar="FILE", help="add them to this file")
    given = parser.parse_args()
    prepare()
    begun, is_good, kept = time.perf_counter(), True, dict[str, object]()

    def say(line: str) -> None:
        print(f"{time.perf_counter() - begun:5.0f} s  {line}", file=sys.stderr, flush=True)

    print("\n".join(machine_lines(measure.machine())), flush=True)
    for name in given.only:
        try:
            points = measured(name, given.relay, given.quick, say)
        except (RelayFailed, Unavailable, OSError) as problem:
            is_good = False
            print(f"\n{name}: {problem}", flush=True)
            continue
        found = fits(points)
        is_good = is_good and all(one.is_linear_or_better for one in found.values())
        print("\n".join(lines(name, points, found)), flush=True)
        exponents = {cost: one.exponent for cost, one in found.items()}
        kept[name] = {"points": [{"x": x, **costs} for x, costs in points], "exponents": exponents}
    if given.json:
        save(given.json, kept)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
