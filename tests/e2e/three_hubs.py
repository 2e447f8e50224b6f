"""Hubs of every front on one store, and jobs of ten minutes that take seconds.

Hubs A and B serve HTTP, C its reader over stdio; all share configuration and state. A job waits at one step until it is
told to go on, so that what happens before surely happens in the middle of it.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2

from tests.e2e.client import Hub
from tests.fork_server import forked_command
from tests.interaction.fronts import http_hub, stdio_hub
from tests.upstreams.child import WAIT
from tests.upstreams.messages import PREFIX, Message, modern
from tests.upstreams.stdio_client import StdioClient

STREAMS = "dev.mcp-hub/streams"
TASKS = PREFIX + "tasks"
STEPS = 600
"""Of a job: one for each second of ten minutes."""
MOST = 240.0
"""Seconds for reading a stream to its end."""

_MODULE = """
from collections.abc import AsyncIterator
from pathlib import Path

import anyio

from mcp_hub.upstreams.functions.registry import Progress, Registry, Result

registry = Registry()
HERE = Path(__file__).parent


async def work(nonce: str, steps: int, hold: int) -> AsyncIterator[Progress | str | Result]:
    for step in range(1, steps + 1):
        while step == hold and not (HERE / f"{nonce}.go").exists():
            await anyio.sleep(0.01)
        yield Progress(step, steps, message=f"second {step}")
        yield f"{step}\\n"
        await anyio.sleep(0.003)
    yield Result({"steps": steps, "nonce": nonce})


registry.tool(name="job", output_schema={"type": "object"})(work)
registry.tool(name="long_job")(work)
"""


@dataclass(frozen=True)
class Job:
    """One run: it waits before step `hold` for `go`."""

    root: Path
    nonce: str
    hold: int = 0

    @property
    def arguments(self) -> Message:
        return {"nonce": self.nonce, "steps": STEPS, "hold": self.hold}

    @property
    def result(self) -> Message:
        return {"steps": STEPS, "nonce": self.nonce}

    def go(self) -> None:
        (self.root / f"{self.nonce}.go").touch()


@dataclass(frozen=True)
class Fleet:
    """`env` and `argv` are for a hub of one's own over stdio beside the three."""

    root: Path
    a: Hub
    b: Hub
    c: StdioClient

    def job(self, nonce: str, hold: int = 0) -> Job:
        return Job(self.root, nonce, hold)

    def stdio(self) -> StdioClient:
        """A client with a hub of its own, not yet started."""
        command = [*forked_command(), "serve", "--config", str(self.root / "servers.yaml")]
        return StdioClient([*command, "--client", "mcp-hub"], self.env)

    @property
    def env(self) -> Mapping[str, str]:
        own = {"MCP_HUB_CONFIG": str(self.root / "servers.yaml"), "MCP_HUB_STATE_DIR": str(self.root / "state")}
        return {**self.c.env, **own}


def config(servers: Mapping[str, Any] | None = None, **hub: Any) -> str:
    """A `servers.yaml` with the jobs, one of which is always a task, and these other servers; no prefixes."""
    jobs = {"local": "ten_minutes:registry", "per_tool": {"long_job": {"task": "always"}}}
    settings = {"prefix": "never", "task_after": 0.4, "first_list_wait": WAIT, **hub}
    return json.dumps({"hub": settings, "servers": {"jobs": jobs, **(servers or {})}})


@asynccontextmanager
async def fleet(root: Path, text: str) -> AsyncIterator[Fleet]:
    (root / "ten_minutes.py").write_text(_MODULE)
    async with http_hub(text, root) as a, http_hub(text, root) as b, stdio_hub(text, root) as c:
        await c.request("tools/list", modern())
        yield Fleet(root, a, b, c)


async def ndjson(hub: Hub, stream: str, after: int = 0, most: int | None = None) -> list[bytes]:
    """The stored lines behind a cursor as the hub's REST front has them; the connection is dropped after `most`."""
    url = f"{hub.url.removesuffix('/mcp')}/v1/streams/{stream}/events"
    with anyio.fail_after(MOST):
        return await _lines(url, after, most)


async def _lines(url: str, after: int, most: int | None) -> list[bytes]:
    found: list[bytes] = []
    async with (
        httpx2.AsyncClient(timeout=WAIT, trust_env=False, verify=False) as http,
        http.stream("GET", url, params={"after": after}, headers={"accept": "application/x-ndjson"}) as response,
    ):
        assert response.status_code == 200, await response.aread()
        async for line in response.aiter_lines():
            found.append(line.encode())
            if len(found) == most:
                break
    return found


async def whole(hub: Hub, stream: str) -> list[bytes]:
    """Every line of a stream, which is checked: numbered without a hole, with one ending, which comes last."""
    lines = await ndjson(hub, stream)
    events = [json.loads(line) for line in lines]
    assert [event["seq"] for event in events] == list(range(1, len(lines) + 1))
    assert {event["stream"] for event in events} == {stream}
    endings = [event["seq"] for event in events if event["type"] in ("end", "error")]
    assert endings == [len(lines)] and events[0]["type"] == "start"
    return lines


def ending(lines: list[bytes]) -> Message:
    """The data of the last event."""
    data: Message = json.loads(lines[-1])["data"]
    return data


def said(lines: list[bytes]) -> str:
    """All text that was streamed."""
    events = [json.loads(line) for line in lines]
    deltas = [event["data"]["content"] for event in events if event["type"] == "delta"]
    return "".join(block["text"] for content in deltas for block in content)
