"""The goals, and what this run says of each: `met`, `missed`, or that nothing here measures it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bench.cases import Result

# "flat" allows this much for noise
FLAT = 1.25
# ten processes started in parallel on two cores are up within this many seconds of each other
APART = 0.5
# the same, of two figures that should be one
SAME = 1.1
# MB that a reader which does not read may hold: its share of the store's cache, and the noise
HELD = 4
# seconds from the start until what a killed hub has left behind is closed: serving, and a look into the store
CLOSED = 5
STDIO, HTTP, MODERN = "calls-stdio", "calls-http", "calls-modern"
ONE, MANY, MOST = "1 in flight", "32 in flight", "1000 in flight"
SQLITE, FASTEST, STEADY = "sqlite", "as fast as it can", "1000 events/s"
STAGES = "goals (first: for the first release; then, next: the steps after it; aim: beyond these)"
FOLLOWER = ("follower_kb", "follower over SSE", 16)


class Lookup:
    """The figures by case, variant and side; a side that failed has none."""

    def __init__(self, results: Iterable[Result]) -> None:
        self._results = {(result.case, result.variant, result.side): result for result in results}

    def __call__(self, case: str, variant: str, side: str, figure: str) -> float | None:
        result = self._results.get((case, variant, side))
        return result.figures.get(figure) if result and not result.failed else None

    def failed(self, case: str, variant: str, side: str) -> float | None:
        result = self._results.get((case, variant, side))
        return float(result.failed) if result and (result.failed or result.figures) else None

    def every(self, case: str, variant: str, figure: str) -> list[float]:
        """The figure of all sides that have it."""
        rows = [row for (*place, _), row in self._results.items() if place == [case, variant] and not row.failed]
        return [row.figures[figure] for row in rows if figure in row.figures]

    def every_side(self, side: str) -> list[Result]:
        """What was measured of a side."""
        return [result for (*_, found), result in self._results.items() if found == side and not result.failed]

    def variants(self, case: str) -> list[str]:
        return list(dict.fromkeys(variant for found, variant, _ in self._results if found == case and variant))


@dataclass(frozen=True)
class Goal:
    """One line of the list; `reached` is None when its figures are not there."""

    stage: str
    text: str
    reached: float | None
    bound: float
    unit: str
    at_least: bool = False

    @property
    def verdict(self) -> str:
        if self.reached is None:
            return "n/a"
        met = self.reached >= self.bound if self.at_least else self.reached <= self.bound
        return "met" if met else "missed"

    def line(self) -> str:
        sign = "≥" if self.at_least else "≤"
        reached = "–" if self.reached is None else f"{shown(self.reached)}{self.unit}"
        return f"  {self.verdict:6}  {self.stage:5}  {self.text}: {reached} (goal {sign} {self.bound:,g}{self.unit})"


def shown(value: float) -> str:
    """Three digits, and all of those before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def divided(over: float | None, under: float | None) -> float | None:
    return over / under if over is not None and under else None


def ratio(look: Lookup, case: str, variant: str, side: str, figure: str) -> float | None:
    """The hub's figure as a multiple of that side's."""
    return divided(look(case, variant, "hub", figure), look(case, variant, side, figure))


def saving(look: Lookup, case: str, variant: str, side: str) -> float | None:
    """How many times less CPU the hub takes than that side."""
    return divided(look(case, variant, side, "cpu_us"), look(case, variant, "hub", "cpu_us"))


def cpu(look: Lookup) -> Iterator[Goal]:
    def hub(case: str) -> float | None:
        return look(case, MANY, "hub", "cpu_us")

    one, many = ratio(look, STDIO, ONE, "limit", "cpu_us"), ratio(look, STDIO, MANY, "limit", "cpu_us")
    yield Goal("first", "stdio CPU per call at 1 in flight, to the limit", one, 2.5, " ×")
    yield Goal("first", "stdio CPU per call at 32 in flight", hub(STDIO), 30, " µs")
    for side, depth, bound in (("sdk", ONE, 10), ("sdk", MANY, 30), ("fastmcp", ONE, 18), ("fastmcp", MANY, 55)):
        text = f"stdio CPU per call at {depth}, less than {side}"
        yield Goal("first", text, saving(look, STDIO, depth, side), bound, " ×", at_least=True)
    yield Goal("then", "stdio CPU per call at 1 in flight, to the limit", one, 1.5, " ×")
    yield Goal("then", "stdio CPU per call at 32 in flight, to the limit", many, 3, " ×")
    for case, era in ((HTTP, "handshake"), (MODERN, "modern")):
        yield Goal("first", f"HTTP {era} CPU per call at 32 in flight", hub(case), 150, " µs")
        for side, bound in (("sdk", 8), ("fastmcp", 20)):
            text = f"HTTP {era} CPU per call at 32 in flight, less than {side}"
            yield Goal("first", text, saving(look, case, MANY, side), bound, " ×", at_least=True)
        reached = ratio(look, case, MANY, "limit", "cpu_us")
        yield Goal("then", f"HTTP {era} CPU per call at 32 in flight, to the ASGI limit", reached, 2, " ×")


