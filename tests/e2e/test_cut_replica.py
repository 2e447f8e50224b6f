"""A call that begins at a replica which alone has lost the server: no other replica can know what it asks."""

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from mcp_hub.ids import new_call_id
from mcp_hub.types import JsonObject
from rigs.chaos.hubs import Fleet
from rigs.chaos.lines import Line, lines
from rigs.chaos.talks import ASKING
from tests.e2e.client import HttpClient
from tests.redis_server import RedisServer

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]


@asynccontextmanager
async def _pair(folder: Path) -> AsyncIterator[tuple[str, str, Line]]:
    """The URLs of two replicas, and the line of the second one to the server."""
    with RedisServer(folder / "server") as server:
        async with lines(2, server.port) as ways:
            store: JsonObject = {"url": "${STORE_URL}", "lease": 3.0}
            urls = [way.url for way in ways]
            fleet = Fleet(folder, 2, random.Random(1), store, urls=urls, servers=ASKING)
            try:
                for hub in fleet.hubs:
                    await fleet.serving(hub, time.monotonic())
                one, two = (hub.url for hub in fleet.hubs)
                yield one, two, ways[1]
            finally:
                await anyio.to_thread.run_sync(fleet.stop)


async def _has_lost_the_server(url: str) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as http:
        while (await http.get(f"{url}/v1/streams/{new_call_id()}")).status_code != 503:  # noqa: ASYNC110 - of another process
            await anyio.sleep(0.05)


async def test_an_answer_is_accepted_elsewhere_once_the_replica_that_asked_has_stored_its_call(tmp_path: Path) -> None:
    async with _pair(tmp_path) as (one, two, line):
        async with HttpClient(f"{one}/mcp", seconds=60) as client:
            await client.initialize(capabilities={"elicitation": {}})
            client.url = f"{two}/mcp"
            await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
            line.cut("closed")
            await _has_lost_the_server(two)
            call = client.message("tools/call", {"name": "ask_form", "arguments": {"nonce": "n"}})
            async with client.stream(call) as stream:
                question = (await stream.next_event(60)).message
                assert question["method"] == "elicitation/create"
                result = {"action": "accept", "content": {"answer": "Ada"}}
                answer = {"jsonrpc": "2.0", "id": question["id"], "result": result}
                client.url = f"{one}/mcp"
                assert (await client.post(answer)).status == 503
                line.mend()
                while (status := (await client.post(answer)).status) == 503:  # noqa: ASYNC110 - of another process
                    await anyio.sleep(0.1)
                assert status == 202
                message: JsonObject = {}
                while message.get("id") != call["id"]:
                    event = await stream.next_event(60)
                    message = event.message if event.data else {}
                assert "Ada" in message["result"]["content"][0]["text"]
