"""Servers that stay in the era of their first request: another process shows whether they speak the other one."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from mcp_hub.clock import SystemClock
from mcp_hub.errors import StartFailed
from mcp_hub.types import HANDSHAKE, MODERN, Era
from mcp_hub.upstreams.peer.era_cache import EraCache, KnownEras
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import EraWish, ServerEras, wish
from mcp_hub.upstreams.peer.state import PeerInfo
from mcp_hub.upstreams.process.stdio import StdioConnection, StdioSpec
from mcp_hub.upstreams.process.watchdog import Watchdog

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

WAIT = 20.0
LOCKED = """
import json, sys
speaks, era = sys.argv[1], None
known = {"protocolVersion": "2025-11-25", "supportedVersions": ["2026-07-28"], "capabilities": {}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    wanted = "handshake" if request["method"] == "initialize" else "modern"
    is_ok = speaks in ("both", wanted) and era in (None, wanted)
    era = wanted if is_ok else era
    error = {"code": -32022 if era == "modern" or speaks == "modern" else -32601, "message": "not in this session"}
    answer = {"result": known} if is_ok else {"error": error}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""


@asynccontextmanager
async def opened(speaks: str, eras: ServerEras, wanted: EraWish) -> AsyncIterator[tuple[Peer, int]]:
    """A session with a server that speaks this, and how many processes it took."""
    spec = StdioSpec([sys.executable, "-c", LOCKED, speaks], dict(os.environ), None)
    started: list[None] = []

    class Counted(Watchdog):
        def spawn(self, *given, **more):  # type: ignore[no-untyped-def]
            started.append(None)
            return super().spawn(*given, **more)

    with anyio.fail_after(WAIT):
        async with Counted(SystemClock()) as watchdog, anyio.create_task_group() as tasks:
            connection = StdioConnection("git", lambda: spec, eras, watchdog, wish=wanted)
            try:
                yield await connection.open(tasks), len(started)
            finally:
                await connection.close()
                tasks.cancel_scope.cancel()


@pytest.mark.parametrize(("speaks", "era", "first"), [("both", HANDSHAKE, 2), ("modern", MODERN, 2)])
async def test_a_server_that_is_locked_by_the_probe_is_asked_in_a_process_of_its_own_once(
    speaks: str, era: Era, first: int
) -> None:
    eras = ServerEras(EraCache(None), "key")
    for processes in (first, 1):
        async with opened(speaks, eras, wish(HANDSHAKE)) as (peer, started):
            assert (peer.info.era, started) == (era, processes)
    both = frozenset(Era)
    assert eras.known == (KnownEras(both) if speaks == "both" else KnownEras(both - {HANDSHAKE}, both - {MODERN}))


async def test_a_connection_of_one_era_only_fails_where_the_server_does_not_speak_it_and_forgets_nothing() -> None:
    eras = ServerEras(EraCache(None), "key")
    async with opened("handshake", eras, wish(MODERN)) as (peer, started):
        assert (peer.info.era, started) == (HANDSHAKE, 1)
    known = eras.known
    with pytest.raises(ExceptionGroup) as caught:
        async with opened("handshake", eras, wish(MODERN, is_only=True)):
            pass
    assert caught.group_contains(StartFailed)
    assert eras.known == known == KnownEras(frozenset((HANDSHAKE,)), frozenset((MODERN,)))


async def test_a_server_in_another_version_is_asked_again_what_it_speaks() -> None:
    eras = ServerEras(EraCache(None), "key")
    for speaks, version, spoken in [("handshake", "1", HANDSHAKE), ("both", "2", HANDSHAKE), ("both", "2", MODERN)]:
        async with opened(speaks, eras, wish(MODERN)) as (peer, _):
            assert peer.info.era is spoken
            eras.list_from(PeerInfo(spoken, "", {"name": "git", "version": version}))