def throughput(look: Lookup) -> Iterator[Goal]:
    for case, share in ((STDIO, 20), (HTTP, 25), (MODERN, 25)):
        reached = ratio(look, case, MANY, "limit", "rate")
        percent = None if reached is None else reached * 100
        yield Goal("first", f"{case}: share of the limit's calls/s at 32", percent, share, " %", at_least=True)
    for case in (STDIO, HTTP, MODERN):
        failed = look.failed(case, MOST, "hub")
        yield Goal("first", f"{case}: failures of 1,000 concurrent calls", failed, 0, "")
        growth = divided(look(case, MOST, "hub", "cpu_us"), look(case, MANY, "hub", "cpu_us"))
        yield Goal("first", f"{case}: CPU per call at 1,000 in flight, to that at 32", growth, FLAT, " ×")
    for front in ("stdio", "http"):
        found = [variant for variant in look.variants("upstreams") if variant.startswith(f"{front},")]
        for variant in found[1:]:
            few, many = (look("upstreams", name, "hub", "cpu_us") for name in (found[0], variant))
            yield Goal("first", f"CPU per call with {variant}, to 1", divided(many, few), FLAT, " ×")


def latency(look: Lookup) -> Iterator[Goal]:
    for case, bound in ((STDIO, 0.1), (HTTP, 0.3), (MODERN, 0.3)):
        hub, direct = (look(case, ONE, side, "p50_ms") for side in ("hub", "direct"))
        added = None if hub is None or direct is None else hub - direct
        yield Goal("first", f"{case}: latency added to direct, p50, 1 in flight", added, bound, " ms")


def streams(look: Lookup) -> Iterator[Goal]:
    for front in ("stdio", "http"):
        rate, lost, cost = (look("progress", front, "hub", figure) for figure in ("rate", "lost", "cpu_us"))
        yield Goal("first", f"{front}: progress forwarded", rate, 50_000, "/s", at_least=True)
        yield Goal("first", f"{front}: progress lost or reordered", lost, 0, "")
        yield Goal("first", f"{front}: CPU per progress notification", cost, 20, " µs")
    for variant in look.variants("large"):
        reached = ratio(look, "large", variant, "limit", "cpu_ms")
        yield Goal("first", f"result over {variant}, CPU to the limit", reached, 1.5, " ×")
    for variant in look.variants("lists"):
        yield Goal("first", f"warm list, {variant}, CPU", look("lists", variant, "hub", "cpu_ms"), 1, " ms")


def start_and_memory(look: Lookup) -> Iterator[Goal]:
    for variant in look.variants("start"):
        if variant == "1 upstream":
            reached = look("start", variant, "hub", "init_s")
            yield Goal("first", "spawn to initialize answered", reached, 0.9, " s")
            yield Goal("then", "spawn to initialize answered", reached, 0.5, " s")
        else:
            over, spread = (look("start", variant, "hub", figure) for figure in ("over_s", "spread_s"))
            yield Goal("first", f"complete list after the last of {variant} is up", over, 0.3, " s")
            yield Goal("first", f"first to last of {variant} up (parallel)", spread, APART, " s")
    for front in look.variants("memory"):
        idle, before, after = (look("memory", front, "hub", name) for name in ("idle_mb", "before_mb", "after_mb"))
        yield Goal("first", f"{front}: idle memory", idle, 90, " MB")
        if front == "stdio":
            yield Goal("then", f"{front}: idle memory", idle, 60, " MB")
        yield Goal("first", f"{front}: memory after many calls, to that before", divided(after, before), 1.05, " ×")


def durable(look: Lookup) -> Iterator[Goal]:
    """Streams that survive: in SQLite, which is the default."""
    for depth in (ONE, MANY):
        cost = divided(look("short-call", depth, SQLITE, "cpu_us"), look("short-call", depth, "memory", "cpu_us"))
        yield Goal("first", f"short call, {depth}, CPU with SQLite to that with memory", cost, SAME, " ×")
        yield Goal("first", f"short call, {depth}, writes", look("short-call", depth, SQLITE, "writes"), 0, "")
    call, task = (look("short-call", "in one process", side, "cpu_us") for side in (SQLITE, "task"))
    added = None if call is None or task is None else call - task
    yield Goal("first", "short call, what the machinery of calls and streams adds", added, 50, " µs")
    rate, lost = (look("streams-throughput", FASTEST, SQLITE, figure) for figure in ("rate", "lost"))
    yield Goal("first", "events committed and read over REST", rate, 20_000, "/s", at_least=True)
    yield Goal("first", "events lost, repeated or reordered", lost, 0, "")
    for figure, bound in (("p50_ms", 10), ("p99_ms", 100)):
        text = f"sent to committed to read at {STEADY}, {figure[:3]}"
        yield Goal("first", text, look("streams-latency", STEADY, SQLITE, figure), bound, " ms")
    for variant in look.variants("streams-replay"):
        rate, first = (look("streams-replay", variant, SQLITE, figure) for figure in ("rate", "first_ms"))
        yield Goal("first", f"replay of {variant}", rate, 100_000, "/s", at_least=True)
        yield Goal("first", f"replay of {variant}, the first one there", first, 25, " ms")
    yield from many_streams(look)


