"""`python -m bench --replicas`: what replicas on one Redis or Valkey server cost, and how fast news travels.

All processes share this machine's cores with the load: events a second say what the cores allow, the CPU of each
process says what more of them would.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median

from redis import Redis
from redis.client import Monitor

from bench import measure
from bench.cases import echoes, timed, warm
from bench.cold import TALK, TALKING, TICKS, settings, stored
from bench.follow import ENDINGS, Event, Follower, Requests, call_request, follow_all, follow_request
from bench.ledger import RelayFailed, percentile
from bench.load import CLIENT_INFO, HANDSHAKE
from bench.relays import Setup, launched
from bench.replica_site import Site, Totals, site

_SSE = "Accept: text/event-stream"
_STREAMS, _RATE, _SECONDS = 4, 250, 4
"""Streams at a time, events a second of each, and for how long."""
_FAST = 20_000
_ACROSS = 100
_FOLLOWERS = (1, 16)
_SESSIONS, _REQUESTS = 20, 10
INITIALIZE: dict[str, object] = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": CLIENT_INFO}


def measured(hub: dict[str, object], quick: bool, say: Callable[[str], None]) -> Iterator[str]:
    """The lines of the report, table by table. Raises: `NotInstalled`, `RelayFailed`."""
    yield "1,000 events/s: 4 streams of 250/s through the balancer, each with its caller and one follower"
    yield f"{'':12}{'hubs':>8}{'each':>8}{'server':>8}{'balancer':>10}{'commands':>10}{'read B':>8}{'written B':>10}"
    for count in (1, 2, 4):
        say(f"{count} replicas, steady")
        with site(count, hub) as running:
            yield line_of(count, *steady(running))
    yield "  CPU in ms for 1,000 events; commands (inside scripts, too) and bytes at the server for each event"
    yield ""
    many = TALKING // 4 if quick else TALKING
    yield f"{many} streams of {TICKS} events/s each, begun at the replicas in turn, which nobody follows"
    for count in (1, 3):
        say(f"{count} replicas, many slow streams")
        with site(count, settings(hub)) as running:
            yield line_of(count, *slow(running, many, TALK / 2 if quick else TALK))
    yield ""
    events = 2_000 if quick else _FAST
    yield f"as fast as it can: 4 calls of {events:,} events through the balancer, each read by its caller"
    for count in (1, 2, 4):
        say(f"{count} replicas, fast")
        with site(count, hub) as running:
            rate = fast(running, events)
            yield f"  {named_count(count)}: {rate:,.0f} events/s (bounded by {os.cpu_count()} cores for all processes)"
    with site(2, hub) as running:
        yield ""
        yield "from one replica to the other, ms"
        for name, measure_one in (("an event", across), ("a cancel", cancels), ("an answer", answers)):
            say(name)
            taken = measure_one(running, _ACROSS // 10 if quick else _ACROSS)
            yield f"  {name}: p50 {percentile(taken, 0.5):.1f}, p99 {percentile(taken, 0.99):.1f} ({len(taken)} times)"
        yield ""
        yield "followers of 8 streams of 50 events/s on the replica that does not run them"
        for each in _FOLLOWERS:
            say(f"{each} followers")
            yield f"  {followers(running, each)}"
        yield ""
        say("sessions")
        yield from sessions(running)
    yield from short_calls(hub, quick, say)


def line_of(count: int, spent: Totals, events: int, taken: list[float]) -> str:
    per = 1e6 / events
    hubs = sum(spent.hubs) * per
    cells = f"{hubs:8.1f}{hubs / count:8.1f}{spent.server * per:8.1f}{spent.balancer * per:10.1f}"
    cells += f"{spent.commands.total() / events:10.2f}{spent.read / events:8,.0f}{spent.written / events:10,.0f}"
    if not taken:
        return f"  {named_count(count):10}{cells}"
    follower = f"follower p50 {percentile(taken, 0.5):.1f} ms, p99 {percentile(taken, 0.99):.1f} ms"
    return f"  {named_count(count):10}{cells}   {follower}"


def named_count(count: int) -> str:
    return f"{count} replica{'s' if count > 1 else ''}"


def steady(running: Site) -> tuple[Totals, int, list[float]]:
    """What streams at a steady rate cost: the totals, the events, and the ms that each took to its follower."""
    count = _RATE * _SECONDS
    tool = running.sides[0].tool("tick")
    arguments = b'{"n":%d,"per_second":%d,"bytes":0}' % (count, _RATE)
    before = running.totals()
    callers = [Follower(running.port, call_request(tool, arguments, _SSE)) for _ in range(_STREAMS)]
    others = [Follower(running.port, follow_request(caller.read_stream())) for caller in callers]
    follow_all([*callers, *others])
    spent = running.totals().since(before)
    for caller in callers:
        complete(caller.events(), count)
    return spent, count * _STREAMS, [delay for other in others for delay in delays(complete(other.events()))]


def slow(running: Site, count: int, seconds: float) -> tuple[Totals, int, list[float]]:
    """What streams cost that say little: the totals, and the events."""
    arguments = b'{"n":%d,"per_second":%d,"bytes":20}' % (int((seconds + 60) * TICKS), TICKS)
    with ExitStack() as stack:
        doors = [stack.enter_context(Requests(side.port)) for side in running.sides]
        tool = running.sides[0].tool("tick")
        streams = [doors[number % len(doors)].begin(tool, arguments) for number in range(count)]
        time.sleep(2.0)
        events, before = stored(doors[0], streams), running.totals()
        time.sleep(seconds)
        spent = running.totals().since(before)
        return spent, stored(doors[0], streams) - events, []


def complete(events: list[Event], count: int | None = None) -> list[Event]:
    """The progress of a stream that has all of its events, and so many. Raises `RelayFailed`."""
    seqs = [event.line.seq for event in events[:-1]]
    steps = [event for event in events if event.line.type == "progress"]
    if seqs != list(range(1, len(events))) or events[-2].line.type not in ENDINGS:
        raise RelayFailed(f"the events of a stream are not whole: {seqs[:5]} to {seqs[-5:]}")
    if count is not None and len(steps) != count:
        raise RelayFailed(f"{len(steps)} of {count} events")
    return steps


def delays(steps: list[Event]) -> list[float]:
    """Milliseconds from the sending by the upstream to the reader."""
    return [(step.at - float(step.line.data.message.partition(" ")[0])) * 1e3 for step in steps]


def fast(running: Site, count: int) -> float:
    """Events a second."""
    request = call_request(running.sides[0].tool("progress"), b'{"n":%d}' % count, _SSE)
    begun = time.monotonic()
    callers = [Follower(running.port, request) for _ in range(_STREAMS)]
    follow_all(callers)
    seconds = time.monotonic() - begun
    for caller in callers:
        complete(caller.events(), count)
    return count * _STREAMS / seconds


# -- from one replica to the other


def across(running: Site, count: int) -> list[float]:
    """One event a time, followed on the other replica."""
    owner, other = running.sides
    arguments = b'{"n":%d,"per_second":20,"bytes":0}' % count
    caller = Follower(owner.port, call_request(owner.tool("tick"), arguments, _SSE))
    follower = Follower(other.port, follow_request(caller.read_stream()))
    follow_all([caller, follower])
    return delays(complete(follower.events(), count))


def cancels(running: Site, count: int) -> list[float]:
    """From a cancel at the one replica to the ending there; the call runs on the other one."""
    owner, other = running.sides
    found = []
    with Requests(owner.port) as begins, Requests(other.port) as asks:
        for _ in range(count):
            stream = begins.begin(owner.tool("slow"), b'{"ms":60000}')
            follower = Follower(other.port, follow_request(stream))
            follower.read_stream()
            begun = time.monotonic()
            answer = asks.send(f"DELETE /v1/streams/{stream} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            found.append(ending_after(follower, begun, answer.status == 202 or answer.status == 200, answer.body))
    return found


def answers(running: Site, count: int) -> list[float]:
    """From an answer at the one replica to the result there; the call that asks runs on the other one."""
    owner, other = running.sides
    found = []
    with Requests(owner.port) as begins, Requests(other.port) as asks:
        for _ in range(count):
            stream = begins.begin(owner.tool("ask_form", 1), b"{}")
            key = question(asks, stream)
            follower = Follower(other.port, follow_request(stream))
            follower.read_stream()
            body = json.dumps({"key": key, "action": "accept", "content": {"name": "Ada"}}).encode()
            head = f"POST /v1/streams/{stream}/input HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            begun = time.monotonic()
            answer = asks.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            found.append(ending_after(follower, begun, answer.status == 202, answer.body))
    return found


def question(asks: Requests, stream: str) -> str:
    """The key of its open question, once it is there."""
    until = time.monotonic() + 10
    while time.monotonic() < until:
        known = json.loads(asks.get(f"/v1/streams/{stream}").body)
        if known.get("questions"):
            return str(known["questions"][0]["key"])
        time.sleep(0.01)
    raise RelayFailed("a call does not ask")


def ending_after(follower: Follower, begun: float, is_taken: bool, body: bytes) -> float:
    """Milliseconds to the ending that the follower sees."""
    if not is_taken:
        raise RelayFailed(f"refused: {body[:200]!r}")
    follower.read_all()
    (ending,) = [event for event in follower.events() if event.line.type in ENDINGS]
    return (ending.at - begun) * 1e3


# -- followers, sessions, short calls


def followers(running: Site, each: int) -> str:
    """What so many followers of each of eight streams cost where they are."""
    owner, other = running.sides
    count = 50 * _SECONDS
    request = call_request(owner.tool("tick"), b'{"n":%d,"per_second":50,"bytes":0}' % count, _SSE)
    callers = [Follower(owner.port, request) for _ in range(8)]
    streams = [caller.read_stream() for caller in callers]
    rss, before = measure.rss_mb(other.pid), running.totals()
    reading = [Follower(other.port, follow_request(stream)) for stream in streams for _ in range(each)]
    follow_all([*callers, *reading])
    spent, grown = running.totals().since(before), measure.rss_mb(other.pid) - rss
    delivered = sum(len(complete(follower.events())) for follower in reading)
    made = 8 * count
    return (
        f"{len(reading):4} followers: {spent.hubs[1] / delivered * 1e6:.0f} µs CPU for each event and follower; "
        f"for each event {spent.commands.total() / made:.2f} commands and {spent.written / made:,.0f} bytes from the "
        f"server; {grown:+.1f} MB"
    )


def sessions(running: Site) -> Iterator[str]:
    """Commands that name a handshake session, by a look at all that the server is sent."""
    begun, used = [], []
    with (
        Requests(running.sides[0].port) as first,
        Requests(running.sides[1].port) as second,
        running.server.client as client,
        client.monitor() as monitor,
    ):
        for _ in range(_SESSIONS):
            answer = first.send(posted("initialize", INITIALIZE))
            id_ = answer.headers[b"mcp-session-id"].decode()
            begun.append(named(client, monitor, id_))
            for _ in range(_REQUESTS):
                answer = second.send(posted("tools/list", {}, f"Mcp-Session-Id: {id_}\r\n"))
                if b'"tools"' not in answer.body:
                    raise RelayFailed(f"a session on another replica: HTTP {answer.status} {answer.body[:200]!r}")
            used.append(named(client, monitor, id_))
    yield (
        f"a handshake session: {median(begun):g} commands when it begins, {median(used):g} for its first {_REQUESTS} "
        "requests on another replica"
    )


def posted(method: str, params: dict[str, object], headers: str = "") -> bytes:
    """A request of the handshake era."""
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    head = f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{headers}"
    accept = "Accept: application/json, text/event-stream\r\n"
    return f"{head}{accept}Content-Length: {len(body)}\r\n\r\n".encode() + body


def named(client: Redis, monitor: Monitor, id_: str) -> int:
    """How many commands have come that name it; not those inside scripts."""
    client.echo(f"until {id_}")
    count = 0
    while "until" not in (seen := monitor.next_command())["command"]:  # type: ignore[no-untyped-call]  # so in redis-py
        count += id_ in seen["command"] and seen["client_type"] != "lua"
    return count


def short_calls(hub: dict[str, object], quick: bool, say: Callable[[str], None]) -> Iterator[str]:
    """Quiet echo calls on one replica beside a hub with its streams in memory, and the commands for them."""
    rounds, seconds = (5, 0.2) if quick else (25, 0.4)
    setup = Setup("http")
    with site(1, hub, setup) as running, launched(["memory"], setup, hub, {}) as memory:
        sides = [running.sides[0], *memory]
        for depth in (1, 32):
            say(f"short calls, {depth} in flight")
            warm(sides, depth)
            samples: list[list[float]] = [[], []]
            before, calls = running.totals().commands, 0
            for _ in range(rounds):
                for side, sample in zip(sides, samples, strict=True):
                    figures, stats = timed(side, echoes(side, seconds), depth)
                    sample.append(figures["cpu_us"])
                    calls += stats.calls if side is sides[0] else 0
            commands = running.totals().commands - before
            ours, theirs = median(samples[0]), median(samples[1])
            yield (
                f"a short call, {depth} in flight: {ours:.1f} µs CPU with the server, {theirs:.1f} µs in memory "
                f"({ours / theirs:.3f} ×); {commands.total()} commands during {calls} calls ({listed(commands)})"
            )


def listed(commands: Counter[str]) -> str:
    return ", ".join(f"{count} {name.removeprefix('cmdstat_')}" for name, count in commands.most_common(6))
