"""Tools that a program executes for a hub over REST: `python -m mcp_hub.examples.worker [URL]`.

The token is in `MCP_HUB_TOKEN`. The worker survives restarts of the hub; a second one of its name replaces it.
"""

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import anyio
import httpx2

Json = dict[str, Any]
Tool = Callable[[Json], AsyncIterator[str]]

NAME: Final = "example-worker"
LEASE: Final = 30
"""Seconds for which the tools stay listed when the worker is silent."""
PAUSE: Final = 0.2
"""Seconds for which output is collected before it is sent."""
PATIENCE: Final = 30
"""Times that a post is sent again, a second apart."""


async def shout(arguments: Json) -> AsyncIterator[str]:
    """Say it louder."""
    yield str(arguments["text"]).upper()


async def report(arguments: Json) -> AsyncIterator[str]:
    """Write a report line by line, while the caller reads it."""
    for line in range(1, int(arguments["lines"]) + 1):
        await anyio.sleep(0.1)
        yield f"line {line}\n"


TOOLS: Final[dict[str, tuple[Tool, Json]]] = {
    "shout": (shout, {"text": {"type": "string"}}),
    "report": (report, {"lines": {"type": "integer", "minimum": 1, "maximum": 1000}}),
}


class _Replaced(Exception):
    """Another worker has this name."""


class _ExampleWorker:
    """Executes calls concurrently."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self._http = http
        self._epoch = 0
        self._running: dict[str, anyio.CancelScope] = {}

    async def run(self) -> None:
        """Raises `_Replaced`, `httpx2.HTTPStatusError`."""
        await self._register()
        async with anyio.create_task_group() as tasks:
            while True:
                for offer in await self._offers():
                    if offer["type"] == "call":
                        tasks.start_soon(self._execute, offer)
                    elif offer["type"] == "cancel" and offer["tool_call_id"] in self._running:
                        self._running[offer["tool_call_id"]].cancel()

    async def _register(self) -> None:
        tools = [
            {
                "name": name,
                "description": function.__doc__,
                "inputSchema": {"type": "object", "properties": properties, "required": [*properties]},
            }
            for name, (function, properties) in TOOLS.items()
        ]
        answer = await self._http.put(f"/v1/executors/{NAME}", json={"tools": tools, "lease": LEASE})
        self._epoch = answer.raise_for_status().json()["epoch"]
        print(f"registered {', '.join(TOOLS)} (epoch {self._epoch})", flush=True)

    async def _offers(self) -> list[Json]:
        try:
            epoch = {"producer-epoch": str(self._epoch)}
            answer = await self._http.get(f"/v1/executors/{NAME}/calls", params={"wait": 10}, headers=epoch)
            if answer.status_code == 403:
                raise _Replaced
            if answer.status_code == 404:  # a hub that was started again does not know the worker
                await self._register()
                return []
            offers: list[Json] = answer.raise_for_status().json()["offers"]
        except httpx2.TransportError as problem:
            print(f"no connection ({type(problem).__name__}); trying again", flush=True)
            await anyio.sleep(1)
            return []
        return offers

    async def _execute(self, offer: Json) -> None:
        id_, collected = offer["tool_call_id"], list[str]()
        function, _ = TOOLS[offer["name"]]
        seq, sent_at = 0, anyio.current_time()
        end: Json = {}
        with self._known(id_):
            try:
                async for text in function(offer["arguments"]):
                    collected.append(text)
                    if anyio.current_time() - sent_at >= PAUSE:
                        seq += 1
                        if not await self._post(seq, {"tool_call_id": id_, "content": "".join(collected)}):
                            return
                        collected.clear()
                        sent_at = anyio.current_time()
            except (KeyError, ValueError) as problem:
                message = f"{type(problem).__name__}: {problem}"
                end = {"result": {"content": [{"type": "text", "text": message}], "isError": True}}
            content = {"content": "".join(collected)} if collected and not end else {}
            await self._post(seq + 1, {"tool_call_id": id_, "complete": True, **content, **end})

    @contextmanager
    def _known(self, id_: str) -> Iterator[None]:
        with anyio.CancelScope() as self._running[id_]:
            try:
                yield
            finally:
                del self._running[id_]

    async def _post(self, seq: int, body: Json) -> bool:
        """Whether the hub wants more; it takes each number once."""
        headers = {"producer-epoch": str(self._epoch), "producer-seq": str(seq)}
        for _ in range(PATIENCE):
            try:
                answer = await self._http.post("/v1/tool-results/stream", json=body, headers=headers)
            except httpx2.TransportError:
                await anyio.sleep(1)
                continue
            if answer.status_code not in (429, 503):
                return answer.is_success
            await anyio.sleep(float(answer.headers.get("retry-after", 1)))
        return False


async def main() -> None:
    """Runs the worker."""
    url, token = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8765", os.environ.get("MCP_HUB_TOKEN")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=20) as http:
        await _ExampleWorker(http).run()


if __name__ == "__main__":
    try:
        anyio.run(main)
    except* KeyboardInterrupt:
        pass
    except* _Replaced:
        sys.exit("another worker of this name has registered")
    except* httpx2.HTTPError as problems:
        sys.exit(f"the hub refused or cannot be reached: {problems.exceptions[0]}")