def many_streams(look: Lookup) -> Iterator[Goal]:
    for variant in look.variants("slow-reader"):
        one, all_ = (look("slow-reader", variant, SQLITE, f"{kind}_p99_ms") for kind in ("one", "all"))
        yield Goal("first", f"{variant}, one does not read: p99 of the others", divided(one, all_), 1.5, " ×")
        one, all_ = (look("slow-reader", variant, SQLITE, f"{kind}_grown_mb") for kind in ("one", "all"))
        more = None if one is None or all_ is None else one - all_
        yield Goal("first", f"{variant}, one does not read: memory for it", more, HELD, " MB")
    for variant in look.variants("hub-restart"):
        serving, closed = (look("hub-restart", variant, SQLITE, figure) for figure in ("serving_s", "closed_s"))
        yield Goal("first", f"hub started {variant}: serving", serving, 1.5, " s")
        if "SIGKILL" in variant:
            yield Goal("first", f"hub started {variant}: these closed", closed, CLOSED, " s")
    for variant in look.variants("idle-streams"):
        figure, what, bound = ("stream_kb", "stream of a quiet call", 2) if "stdio" in variant else FOLLOWER
        yield Goal("first", f"memory of one idle {what}", look("idle-streams", variant, SQLITE, figure), bound, " kB")
    for variant in look.variants("slow-streams"):
        cost, held = (look("slow-streams", variant, SQLITE, figure) for figure in ("cpu_us", "stream_kb"))
        yield Goal("first", f"{variant}: CPU of an event", cost, 80, " µs")
        yield Goal("first", f"{variant}: memory of one", held, 20, " kB")


def provider_formats(look: Lookup) -> Iterator[Goal]:
    for variant in look.variants("formats-export"):
        for figure, what, bound in (("export_ms", "first", 50), ("kept_ms", "kept", 1)):
            reached = max(look.every("formats-export", variant, figure), default=None)
            yield Goal("first", f"export of {variant}, {what}, CPU in the slowest format", reached, bound, " ms")
    for variant in look.variants("formats-calls"):
        reached = max(look.every("formats-calls", variant, "ratio"), default=None)
        yield Goal("first", "CPU per call in the slowest format, to the plain REST call", reached, 1.2, " ×")


def attached(look: Lookup) -> Iterator[Goal]:
    """Clients that join a background hub."""
    start, plain = (look("attach-start", "a hub runs", side, "init_s") for side in ("attached", "python -c pass"))
    trip = look("attach-start", "a hub runs", "attached", "trip_ms")
    own = None if start is None or trip is None else start - trip / 1e3
    text = "attached: spawn to initialize answered, less a round trip, to python -c pass"
    yield Goal("first", text, divided(own, plain), 1.5, " ×")
    yield Goal(
        "first", "attached: memory of a client", look("attach-start", "a hub runs", "attached", "idle_mb"), 20, " MB"
    )
    for depth in (ONE, MANY):
        both, alone = (look("attach-calls", depth, side, "cpu_us") for side in ("attached", "hub"))
        more = None if both is None or alone is None else both - alone
        reached = divided(more, look("attach-calls", depth, "limit", "cpu_us"))
        yield Goal("first", f"attached: CPU that joining adds, {depth}, to the limit", reached, 1.3, " ×")


def sandboxed(look: Lookup) -> Iterator[Goal]:
    """Servers in a sandbox."""
    variant = "a program that writes a line"
    plain = look("sandbox-start", variant, "off", "start_ms")
    for side in ("on", "net: [hosts]"):
        start = look("sandbox-start", variant, side, "start_ms")
        more = None if start is None or plain is None else start - plain
        yield Goal("first", f"what a sandbox ({side}) adds to a start", more, 15, " ms")
    for depth in (ONE, MANY):
        inside, outside = (look("sandbox-calls", depth, side, "cpu_us") for side in ("sandboxed", "hub"))
        yield Goal(
            "first", f"CPU of a call in a sandbox, {depth}, to one without", divided(inside, outside), SAME, " ×"
        )


