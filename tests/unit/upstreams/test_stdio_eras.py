"""Servers that stay in the era of their first request: another process shows whether they speak the other one."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import anyio
import anyio.abc
import pytest

from mcp_hub.clock import SystemClock
from mcp_hub.errors import StartFailed
from mcp_hub.types import HANDSHAKE, MODERN, Cause, Era
from mcp_hub.upstreams.peer.era_cache import EraCache, KnownEras
from mcp_hub.upstreams.peer.negotiation import AnotherProcess
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.server_eras import EraWish, ServerEras, wish
from mcp_hub.upstreams.peer.state import PeerInfo
from mcp_hub.upstreams.process.stdio import StdioConnection, StdioSpec
from mcp_hub.upstreams.process.watchdog import Watchdog
from tests.unit.wire.raw_lines import group
from tests.upstreams.child import until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

WAIT = 240.0
LOCKED = """
import json, sys
speaks, era = sys.argv[1], None
if speaks == "broken":
    sys.exit(1)
known = {"protocolVersion": "2025-11-25", "supportedVersions": ["2026-07-28"], "capabilities": {}}
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    wanted = "handshake" if request["method"] == "initialize" else "modern"
    if speaks == "deaf" and wanted == "handshake" and era is None:
        continue  # and no answer
    if speaks in ("fragile", "unsure") and wanted == "handshake":
        sys.exit(1)
    is_ok = speaks in ("both", "deaf", "fragile", wanted) and era in (None, wanted)
    era = era or (wanted if is_ok or speaks == "modern" else None)
    if speaks == "unsure":
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32603, "message": ""}}), flush=True)
        continue
    error = {"code": -32022 if era == "modern" or speaks == "modern" else -32601, "message": "not in this session"}
    answer = {"result": known} if is_ok else {"error": error}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **answer}), flush=True)
"""


@dataclass
class Starts:
    """The connections to a server, one after the other until it takes no other process; `started` counts them."""

    speaks: str
    eras: ServerEras
    wanted: EraWish
    watchdog: Watchdog
    started: int = 0
    last: StdioConnection | None = None

    async def open(self, tasks: anyio.abc.TaskGroup) -> Peer:
        spec = StdioSpec([sys.executable, "-c", LOCKED, self.speaks], dict(os.environ), None)
        while True:
            self.started += 1
            self.last = StdioConnection("git", lambda: spec, self.eras, self.watchdog, wish=self.wanted)
            with suppress(AnotherProcess):
                return await self.last.open(tasks)
            await self.last.close()

    async def close(self) -> None:
        assert self.last is not None
        await self.last.close()


@asynccontextmanager
async def opened(speaks: str, eras: ServerEras, wanted: EraWish) -> AsyncIterator[tuple[Peer, int]]:
    """A session with a server that speaks this, and how many processes it took."""
    with anyio.fail_after(WAIT):
        async with Watchdog(SystemClock()) as watchdog, anyio.create_task_group() as tasks:
            starts = Starts(speaks, eras, wanted, watchdog)
            try:
                yield await starts.open(tasks), starts.started
            finally:
                await starts.close()
                tasks.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("speaks", "era", "first"), [("both", HANDSHAKE, 2), ("modern", MODERN, 3), ("fragile", MODERN, 3)]
)
async def test_server_locked_by_the_probe_is_asked_in_its_own_process_once(speaks: str, era: Era, first: int) -> None:
    eras = ServerEras(EraCache(None), "key")
    for processes in (first, 1):
        async with opened(speaks, eras, wish(HANDSHAKE)) as (peer, started):
            assert (peer.info.era, started) == (era, processes)
    both = frozenset(Era)
    assert eras.known_eras == (KnownEras(both) if speaks == "both" else KnownEras(both - {HANDSHAKE}, both - {MODERN}))


async def test_a_connection_of_one_era_only_fails_where_the_server_does_not_speak_it_and_forgets_nothing() -> None:
    eras = ServerEras(EraCache(None), "key")
    async with opened("handshake", eras, wish(MODERN)) as (peer, started):
        assert (peer.info.era, started) == (HANDSHAKE, 1)
    known = eras.known_eras
    with pytest.raises(ExceptionGroup) as caught:
        async with opened("handshake", eras, wish(MODERN, is_only=True)):
            pass
    assert caught.group_contains(StartFailed)
    assert eras.known_eras == known == KnownEras(frozenset((HANDSHAKE,)), frozenset((MODERN,)))


@pytest.mark.parametrize("wanted", [*Era])
@pytest.mark.parametrize("speaks", ["broken", "unsure"])
async def test_a_modern_server_that_ends_at_its_start_fails_and_is_found_out_anew(speaks: str, wanted: Era) -> None:
    eras = ServerEras(EraCache(None), "key")
    eras.learn(MODERN, True)
    eras.learn(HANDSHAKE, False)
    with anyio.fail_after(WAIT):
        async with Watchdog(SystemClock()) as watchdog, group() as tasks:
            for processes in (1, 2):
                starts = Starts(speaks, eras, wish(wanted), watchdog)
                with pytest.raises(StartFailed):
                    await starts.open(tasks)
                await starts.close()
                assert starts.started == processes and MODERN not in eras.known_eras.speaks


async def test_a_server_in_another_version_is_asked_again_what_it_speaks() -> None:
    eras = ServerEras(EraCache(None), "key")
    for speaks, version, spoken in [("handshake", "1", HANDSHAKE), ("both", "2", HANDSHAKE), ("both", "2", MODERN)]:
        async with opened(speaks, eras, wish(MODERN)) as (peer, _):
            assert peer.info.era is spoken
            eras.see(PeerInfo(spoken, "", {"name": "git", "version": version}))


@asynccontextmanager
async def starting(eras: ServerEras, process: int = 1) -> AsyncIterator[StdioConnection]:
    """A connection whose server, this process of it, has not answered `initialize` when the hub gives it up."""
    with anyio.fail_after(WAIT):
        async with Watchdog(SystemClock()) as watchdog, group() as tasks:
            starts = Starts("deaf", eras, wish(HANDSHAKE), watchdog)
            tasks.start_soon(starts.open, tasks)
            await until(lambda: starts.started == process and asked(starts.last) == ["initialize"])
    assert starts.last is not None
    yield starts.last
    await starts.close()


def asked(connection: StdioConnection | None) -> list[str]:
    """The requests that the server has not answered."""
    peer = None if connection is None else connection.peer
    return [] if peer is None else [str(one.method) for one in peer.wire.requests.pending.values()]


async def test_a_hub_that_ends_while_a_server_starts_forgets_nothing_and_a_start_that_takes_too_long_does() -> None:
    eras = ServerEras(EraCache(None), "key")
    for era in Era:
        eras.learn(era, True)
    async with starting(eras) as connection:
        assert eras.known_eras.are_both
        await connection.last_words(Cause("start_timeout", "it was not ready"))
        assert eras.known_eras == KnownEras()


async def test_a_server_that_never_answers_initialize_is_modern_at_the_next_start() -> None:
    eras = ServerEras(EraCache(None), "key")
    async with starting(eras, process=2) as connection:
        await connection.last_words(Cause("start_timeout", "it was not ready"))
    async with opened("deaf", eras, wish(HANDSHAKE)) as (peer, started):
        assert (peer.info.era, started) == (MODERN, 1)
