"""The measurements. Every case alternates the sides (A B C A B C …) and keeps the median of its rounds."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import measure
from bench.ledger import Call, RelayFailed, Stats, percentile
from bench.load import PipeClient
from bench.relays import SLOW, Setup, Side, Unavailable, launched, started

Figures = dict[str, float]
Action = Callable[[Side], tuple[Figures, Stats]]
Named = dict[str, Callable[[list[Side]], None]]

MB = 1_000_000
LIST_TOOLS = 550
# seconds for a complete list, ten upstreams one after the other included
GIVE_UP = 30.0
TEXT = "the quick brown fox jumps over the lazy dog, and then it does so again, a hundred bytes long, "
# FastMCP's proxy of several servers starts all of them anew for every request: n in flight would be 10·n processes
RESPAWNS = "fastmcp"
# one lost event is one too many, however many rounds were clean
NEVER = ("lost", "late", "writes")
RELAYED = ("calls-stdio", "calls-http", "calls-modern", "upstreams", "large", "progress", "lists", "start", "memory")
# what only the hub can do, and how much of a short call that is
DURABLE = ("short-call", "streams-throughput", "streams-latency", "streams-replay", "slow-reader")
CASES = (*RELAYED, *DURABLE, "hub-restart", "idle-streams", "slow-streams")


@dataclass(frozen=True)
class Options:
    """What to measure, and for how long; `seconds` is the length of one round."""

    relays: list[str]
    hub: dict[str, object]
    only: list[str]
    quick: bool = False
    fixed_rounds: int = 0

    @property
    def rounds(self) -> int:
        return self.fixed_rounds or (2 if self.quick else 5)

    @property
    def seconds(self) -> float:
        return 0.15 if self.quick else 1.0


@dataclass
class Result:
    """One side in one variant of one case."""

    case: str
    variant: str
    side: str
    figures: Figures = field(default_factory=dict)
    failed: int = 0
    note: str = ""


class Run:
    """Collects the results of all cases, in the order in which they were measured."""

    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self.options = options
        self.results: list[Result] = []
        self.say = say
        self._said: set[str] = set()

    def wants(self, case: str) -> bool:
        return not self.options.only or case in self.options.only

    def absent(self, case: str, unavailable: dict[str, str]) -> None:
        """Notes the sides that could not be measured."""
        for side, reason in unavailable.items():
            self.results.append(Result(case, "", side, note=f"n/a: {reason}"))
            if (line := f"  {side}: n/a: {reason}") not in self._said:
                self._said.add(line)
                self.say(line)

    def alternate(self, case: str, variant: str, sides: list[Side], action: Action, rounds: int = 0) -> None:
        """Runs the action on every side in turn, round after round; medians become results."""
        self.say(f"  {case}: {variant}")
        rows = {side.name: Result(case, variant, side.name, note=remark(side)) for side in sides}
        samples: dict[str, list[Figures]] = {side.name: [] for side in sides}
        for _ in range(rounds or self.options.rounds):
            for side in sides:
                row = rows[side.name]
                if row.failed or side.broken:
                    continue
                try:
                    figures, stats = action(side)
                except (RelayFailed, OSError) as error:
                    # over HTTP one era may fail and the other work; a pipe is either sound or not
                    side.broken = not side.port or side.process.poll() is not None
                    row.failed, row.note = 1, f"failed: {error} ({side.reason()})"
                    continue
                row.failed += stats.failed
                side.broken = stats.broken
                row.note = f"failed: {stats.errors[0]}" if stats.errors else row.note
                samples[side.name].append(figures)
        for name, row in rows.items():
            if samples[name]:
                row.figures = merged(samples[name])
        self.results += rows.values()


def merged(samples: list[Figures]) -> Figures:
    """The median of every figure; of what must not happen at all, the worst."""
    return {
        key: max(values) if key in NEVER else measure.median(values)
        for key in samples[0]
        for values in [[sample[key] for sample in samples if key in sample]]
    }


def remark(side: Side) -> str:
    """What the reader of a row must know."""
    if side.broken:
        return "not measured: it failed before"
    if side.name == RESPAWNS and side.setup.upstreams > 1:
        return "it starts all upstreams anew for every request; calls: 1 in flight"
    return "over stdio" if side.name == "direct" and side.setup.front == "http" else ""


def echoes(side: Side, seconds: float = 0.0, count: int = 0) -> Iterator[Call]:
    """Echo calls over all upstreams in turn, for a time or for a number of calls (at least one)."""
    tools = [side.tool("echo", number) for number in range(side.setup.upstreams)]
    until = time.perf_counter() + seconds
    number = 0
    while True:
        text = f"{TEXT}{number}"
        yield Call(tools[number % len(tools)], b'{"text":"%b"}' % text.encode(), text)
        number += 1
        if number >= count and time.perf_counter() >= until:
            return


def timed(side: Side, calls: Iterator[Call], in_flight: int, modern: bool = False) -> tuple[Figures, Stats]:
    """One round of calls: CPU per call, calls per second, latency."""
    client = side.client(modern)
    client.prepare(in_flight)
    before = side.cpu_seconds()
    stats = client.run(calls, in_flight)
    cpu = side.cpu_seconds() - before
    done = max(1, stats.calls)
    figures = {
        "cpu_us": cpu / done * 1e6,
        "rate": stats.calls / stats.wall if stats.wall else 0.0,
        "p50_ms": percentile(stats.latencies, 0.5) * 1e3,
        "p99_ms": percentile(stats.latencies, 0.99) * 1e3,
    }
    return figures, stats


def calls(run: Run, case: str, sides: list[Side], modern: bool = False) -> None:
    """Echo calls at several depths, and 1,000 at once."""
    for depth in (1, 32) if run.options.quick else (1, 32, 256):

        def action(side: Side, depth: int = depth) -> tuple[Figures, Stats]:
            return timed(side, echoes(side, run.options.seconds), depth, modern)

        warm(sides, depth, modern)
        run.alternate(case, f"{depth} in flight", sides, action)

    def burst(side: Side) -> tuple[Figures, Stats]:
        count = 1000 if side.name in SLOW else 4000
        return timed(side, echoes(side, count=count), 1000, modern)

    # quick leaves out what takes seconds a round
    sides = [side for side in sides if not run.options.quick or side.name not in SLOW]
    warm(sides, 1000, modern)
    run.alternate(case, "1000 in flight", sides, burst, rounds=1 if run.options.quick else 3)


def warm(sides: list[Side], depth: int, modern: bool = False) -> None:
    """A first run that is not measured; failures show in the measured ones."""
    for side in sides:
        try:
            side.client(modern).run(echoes(side, count=max(20, depth)), depth)
        except (RelayFailed, OSError):
            continue


def upstreams(run: Run, sides: list[Side]) -> None:
    """Echo calls over n upstreams in turn."""
    setup = sides[0].setup
    depth = 32

    def action(side: Side) -> tuple[Figures, Stats]:
        respawns = side.name == RESPAWNS and setup.upstreams > 1
        return timed(side, echoes(side, run.options.seconds), 1 if respawns else depth)

    warm([side for side in sides if side.name != RESPAWNS], depth)
    variant = f"{setup.front}, {setup.upstreams} upstreams, {depth} in flight"
    run.alternate("upstreams", variant, sides, action)


def large(run: Run, sides: list[Side]) -> None:
    """Results of 1, 5 and 10 MB, one at a time."""
    for size, count in ((1, 20), (5, 6), (10, 3)):
        count = max(1, count // 4) if run.options.quick else count

        def action(side: Side, size: int = size, count: int = count) -> tuple[Figures, Stats]:
            text = "x" * (size * MB)
            call = Call(side.tool("big"), b'{"bytes":%d}' % len(text), text)
            figures, stats = timed(side, iter([call] * count), 1)
            figures["cpu_ms"] = figures.pop("cpu_us") / 1e3
            return figures, stats

        run.alternate("large", f"{sides[0].setup.front}, {size} MB", sides, action)


def progress(run: Run, sides: list[Side]) -> None:
    """One call that sends many notifications; `lost` counts those that had not come before the result."""
    many = 2_000 if run.options.quick else 20_000

    def action(side: Side) -> tuple[Figures, Stats]:
        count = many // 10 if side.name in SLOW else many
        call = Call(side.tool("progress"), b'{"n":%d}' % count, str(count), count)
        figures, stats = timed(side, iter([call]), 1)
        seconds = stats.latencies[0] if stats.latencies else 0.0
        on_time = stats.events - stats.late
        rate = on_time / seconds if seconds else 0.0
        # of a relay that drops them there is no cost of one
        each = {"cpu_us": figures["cpu_us"] / stats.events} if stats.events else {}
        return each | {"rate": rate, "sent": count, "lost": stats.lost, "late": stats.late}, stats

    run.alternate("progress", sides[0].setup.front, sides, action)


def lists(run: Run, sides: list[Side]) -> None:
    """The complete tool list, asked for again and again."""

    def action(side: Side) -> tuple[Figures, Stats]:
        stats = Stats()
        client = side.client()
        before, begun = side.cpu_seconds(), time.perf_counter()
        while stats.calls < 200 and (not stats.calls or time.perf_counter() - begun < run.options.seconds):
            sent = time.perf_counter()
            listing = client.list_tools()
            stats.latencies.append(time.perf_counter() - sent)
            stats.calls += 1
            if len(listing.names) < LIST_TOOLS:
                stats.fail(f"{len(listing.names)} tools listed, not {LIST_TOOLS}")
        cpu = side.cpu_seconds() - before
        p50 = percentile(stats.latencies, 0.5) * 1e3
        return {"cpu_ms": cpu / stats.calls * 1e3, "p50_ms": p50, "bytes": listing.size}, stats

    setup = sides[0].setup
    run.alternate("lists", f"{setup.front}, {LIST_TOOLS} tools, {setup.upstreams} upstreams", sides, action)


def memory(run: Run, sides: list[Side]) -> None:
    """Resident memory when idle, and before and after many calls."""
    many = 10_000 if run.options.quick else 100_000

    def action(side: Side) -> tuple[Figures, Stats]:
        count = many // 10 if side.name in SLOW else many
        before = measure.rss_mb(side.pid)
        stats = side.client().run(echoes(side, count=count), 32)
        after = measure.rss_mb(side.pid)
        figures = {"idle_mb": side.idle_rss, "before_mb": before, "after_mb": after, "calls": float(stats.calls)}
        return figures | {"all_mb": side.rss_mb()}, stats

    warm(sides, 200)
    run.alternate("memory", sides[0].setup.front, sides, action, rounds=1)


def start(run: Run) -> None:
    """Spawn to `initialize` answered, and to the first complete list of ten slow upstreams; stdio."""
    delay = 0.3 if run.options.quick else 1.0
    start_variant(run, "1 upstream", Setup("stdio"), run.options.relays)
    relays = [relay for relay in run.options.relays if relay not in (SLOW if run.options.quick else ())]
    relays = [relay for relay in relays if relay != "direct"]
    start_variant(run, f"10 upstreams that take {delay:g} s", Setup("stdio", 10, delay=delay), relays)


def start_variant(run: Run, variant: str, setup: Setup, relays: list[str]) -> None:
    """Cold starts of every relay in turn."""
    run.say(f"  start: {variant}")
    samples: dict[str, list[Figures]] = {relay: [] for relay in relays}
    for _ in range(run.options.fixed_rounds or (1 if run.options.quick else 3)):
        for relay in relays:
            try:
                samples[relay].append(start_once(relay, setup, run.options.hub))
            except (Unavailable, RelayFailed, OSError) as error:
                run.absent("start", {relay: str(error)})
    for relay, found in samples.items():
        if found:
            run.results.append(Result("start", variant, relay, merged(found)))


def start_once(relay: str, setup: Setup, hub: dict[str, object]) -> Figures:
    """One cold start: a fresh state folder, so nothing is known of the upstreams."""
    with TemporaryDirectory(prefix="bench-") as stamps:
        begun = time.monotonic()
        with started(relay, replace(setup, stamps=stamps), hub) as side:
            client = PipeClient(side.process)
            client.initialize()
            initialized = time.monotonic()
            while len(client.list_tools().names) < setup.upstreams * setup.tools:
                if time.monotonic() - begun > GIVE_UP:
                    raise RelayFailed(f"no complete list in {GIVE_UP:g} s")
                time.sleep(0.01)
            listed = time.monotonic()
        # a relay may have started some of them more than once: only the first starts count
        up = sorted(float(file.read_text()) for file in Path(stamps).iterdir())[: setup.upstreams]
    figures = {"init_s": initialized - begun, "list_s": listed - begun}
    return figures | {"over_s": listed - up[-1], "spread_s": up[-1] - up[0]}


def on_one(run: Run, front: str) -> None:
    """All cases that need one upstream behind this front share one set of processes."""
    named: Named = {f"calls-{front}": lambda sides: calls(run, f"calls-{front}", sides)}
    if front == "http":
        named["calls-modern"] = lambda sides: calls(run, "calls-modern", sides, modern=True)
    named["upstreams"] = lambda sides: upstreams(run, sides)
    named["large"] = lambda sides: large(run, sides)
    named["progress"] = lambda sides: progress(run, sides)
    named["memory"] = lambda sides: memory(run, sides)
    share(run, Setup(front), named)


def on_many(run: Run, front: str) -> None:
    """The cases with ten and with thirty upstreams."""
    named: Named = {"upstreams": lambda sides: upstreams(run, sides)}
    listing: Named = {"lists": lambda sides: lists(run, sides)}
    share(run, Setup(front, 10, LIST_TOOLS // 10), named | listing)
    if not run.options.quick:
        share(run, Setup(front, 30), named)


def share(
    run: Run, setup: Setup, named: Named, relays: Sequence[str] = (), hub: dict[str, object] | None = None
) -> None:
    """Launches the sides once (`relays`, or those that the options name) and runs the wanted cases on them."""
    wanted = {name: case for name, case in named.items() if run.wants(name)}
    if not wanted:
        return
    unavailable: dict[str, str] = {}
    run.say(f"{setup.front}, {setup.upstreams} upstream(s) of {setup.tools} tools")
    left_out = {"direct", RESPAWNS} if run.options.quick else {"direct"}
    names = relays or [name for name in run.options.relays if setup.upstreams == 1 or name not in left_out]
    with launched(names, setup, run.options.hub if hub is None else hub, unavailable) as sides:
        for name, case in wanted.items():
            run.absent(name, unavailable)
            if sides:
                case(sides)


def measure_all(run: Run) -> None:
    """Every wanted case, in an order that starts as few processes as possible."""
    for front in ("stdio", "http"):
        on_one(run, front)
        on_many(run, front)
    if run.wants("start"):
        start(run)
