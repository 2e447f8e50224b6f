"""Raw MCP clients over one stream, without the SDK: what they saw is what was on the wire."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import TaskGroup

from tests.e2e.answers import Answers, hello
from tests.upstreams.child import ENDS, WAIT, Child, Chunks, PeerClosed
from tests.upstreams.messages import Id, Message, Params, rpc


class Conversation:
    """A raw MCP client over one stream of messages that is read all the time; `send` is its transport's.

    `transcript` has every decoded message in wire order. Requests of the server's are left alone until `answers` is
    set; then it answers them, each in a task of its own.
    """

    version = "2025-11-25"
    """The one that `initialize` asks for unless told otherwise."""
    _tasks: TaskGroup

    def __init__(self) -> None:
        self.transcript: list[Message] = []
        self.is_closed = False
        self.answers: Answers | None = None
        self._last_id = 0
        self._news = anyio.Event()

    async def send(self, message: Any) -> object:
        raise NotImplementedError

    async def initialize(self, version: str = "", capabilities: Params = None, name: str = "") -> Message:
        """The handshake, `notifications/initialized` included; returns the answer to `initialize`. As for `hello`."""
        answer = await self.request("initialize", hello(version or self.version, capabilities, self.answers, name))
        if "result" in answer:
            await self.notify("notifications/initialized")
        return answer

    async def request(
        self, method: str, params: Params = None, *, id: Id | None = None, seconds: float = WAIT
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

        def is_it(message: Message) -> bool:
            return "method" not in message and type(message.get("id")) is type(id) and message["id"] == id

        return await self.wait_for(is_it, after=after, seconds=seconds)

    async def notify(self, method: str, params: Params = None) -> None:
        await self.send(rpc(method, params))

    async def respond(self, id: Id, result: Mapping[str, Any]) -> None:
        """Answer a request of the server's."""
        await self.send({"jsonrpc": "2.0", "id": id, "result": dict(result)})

    async def wait_for(self, predicate: Callable[[Message], bool], *, after: int = 0, seconds: float = WAIT) -> Message:
        """The first message at or after transcript position `after` for which it holds, past ones included."""
        with anyio.fail_after(seconds):
            while True:
                for message in self.transcript[after:]:
                    if predicate(message):
                        return message
                after = max(after, len(self.transcript))
                if self.is_closed:
                    raise PeerClosed(f"the stream ended; {self}")
                await self._news.wait()

    async def wait_closed(self, seconds: float = WAIT) -> None:
        """Wait until the server's output has ended."""
        with anyio.fail_after(seconds):
            while not self.is_closed:
                await self._news.wait()

    def notifications(self, method: str | None = None) -> list[Message]:
        """Notifications so far, in wire order; only those of `method` if it is given."""
        found = [m for m in self.transcript if "method" in m and "id" not in m]
        return [m for m in found if method is None or m["method"] == method]

    def _take(self, message: Message) -> None:
        self.transcript.append(message)
        if self.answers is not None and "method" in message and "id" in message:
            self._tasks.start_soon(self.answers.answer, message, self.send)

    def _tell(self, *, is_over: bool = False) -> None:
        """Wake everybody who waits for a message."""
        self.is_closed = is_over
        self._news.set()
        self._news = anyio.Event()


class StdioClient(Child, Conversation):
    """A client of a server on stdio: `async with StdioClient(argv) as c: await c.initialize()`.

    `noise` has every line that is no JSON object. Leaving the block closes stdin, waits and kills what is left.
    """

    def __init__(self, argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: Path | None = None) -> None:
        Child.__init__(self, argv, env, cwd)
        Conversation.__init__(self)
        self.noise: list[bytes] = []
        self._writing = anyio.Lock()

    def __str__(self) -> str:
        return f"{self.argv}, stderr:\n{self.stderr}"

    async def close(self, grace: float = ENDS) -> int:
        """Close stdin and wait for a voluntary exit. Raises: `TimeoutError`, and it still runs."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return await self.wait(grace)

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
                    raise PeerClosed(f"nobody reads any more; {self}") from gone

    async def _collect_stdout(self) -> None:
        parts: list[bytes] = []
        async for chunk in Chunks(self.process.stdout):
            first, *rest = chunk.split(b"\n")
            parts.append(first)
            for piece in rest:
                self._line(b"".join(parts))
                parts = [piece]
            if rest:
                self._tell()
        if any(parts):
            self.noise.append(b"".join(parts))
        self._tell(is_over=True)

    def _line(self, line: bytes) -> None:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            message = None
        if isinstance(message, dict):
            self._take(message)
        else:
            self.noise.append(line)
