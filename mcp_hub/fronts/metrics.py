"""`GET /metrics` for Prometheus, sampled at each scrape. Durations follow OpenTelemetry's conventions for MCP."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcp_hub.errors import Busy
from mcp_hub.fronts.http.endpoints import Serve, page
from mcp_hub.hub import BOUNDS, Durations, Figures, Load, LoadFigure, MethodFigures
from mcp_hub.types import OWN, Kind, StoreState, UpstreamState, UpstreamStatus

_HUB: Final = "(hub)"
"""The label of the hub's own tools: no server can have this name."""
_STORES: Final = ("durable", "memory", "out_of_use")
_UNDER_WAY: Final[Mapping[LoadFigure, str]] = {
    "calls_running": "Calls that run at a server.",
    "calls_waiting": "Calls that wait for their turn (hub.limits.running_calls).",
    "streams": "Running calls that are durable streams.",
    "followers": "Readers of running durable streams, by cursor.",
}
_FINDINGS: Final = ("changed", "new", "unreadable")


class _Sampled(Protocol):
    """The hub, as it is measured."""

    def figures(self) -> Figures: ...

    @property
    def store(self) -> StoreState: ...

    def statuses(self, profile: str | None) -> list[UpstreamStatus]: ...

    def entries(self, server: str) -> Mapping[Kind, int]:
        """The entries of the server's last lists, by kind."""

    def unapproved(self) -> Iterable[tuple[str, str]]:
        """Server and kind of each tool."""

    def quarantined(self) -> Iterable[str]:
        """The server of each malformed definition."""

    def reloads(self) -> tuple[int, int, float | None]:
        """Reloads applied, reloads refused, time of the last."""


