"""The calls of a hub in numbers, sampled when somebody asks: nothing is counted here while calls run."""

from collections.abc import Collection, Mapping

import msgspec

from mcp_hub.calls.metering import BOUNDS, Meter, Outcome
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.types import OWN


class Durations(msgspec.Struct, frozen=True):
    """`counts` by bucket, the last one without an upper end; `seconds` in all."""

    counts: tuple[int, ...]
    seconds: float


class MethodFigures(msgspec.Struct, frozen=True):
    """Calls of one method at one server that have ended; `server` is `OWN` for the hub's own tools.

    `outcomes` by name. `events` went on to readers, `held` were merged or left out for slow ones, `refused` were not
    allowed. `whole` is from the request to the answer, `at_server` the part that a server was at it.
    """

    server: str
    method: str
    outcomes: Mapping[str, int]
    events: int
    held: int
    refused: int
    whole: Durations
    at_server: Durations


class LoadFigures(msgspec.Struct):
    """Calls of one server that have not ended; how many are durable streams, and who follows those."""

    running: int = 0
    waiting: int = 0
    streams: int = 0
    followers: int = 0


class Figures(msgspec.Struct, frozen=True):
    """The calls of a hub in numbers; `bounds` are the upper ends of the buckets in seconds."""

    bounds: tuple[float, ...]
    load: Mapping[str, LoadFigures]
    methods: tuple[MethodFigures, ...]


def figures(registry: CallRegistry, servers: Collection[str]) -> Figures:
    """Of these servers and the hub's own tools; what others have come to is forgotten."""
    registry.meters.keep({OWN, *servers})
    return Figures(BOUNDS, _load(registry), tuple(_method(*key, meter) for key, meter in registry.meters))


def _load(registry: CallRegistry) -> dict[str, LoadFigures]:
    load: dict[str, LoadFigures] = {}
    for record in registry.under_way:
        own = load.setdefault(record.call.upstream, LoadFigures())
        if record.times.began is not None:
            own.running += 1
        else:
            own.waiting += 1
        if record.stream is not None:
            own.streams += 1
            own.followers += len(record.stream.readers)
    return load


def _method(server: str, method: str, meter: Meter) -> MethodFigures:
    outcomes = {outcome.name.lower(): meter.outcomes[outcome] for outcome in Outcome}
    whole, at_server = (Durations(tuple(counts), seconds) for counts, seconds in (meter.server, meter.client))
    return MethodFigures(
        server, method, outcomes, meter.events, meter.held, meter.refused, whole=whole, at_server=at_server
    )
