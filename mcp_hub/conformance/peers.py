"""Raw MCP clients of either era, over stdio, HTTP and SSE."""

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urljoin

import anyio
import httpx2
import msgspec
from anyio.abc import TaskGroup

from mcp_hub.conformance.vectors import Mismatch
from mcp_hub.protocol.eras import LATEST_HANDSHAKE, LATEST_MODERN
from mcp_hub.protocol.sse import EventParser, SseEvent
from mcp_hub.types import HANDSHAKE, MODERN, Era, JsonObject

NAME: Final = "mcp-hub-conformance"
"""The name of a client itself, unless a case says otherwise."""
_MOST: Final = 16 << 20
"""Bytes of one message."""
_STARTING: Final = 60.0
_CLOSING: Final = 5.0
_PREFIX: Final = "io.modelcontextprotocol/"


class Exchange:
    """One request: its notifications, its response, and the HTTP status of that."""

    def __init__(self, id_: int, token: object) -> None:
        self.id = id_
        self.token = token
        self.notifications: list[JsonObject] = []
        self.response: JsonObject | None = None
        self.status: int | None = None
        self.failed: str | None = None
        self.scope = anyio.CancelScope()
        self._news = anyio.Event()

    def take(self, message: JsonObject) -> None:
        if "method" in message:
            self.notifications.append(message)
        else:
            self.response = message
        self._ring()

    def give_up(self, why: str) -> None:
        self.failed = why
        self._ring()

    def _ring(self) -> None:
        self._news.set()
        self._news = anyio.Event()

    async def answer(self) -> JsonObject:
        """Raises `Mismatch`."""
        while self.response is None:
            await self._more()
        return self.response

    async def notified(self, count: int) -> None:
        while len(self.notifications) < count and self.response is None:
            await self._more()

    async def _more(self) -> None:
        if self.failed is not None:
            raise Mismatch(self.failed)
        await self._news.wait()


class RawClient(ABC):
    """A client; `offered` are the server's capabilities, `questions` its requests that are not answered yet."""

    def __init__(self, era: Era, capabilities: JsonObject, name: str = NAME) -> None:
        self.era = era
        self.offered: JsonObject = {}
        self.questions: list[JsonObject] = []
        self._capabilities = capabilities
        self._info = {"name": name, "version": "1"}
        self._exchanges: dict[int, Exchange] = {}
        self._question = anyio.Event()

    async def hello(self) -> None:
        """The handshake of the era, and the list of tools. Raises `Mismatch`."""
        with anyio.move_on_after(_STARTING) as scope:
            await self._hello()
        if scope.cancelled_caught:
            raise Mismatch(f"the server said nothing for {_STARTING:g} s")

    async def _hello(self) -> None:
        if self.era is HANDSHAKE:
            params = {"protocolVersion": LATEST_HANDSHAKE, "capabilities": self._capabilities, "clientInfo": self._info}
            answer = await (await self.send("initialize", params)).answer()
        else:
            answer = await (await self.send("server/discover", {})).answer()
        if not isinstance(result := answer.get("result"), dict):
            raise Mismatch(f"the server does not speak the {self.era.value} era: {answer.get('error')}")
        self.offered = result.get("capabilities") or {}
        if self.era is HANDSHAKE:
            self._version = result.get("protocolVersion", LATEST_HANDSHAKE)
            await self._write({"jsonrpc": "2.0", "method": "notifications/initialized"}, None)
        await (await self.send("tools/list", {})).answer()  # as every client does; a hub may wait for its servers here

    async def send(self, method: str, params: JsonObject) -> Exchange:
        number = len(self._exchanges) + 1
        meta = dict(params.get("_meta") or {})
        exchange = self._exchanges[number] = Exchange(number, meta.get("progressToken"))
        if self.era is MODERN:
            meta |= {
                f"{_PREFIX}protocolVersion": LATEST_MODERN,
                f"{_PREFIX}clientInfo": self._info,
                f"{_PREFIX}clientCapabilities": self._capabilities,
            }
        whole = {**params, "_meta": meta} if meta else params
        await self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": whole}, exchange)
        return exchange

    async def cancel(self, exchange: Exchange) -> None:
        params = {"requestId": exchange.id}
        await self._write({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}, None)

    async def question(self) -> JsonObject:
        """The next request of the server (handshake era)."""
        while not self.questions:
            await self._question.wait()
        return self.questions.pop(0)

    async def reply(self, question: JsonObject, result: JsonObject) -> None:
        await self._write({"jsonrpc": "2.0", "id": question["id"], "result": result}, None)

    def _dispatch(self, message: JsonObject, of: Exchange | None = None) -> None:
        if "method" in message and "id" in message:
            self.questions.append(message)
            self._question.set()
            self._question = anyio.Event()
            return
        if "method" not in message:
            of = self._exchanges.get(message["id"]) if isinstance(message.get("id"), int) else of
        elif of is None:
            token = (message.get("params") or {}).get("progressToken")
            alike = [exchange for exchange in self._exchanges.values() if exchange.token == token and token is not None]
            if message["method"] == "notifications/message":  # does not say of which call: there is one at a time
                alike = [exchange for exchange in self._exchanges.values() if exchange.response is None]
            of = alike[-1] if alike else None
        if of is not None:
            of.take(message)

    @abstractmethod
    async def _write(self, message: JsonObject, exchange: Exchange | None) -> None: ...


