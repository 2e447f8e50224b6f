"""Which servers have settled since the hub started, and waiting for them."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import anyio

from mcp_hub.types import UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.hub import HubPort


def has_settled(status: UpstreamStatus) -> bool:
    """Whether the server has left `starting` once: what it does on its second try says nothing new."""
    return status.state is not UpstreamState.STARTING or status.restarts > 0


def all_settled(hub: "HubPort") -> bool:
    return all(map(has_settled, hub.statuses()))


def not_ready(statuses: Iterable[UpstreamStatus]) -> list[UpstreamStatus]:
    """The enabled servers that are not ready; not those that are stopped until they are needed."""
    return [s for s in statuses if s.state not in (UpstreamState.READY, UpstreamState.DISABLED) and not s.rests]


async def wait_until(hub: "HubPort", is_enough: Callable[[], bool], seconds: float) -> None:
    """Returns when `is_enough`, which is asked whenever a server changed, or when the time is over."""
    with anyio.move_on_after(seconds):
        while True:
            version = hub.catalog.version
            if is_enough():
                return
            await hub.catalog.wait_changed(version)
