"""When the time of the probe begins: not before the process runs."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

import anyio
import pytest

from mcp_hub.clock import SystemClock
from mcp_hub.types import Era
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.server_eras import ServerEras
from mcp_hub.upstreams.process import stdio
from mcp_hub.upstreams.process.stdio import StdioConnection, StdioSpec
from mcp_hub.upstreams.process.watchdog import Watchdog
from mcp_hub.wire import files
from tests.upstreams.launch import argv

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

WAIT = 240.0
SLOW = """
import json, sys
def answer(request, **result):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
probe, hello = (json.loads(sys.stdin.readline()) for _ in range(2))
assert (probe["method"], hello["method"]) == ("server/discover", "initialize")
first = [probe, hello] if sys.argv[1] == "before" else [hello, probe]
known = {"protocolVersion": "2025-11-25", "supportedVersions": ["2026-07-28"], "capabilities": {}}
for request in first:
    answer(request, **known)
for line in sys.stdin:
    if "ping" in line:
        answer(json.loads(line))
"""
HELD_START = Path(__file__).parents[2] / "upstreams" / "held_start.py"


class Looks:
    """Counts the looks at what a process has read; `system` is asked for each of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[int | None] = []
        self.system = files.unread
        self._news = anyio.Event()
        monkeypatch.setattr(stdio, "unread", self._look)

    def _look(self, pipe: IO[bytes]) -> int | None:
        self.seen.append(self.system(pipe))
        self._news.set()
        return self.seen[-1]

    async def wait(self, count: int) -> None:
        """Waits for so many looks from now on."""
        end = len(self.seen) + count
        while len(self.seen) < end:
            self._news = anyio.Event()
            await self._news.wait()


@asynccontextmanager
async def connecting(eras: ServerEras, *command: str) -> AsyncIterator[StdioConnection]:
    """A connection to this server, which may not think about the probe."""
    spec = StdioSpec(command, dict(os.environ), None, probe=0.0)
    with anyio.fail_after(WAIT):
        async with Watchdog(SystemClock()) as watchdog:
            connection = StdioConnection("git", lambda: spec, eras, watchdog)
            try:
                yield connection
            finally:
                await connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows what a process has read")
async def test_process_that_has_read_nothing_is_being_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, eras = Looks(monkeypatch), ServerEras(EraCache(None), "key")
    command = [sys.executable, str(HELD_START), str(tmp_path / "gate"), *argv("--discover", "silent")]
    async with connecting(eras, *command) as connection:
        async with anyio.create_task_group() as tasks:
            opened: list[Era] = []
            is_open = anyio.Event()

            async def open_it() -> None:
                opened.append((await connection.open(tasks)).info.era)
                is_open.set()

            tasks.start_soon(open_it)
            await looks.wait(5)
            assert set(looks.seen) == {looks.seen[0]} and looks.seen[0], "the probe waits in the pipe"
            assert connection.peer is not None
            assert [one.method for one in connection.peer.wire.requests.pending.values()] == ["server/discover"]
            (tmp_path / "gate").touch()
            await is_open.wait()
            tasks.cancel_scope.cancel()
    assert opened == [Era.HANDSHAKE]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_an_answer_to_the_probe_that_comes_too_late_counts_at_the_next_start(when: str) -> None:
    eras = ServerEras(EraCache(None), "key")
    async with connecting(eras, sys.executable, "-c", SLOW, when) as connection:
        async with anyio.create_task_group() as tasks:
            peer = await connection.open(tasks)
            assert peer.info.era is Era.HANDSHAKE
            await peer.answer(peer.send("ping"))  # which comes after all that was written before
            assert eras.known_eras.speaks == set(Era)
            tasks.cancel_scope.cancel()