class _StdioClient(RawClient):
    def __init__(self, era: Era, capabilities: JsonObject, name: str, process: anyio.abc.Process) -> None:
        super().__init__(era, capabilities, name)
        self._process = process

    async def read(self) -> None:
        buffer = b""
        assert self._process.stdout is not None
        async for chunk in self._process.stdout:
            *lines, buffer = (buffer + chunk).split(b"\n")
            if len(buffer) > _MOST:
                break
            for line in lines:
                message = _decoded(line)
                if message is not None:
                    self._dispatch(message)
        for exchange in self._exchanges.values():
            exchange.give_up("the server ended its output")

    async def _write(self, message: JsonObject, exchange: Exchange | None) -> None:
        assert self._process.stdin is not None
        try:
            await self._process.stdin.send(msgspec.json.encode(message) + b"\n")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise Mismatch("the server does not read its input any more") from None


class _SseClient(RawClient):
    """HTTP+SSE (2024-11-05)."""

    def __init__(self, capabilities: JsonObject, name: str, url: str, http: httpx2.AsyncClient) -> None:
        super().__init__(HANDSHAKE, capabilities, name)
        self._url = url
        self._http = http
        self._endpoint = ""
        self._is_open = anyio.Event()

    async def read(self) -> None:
        why = "the event stream has ended"
        try:
            async with self._http.stream("GET", self._url, headers={"accept": "text/event-stream"}) as response:
                if response.is_success:
                    await self._take_all(response)
                else:
                    why = f"GET {self._url} answers {response.status_code}"
        except httpx2.HTTPError as exc:
            why = f"{type(exc).__name__}: {exc}"
        self._is_open.set()
        for exchange in self._exchanges.values():
            exchange.give_up(why)

    async def _take_all(self, response: httpx2.Response) -> None:
        parser = EventParser(_MOST)
        async for chunk in response.aiter_bytes():
            for event in parser.events(chunk):
                if not isinstance(event, SseEvent):
                    continue
                if event.type == b"endpoint":
                    self._endpoint = urljoin(self._url, event.data.decode())
                    self._is_open.set()
                elif (decoded := _decoded(event.data)) is not None:
                    self._dispatch(decoded)

    async def _write(self, message: JsonObject, exchange: Exchange | None) -> None:
        await self._is_open.wait()
        if not self._endpoint:
            return  # `read` says why
        headers = {"content-type": "application/json"}
        answer = await self._http.post(self._endpoint, content=msgspec.json.encode(message), headers=headers)
        if exchange is not None and not answer.is_success:
            exchange.give_up(f"POST {self._endpoint} answers {answer.status_code}")


