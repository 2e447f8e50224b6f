"""A raw client of the old SSE transport: one stream that is read all the time, and POSTs to where it says."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
from anyio.abc import TaskGroup

from tests.e2e.client import SseParser
from tests.upstreams.child import WAIT
from tests.upstreams.stdio_client import Conversation


def sse_url(mcp_url: str) -> str:
    """`/sse` beside `/mcp`, of the same profile if the URL names one."""
    return mcp_url.replace("/mcp", "/sse", 1)


class SseClient(Conversation):
    """`endpoint` is where it POSTs; each message has to be accepted."""

    version = "2024-11-05"

    def __init__(self, http: httpx2.AsyncClient, tasks: TaskGroup, url: str) -> None:
        super().__init__()
        self.endpoint = ""
        self._http = http
        self._tasks = tasks
        self._url = url

    @classmethod
    @asynccontextmanager
    async def connect(cls, mcp_url: str, token: str | None = None) -> AsyncIterator["SseClient"]:
        """Opens the stream beside this MCP endpoint; leaving the block closes it."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        async with (
            httpx2.AsyncClient(timeout=WAIT, headers=headers, trust_env=False, verify=False) as http,
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

    async def send(self, message: Any) -> None:
        assert (await self.post(message)).status_code == 202

    async def post(self, message: Any) -> httpx2.Response:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        return await self._http.post(self.endpoint, content=body, headers={"content-type": "application/json"})

    async def _read(self, response: httpx2.Response) -> None:
        parser = SseParser()
        async for chunk in response.aiter_bytes():
            for event in parser.feed(chunk):
                if event.event == "endpoint":
                    self.endpoint = str(httpx2.URL(self._url).join(event.data))
                else:
                    assert event.event == "message"
                    self._take(event.message)
            self._tell()
        self._tell(is_over=True)
