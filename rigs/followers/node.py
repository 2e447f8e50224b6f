"""The TypeScript client: one Node.js process that follows calls, as many at a time as are asked for."""

import itertools
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_hub.types import JsonObject
from rigs.clients.install import node, node_project

SOURCE = Path(__file__).parents[2] / "clients" / "typescript"
_LINE = 1 << 26
"""Bytes of what came of one call."""


class NodeFollower:
    """Orders and what came of them, by `clients/typescript/test/follow.ts`."""

    def __init__(self, stdin: ByteSendStream, stdout: ByteReceiveStream) -> None:
        self._stdin = stdin
        self._stdout = BufferedByteReceiveStream(stdout)
        self._ids = itertools.count(1)
        self._waiting: dict[int, tuple[anyio.Event, JsonObject]] = {}

    async def run(self) -> None:
        """Reads until the process ends."""
        try:
            while True:
                found = json.loads(await self._stdout.receive_until(b"\n", _LINE))
                arrived, place = self._waiting.pop(found["id"])
                place.update(found)
                arrived.set()
        except (anyio.IncompleteRead, anyio.ClosedResourceError):
            for arrived, place in self._waiting.values():
                place["ended"] = "the Node.js process has ended"
                arrived.set()

    async def follow(self, **order: Any) -> JsonObject:
        """What came of one call: its events, and its result or error; or why it was not begun."""
        number = next(self._ids)
        arrived, found = self._waiting[number] = (anyio.Event(), {})
        await self._stdin.send(json.dumps({"id": number, **order}).encode() + b"\n")
        await arrived.wait()
        return found


@asynccontextmanager
async def node_follower(**env: str) -> AsyncIterator[NodeFollower]:
    """With these further variables. Raises: `NotInstalled`."""
    folder = await anyio.to_thread.run_sync(node_project, SOURCE)
    command = [str(node()), str(folder / "test" / "follow.ts")]
    async with await anyio.open_process(command, stderr=subprocess.DEVNULL, env=os.environ | env) as process:
        assert process.stdin is not None and process.stdout is not None
        follower = NodeFollower(process.stdin, process.stdout)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follower.run)
            try:
                yield follower
            finally:
                process.kill()
                tasks.cancel_scope.cancel()
