"""Waits until servers have settled, and logs the end of the start."""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from mcp_hub.config.load.load import Loaded
from mcp_hub.config.load.secrets import target_of
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.types import UpstreamState, UpstreamStatus, plural
from mcp_hub.upstreams.supervision.state_log import LONGEST, brief

if TYPE_CHECKING:
    from mcp_hub.hub import HubPort

log = get_logger(__name__)

_MOST: Final = 3
"""Failures named in the summary; it counts the rest."""


def has_settled(status: UpstreamStatus) -> bool:
    """Whether the server has left `starting` once."""
    return status.state is not UpstreamState.STARTING or status.restarts > 0


def all_settled(hub: "HubPort") -> bool:
    return all(map(has_settled, hub.statuses()))


def not_ready(statuses: Iterable[UpstreamStatus]) -> list[UpstreamStatus]:
    """Enabled servers that are not ready, without stopped idle ones."""
    return [s for s in statuses if s.state not in (UpstreamState.READY, UpstreamState.DISABLED) and not s.rests]


async def wait_until(hub: "HubPort", is_enough: Callable[[], bool], seconds: float) -> None:
    """Waits until `is_enough`, checked on each change, or for `seconds`."""
    with anyio.move_on_after(seconds):
        while True:
            version = hub.catalog.version
            if is_enough():
                return
            await hub.catalog.wait_changed(version)


def log_sources(loaded: Loaded) -> None:
    """Logs which variables and files another client's servers get, without values."""
    for name, sources in loaded.sources.items():
        server = loaded.settings.servers.get(name)
        if sources and server is not None and server.enabled:
            log.info("values_passed", server=name, values=[*sources], to=target_of(server.command, server.url))


async def log_start(hub: "HubPort", servers: Collection[str]) -> None:
    """Logs once, after all have settled, which servers are ready, or why not."""
    if servers:
        await wait_until(hub, lambda: all_settled(hub), math.inf)
        statuses = [status for status in hub.statuses() if status.server in servers]
        is_fine = all(status.state is UpstreamState.READY or status.rests for status in statuses)
        (log.info if is_fine else log.warning)("servers_settled", summary=summary(statuses))


def summary(statuses: Sequence[UpstreamStatus]) -> str:
    """`3 of 4 servers ready; time failed: …`, at most 200 characters."""
    ready = sum(status.state is UpstreamState.READY for status in statuses)
    resting = sum(status.rests for status in statuses)
    text = f"{ready} of {plural(len(statuses), 'server')} ready" + (f", {resting} when needed" if resting else "")
    failed = not_ready(statuses)
    more = f"; and {len(failed) - _MOST} more failed" if len(failed) > _MOST else ""
    room = (LONGEST - len(text) - len(more)) // max(1, min(len(failed), _MOST))
    for status in failed[:_MOST]:
        text += hide_head(f"; {status.server} failed: {brief(status.reason)}", room, "…")
    return text + more
