"""Questions of calls while their replica alone has lost the server."""

import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx2
import pytest

from mcp_hub.ids import new_call_id
from mcp_hub.protocol.sse import Cursor
from mcp_hub.types import JsonObject
from rigs.chaos.hubs import Fleet
from rigs.chaos.lines import Line, lines
from rigs.chaos.talks import ASKING
from tests.e2e.client import Answer, HttpClient, SseStream
from tests.redis_server import RedisServer
from tests.upstreams.child import HttpUpstream
from tests.upstreams.messages import modern

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]


@asynccontextmanager
async def _pair(
    folder: Path, servers: JsonObject = ASKING, *, is_cut: bool = False
) -> AsyncIterator[tuple[str, str, Line]]:
    """The URLs of two replicas, and the line of the second one to the server. `is_cut`: it has never reached it."""
    with RedisServer(folder / "server") as server:
        async with lines(2, server.port) as ways:
            if is_cut:
                ways[1].cut("closed")
            store: JsonObject = {"url": "${STORE_URL}", "lease": 3.0}
            urls = [way.url for way in ways]
            fleet = Fleet(folder, 2, random.Random(1), store, urls=urls, servers=servers)
            try:
                for hub in fleet.hubs:
                    await fleet.serving(hub, time.monotonic())
                one, two = (hub.url for hub in fleet.hubs)
                yield one, two, ways[1]
            finally:
                await anyio.to_thread.run_sync(fleet.stop)


GATED: JsonObject = {
    "jobs": {
        "local": "mcp_hub.examples.jobs:registry",
        "prefix": "never",
        "per_tool": {"count_words": {"ask": "always"}},
    }
}
"""A server with a call that any replica can continue: it waits for a yes."""


async def _asked(stream: SseStream) -> JsonObject:
    """The next question."""
    message: JsonObject = {}
    while message.get("method") != "elicitation/create":
        event = await stream.next_event(60)
        message = event.message if event.data else {}
    return message


async def _has_moved(url: str, stream: str) -> None:
    """Returns once this replica has the call, and asks again what the other one has asked."""
    async with httpx2.AsyncClient(trust_env=False, timeout=20) as http:
        keys = ["q1"]
        while keys in ([], ["q1"]):
            status = (await http.get(f"{url}/v1/streams/{stream}")).json()
            keys = [question["key"] for question in status.get("questions") or ()]
            await anyio.sleep(0.05)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_a_call_that_moves_while_its_client_stays_asks_it_again_there(tmp_path: Path, is_cancelled: bool) -> None:
    async with _pair(tmp_path, GATED) as (one, two, line):
        async with HttpClient(f"{two}/mcp", seconds=90) as client:
            await client.initialize(capabilities={"elicitation": {}})
            call = client.message("tools/call", {"name": "count_words", "arguments": {"text": "a b c"}})
            async with client.stream(call) as stream:
                first = await _asked(stream)
                assert stream.last_id is not None
                id_ = Cursor.parse(stream.last_id).stream
                line.cut("closed")
                await _has_moved(one, id_)
                line.mend()
                second = await _asked(stream)
                assert second["id"] != first["id"] and second["params"]["message"] == first["params"]["message"]
                if is_cancelled:
                    await client.notify("notifications/cancelled", {"requestId": call["id"]})
                    await stream.rest(60)
                    async with httpx2.AsyncClient(trust_env=False, timeout=20) as http:
                        status = (await http.get(f"{one}/v1/streams/{id_}?wait=20")).json()
                    assert status["status"] == "cancelled"
                    return
                for question in (first, second):  # the first one is off
                    result = {"action": "accept", "content": {"answer": "yes"}}
                    answer = {"jsonrpc": "2.0", "id": question["id"], "result": result}
                    assert (await client.post(answer)).status == 202
                done = (await stream.rest(60)).last
            assert done["id"] == call["id"] and "3" in done["result"]["content"][0]["text"]


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


async def test_replica_that_has_never_reached_the_server_gives_no_state_that_others_refuse(tmp_path: Path) -> None:
    asking = {"name": "ask_form", "arguments": {"nonce": "n"}}
    async with HttpUpstream(era="modern") as far:
        servers: JsonObject = {"far": {"url": far.url, "prefix": "never"}}
        async with _pair(tmp_path, servers, is_cut=True) as (one, two, line):
            async with HttpClient(f"{two}/mcp", seconds=90) as client:

                async def call(params: JsonObject) -> Answer:
                    return await client.request(
                        "tools/call", modern(params, capabilities={"elicitation": {"form": {}}})
                    )

                plain = await call({"name": "echo", "arguments": {"text": "hi"}})
                assert "result" in plain.last, plain.text
                error = (await call(asking)).last["error"]
                assert (error["code"], error["data"]["code"]) == (1011, "store_unavailable")
                answered = {**asking, "inputResponses": {"form": {"action": "accept", "content": {"answer": "Ada"}}}}
                retry = await call({**answered, "requestState": "up1.of-another-replica"})
                assert (retry.status, retry.last["error"]["data"]["code"]) == (503, "store_unavailable")
                line.mend()
                while "error" in (asked := (await call(asking)).last):
                    assert asked["error"]["data"]["code"] == "store_unavailable"
                    await anyio.sleep(0.1)
                client.url = f"{one}/mcp"
                done = (await call({**answered, "requestState": asked["result"]["requestState"]})).last
                assert "Ada" in str(done["result"]), done
