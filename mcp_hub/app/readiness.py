"""Which servers have settled since the hub started, waiting for them, and why a tool is unknown until they have."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import anyio

from mcp_hub.errors import RpcError, UnknownEntry, UpstreamUnavailable
from mcp_hub.types import UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.hub import HubPort

__all__ = ["all_settled", "has_settled", "not_ready", "unknown_tool", "wait_until"]


def has_settled(status: UpstreamStatus) -> bool:
    """Whether the server has left `starting` once: what it does on its second try says nothing new."""
    return status.state is not UpstreamState.STARTING or status.restarts > 0


def all_settled(hub: "HubPort") -> bool:
    return all(map(has_settled, hub.statuses()))


def not_ready(statuses: Iterable[UpstreamStatus]) -> list[UpstreamStatus]:
    """The enabled servers that are not ready; those that rest until they are needed are none of them."""
    return [s for s in statuses if s.state not in (UpstreamState.READY, UpstreamState.DISABLED) and not s.rests]


async def wait_until(hub: "HubPort", is_enough: Callable[[], bool], seconds: float) -> None:
    """Returns when `is_enough`, which is asked whenever a server changed, or when the time is over."""
    with anyio.move_on_after(seconds):
        while True:
            version = hub.catalog.version
            if is_enough():
                return
            await hub.catalog.wait_changed(version)


def unknown_tool(
    name: str, nearest: Sequence[str], statuses: Sequence[UpstreamStatus], prefixes: Mapping[str, str]
) -> RpcError:
    """Why there is no such tool: a server whose prefix the name has is not ready, else nobody knows it.

    Names are compared with what is configured, never taken apart.
    """
    missing = not_ready(statuses)
    for status in missing:
        if name.startswith(f"{prefixes[status.server]}_"):
            reason = status.reason or "still starting"
            return UpstreamUnavailable(f'upstream "{status.server}" is {status.state.value}: {reason}')
    text = f"unknown tool: {name[:200]}"
    if nearest:
        text += f"; did you mean {', '.join(nearest)}?"
    if missing:
        text += f" (servers that are not ready: {', '.join(status.server for status in missing)}; see mcp-hub doctor)"
    return UnknownEntry(text)
