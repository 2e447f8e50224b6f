"""An SSE response that is fed by pulling: pace, silence, and every way to end it; what waits when the hub stops."""

import asyncio
import json
from typing import Any

import anyio
import pytest

from mcp_hub.fronts.http import response as module
from mcp_hub.fronts.http.response import stream
from mcp_hub.sessions.stored import SessionStore
from tests.unit.fronts.http_peer import Connection
from tests.unit.fronts.rest_peer import ALICE, Response, RestPeer, modern_request
from tests.unit.wire.raw_lines import WAIT
from tests.upstreams.child import until
from tests.upstreams.messages import rpc


class Numbers:
    """A source that always has something, and then nothing any more; `client` stops reading at the third."""

    def __init__(self, count: int, client: Connection | None = None) -> None:
        self.count = count
        self.client = client
        self.pulled = 0
        self.told_of = 0

    async def next(self) -> list[bytes]:
        if self.pulled == self.count:
            await anyio.sleep_forever()
        self.pulled += 1
        if self.client is not None and self.pulled == 3:
            self.client.stall()
        return [b'{"n":%d}\n' % self.pulled]

    def sent(self) -> None:
        self.told_of += 1


async def run(client: Connection, source: Numbers, scope: anyio.CancelScope | None = None) -> None:
    with anyio.fail_after(WAIT):
        await stream(source, client.receive, client.send, scope or anyio.CancelScope(), b'{"id":1}\n')


async def test_everything_is_sent_in_order_and_the_last_word_ends_the_response() -> None:
    client, source, scope = Connection(), Numbers(3), anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, client, source, scope)
        await anyio.wait_all_tasks_blocked()
        assert not client.is_complete and source.told_of == 3
        scope.cancel()
    assert (client.status, client.headers["content-type"]) == (200, "text/event-stream")
    assert client.messages == [{"n": 1}, {"n": 2}, {"n": 3}, {"id": 1}] and client.is_complete


async def test_silence_is_broken_by_comments_which_are_no_news(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.001)
    client, source = Connection(), Numbers(0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, client, source)
        await until(lambda: client.body.startswith(b": keep-alive\n\n" * 4))
        tasks.cancel_scope.cancel()
    assert source.told_of == 0


async def test_a_client_that_goes_ends_it() -> None:
    client = Connection()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, client, Numbers(1))
        await anyio.wait_all_tasks_blocked()
        client.leave()


async def test_client_that_does_not_read_is_left_and_nothing_more_is_pulled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_STALLED", 0.02)
    monkeypatch.setattr(module, "LAST", 0.01)
    client = Connection()
    source = Numbers(1000, client)
    await run(client, source)
    assert (source.pulled, source.told_of) == (3, 2)
    assert not client.is_complete


@pytest.mark.parametrize("is_modern", [False, True])
async def test_request_that_waits_when_the_hub_stops_is_refused(
    mcp_peer: RestPeer, monkeypatch: pytest.MonkeyPatch, is_modern: bool
) -> None:
    waits, mcp = anyio.Event(), mcp_peer.mcp
    assert mcp is not None

    async def never(*given: object) -> None:
        waits.set()
        await anyio.sleep_forever()

    headers: dict[str, str]
    body: dict[str, Any]
    if is_modern:
        body, headers = modern_request("tools/call", {"name": "hold", "arguments": {"nonce": "a"}})
    else:
        headers = await mcp_peer.session()
        body = rpc("logging/setLevel", {"level": "error"}, id=1)
        monkeypatch.setattr(SessionStore, "update", never)
    sent = {"host": "localhost", "content-type": "application/json", "authorization": f"Bearer {ALICE}", **headers}
    pairs = [(name.lower().encode(), value.encode()) for name, value in sent.items()]
    response = Response(json.dumps(body).encode())
    request = asyncio.create_task(response.run(mcp_peer._endpoints, "POST", "/mcp", pairs))
    await (mcp_peer.tools.has_come("a") if is_modern else waits.wait())
    mcp.close()
    request.cancel("timeout graceful shutdown exceeded")
    await request
    error = response.json["error"]
    assert (response.status, response.json["id"], error["code"]) == (503, 1, 1005)
    assert error["data"]["outcome"] == "unknown" and error["data"]["code"] == "hub_stopped"
