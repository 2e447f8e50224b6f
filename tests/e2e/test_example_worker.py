"""The example of a worker, as a reader runs it: calls, batches of output, another hub, and one that replaces it."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from anyio.abc import Process
from anyio.streams.text import TextReceiveStream

from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub

pytestmark = pytest.mark.anyio

LIMIT = 240


@asynccontextmanager
async def worker(url: str) -> AsyncIterator[tuple[Process, TextReceiveStream]]:
    """One that has registered, and what it says from then on."""
    argv = [sys.executable, "-m", "mcp_hub.examples.worker", url.removesuffix("/mcp")]
    async with await anyio.open_process(argv, env={**os.environ, "PYTHONUNBUFFERED": "1"}) as process:
        try:
            assert process.stdout is not None
            said = TextReceiveStream(process.stdout)
            assert (await said.receive()).startswith("registered shout, report")
            yield process, said
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)


async def texts(client: RestClient, stream: str, *, wait: int = 0) -> list[str]:
    """What there is behind the start; `wait`: seconds for the first of it."""
    page = (await client.ask("GET", f"/streams/{stream}/events?after=1&wait={wait}")).json()
    deltas = [event["data"]["content"] for event in page["events"] if event["type"] == "delta"]
    return [block["text"] for content in deltas for block in content]


@pytest.mark.proof
async def test_a_worker_streams_in_batches_and_is_replaced_by_the_next_of_its_name(tmp_path: Path) -> None:
    with anyio.fail_after(LIMIT):
        async with http_hub("servers: {}\n", tmp_path) as hub, RestClient(hub) as client:
            async with worker(hub.url) as (first, _):
                stream = await client.started("report", {"lines": 6})
                await client.until(stream, "completed")
                lines = [f"line {number}\n" for number in range(1, 7)]
                said = await texts(client, stream)
                assert "".join(said) == "".join(lines) and 1 < len(said) < len(lines)
                refused = await client.started("shout", {})
                await client.until(refused, "tool_error")
                async with worker(hub.url):
                    assert await first.wait() == 1
                    assert first.stderr is not None
                    assert b"another worker of this name" in await first.stderr.receive()
                    await client.until(await client.started("shout", {"text": "hi"}), "completed")


@pytest.mark.proof
async def test_a_call_that_is_cancelled_is_given_up_by_its_worker_which_goes_on(tmp_path: Path) -> None:
    with anyio.fail_after(LIMIT):
        async with http_hub("servers: {}\n", tmp_path) as hub, RestClient(hub) as client, worker(hub.url):
            stream = await client.started("report", {"lines": 1000})
            assert await texts(client, stream, wait=20)
            await client.ask("DELETE", f"/streams/{stream}")
            await client.until(stream, "cancelled")
            await client.until(await client.started("shout", {"text": "hi"}), "completed")


async def test_a_worker_registers_with_the_hub_that_comes_after_a_kill(tmp_path: Path) -> None:
    with anyio.fail_after(LIMIT):
        async with http_hub("servers: {}\n", tmp_path) as hub:
            port = hub.url.removesuffix("/mcp").rpartition(":")[2]
            async with worker(hub.url) as (_, said):
                await hub.kill_alone()
                async with http_hub("servers: {}\n", tmp_path, "--port", port) as again, RestClient(again) as client:
                    while "registered" not in await said.receive():
                        pass
                    await client.until(await client.started("shout", {"text": "hi"}), "completed")
