"""Raw clients over HTTP, without the SDK, and servers in a thread; every wait ends after `WAIT` seconds by default."""

import base64
import json
import re
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler
from typing import Any, Self

import anyio
import httpx2
from anyio.abc import TaskGroup

from tests.e2e.answers import Answers, hello
from tests.upstreams.child import GRACE, WAIT, Child, PeerClosed
from tests.upstreams.messages import PREFIX, Id, Message, Params, rpc

Headers = Mapping[str, str | None] | None


@dataclass(frozen=True)
class SseEvent:
    """One event as it was on the stream; `data` is empty in one that only primes an id."""

    data: str = ""
    id: str | None = None
    event: str | None = None
    retry: int | None = None

    @property
    def message(self) -> Message:
        decoded: Message = json.loads(self.data)
        return decoded


class SseParser:
    """Server-sent events out of bytes, fed in any portions; comment lines end up in `comments`."""

    # a CR at the very end may be the first half of CRLF
    _LINE_END = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)

    def __init__(self) -> None:
        self.comments: list[str] = []
        self._rest: list[bytes] = []
        self._fields: dict[str, list[str]] = {}

    def feed(self, data: bytes) -> list[SseEvent]:
        self._rest.append(data)
        if b"\n" not in data and b"\r" not in data:
            return []
        *lines, rest = self._LINE_END.split(b"".join(self._rest))
        self._rest = [rest]
        return [event for line in lines if (event := self._line(line.decode()))]

    def _line(self, line: str) -> SseEvent | None:
        if line == "" and self._fields:
            fields, self._fields = self._fields, {}
            last = {name: values[-1] for name, values in fields.items()}
            retry = int(last["retry"]) if "retry" in last else None
            return SseEvent("\n".join(fields.get("data", ())), last.get("id"), last.get("event"), retry)
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if line and not name:
            self.comments.append(value)
        elif line:
            self._fields.setdefault(name, []).append(value)
        return None


@dataclass(frozen=True)
class Answer:
    """A whole HTTP answer; `messages` whether it was JSON or SSE, `events` and `comments` only if it was SSE."""

    status: int
    headers: httpx2.Headers
    text: str
    messages: list[Message] = field(default_factory=list)
    events: list[SseEvent] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    @property
    def last(self) -> Message:
        """The last message: the response, whatever came before it."""
        return self.messages[-1]


class SseStream:
    """An answer being received, event by event; a JSON body counts as one. `on_question` gets the server's requests."""

    def __init__(self, response: httpx2.Response, on_question: Callable[[Message], None] | None = None) -> None:
        self._on_question = on_question
        self.status = response.status_code
        self.headers = response.headers
        self.events: list[SseEvent] = []
        self.parser = SseParser()
        self.is_sse = response.headers.get("content-type", "").startswith("text/event-stream")
        self._chunks = response.aiter_bytes()
        self._body = bytearray()
        self._pending: list[SseEvent] = []

    @property
    def last_id(self) -> str | None:
        """The last event id so far: what `HttpClient.listen` resumes after."""
        return next((event.id for event in reversed(self.events) if event.id is not None), None)

    @property
    def retry(self) -> int | None:
        """The last `retry:` so far, in milliseconds."""
        return next((event.retry for event in reversed(self.events) if event.retry is not None), None)

    @property
    def text(self) -> str:
        """The body so far."""
        return self._body.decode("utf-8", "replace")

    async def next_event(self, seconds: float = WAIT) -> SseEvent:
        """The next event. Raises: `PeerClosed` when the answer has ended or broke off, `TimeoutError`."""
        with anyio.fail_after(seconds):
            try:
                found = await self._advance()
            except httpx2.TransportError as broken:
                raise PeerClosed(f"the stream broke off after {len(self.events)} events") from broken
        if not found:
            raise PeerClosed(f"the stream ended after {len(self.events)} events")
        return self.events[-1]

    async def wait_for(self, predicate: Callable[[Message], bool], seconds: float = WAIT) -> Message:
        """The next message for which it holds; what comes before it is in `events`."""
        with anyio.fail_after(seconds):
            while True:
                event = await self.next_event(seconds)
                if event.data and predicate(event.message):
                    return event.message

    async def rest(self, seconds: float = WAIT) -> Answer:
        """Everything, up to the end. Raises: `httpx2.TransportError` when it breaks off, `TimeoutError`."""
        with anyio.fail_after(seconds):
            while await self._advance():
                pass
        if not self.is_sse:
            return Answer(self.status, self.headers, self.text, _decoded(self.text))
        messages = [event.message for event in self.events if event.data]
        return Answer(self.status, self.headers, self.text, messages, self.events, self.parser.comments)

    async def _advance(self) -> bool:
        """Move one event to `events`; false at the end of the answer."""
        while not self._pending:
            chunk = await anext(self._chunks, None)
            if chunk is None:
                if self.is_sse or self.events or not self._body:
                    return False
                self._pending = [SseEvent(self.text)]
            else:
                self._body += chunk
                self._pending = self.parser.feed(chunk) if self.is_sse else []
        event = self._pending.pop(0)
        self.events.append(event)
        if self._on_question is not None:
            for message in _decoded(event.data):
                if "method" in message and "id" in message:
                    self._on_question(message)
        return True


def _decoded(text: str) -> list[Message]:
    try:
        body = json.loads(text)
    except ValueError:
        return []
    return body if isinstance(body, list) else [body]


NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
NAMED_BY |= dict.fromkeys(("tasks/get", "tasks/update", "tasks/cancel"), "taskId")


