"""A program that knows nothing of MCP, as `curl` would be used: the REST front of a hub over a real socket."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self

import anyio
import httpx2

from tests.e2e.client import Hub, SseEvent, SseStream
from tests.upstreams.child import WAIT

SSE = {"accept": "text/event-stream"}


class RestClient:
    """Requests to one hub, which may be given as its URL; each wait for bytes is bounded."""

    def __init__(self, hub: Hub | str, token: str | None = None) -> None:
        headers = {"x-mcp-hub": "1"} if token is None else {"authorization": f"Bearer {token}"}
        base = (hub if isinstance(hub, str) else hub.url).removesuffix("/mcp") + "/v1"
        self._http = httpx2.AsyncClient(base_url=base, timeout=WAIT, headers=headers, trust_env=False, verify=False)

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._http.__aexit__(*error)

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self._http.request(method, path, json=body, headers=sent)

    async def settled(self) -> None:
        """Waits until no server starts."""
        with anyio.fail_after(WAIT):
            while "starting" in (await self.ask("GET", "/tools", prefer="wait=60")).json():
                pass

    async def call(self, tool: str, arguments: Any = None, **headers: str) -> httpx2.Response:
        return await self.ask("POST", f"/tools/{tool}/call", {"arguments": arguments or {}}, **headers)

    async def started(self, tool: str, arguments: Any = None, **headers: str) -> str:
        """The stream of a call that is not waited for, once its server has started."""
        await self.settled()
        response = await self.call(tool, arguments, prefer="wait=0", **headers)
        assert response.status_code == 202, response.text
        return str(response.json()["stream"])

    @asynccontextmanager
    async def events(self, path: str, last: str | None = None, body: Any = None) -> AsyncIterator[SseStream]:
        """An SSE response piece by piece; leaving the block drops the connection."""
        headers = SSE if last is None else {**SSE, "last-event-id": last}
        method = "GET" if body is None else "POST"
        async with self._http.stream(method, path, json=body, headers=headers) as response:
            yield SseStream(response)

    async def until(self, stream: str, *statuses: str) -> Any:
        """What is known of the stream once it has one of these statuses."""
        with anyio.fail_after(WAIT):
            after = 0
            while (known := (await self.ask("GET", f"/streams/{stream}")).json())["status"] not in statuses:
                page = (await self.ask("GET", f"/streams/{stream}/events?after={after}")).json()
                after = page.get("cursor", after)  # a replica that has been away refuses for a moment
        return known


async def cut(stream: SseStream, count: int) -> list[SseEvent]:
    """So many events of a response that is left then."""
    return [await stream.next_event() for _ in range(count)]


def lines(events: list[SseEvent]) -> list[Any]:
    """The stored events in it; what says that the stream is closed is none."""
    return [json.loads(event.data) for event in events if event.id is not None]
