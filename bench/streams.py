"""The measurements of durable streams: the hub with its streams in SQLite beside the hub with them in memory."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from bench import measure
from bench.cases import Figures, Named, Run, echoes, share, timed, warm
from bench.cold import idle, restart, settings, slow
from bench.follow import Event, Follower, call_request, check, follow_all, follow_request
from bench.ledger import RelayFailed, Stats, percentile
from bench.machinery import machinery
from bench.relays import STORES, Setup, Side

SSE = "Accept: text/event-stream"
# streams-replay, streams-latency
REPLAYED = 10_000
PER_SECOND = 1_000
# slow-reader: streams, followers of each, events a second of each, bytes of an event
BUSY, FOLLOWERS, BUSY_RATE, BUSY_BYTES = 4, 12, 100, 1_000
# and one of large events for the slow reader: more than the kernel takes in for it (4 MB); bytes that it takes itself
WIDE_BYTES, WINDOW = 40_000, 4_096


def throughput(run: Run, sides: list[Side]) -> None:
    """One call that sends as fast as it can, followed over REST from its first event to its end."""
    many = 2_000 if run.options.quick else 20_000

    def action(side: Side) -> tuple[Figures, Stats]:
        stats = Stats()
        request = call_request(side.tool("progress"), b'{"n":%d}' % many, SSE)
        before = measure.cpu_seconds(side.pid)
        follower = Follower(side.port, request).read_all()
        cpu = measure.cpu_seconds(side.pid) - before
        check(stats, follower.events(), many)
        rate = many / (follower.pieces[-1][0] - follower.begun)
        return {"cpu_us": cpu / many * 1e6, "rate": rate, "sent": many, "lost": stats.lost}, stats

    tried(sides, action)
    run.alternate("streams-throughput", "as fast as it can", sides, action)


def tried(sides: list[Side], action: Callable[[Side], object]) -> None:
    """A first run that is not measured; failures show in the measured ones."""
    for side in sides:
        try:
            action(side)
        except (RelayFailed, OSError):
            continue


def latency(run: Run, sides: list[Side]) -> None:
    """The time from a notification's sending by the upstream to its reader over REST, at a steady rate."""
    count = PER_SECOND // 2 if run.options.quick else PER_SECOND * 3

    def action(side: Side) -> tuple[Figures, Stats]:
        stats = Stats()
        arguments = b'{"n":%d,"per_second":%d,"bytes":0}' % (count, PER_SECOND)
        before = measure.cpu_seconds(side.pid)
        follower = Follower(side.port, call_request(side.tool("tick"), arguments, SSE)).read_all()
        cpu = measure.cpu_seconds(side.pid) - before
        taken = delays(check(stats, follower.events(), count))
        figures = {"p50_ms": percentile(taken, 0.5), "p99_ms": percentile(taken, 0.99), "lost": stats.lost}
        return {"cpu_us": cpu / count * 1e6} | figures, stats

    run.alternate("streams-latency", f"{PER_SECOND} events/s", sides, action)


def delays(steps: list[Event], since: float = 0.0) -> list[float]:
    """Milliseconds that the ticks sent after `since` have taken."""
    sent = ((event.at, float(event.line.data.message.partition(" ")[0])) for event in steps)
    return [(at - when) * 1e3 for at, when in sent if when >= since]


def replay(run: Run, sides: list[Side]) -> None:
    """A long stream that has ended, read again and again from its first event on."""
    count = REPLAYED // 10 if run.options.quick else REPLAYED
    times = 3 if run.options.quick else 10
    streams: dict[str, str] = {}

    def action(side: Side) -> tuple[Figures, Stats]:
        stats = Stats()
        if side.name not in streams:
            streams[side.name] = made(side, count)
        request = follow_request(streams[side.name])
        before = measure.cpu_seconds(side.pid)
        read = [Follower(side.port, request).read_all() for _ in range(times)]
        cpu = measure.cpu_seconds(side.pid) - before
        first, wall = [], []
        for follower in read:
            events = follower.events()
            check(stats, events, count)
            first.append((events[0].at - follower.begun) * 1e3)
            wall.append(events[-1].at - follower.begun)
        rate = count / measure.median(wall)
        figures = {"rate": rate, "first_ms": measure.median(first), "lost": float(stats.lost)}
        return {"cpu_us": cpu / (count * times) * 1e6} | figures, stats

    run.alternate("streams-replay", f"{count} events", sides, action)


def made(side: Side, count: int) -> str:
    """A stream with so many progress events, which has ended."""
    follower = Follower(side.port, call_request(side.tool("progress"), b'{"n":%d}' % count, SSE)).read_all()
    return follower.events()[0].line.stream


