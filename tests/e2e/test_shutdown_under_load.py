"""A hub that is ended while a hundred calls run and new ones come: every client hears of it, and nothing crashes."""

import json
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.e2e.browser import base
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import argv, received
from tests.upstreams.messages import modern

pytestmark = pytest.mark.anyio

HUB = {"prefix": "always", "limits": {"detached_calls": 200}}
EACH = 25
"""Calls of one kind that run."""
JOB = {"steps": 1000, "seconds": 30}
PROGRESS = {"name": "a_progress", "arguments": {"n": 1000, "delay": 0.02}, "_meta": {"progressToken": 1}}
MCP = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": modern(PROGRESS)}
MODERN = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "a_progress",
}
RUNNING: tuple[tuple[str, Any, dict[str, str]], ...] = (
    ("/v1/tools/jobs_run_job/call", {"arguments": JOB}, {"accept": "text/event-stream"}),
    ("/v1/tools/jobs_run_job/call", {"arguments": JOB}, {"accept": "application/x-ndjson"}),
    ("/v1/tools/a_progress/call", {"arguments": PROGRESS["arguments"]}, {"accept": "application/json"}),
    ("/mcp", MCP, MODERN),
)
QUICK = ("/v1/tools/a_echo/call", {"arguments": {"text": "x" * 1000}})


async def test_hub_under_load_ends_without_a_traceback(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    command, *args = argv(name="a", journal=log)
    jobs = {"local": "mcp_hub.examples.jobs:registry"}
    settings = {"servers": {"a": {"command": command, "args": args}, "jobs": jobs}, "hub": HUB}
    limits = httpx2.Limits(max_connections=2 * EACH * len(RUNNING))
    streaming: list[str] = []
    async with (
        http_hub(json.dumps(settings), tmp_path) as hub,
        httpx2.AsyncClient(base_url=base(hub), limits=limits, timeout=WAIT, trust_env=False) as http,
        anyio.create_task_group() as tasks,
    ):

        async def run(path: str, body: Any, headers: dict[str, str]) -> None:
            with suppress(httpx2.HTTPError):
                async with http.stream("POST", path, json=body, headers=headers) as response:
                    lines = response.aiter_lines()
                    await anext(lines)
                    streaming.append(path)
                    async for _ in lines:
                        pass

        async def repeat() -> None:
            with suppress(httpx2.HTTPError):  # until the hub does not listen any more
                while True:
                    await http.post(QUICK[0], json=QUICK[1])

        for request in RUNNING:
            for _ in range(EACH):
                tasks.start_soon(run, *request)
        await until(lambda: len(streaming) == 3 * EACH and len(received(log, "tools/call")) >= 2 * EACH)
        for _ in range(4):
            tasks.start_soon(repeat)
        await until(lambda: len(received(log, "tools/call")) > 2 * EACH + 20)
        hub.send_signal(signal.SIGTERM)
        with anyio.fail_after(WAIT):
            assert await hub.wait() == 0, hub.stderr
        assert "Traceback" not in hub.stderr, hub.stderr
