"""Clients that cost little, so that what a soak takes is the hub's: HTTP/1.1 over plain streams, lines over pipes."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

Message = dict[str, Any]
_LIMIT = 1 << 26


class Broken(Exception):
    """The connection ended where more was due."""


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what other processes do; how long is for the caller to bound."""
    while not condition():  # noqa: ASYNC110  nobody there to set an event
        await asyncio.sleep(0.05)


class Event:
    """A server-sent event."""

    __slots__ = ("data", "id", "type")

    def __init__(self, block: bytes) -> None:
        self.id, self.type, data = "", "message", list[bytes]()
        for line in block.split(b"\n"):
            name, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if name == b"data":
                data.append(value)
            elif name == b"id":
                self.id = value.decode()
            elif name == b"event":
                self.type = value.decode()
        self.data = b"\n".join(data)

    @property
    def message(self) -> Message:
        message: Message = json.loads(self.data)
        return message


class Response:
    """An answer whose head has come; its body is read once, by `json` or `events`."""

    def __init__(self, status: int, headers: dict[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self.is_whole = False
        self._reader = reader

    @property
    def is_stream(self) -> bool:
        return "text/event-stream" in self.headers.get("content-type", "")

    async def json(self) -> Message:
        """The body; `{}` if there is none."""
        body = b"".join([part async for part in self._parts()])
        message: Message = json.loads(body) if body else {}
        return message

    async def events(self) -> AsyncIterator[Event]:
        rest = b""
        async for part in self._parts():
            *blocks, rest = (rest + part).split(b"\n\n")
            for block in blocks:
                event = Event(block)
                if event.data or event.id:
                    yield event

    async def _parts(self) -> AsyncIterator[bytes]:
        try:
            if "chunked" in self.headers.get("transfer-encoding", ""):
                while size := int((await self._reader.readline()).partition(b";")[0] or b"", 16):
                    yield await self._reader.readexactly(size)
                    await self._reader.readexactly(2)
                await self._reader.readexactly(2)
            elif length := int(self.headers.get("content-length", "0")):
                yield await self._reader.readexactly(length)
        except (OSError, ValueError, asyncio.IncompleteReadError) as problem:
            raise Broken(f"in the body: {problem}") from None
        self.is_whole = True


class Http:
    """One connection at a time to one hub, kept alive between requests, opened again when it is gone."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._answer: Response | None = None

    async def ask(self, method: str, path: str, body: Message | None = None, **headers: str) -> Response:
        """One request. A kept connection that the hub has closed meanwhile is no fault. Raises `Broken`."""
        sent = b"" if body is None else json.dumps(body).encode()
        named = {"host": f"127.0.0.1:{self._port}", "content-length": str(len(sent)), **headers}
        if body is not None:
            named["content-type"] = "application/json"
        lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in named.items())
        head = f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()
        is_kept = self._writer is not None and self._answer is not None and self._answer.is_whole
        if not is_kept:
            self.drop()
        for is_last in (not is_kept, True):
            try:
                self._answer = await self._exchange(head + sent)
                return self._answer
            except (OSError, asyncio.IncompleteReadError) as problem:
                self.drop()
                if is_last:
                    raise Broken(f"{method} {path}: {problem!r}") from None
        raise AssertionError

    async def _exchange(self, request: bytes) -> Response:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=_LIMIT)
        assert self._reader is not None
        self._writer.write(request)
        await self._writer.drain()
        first, *rest = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in rest if line)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        return Response(int(first.split(" ")[1]), headers, self._reader)

    def drop(self) -> None:
        """Breaks the connection, whatever it was about."""
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = self._answer = None


class Pipe:
    """A client over stdio: any number of calls on one pair of pipes."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.strays: list[Message] = []
        self._process = process
        self._last = 0
        self._open: dict[int, Callable[[Message], None]] = {}
        self._of_progress: dict[int, Callable[[Message], None]] = {}
        self._on_question: Callable[[Message], None] = lambda message: None
        self._done = set[int]()
        self._forgotten = set[int]()

    def answering(self, on_question: Callable[[Message], None]) -> None:
        self._on_question = on_question

    async def read(self) -> None:
        """Hands out what comes, until the hub closes its output."""
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            message: Message = json.loads(line)
            if "method" in message:
                self._take_request(message)
            elif (take := self._open.pop(message.get("id"), None)) is not None:  # type: ignore[arg-type]
                self._of_progress.pop(message["id"], None)
                self._done.add(message["id"])
                take(message)
            elif message.get("id") in self._forgotten:
                self._forgotten.discard(message["id"])  # it was answered before the hub knew
            else:
                self.strays.append(message)  # answered twice, or never asked

    def _take_request(self, message: Message) -> None:
        if "id" in message:
            self._on_question(message)
        elif message["method"] == "notifications/progress":
            token = message["params"]["progressToken"]
            if (take := self._of_progress.get(token)) is not None:
                take(message["params"])
            elif token in self._done:
                self.strays.append(message)

    def send(self, message: Message) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, method: str, params: Message, on_progress: Callable[[Message], None] | None = None) -> "Asked":
        self._last += 1
        id_ = self._last
        if on_progress is not None:
            self._of_progress[id_] = on_progress
            params = {**params, "_meta": {**params.get("_meta", {}), "progressToken": id_}}
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._open[id_] = lambda message: None if answer.done() else answer.set_result(message)
        self.send({"id": id_, "method": method, "params": params})
        return Asked(id_, answer)

    def forget(self, id_: int) -> None:
        """Its answer is nobody's any more: a cancelled request has none, or at most one that was on its way."""
        self._forgotten.add(id_)
        self._open.pop(id_, None)
        self._of_progress.pop(id_, None)

    @property
    def unanswered(self) -> int:
        return len(self._open)


class Asked:
    """A request on a pipe."""

    def __init__(self, id_: int, answer: "asyncio.Future[Message]") -> None:
        self.id = id_
        self.answer = answer
