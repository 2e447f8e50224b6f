"""Hubs in front of bad upstreams, and proof that everybody else notices nothing."""

import anyio

from tests.interaction.fronts import Peer

AT_ONCE = 15.0
"""Seconds: a guard against waiting for somebody bad, whose time limits are longer; not a measurement."""
UNAVAILABLE, LOST, OVERDUE, BUSY = 1001, 1002, 1003, 1004


async def listed(peer: Peer, *names: str) -> None:
    """Wait until tools of all these servers are listed."""
    with anyio.fail_after(240):
        while True:
            tools = await peer.names()
            if all(f"{name}_echo" in tools for name in names):
                return
            await anyio.sleep(0.05)


async def echoes(peer: Peer, name: str) -> None:
    with anyio.fail_after(AT_ONCE):
        seen = await peer.call(f"{name}_echo", {"text": "hi"})
    assert seen.result["structuredContent"] == {"text": "hi"}
