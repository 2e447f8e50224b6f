"""The calls of a hub in numbers, sampled when somebody asks: nothing is counted here while calls run."""

from collections.abc import Collection

from mcp_hub.call import Durations, Figures, LoadFigures, MethodFigures
from mcp_hub.calls.metering import BOUNDS, Meter, Outcome
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.types import OWN

__all__ = ["figures"]


def figures(registry: CallRegistry, servers: Collection[str]) -> Figures:
    """Of these servers and the hub's own tools; what others have come to is forgotten."""
    registry.meters.keep({OWN, *servers})
    return Figures(BOUNDS, _load(registry), tuple(_method(*key, meter) for key, meter in registry.meters))


def _load(registry: CallRegistry) -> dict[str, LoadFigures]:
    load: dict[str, LoadFigures] = {}
    for record in registry.under_way:
        own = load.setdefault(record.call.upstream, LoadFigures())
        if not record.is_waiting:
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
