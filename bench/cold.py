"""The measurements of durable streams for which a hub is started anew: starting again, and memory."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from bench import measure
from bench.cases import Figures, Result, Run, merged
from bench.follow import Follower, Requests, StreamList, follow_request
from bench.ledger import Call, RelayFailed, Stats
from bench.relays import STORES, Setup, Side, Unavailable, await_port, spawn

# what the cases need above the defaults: long streams that are kept whole, and many calls without a client
LIMITS = {"stream_events": 200_000, "detached_calls": 2_000}
# hub-restart: streams that have ended, and such as are left behind by a kill
ENDED, LEFT = 1_000, 20
# seconds: until a hub serves again, until what was left behind is closed
SERVING, CLOSING = 30.0, 15.0
# idle-streams: calls over stdio, calls over REST and their followers
CALLS, DETACHED = 1_000, 500
# seconds: calls are younger than 250 ms at the first look, have streams at the second, and still run then
YOUNG, OLD = 0.2, 1.2
SETTLED = 0.5
ROUNDS = 3
# arguments of a call that does not end by itself here
QUIET = b'{"ms":3600000}'
# slow-streams: streams, events a second of each, seconds
TALKING, TICKS, TALK = 1_000, 2, 10.0


class _Length(msgspec.Struct):
    last: int


def restart(run: Run) -> None:
    """A hub is started again on the state folder that one before it has left."""
    ended = ENDED // 10 if run.options.quick else ENDED
    for sign, left in ((signal.SIGKILL, LEFT), (signal.SIGTERM, 0)):
        variant = f"after {sign.name}: {ended} ended, {left} left behind"
        alternate_cold(run, "hub-restart", variant, partial(restarted, run, sign=sign, ended=ended, left=left))


def restarted(run: Run, store: str, *, sign: signal.Signals, ended: int, left: int) -> tuple[Figures, Stats]:
    """One restart on a folder with streams that have ended, and with such as had not when the hub was killed."""
    stats = Stats(calls=1)
    with TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        with one(run, store, Setup("http"), Path(folder)) as side, Requests(side.port) as requests:
            for _ in range(ended):
                requests.begin(side.tool("echo"), b'{"text":"x"}')
            streams = [requests.begin(side.tool("slow"), QUIET) for _ in range(left)]
            time.sleep(SETTLED)
            asked = time.monotonic()
            side.process.send_signal(sign)
            side.process.wait(SERVING)
            figures = {"stop_s": time.monotonic() - asked}
        begun = time.monotonic()
        side = spawn(store, Setup("http"), Path(folder) / store, settings(run.options.hub))
        try:
            await_port(side)
            with Requests(side.port) as requests:
                answer = requests.get("/v1/tools")
                figures["serving_s"] = time.monotonic() - begun
                figures["cpu_ms"] = measure.cpu_seconds(measure.python_process(side.process.pid)) * 1e3
                if answer.status != 200 or b"e0_echo" not in answer.body:
                    stats.fail(f"GET /v1/tools: HTTP {answer.status} {answer.body[:200]!r}")
                if store != "memory":
                    figures["closed_s"] = closed(requests, streams, stats, begun)
                    kept(requests, ended + left, stats)
        finally:
            side.stop()
    return figures, stats


def kept(requests: Requests, count: int, stats: Stats) -> None:
    """No stream of the hub before is missing or still open."""
    found = msgspec.json.decode(requests.get("/v1/streams?limit=1000").body, type=StreamList).streams
    if len(found) < min(count, 1000) or any(info.status == "working" for info in found):
        stats.fail(f"{len(found)} of {count} streams listed, {sorted({info.status for info in found})}")


def closed(requests: Requests, left: list[str], stats: Stats, begun: float) -> float:
    """Seconds until every stream that was left behind has its ending; it is then looked at."""
    while True:
        found = msgspec.json.decode(requests.get(f"/v1/streams?limit={LEFT}").body, type=StreamList).streams
        statuses = {info.stream: info.status for info in found}
        taken = time.monotonic() - begun
        if all(statuses.get(id_) == "failed" for id_ in left):
            break
        if taken > CLOSING:
            stats.fail(f"not all closed in {CLOSING:g} s: {sorted(set(statuses.values()))}")
            break
        time.sleep(0.02)
    for id_ in left:
        body = requests.get(f"/v1/streams/{id_}/events").body
        if body.count(b'"type":"error"') != 1 or b"hub_restart" not in body or b'"closed":true' not in body:
            stats.fail(f"a stream that was left behind: {body[:300]!r}")
    return taken


def idle(run: Run) -> None:
    """What a call that only runs, its stream and a follower hold: by how much a new hub grows for many of them."""
    calls, detached = (CALLS // 2, DETACHED // 2) if run.options.quick else (CALLS, DETACHED)
    alternate_cold(run, "idle-streams", f"stdio, {calls} calls", partial(idle_calls, run, count=calls))
    variant = f"REST, {detached} calls and followers"
    alternate_cold(run, "idle-streams", variant, partial(idle_followers, run, count=detached))


def idle_calls(run: Run, store: str, *, count: int) -> tuple[Figures, Stats]:
    """Calls over stdio: a look while they have no streams yet, and one when they have."""
    with TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        with one(run, store, Setup("stdio"), Path(folder)) as side:
            client = side.client()
            client.run(slow_calls(side, 20, 300), 20)  # its store is in use already
            outcome: list[Stats] = []
            thread = threading.Thread(target=lambda: outcome.append(client.run(slow_calls(side, count, 2000), count)))
            before = measure.rss_mb(side.pid)
            thread.start()
            time.sleep(YOUNG)
            young = measure.rss_mb(side.pid)
            time.sleep(OLD - YOUNG)
            old = measure.rss_mb(side.pid)
            thread.join()
    return {"call_kb": (young - before) / count * 1e3, "stream_kb": (old - young) / count * 1e3}, outcome[0]


def slow_calls(side: Side, count: int, milliseconds: int) -> Iterator[Call]:
    for _ in range(count):
        yield Call(side.tool("slow"), b'{"ms":%d}' % milliseconds, "slow")


def idle_followers(run: Run, store: str, *, count: int) -> tuple[Figures, Stats]:
    """Calls that nobody waits for, and then one follower of each."""
    stats = Stats()
    with TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        with one(run, store, Setup("http"), Path(folder)) as side, Requests(side.port) as requests:
            first = Follower(side.port, follow_request(requests.begin(side.tool("slow"), QUIET)))
            first.read_stream()
            time.sleep(SETTLED)
            before = measure.rss_mb(side.pid)
            streams = [requests.begin(side.tool("slow"), QUIET) for _ in range(count)]
            time.sleep(SETTLED)
            running = measure.rss_mb(side.pid)
            followers = []
            for stream in streams:  # one after the other: what is asked for is what an idle one holds, not a rush
                followers.append(Follower(side.port, follow_request(stream)))
                followers[-1].read_stream()
            time.sleep(SETTLED)
            after = measure.rss_mb(side.pid)
            for follower in [first, *followers]:
                follower.close()
    stats.calls += count
    return {"detached_kb": (running - before) / count * 1e3, "follower_kb": (after - running) / count * 1e3}, stats


def slow(run: Run) -> None:
    """What an event costs at a low rate: many streams that nobody follows, each with two events a second."""
    count = TALKING // 4 if run.options.quick else TALKING
    variant = f"{count} streams, {TICKS} events/s each"
    alternate_cold(run, "slow-streams", variant, partial(slow_streams, run, count=count))


def slow_streams(run: Run, store: str, *, count: int) -> tuple[Figures, Stats]:
    """CPU of the hub for each event, with what reading it from its server costs, and how much a stream holds."""
    stats = Stats()
    seconds = TALK / 4 if run.options.quick else TALK
    until = int((seconds + 60) * TICKS)
    with TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        with one(run, store, Setup("http"), Path(folder)) as side, Requests(side.port) as requests:
            first = requests.begin(side.tool("tick"), b'{"n":%d,"per_second":%d,"bytes":20}' % (until, TICKS))
            time.sleep(SETTLED)
            before = measure.rss_mb(side.pid)
            streams = [first]
            for number in range(1, count):
                arguments = b'{"n":%d,"per_second":%d,"bytes":20}' % (until + number % 7, TICKS)
                streams.append(requests.begin(side.tool("tick"), arguments))
            time.sleep(SETTLED * 4)
            events, cpu = stored(requests, streams), measure.cpu_seconds(side.pid)
            time.sleep(seconds)
            used, held = measure.cpu_seconds(side.pid) - cpu, measure.rss_mb(side.pid) - before
            made = stored(requests, streams) - events
            if made < 0.9 * count * TICKS * seconds:
                stats.fail(f"{made} events of {count} streams in {seconds:g} s")
    stats.calls += count
    return {"cpu_us": used / made * 1e6, "stream_kb": held / count * 1e3}, stats


def stored(requests: Requests, streams: list[str]) -> int:
    """Events of every tenth of these streams, ten times."""
    return 10 * sum(
        msgspec.json.decode(requests.get(f"/v1/streams/{id_}").body, type=_Length).last for id_ in streams[::10]
    )


def settings(hub: dict[str, object]) -> dict[str, object]:
    """The hub's configuration, with limits for these cases."""
    given = hub.get("limits")
    return hub | {"limits": LIMITS | (given if isinstance(given, dict) else {})}


