"""Checks whether a server still lives after a timeout or failures.

A call may take long, but a ping must be answered (specification 2025-11-25, basic/utilities/ping).
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import anyio

from mcp_hub.errors import RpcError
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.types import Cause, Era
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import CONNECTION_LOST

log = get_logger(__name__)

_PINGS: Final = (0.0, 1.0, 2.0, 4.0)
"""Pauses in seconds before the pings to a server whose requests fail; if all of them fail, its session ends. Some
drop a ping, so that each is followed by a request for the tools."""


class LivenessCheck:
    """Doubts about one server. `patience` returns the seconds to wait."""

    def __init__(self, patience: Callable[[], float], changes: Notices) -> None:
        self._patience = patience
        self._changes = changes
        self._raised = anyio.Event()

    def suspect(self) -> None:
        self._raised.set()

    async def follow(self, peer: Peer) -> None:
        """Ends the session if the server hangs after a call timed out."""
        while not peer.ending.closed.is_set():
            self._raised = anyio.Event()
            await self._raised.wait()
            seconds = self._patience()
            if not await _lives(peer, seconds) and not peer.ending.closed.is_set():
                reason = f"it hangs: after a call timed out it was silent for {seconds:g} s and did not answer a ping"
                log.warning("upstream_hangs", upstream=peer.name, seconds=seconds)
                peer.ending.explain(Cause("hung", reason))
                peer.wire.close(reason, "hung")

    async def watch(self, peer: Peer) -> None:
        """Ends the session if consecutive requests and then pings fail."""
        while not peer.ending.closed.is_set():
            await peer.signs.doubted()
            for pause in _PINGS:
                await anyio.sleep(pause)
                for method in (_ping_of(peer), "tools/list"):
                    if peer.signs.failures:
                        await self._ask(peer, method)
                self._changes.bump()
                if not peer.signs.failures:
                    break
            else:
                cause = peer.signs.reason or CONNECTION_LOST
                log.warning("upstream_answers_nothing", upstream=peer.name, code=cause.code)
                peer.ending.explain(
                    Cause(cause.code, f"{peer.signs.failures} requests in a row failed: {cause.reason}")
                )
                peer.wire.close(cause.reason, cause.code)

    async def _ask(self, peer: Peer, method: str) -> None:
        """A timeout counts as a failure."""
        seconds = self._patience()
        with anyio.move_on_after(seconds) as limit, suppress(RpcError):
            await peer.answer(peer.send(method), may_cancel=False)
        if limit.cancelled_caught:
            peer.signs.failed(Cause("hung", f"it did not answer {method} in {seconds:g} s"))


def _ping_of(peer: Peer) -> str:
    return "ping" if peer.info.era is Era.HANDSHAKE else "server/discover"


async def _lives(peer: Peer, seconds: float) -> bool:
    """Also asks for tools: some servers drop pings."""
    count = peer.message_count
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:

            async def ask(method: str) -> None:
                with suppress(RpcError):
                    await peer.answer(peer.send(method), may_cancel=False)
                tasks.cancel_scope.cancel()

            tasks.start_soon(ask, _ping_of(peer))
            tasks.start_soon(ask, "tools/list")
        return True
    return peer.message_count != count
