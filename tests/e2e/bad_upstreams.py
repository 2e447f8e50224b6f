"""Hubs in front of bad upstreams, and proof that everybody else notices nothing."""

import anyio

from tests.interaction.fronts import Peer

AT_ONCE = 50.0
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
    """A call of it has its result, maybe only the next one: a busy machine exceeds short time limits, too."""
    with anyio.fail_after(AT_ONCE):
        while (seen := await peer.call(f"{name}_echo", {"text": "hi"})).answer.get("error", {}).get("code") == OVERDUE:
            pass
    assert seen.result["structuredContent"] == {"text": "hi"}
