"""A raw MCP client over stdio, without the SDK: what it saw is what was on the wire."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio

from tests.e2e.answers import Answers
from tests.upstreams.child import GRACE, WAIT, Child, Chunks, PeerClosed
from tests.upstreams.messages import CLIENT, Id, Message, Params, rpc


class StdioClient(Child):
    """A client of a server on stdio: `async with StdioClient(argv) as c: await c.initialize()`.

    `transcript` has every decoded message in wire order, `noise` every line that is no JSON object. Requests of the
    server's are left alone until `answers` is set; then it answers them, each in a task of its own. Leaving the
    block closes stdin, waits `GRACE` seconds and kills what is left; to insist on a clean exit,
    `assert await c.close() == 0`.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        super().__init__(argv, env, cwd)
        self.transcript: list[Message] = []
        self.noise: list[bytes] = []
        self.is_closed = False
        self.answers: Answers | None = None
        self._last_id = 0
        self._writing = anyio.Lock()

    async def close(self, grace: float = GRACE) -> int:
        """Close stdin and wait for a voluntary exit. Raises: `TimeoutError`, and it still runs."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return await self.wait(grace)

    async def initialize(self, version: str = "2025-11-25", capabilities: Params = None) -> Message:
        """The handshake, `notifications/initialized` included; returns the answer to `initialize`.

        The capabilities are those of `answers` unless given.
        """
        if capabilities is None and self.answers is not None:
            capabilities = self.answers.capabilities
        params = {"protocolVersion": version, "capabilities": dict(capabilities or {}), "clientInfo": CLIENT}
        answer = await self.request("initialize", params)
        if "result" in answer:
            await self.notify("notifications/initialized")
        return answer

    async def request(
        self,
        method: str,
        params: Params = None,
        *,
        id: Id | None = None,
        seconds: float = WAIT,
    ) -> Message:
        """Send and wait: the whole response message, with `result` or `error`. Raises: `PeerClosed`, `TimeoutError`."""
        position = len(self.transcript)
        request_id = await self.send_request(method, params, id=id)
        return await self.response(request_id, after=position, seconds=seconds)

    async def call(self, tool: str, arguments: Params = None, *, token: str | int | None = None) -> Message:
        """`tools/call` in the handshake era; `token` is the progressToken."""
        meta = {} if token is None else {"_meta": {"progressToken": token}}
        return await self.request("tools/call", {"name": tool, "arguments": dict(arguments or {}), **meta})

    async def send_request(self, method: str, params: Params = None, *, id: Id | None = None) -> Id:
        """Send without waiting; returns the id."""
        if id is None:
            self._last_id += 1
            id = self._last_id
        await self.send(rpc(method, params, id=id))
        return id

    async def response(self, id: Id, *, after: int = 0, seconds: float = WAIT) -> Message:
        """The response to a request, from transcript position `after` on; 1 and "1" are different ids."""
        return await self.wait_for(
            lambda m: "method" not in m and type(m.get("id")) is type(id) and m.get("id") == id,
            after=after,
            seconds=seconds,
        )

    async def notify(self, method: str, params: Params = None) -> None:
        await self.send(rpc(method, params))

    async def respond(self, id: Id, result: Mapping[str, Any]) -> None:
        """Answer a request of the server's."""
        await self.send({"jsonrpc": "2.0", "id": id, "result": dict(result)})

    async def send(self, message: Any) -> None:
        await self.send_raw(json.dumps(message).encode() + b"\n")

    async def send_raw(self, data: bytes) -> None:
        """Write these bytes as they are. Raises: `PeerClosed` when nobody reads, `TimeoutError`."""
        assert self.process.stdin is not None
        with anyio.fail_after(WAIT):
            async with self._writing:
                try:
                    await self.process.stdin.send(data)
                except (anyio.BrokenResourceError, OSError) as gone:
                    raise PeerClosed(f"{self.argv} does not read any more:\n{self.stderr}") from gone

    async def wait_for(self, predicate: Callable[[Message], bool], *, after: int = 0, seconds: float = WAIT) -> Message:
        """The first message at or after transcript position `after` for which it holds, past ones included."""
        with anyio.fail_after(seconds):
            while True:
                for message in self.transcript[after:]:
                    if predicate(message):
                        return message
                after = max(after, len(self.transcript))
                if self.is_closed:
                    raise PeerClosed(f"{self.argv} closed its output; stderr:\n{self.stderr}")
                await self._changed.wait()

    async def wait_closed(self, seconds: float = WAIT) -> None:
        """Wait until the server's output has ended."""
        with anyio.fail_after(seconds):
            while not self.is_closed:
                await self._changed.wait()

    def notifications(self, method: str | None = None) -> list[Message]:
        """Notifications so far, in wire order; only those of `method` if it is given."""
        found = [m for m in self.transcript if "method" in m and "id" not in m]
        return [m for m in found if method is None or m["method"] == method]

    async def _collect_stdout(self) -> None:
        buffer = bytearray()
        async for chunk in Chunks(self.process.stdout):
            searched = len(buffer)
            buffer += chunk
            if buffer.find(b"\n", searched) >= 0:
                *lines, rest = buffer.split(b"\n")
                buffer = rest
                for line in lines:
                    self._line(bytes(line))
                self._notice()
        if buffer:
            self.noise.append(bytes(buffer))
        self.is_closed = True
        self._notice()

    def _line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            self.noise.append(line)
            return
        self.transcript.append(message)
        if self.answers is not None and "method" in message and "id" in message:
            self._tasks.start_soon(self.answers.answer, message, self.send)