def history(look: Lookup) -> Iterator[Goal]:
    """The history of calls."""
    for side, bound in (("arguments none", 1.03), ("arguments full", 1.08)):
        ratio = look("history-calls", ONE, side, "ratio")
        yield Goal("first", f"CPU of a call with {side}, {ONE}, to that with history off", ratio, bound, " ×")
    for variant in look.variants("history-texts"):
        more, size = (look("history-texts", variant, "arguments full", figure) for figure in ("more_us", "kept_kb"))
        each = divided(more, size)
        yield Goal("first", f"CPU of the history for each kB of {variant}", each, 12, " µs")
    for variant in look.variants("history-read"):
        slowest = max(look.every("history-read", variant, "read_ms"), default=None)
        yield Goal("first", f"filters over {variant}, the slowest", slowest, 50, " ms")


def gates(look: Lookup) -> Iterator[Goal]:
    """Limits of calls, and the audit."""
    plain = look("gates-calls", ONE, "no gates", "cpu_us")
    for side, bound in (("rate", 5), ("audit hash", 20)):
        gated = look("gates-calls", ONE, side, "cpu_us")
        more = None if gated is None or plain is None else gated - plain
        yield Goal("first", f"CPU that {side} adds to a call, {ONE}", more, bound, " µs")


def near_the_limit(look: Lookup) -> Iterator[Goal]:
    """What a call, an event and a large result cost, to the limit: without the history where that was measured."""
    side = "history off" if look.every_side("history off") else "hub"
    of = "" if side == "hub" else " (history off)"
    for case, depth, goal, aim in (
        (STDIO, ONE, 1.8, 1.5),
        (STDIO, MANY, 3.0, 2.2),
        (HTTP, ONE, 2.4, 1.8),
        (HTTP, MANY, 3.5, 2.5),
    ):
        reached = divided(look(case, depth, side, "cpu_us"), look(case, depth, "limit", "cpu_us"))
        yield from stages(f"{case}: CPU per call, {depth}{of}, to the limit", reached, goal, aim, " ×")
    for front, goal in (("stdio", 4), ("http", 5)):
        reached = divided(look("progress", front, side, "cpu_us"), look("progress", front, "limit", "cpu_us"))
        yield from stages(f"{front}: CPU per progress notification{of}, to the limit", reached, goal, 3, " ×")
    for front, goal in (("stdio", 1.3), ("http", 1.5)):
        variant = f"{front}, 5 MB"
        reached = divided(look("large", variant, side, "cpu_ms"), look("large", variant, "limit", "cpu_ms"))
        yield from stages(f"result over {variant}{of}, CPU to the limit", reached, goal, 1.1, " ×")


def single_costs(look: Lookup) -> Iterator[Goal]:
    """Start, commands, memory, sessions, and the first list of many servers."""
    init = look("start", "1 upstream", "hub", "init_s")
    yield from stages("spawn to initialize answered", init, 0.25, 0.18, " s")
    for name in look.variants("commands"):
        spent = divided(look("commands", name, "hub", "cpu_ms"), 1e3)
        yield from stages(f"mcp-hub {name}, CPU", spent, 0.2, 0.12, " s")
    for front, goal, aim in (("stdio", 50, 40), ("http", 56, 45)):
        yield from stages(f"{front}: idle memory", look("memory", front, "hub", "idle_mb"), goal, aim, " MB")
    for variant in look.variants("sessions"):
        yield from stages(f"{variant}, each", look("sessions", variant, "hub", "session_kb"), 25, 15, " kB")
    for variant in look.variants("many-servers"):
        listed = look("many-servers", variant, "hub", "list_s")
        yield from stages(f"first list of {variant}", listed, 0.6, 0.4, " s")


def stages(text: str, reached: float | None, goal: float, aim: float, unit: str) -> Iterator[Goal]:
    """A goal and what lies beyond it; neither where nothing was measured."""
    if reached is not None:
        yield Goal("next", text, reached, goal, unit)
        yield Goal("aim", text, reached, aim, unit)


PARTS = (
    cpu,
    throughput,
    latency,
    streams,
    start_and_memory,
    durable,
    provider_formats,
    attached,
    sandboxed,
    history,
    gates,
    near_the_limit,
    single_costs,
)


def goals(results: Iterable[Result]) -> list[Goal]:
    """All goals of which this run can say something."""
    look = Lookup(results)
    return [goal for part in PARTS for goal in part(look)]


def verdicts(results: Iterable[Result]) -> list[str]:
    """The goals as lines, and a count."""
    found = goals(results)
    counts = {verdict: sum(goal.verdict == verdict for goal in found) for verdict in ("met", "missed", "n/a")}
    lines = ["", STAGES, *(goal.line() for goal in found)]
    lines.append("  not measured here: kills by the hundred, and who may read what; the tests see to these")
    return [*lines, "", "  " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items())]