class Metrics:
    """The route. `refusals` are counted by status. Callers with a profile see its servers."""

    def __init__(self, sampled: _Sampled, version: str) -> None:
        self.refusals: Counter[int] = Counter()
        self._sampled = sampled
        self._version = version
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._process = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)
        GCCollector(registry=self._process)

    def measure(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Adds a gauge `mcp_hub_<name>`; a counter, if that ends with `_total`."""
        self._gauges[name] = description, value

    @property
    def routes(self) -> Mapping[str, Serve]:
        return {"/metrics": page(Route("/metrics", self._scraped, methods=["GET"]))}

    async def _scraped(self, request: Request) -> Response:
        body, media = self.rendered(request.scope["caller"].profile, request.headers.get("accept", ""))
        return Response(body, headers={"content-type": media})

    def rendered(self, profile: str | None, accept: str = "") -> tuple[bytes, str]:
        """The text and its media type, OpenMetrics if accepted."""
        encode, media = choose_encoder(accept)
        return encode(_Once(self._families(profile))), media

    def _families(self, profile: str | None) -> Iterator[Metric]:
        statuses = self._sampled.statuses(profile)
        load, methods = self._sampled.figures()
        names = {status.server for status in statuses}
        yield InfoMetricFamily("mcp_hub", "The hub.", {"version": self._version})
        yield from self._of_hub()
        yield from _of_servers(statuses, self._sampled)
        yield from _of_sandboxes(statuses)
        yield from _of_lists(names, self._sampled)
        yield from _under_way(load, names)
        yield from _of_calls(methods, names)
        yield from self._process.collect()

    def _of_hub(self) -> Iterator[Metric]:
        hub = self._sampled
        store = _gauge("store", "Where streams are kept: 1 for what holds.", "state")
        for state in _STORES:
            store.add_metric([state], hub.store == state)
        applied, refused, last = hub.reloads()
        reloads = _counter("reloads", "Reloads of the configuration.", "outcome")
        reloads.add_metric(["applied"], applied)
        reloads.add_metric(["refused"], refused)
        yield from (store, reloads)
        if last is not None:
            yield GaugeMetricFamily("mcp_hub_last_reload_timestamp_seconds", "Time of the last reload.", last)
        busy = _counter("busy", "Refused because a limit was reached.", "setting")
        for setting, count in sorted(Busy.refusals.items()):
            busy.add_metric([setting], count)
        door = _counter("http_refused", "HTTP requests that did not pass the guard.", "status")
        for status, count in sorted(self.refusals.items()):
            door.add_metric([str(status)], count)
        yield from (busy, door)
        for name, (description, value) in self._gauges.items():
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(f"mcp_hub_{name.removesuffix('_total')}", description, value())


class _Once(Collector):
    def __init__(self, families: Iterator[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return self._families


def _gauge(name: str, description: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"mcp_hub_{name}", description, labels=labels)


def _counter(name: str, description: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"mcp_hub_{name}", description, labels=labels)


def _of_servers(statuses: Iterable[UpstreamStatus], sampled: _Sampled) -> Iterator[Metric]:
    state = _gauge("server_state", "1 for the state that a server is in.", "server", "state")
    why = "1 for the code of why a server is not ready (docs/errors.md)."
    failure = _gauge("server_failure", why, "server", "code")
    up = _gauge("server_up", "Whether a server is ready, or rests until needed.", "server")
    restarts = _counter("server_restarts", "Starts after the first one.", "server")
    listed = _gauge("server_listed_timestamp_seconds", "When a server's lists were read last.", "server")
    entries = _gauge("server_entries", "Entries in a server's lists.", "server", "kind")
    warnings = _gauge("server_list_warnings", "Problems of its lists.", "server")
    for status in statuses:
        for each in UpstreamState:
            state.add_metric([status.server, each.value], status.state is each)
        if status.code is not None:
            failure.add_metric([status.server, status.code], 1)
        up.add_metric([status.server], status.state is UpstreamState.READY or status.rests)
        restarts.add_metric([status.server], status.restarts)
        if status.listed_at is not None:
            listed.add_metric([status.server], status.listed_at)
        for kind, count in sampled.entries(status.server).items():
            entries.add_metric([status.server, kind.value], count)
        warnings.add_metric([status.server], len(status.warnings))
    yield from (state, failure, up, restarts, listed, entries, warnings)


def _of_sandboxes(statuses: Iterable[UpstreamStatus]) -> Iterator[Metric]:
    sandboxed = [status for status in statuses if status.sandbox is not None]
    if not sandboxed:
        return
    within = _gauge("server_sandboxed", "Whether the latest start of a server was in its sandbox.", "server")
    refused = _counter("sandbox_refusals", "Refused by the sandbox of a server.", "server")
    for status in sandboxed:
        if status.sandbox != "pending":
            within.add_metric([status.server], status.sandbox == "on")
        refused.add_metric([status.server], status.refusals)
    yield from (within, refused)


def _of_lists(names: set[str], sampled: _Sampled) -> Iterator[Metric]:
    unapproved = _gauge("unapproved_tools", "Tools that are not what was approved.", "server", "kind")
    counts = Counter(sampled.unapproved())
    for name in sorted({server for server, _ in counts} & names):
        for kind in _FINDINGS:
            unapproved.add_metric([name, kind], counts[name, kind])
    quarantined = _gauge(
        "quarantined_definitions", "Malformed definitions, or members of them, which are not listed.", "server"
    )
    servers = Counter(sampled.quarantined())
    for name in sorted(names):
        quarantined.add_metric([name], servers[name])
    yield from (unapproved, quarantined)


def _under_way(load: Load, names: set[str]) -> Iterator[Metric]:
    for name, description in _UNDER_WAY.items():
        family = _gauge(name, description, "server")
        for server in sorted(names):
            family.add_metric([server], load[server][name] if server in load else 0)
        yield family


def _of_calls(figures: Iterable[MethodFigures], names: set[str]) -> Iterator[Metric]:
    calls = _counter("calls", "Calls that have ended.", "server", "method", "outcome")
    description = "Events of ended calls before their result: progress, logs, questions, parts."
    events = _counter("events", description, "server")
    description = "Of those, merged or left out (slow_reader), or not allowed (refused)."
    dropped = _counter("events_dropped", description, "server", "reason")
    produced, merged, refused = Counter[str](), Counter[str](), Counter[str]()
    methods = [method for method in figures if method.server in names or method.server == OWN]
    for method in methods:
        for outcome, count in method.outcomes.items():
            calls.add_metric([method.server or _HUB, method.method, outcome], count)
        server = method.server or _HUB
        produced[server] += method.events
        merged[server] += method.merged
        refused[server] += method.refused
    for server, count in produced.items():
        events.add_metric([server], count)
        dropped.add_metric([server, "slow_reader"], merged[server])
        dropped.add_metric([server, "refused"], refused[server])
    yield from (calls, events, dropped, *_durations(methods))


def _durations(methods: Iterable[MethodFigures]) -> Iterator[Metric]:
    ends = [*map(str, BOUNDS), "+Inf"]
    as_server = HistogramMetricFamily(
        "mcp_server_operation_duration_seconds", "From a client's request to its answer.", labels=["mcp_method_name"]
    )
    as_client = HistogramMetricFamily(
        "mcp_client_operation_duration_seconds", "Of that, what a server was at, or was waited for.",
        labels=["server", "mcp_method_name"],
    )  # fmt: skip
    by_method: dict[str, Durations] = {}
    for figures in methods:
        earlier, before = by_method.get(figures.method, ((0,) * len(ends), 0.0))
        counts, seconds = figures.whole
        by_method[figures.method] = tuple(map(int.__add__, earlier, counts)), before + seconds
        if figures.server != OWN:
            counts, seconds = figures.at_server
            as_client.add_metric([figures.server, figures.method], _buckets(counts, ends), seconds)
    for method, (counts, seconds) in by_method.items():
        as_server.add_metric([method], _buckets(counts, ends), seconds)
    yield from (as_server, as_client)


def _buckets(counts: Iterable[int], ends: Iterable[str]) -> list[tuple[str, float]]:
    return [(end, float(below)) for end, below in zip(ends, accumulate(counts), strict=True)]
