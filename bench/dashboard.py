"""The cost of an open dashboard: `python -m bench.dashboard`, a part of `make bench`. Linux only.

A hub with a Python function gets 1,000 calls a second over HTTP, in rounds with and without an open feed; the median
CPU time of each kind is compared. In a headless browser, if there is one: the time from the request to the first
content, and the frames a second of the list of calls under the same load.
"""

import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from tests.e2e.browser import BROWSER, WHY_NOT, browsed, operator
from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import http_hub

CONFIG = 'servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}\nhub: {store: memory, prefix: never}\n'
RATE = 1000  # calls a second
CONNECTIONS = 10
ROUNDS, SECONDS = 6, 3.0
MOST_CPU, MOST_FIRST = 5.0, 0.5  # percent more, and seconds
FRAMES = """(async () => {
    let frames = 0;
    const until = performance.now() + 3000;
    while (performance.now() < until) { await new Promise(requestAnimationFrame); frames++; }
    return frames / 3;
})()"""
CALL = {"name": "count_words", "arguments": {"text": "the quick brown fox"}}


class Load:
    """Calls at a steady rate over a few connections."""

    def __init__(self, hub: Hub, session: str) -> None:
        self._place = hub.url.split("/")[2]
        self._session = session
        self.made = self._last = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        async with anyio.create_task_group() as tasks:
            for _ in range(CONNECTIONS):
                tasks.start_soon(self._connection)

    def _request(self) -> bytes:
        self._last += 1
        body = json.dumps({"jsonrpc": "2.0", "id": self._last, "method": "tools/call", "params": CALL}).encode()
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: {self._place}\r\nContent-Type: application/json\r\n"
            f"Accept: application/json, text/event-stream\r\nMcp-Session-Id: {self._session}\r\n"
            f"Mcp-Protocol-Version: 2025-11-25\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    async def _connection(self) -> None:
        host, _, port = self._place.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        due = time.monotonic()
        while True:
            due += CONNECTIONS / RATE
            await anyio.sleep(max(due - time.monotonic(), 0))
            writer.write(self._request())
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
            await reader.readexactly(int(length.partition(b":")[2]))
            self.made += 1


@asynccontextmanager
async def feed(hub: Hub, token: str) -> AsyncIterator[None]:
    """An open feed whose batches are read."""
    place = hub.url.split("/")[2]
    host, _, port = place.partition(":")

    async def opened(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {place}\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
        return reader, writer

    reader, writer = await opened("/api/state")
    await reader.readuntil(b'"cursor":"')
    cursor = (await reader.readuntil(b'"'))[:-1].decode()
    writer.close()
    reader, writer = await opened(f"/api/feed?after={cursor}")

    async def read() -> None:
        while await reader.read(1 << 16):
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        yield
        tasks.cancel_scope.cancel()
    writer.close()


def cpu(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def cost(hub: Hub, load: Load) -> float:
    """CPU milliseconds of the hub for each call, in one round."""
    before, made = cpu(hub.pid), load.made
    await anyio.sleep(SECONDS)
    return 1000 * (cpu(hub.pid) - before) / (load.made - made)


async def in_browser(hub: Hub, root: Path) -> None:
    async with browsed() as page:
        await page.enter(hub, root)
        first = await page.until("performance.getEntriesByName('first-contentful-paint')[0]?.startTime") / 1000
        print(f"first content after {first:.2f} s (goal: {MOST_FIRST} s) {'met' if first <= MOST_FIRST else 'missed'}")
        await page.go("#/calls", "count_words")
        print(f"list of calls under this load: {await page.js(FRAMES):.0f} frames/s")


async def main() -> None:
    """Prints the figures."""
    with tempfile.TemporaryDirectory() as name:
        async with http_hub(CONFIG, Path(name)) as hub, HttpClient(hub.url) as client:
            made = await client.initialize()
            assert made.status == 200
            token = operator(Path(name))
            load = Load(hub, client.session or "")
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(load.run)
                await anyio.sleep(2)
                alone, watched = [], []
                for _ in range(ROUNDS):
                    alone.append(await cost(hub, load))
                    async with feed(hub, token):
                        await anyio.sleep(0.3)
                        watched.append(await cost(hub, load))
                # each round beside the one just before it: whatever else the machine does, it does to both
                more = 100 * (statistics.median(one / own for one, own in zip(watched, alone, strict=True)) - 1)
                print(
                    f"CPU for a call: {statistics.median(alone):.3f} ms, with an open dashboard {more:+.1f} %", end=" "
                )
                print(f"(goal: {MOST_CPU} %) {'met' if more <= MOST_CPU else 'missed'}; {load.made} calls")
                if BROWSER is None:
                    print(WHY_NOT)
                else:
                    await in_browser(hub, Path(name))
                tasks.cancel_scope.cancel()


if __name__ == "__main__":
    anyio.run(main)