def slow_reader(run: Run, sides: list[Side]) -> None:
    """Fifty followers of busy streams that all read, and then fifty of which one does not."""
    seconds = 2 if run.options.quick else 4
    order = [False, True]
    tried(sides, lambda side: followed(side, Stats(), BUSY_RATE, is_slow=False))

    def action(side: Side) -> tuple[Figures, Stats]:
        stats = Stats()
        figures: Figures = {}
        for is_slow in order:
            figures |= followed(side, stats, seconds * BUSY_RATE, is_slow)
        if side is sides[-1]:
            order.reverse()
        return figures | {"lost": float(stats.lost)}, stats

    run.alternate(
        "slow-reader",
        f"{BUSY * FOLLOWERS + 2} followers of {BUSY + 1} streams",
        sides,
        action,
        1 if run.options.quick else 3,
    )


def followed(side: Side, stats: Stats, count: int, is_slow: bool) -> Figures:
    """Latency of those who read, and by how much the hub has grown when the last of them was through.

    Only what is sent when half of the time is over counts: then the slow one holds up whatever it can.
    """
    before = measure.rss_mb(side.pid)
    # what nobody follows may be merged: whoever makes the call is its first follower
    makers = [Follower(side.port, ticking(side, count, size)) for size in (*[BUSY_BYTES] * BUSY, WIDE_BYTES)]
    half = time.monotonic() + count / BUSY_RATE / 2
    *asked, asked_wide = [follow_request(maker.read_stream()) for maker in makers]
    last = Follower(side.port, asked_wide, WINDOW if is_slow else 0)
    others = [Follower(side.port, request) for request in asked for _ in range(FOLLOWERS - 1)]
    others += makers if is_slow else [*makers, last]
    follow_all(others)
    grown = measure.rss_mb(side.pid) - before
    taken = [delay for follower in others for delay in delays(check(stats, follower.events(), count), half)]
    if is_slow:
        # it finds everything once it reads
        check(stats, last.read_all().events(), count)
    p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
    kind = "one" if is_slow else "all"
    return {f"{kind}_p50_ms": p50, f"{kind}_p99_ms": p99, f"{kind}_grown_mb": grown}


def ticking(side: Side, count: int, size: int) -> bytes:
    arguments = b'{"n":%d,"per_second":%d,"bytes":%d}' % (count, BUSY_RATE, size)
    return call_request(side.tool("tick"), arguments, SSE)


def short_call(run: Run, sides: list[Side]) -> None:
    """Quiet echo calls, and whether anything is written for them. Many short rounds: it is about a few percent."""
    seconds, rounds = run.options.seconds / 3, run.options.rounds * 3
    for depth in (1, 32):

        def action(side: Side, depth: int = depth) -> tuple[Figures, Stats]:
            with watched(side) as written:
                figures, stats = timed(side, echoes(side, seconds), depth)
                return figures | {"writes": written()}, stats

        warm(sides, depth)
        run.alternate("short-call", f"{depth} in flight", sides, action, rounds)


@contextmanager
def watched(side: Side) -> Iterator[Callable[[], float]]:
    """Tells how many rows have been added to the side's file of streams, and at least 1 if anything was committed."""
    file = side.state / "streams.db"
    if side.name != "sqlite":
        yield lambda: float(file.exists())
        return
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as database:
        before = written(database)

        def added() -> float:
            rows, version = written(database)
            return float(max(abs(rows - before[0]), version != before[1]))

        yield added


def written(database: sqlite3.Connection) -> tuple[int, int]:
    """Rows of streams and events, and a number that changes with each commit of another connection."""
    (version,) = database.execute("PRAGMA data_version").fetchone()
    (rows,) = database.execute("SELECT (SELECT count(*) FROM streams) + (SELECT count(*) FROM chunks)").fetchone()
    return rows, version


def measure_streams(run: Run) -> None:
    """Every wanted case of durable streams, if the hub is to be measured at all."""
    if "hub" not in run.options.relays:
        return
    limits = ["limit"] if "limit" in run.options.relays else []
    named: Named = {"short-call": lambda sides: short_call(run, sides)}
    share(run, Setup("stdio"), named, [*limits, *STORES])
    if run.wants("short-call"):
        machinery(run)
    steady = {
        "streams-throughput": lambda sides: throughput(run, sides),
        "streams-latency": lambda sides: latency(run, sides),
        "streams-replay": lambda sides: replay(run, sides),
        "slow-reader": lambda sides: slow_reader(run, sides),
    }
    share(run, Setup("http"), steady, [*STORES], settings(run.options.hub))
    for case, measured in (("hub-restart", restart), ("idle-streams", idle), ("slow-streams", slow)):
        if run.wants(case):
            measured(run)
