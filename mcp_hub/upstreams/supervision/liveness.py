"""Whether a server that let a call run out of time still lives: it may hang, its process there, its pipes open.

A call may take its time, but a ping has to be answered (specification 2025-11-25, basic/utilities/ping).
"""

from collections.abc import Callable
from contextlib import suppress

import anyio

from mcp_hub.errors import RpcError
from mcp_hub.logs import get_logger
from mcp_hub.types import Cause, Era
from mcp_hub.upstreams.peer.peer import Peer

log = get_logger(__name__)


class LivenessCheck:
    """Doubts about one server; `patience` gives the seconds that it has to say anything."""

    def __init__(self, patience: Callable[[], float]) -> None:
        self._patience = patience
        self._raised = anyio.Event()

    def suspect(self) -> None:
        """A call has run out of time there."""
        self._raised.set()

    async def follow(self, peer: Peer) -> None:
        """Ends the session when the server turns out to hang. Doubts about an earlier session do not count."""
        while not peer.ending.closed.is_set():
            self._raised = anyio.Event()
            await self._raised.wait()
            seconds = self._patience()
            if not await _lives(peer, seconds) and not peer.ending.closed.is_set():
                reason = f"it hangs: after a call timed out it was silent for {seconds:g} s and did not answer a ping"
                log.warning("upstream_hangs", upstream=peer.name, seconds=seconds)
                peer.ending.explain(Cause("hung", reason))
                peer.wire.close(reason, "hung")


async def _lives(peer: Peer, seconds: float) -> bool:
    """Whether the server says anything within that time. Some drop a ping, so it is asked for its tools, too."""
    said = peer.said
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:

            async def ask(method: str) -> None:
                with suppress(RpcError):
                    await peer.answer(peer.send(method), may_cancel=False)
                tasks.cancel_scope.cancel()

            tasks.start_soon(ask, "ping" if peer.info.era is Era.HANDSHAKE else "server/discover")
            tasks.start_soon(ask, "tools/list")
        return True
    return peer.said != said