class _HttpClient(RawClient):
    def __init__(
        self,
        era: Era,
        capabilities: JsonObject,
        name: str,
        url: str,
        token: str | None,
        http: httpx2.AsyncClient,
        tasks: TaskGroup,
    ) -> None:
        super().__init__(era, capabilities, name)
        self._url = url
        self._http = http
        self._tasks = tasks
        self._version: str | None = None
        self._session: str | None = None
        self._token = token

    async def cancel(self, exchange: Exchange) -> None:
        if self.era is HANDSHAKE:
            return await super().cancel(exchange)
        exchange.scope.cancel()

    async def _write(self, message: JsonObject, exchange: Exchange | None) -> None:
        if exchange is None:
            await self._post(message, None)
        else:
            self._tasks.start_soon(self._follow, message, exchange)

    async def _follow(self, message: JsonObject, exchange: Exchange) -> None:
        with exchange.scope:
            try:
                await self._post(message, exchange)
            except httpx2.HTTPError as exc:
                exchange.give_up(f"{type(exc).__name__}: {exc}")
            else:
                if exchange.response is None:
                    exchange.give_up("the HTTP response ended without the answer")

    async def _post(self, message: JsonObject, exchange: Exchange | None) -> None:
        body = msgspec.json.encode(message)
        async with self._http.stream("POST", self._url, content=body, headers=self._headers(message)) as response:
            self._session = response.headers.get("mcp-session-id", self._session)
            if exchange is not None:
                exchange.status = response.status_code
            parser = EventParser(_MOST)
            is_sse = response.headers.get("content-type", "").startswith("text/event-stream")
            whole = b""
            async for chunk in response.aiter_bytes():
                if not is_sse:
                    whole += chunk
                    continue
                for event in parser.events(chunk):
                    decoded = _decoded(event.data) if isinstance(event, SseEvent) else None
                    if decoded is not None:
                        self._dispatch(decoded, exchange)
            decoded = _decoded(whole)
            if decoded is not None:
                self._dispatch(decoded, exchange)

    def _headers(self, message: JsonObject) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        if self._token is not None:
            headers["authorization"] = f"Bearer {self._token}"
        if self._session is not None:
            headers["mcp-session-id"] = self._session
        if self.era is HANDSHAKE:
            return headers if self._version is None else {**headers, "mcp-protocol-version": self._version}
        headers |= {"mcp-protocol-version": LATEST_MODERN, "mcp-method": str(message["method"])}
        params = message.get("params") or {}
        name = params.get("taskId" if str(message["method"]).startswith("tasks/") else "name")
        return headers if name is None else {**headers, "mcp-name": str(name)}


def _decoded(text: bytes) -> JsonObject | None:
    try:
        return msgspec.json.decode(text, type=JsonObject)
    except (msgspec.DecodeError, RecursionError):
        return None


@asynccontextmanager
async def stdio_peer(
    command: Sequence[str], era: Era, capabilities: JsonObject, name: str = NAME
) -> AsyncIterator[RawClient]:
    """Starts `command`, and ends it on exit. Raises `Mismatch`, `OSError`."""
    process = await anyio.open_process(command, stderr=None, env=dict(os.environ))
    client = _StdioClient(era, capabilities, name, process)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(client.read)
            await client.hello()
            yield client
            tasks.cancel_scope.cancel()
    finally:
        with anyio.move_on_after(_CLOSING, shield=True):
            if process.stdin is not None:
                await process.stdin.aclose()
            await process.wait()
        if process.returncode is None:
            process.kill()
        with anyio.move_on_after(_CLOSING, shield=True):
            await process.aclose()


@asynccontextmanager
async def http_peer(
    url: str, token: str | None, era: Era, capabilities: JsonObject, name: str = NAME
) -> AsyncIterator[RawClient]:
    """Raises `Mismatch`."""
    timeout = httpx2.Timeout(120.0, connect=5.0)
    async with httpx2.AsyncClient(timeout=timeout, trust_env=False) as http, anyio.create_task_group() as tasks:
        client = _HttpClient(
            era=era, capabilities=capabilities, name=name, url=url, token=token, http=http, tasks=tasks
        )
        await client.hello()
        yield client
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def sse_peer(url: str, token: str | None, capabilities: JsonObject, name: str = NAME) -> AsyncIterator[RawClient]:
    """A handshake client. Raises `Mismatch`."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    timeout = httpx2.Timeout(120.0, connect=5.0)
    async with (
        httpx2.AsyncClient(timeout=timeout, headers=headers, trust_env=False) as http,
        anyio.create_task_group() as tasks,
    ):
        client = _SseClient(capabilities, name, url, http)
        tasks.start_soon(client.read)
        await client.hello()
        yield client
        tasks.cancel_scope.cancel()