def _header_value(value: str) -> str:
    """The value, or its Base64 form where HTTP could not carry it (2026-07-28 basic/transports/streamable-http)."""
    is_plain = re.fullmatch(r"[\x20-\x7e]*", value) and value == value.strip()
    if is_plain and not re.fullmatch(r"=\?base64\?.*\?=", value):
        return value
    return f"=?base64?{base64.b64encode(value.encode()).decode()}?="


class HttpClient:
    """A Streamable HTTP client whose every wait for bytes is bounded by `seconds`.

    A message with the modern envelope gets the modern headers, any other those of the session that `initialize` began.
    Extra `headers` win over computed ones, and None leaves one out. Once `answers` is set, requests of the server's on
    any stream that is being read are answered by a POST; `answered` has what those were answered.
    """

    def __init__(self, url: str, token: str | None = None, *, seconds: float = WAIT) -> None:
        authorization = {} if token is None else {"authorization": f"Bearer {token}"}
        self.url = url
        self.session: str | None = None
        self.version: str | None = None
        self.answers: Answers | None = None
        self.answered: list[Answer] = []
        self._seconds = seconds
        self._last_id = 0
        # nothing here is encrypted, and to read the certificates of the machine takes 20 ms
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(seconds), headers=authorization, trust_env=False, verify=False
        )

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        self._tasks: TaskGroup = anyio.create_task_group()
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._tasks.cancel_scope.cancel()
        # without the error: a task group would wrap it in an ExceptionGroup
        await self._tasks.__aexit__(None, None, None)
        await self._http.__aexit__(*error)

    async def initialize(self, version: str = "2025-11-25", capabilities: Params = None, name: str = "") -> Answer:
        """The handshake, `notifications/initialized` included; returns the answer to `initialize`. As for `hello`."""
        answer = await self.request("initialize", hello(version, capabilities, self.answers, name))
        if answer.messages and "result" in answer.last:
            self.session = answer.headers.get("mcp-session-id")
            self.version = answer.last["result"]["protocolVersion"]
            await self.notify("notifications/initialized")
        return answer

    async def request(
        self, method: str, params: Params = None, *, id: Id | None = None, headers: Headers = None
    ) -> Answer:
        return await self.post(self.message(method, params, id=id), headers)

    async def notify(self, method: str, params: Params = None) -> Answer:
        return await self.post(rpc(method, params))

    def message(self, method: str, params: Params = None, *, id: Id | None = None) -> Message:
        """A request to hand to `post` or `stream`; ids count up unless given."""
        self._last_id += 1
        return rpc(method, params, id=self._last_id if id is None else id)

    async def post(self, message: Any, headers: Headers = None) -> Answer:
        """POST a message (bytes go out as they are) and read the whole answer."""
        async with self.stream(message, headers) as stream:
            return await stream.rest(self._seconds)

    def stream(self, message: Any, headers: Headers = None) -> AbstractAsyncContextManager[SseStream]:
        """POST a message and read the answer piece by piece; leaving the block drops the connection."""
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        computed = {"content-type": "application/json", **self._headers(message)}
        return self._open("POST", body, {**computed, **(headers or {})})

    def listen(
        self, last_event_id: str | None = None, headers: Headers = None
    ) -> AbstractAsyncContextManager[SseStream]:
        """The GET stream of the session (handshake era), resumed after `last_event_id`."""
        computed = {"accept": "text/event-stream", **self._session_headers(), "last-event-id": last_event_id}
        return self._open("GET", None, {**computed, **(headers or {})})

    async def delete(self) -> Answer:
        """End the session."""
        async with self._open("DELETE", None, self._session_headers()) as stream:
            return await stream.rest(self._seconds)

    @asynccontextmanager
    async def _open(
        self, method: str, body: bytes | None, headers: Mapping[str, str | None]
    ) -> AsyncIterator[SseStream]:
        sent = {name: value for name, value in headers.items() if value is not None}
        async with self._http.stream(method, self.url, content=body, headers=sent) as response:
            yield SseStream(response, self._question if self.answers is not None else None)

    def _question(self, message: Message) -> None:
        assert self.answers is not None
        self._tasks.start_soon(self.answers.answer, message, self._answer)

    async def _answer(self, message: Message) -> None:
        try:
            self.answered.append(await self.post(message))
        except httpx2.TransportError as gone:
            raise PeerClosed(f"{self.url} takes no answer") from gone

    def _session_headers(self) -> dict[str, str | None]:
        return {"mcp-session-id": self.session, "mcp-protocol-version": self.version}

    def _headers(self, message: Any) -> dict[str, str | None]:
        accept = {"accept": "application/json, text/event-stream"}
        params = message.get("params", {}) if isinstance(message, dict) else {}
        version = params.get("_meta", {}).get(PREFIX + "protocolVersion") if isinstance(params, dict) else None
        if version is None:
            return {**accept, **self._session_headers()}
        method = message["method"]
        name = params.get(NAMED_BY.get(method, ""))
        named = {} if name is None else {"mcp-name": _header_value(str(name))}
        return {**accept, "mcp-protocol-version": str(version), "mcp-method": _header_value(method), **named}


@contextmanager
def threaded(handler: Callable[..., BaseRequestHandler], port: int = 0) -> Iterator[str]:
    """A server on 127.0.0.1 in a thread of its own, which answers by this handler; its URL."""
    with ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class Silent(BaseHTTPRequestHandler):
    """A handler that logs nothing."""

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Sends a whole response."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Hub(Child):
    """A running `mcp-hub serve --http`; `url` is its MCP endpoint."""

    url: str

    async def stop(self, grace: float = GRACE) -> None:
        """SIGTERM first, so that it can take its own children along even when a test failed."""
        with suppress(ProcessLookupError):
            self.send_signal(signal.SIGTERM)
        await super().stop(grace)