@contextmanager
def one(run: Run, store: str, setup: Setup, folder: Path) -> Iterator[Side]:
    """A hub with that store, listed."""
    side = spawn(store, setup, folder / store, settings(run.options.hub))
    try:
        if side.port:
            await_port(side)
        side.learn()
        yield side
    finally:
        side.stop()


def alternate_cold(run: Run, case: str, variant: str, action: Callable[[str], tuple[Figures, Stats]]) -> None:
    """The same as `Run.alternate` for what starts a hub of its own each time."""
    run.say(f"  {case}: {variant}")
    rows = {store: Result(case, variant, store) for store in STORES}
    samples: dict[str, list[Figures]] = {store: [] for store in STORES}
    for _ in range(1 if run.options.quick else ROUNDS):
        for store, row in rows.items():
            try:
                figures, stats = action(store)
            except Unavailable as error:
                run.absent(case, {store: str(error)})
                return
            except (RelayFailed, OSError) as error:
                row.failed, row.note = row.failed + 1, f"failed: {error}"
                continue
            row.failed += stats.failed
            row.note = f"failed: {stats.errors[0]}" if stats.errors else row.note
            samples[store].append(figures)
    for store, row in rows.items():
        if samples[store]:
            row.figures = merged(samples[store])
    run.results += rows.values()
