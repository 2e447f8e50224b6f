"""A raw client of the old SSE transport: one stream that is read all the time, and POSTs to where it says."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2

from tests.e2e.answers import Answers
from tests.e2e.client import SseParser
from tests.upstreams.child import WAIT
from tests.upstreams.messages import CLIENT, Id, Message, Params, rpc


def sse_url(mcp_url: str) -> str:
    """`/sse` beside `/mcp`, of the same profile if the URL names one."""
    return mcp_url.replace("/mcp", "/sse", 1)


class SseClient:
    """`transcript` has every message in wire order; questions are answered once `answers` is set."""

    def __init__(self, http: httpx2.AsyncClient, tasks: anyio.abc.TaskGroup, url: str) -> None:
        self.transcript: list[Message] = []
        self.answers: Answers | None = None
        self.endpoint = ""
        self.is_closed = False
        self._http = http
        self._tasks = tasks
        self._url = url
        self._last_id = 0
        self._news = anyio.Event()

    @classmethod
    @asynccontextmanager
    async def connect(cls, mcp_url: str, token: str | None = None) -> AsyncIterator["SseClient"]:
        """Opens the stream beside this MCP endpoint; leaving the block closes it."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(timeout=WAIT, headers=headers, trust_env=False) as http,
            http.stream("GET", sse_url(mcp_url), headers={"accept": "text/event-stream"}) as response,
            anyio.create_task_group() as tasks,
        ):
            assert response.status_code == 200, await response.aread()
            client = cls(http, tasks, sse_url(mcp_url))
            tasks.start_soon(client._read, response)
            with anyio.fail_after(WAIT):
                while not client.endpoint:
                    await client._news.wait()
            yield client
            tasks.cancel_scope.cancel()

    async def initialize(self, version: str = "2024-11-05", capabilities: Params = None) -> Message:
        """The handshake; the capabilities are those of `answers` unless given."""
        if capabilities is None and self.answers is not None:
            capabilities = self.answers.capabilities
        params = {"protocolVersion": version, "capabilities": dict(capabilities or {}), "clientInfo": CLIENT}
        answer = await self.request("initialize", params)
        await self.post(rpc("notifications/initialized", None))
        return answer

    async def request(self, method: str, params: Params = None, *, id: Id | None = None) -> Message:
        return await self.response(await self.send_request(method, params, id=id))

    async def send_request(self, method: str, params: Params = None, *, id: Id | None = None) -> Id:
        self._last_id += 1
        id = self._last_id if id is None else id
        assert (await self.post(rpc(method, params, id=id))).status_code == 202
        return id

    async def call(self, tool: str, arguments: Params = None, **meta: Any) -> Message:
        params = {"name": tool, "arguments": dict(arguments or {})}
        return await self.request("tools/call", {**params, "_meta": meta} if meta else params)

    async def post(self, message: Any) -> httpx2.Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self._http.post(self.endpoint, content=body, headers={"content-type": "application/json"})

    async def response(self, id: Id) -> Message:
        return await self.wait_for(lambda message: "method" not in message and message.get("id") == id)

    async def wait_for(self, predicate: Callable[[Message], bool]) -> Message:
        """The first message for which it holds, past ones included."""
        with anyio.fail_after(WAIT):
            while True:
                for message in self.transcript:
                    if predicate(message):
                        return message
                assert not self.is_closed, "the stream has ended"
                await self._news.wait()

    async def wait_closed(self) -> None:
        with anyio.fail_after(WAIT):
            while not self.is_closed:
                await self._news.wait()

    def notifications(self, method: str) -> list[Message]:
        return [message["params"] for message in self.transcript if message.get("method") == method]

    async def _read(self, response: httpx2.Response) -> None:
        parser = SseParser()
        async for chunk in response.aiter_bytes():
            for event in parser.feed(chunk):
                if event.event == "endpoint":
                    self.endpoint = str(httpx2.URL(self._url).join(event.data))
                else:
                    assert event.event == "message"
                    self._take(event.message)
            self._notice()
        self.is_closed = True
        self._notice()

    def _take(self, message: Message) -> None:
        self.transcript.append(message)
        if "method" in message and "id" in message and self.answers is not None:
            self._tasks.start_soon(self.answers.answer, message, self.post)

    def _notice(self) -> None:
        self._news.set()
        self._news = anyio.Event()
