"""The client's connections to a hub: POSTs, their answers as they come, and what goes wrong on the way."""

import random
import re
import secrets
from collections import deque
from collections.abc import AsyncGenerator
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self

import anyio
import httpx2
import msgspec

from mcp_hub import __version__
from mcp_hub.client.messages import AnswerReader, HubRequest, endpoint, request
from mcp_hub.client.rest import RestClient, unreachable
from mcp_hub.client.rest_messages import (
    answer_body,
    call_body,
    owners_of,
    reload_of,
    servers_of,
    status_of,
    statuses_of,
)
from mcp_hub.client.retrying import Patience
from mcp_hub.client.streams import HubStream, Start, started
from mcp_hub.errors import ConfigError, ConfigFinding, RpcError, UpstreamLost
from mcp_hub.events import CallEvent, Completed, Failed
from mcp_hub.protocol.headers import Path, mirrored, param_headers
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.protocol.rest.servers import ReloadAnswer, ServerInfo
from mcp_hub.protocol.rest.streams import StreamStatus
from mcp_hub.types import RawJson

__all__ = ["HubCall", "HubClient"]

_CONNECT: Final = 5.0
_WRITE: Final = 30.0
_LIST: Final = 60.0
"""Seconds that a list may take: a hub waits a moment for servers that still start."""
_CLOSING: Final = 2.0
_PAGES: Final = 1000
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_OF_A_CALL: Final = httpx2.Timeout(None, connect=_CONNECT, write=_WRITE)
"""A call may be silent for as long as it takes; how long that is, the hub decides."""
_OF_A_LIST: Final = httpx2.Timeout(_LIST, connect=_CONNECT)


class HubCall:
    """The events of one request, to be iterated once; `Completed` or `Failed` is the last.

    Leaving the block before that closes the answer, by which the hub cancels the call. Raises `ConfigError` when
    the URL is none of a hub or the hub refuses this client.
    """

    def __init__(
        self, http: httpx2.AsyncClient, url: str, sent: HubRequest, timeout: httpx2.Timeout, *, is_listed: bool = True
    ) -> None:
        self._http = http
        self._url = url
        self._sent = sent
        self._timeout = timeout
        self._is_listed = is_listed
        self._events: deque[CallEvent] = deque()
        self._has_ended = False
        self._response: httpx2.Response | None = None
        self._chunks: AsyncGenerator[bytes, None]
        self._reader: AnswerReader

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._response is not None:
            with anyio.move_on_after(_CLOSING, shield=True):
                await self._chunks.aclose()
                await self._response.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CallEvent:
        while not self._events:
            if self._has_ended:
                raise StopAsyncIteration
            self._events.extend(await self._more())
        event = self._events.popleft()
        self._has_ended = isinstance(event, Completed | Failed)
        return event

    async def _more(self) -> list[CallEvent]:
        try:
            if self._response is None:
                await self._open()
            chunk = await anext(self._chunks, None)
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            return [Failed(unreachable(self._url, exc))]
        except httpx2.RequestError as exc:
            said = f"lost the connection to {self._url}: {exc or type(exc).__name__}; the outcome is unknown"
            return [Failed(UpstreamLost(said, data={"outcome": "unknown"}))]
        return self._reader.finish() if chunk is None else self._reader.feed(chunk)

    async def _open(self) -> None:
        made = self._http.build_request(
            "POST", self._url, content=self._sent.body, headers=dict(self._sent.headers), timeout=self._timeout
        )
        response = await self._http.send(made, stream=True)
        kind = response.headers.get("content-type", "")
        self._reader = AnswerReader(self._url, self._sent.id, response.status_code, kind, is_listed=self._is_listed)
        self._chunks = response.aiter_bytes()
        self._response = response


class HubClient:
    """A running hub at `url` (with or without `/mcp`). An `async with` block; nothing is sent before it is asked.

    `left_out` names the tools that may not be used over HTTP, each with its reason, as of the last `tools()`. A stream
    whose connection is lost is tried again for `patience` seconds, unless there was no hub to begin with.
    Raises `ConfigError` for a URL or a token that cannot be one.
    """

    def __init__(self, url: str, token: str | None = None, *, patience: float = 30.0) -> None:
        self.url = endpoint(url)
        self.left_out: dict[str, str] = {}
        self._listed: dict[str, RawJson] = {}
        self._headers: dict[str, dict[str, Path]] = {}
        self._last_id = 0
        # a compressed stream could be flushed late, and could grow without bound
        headers = {"user-agent": f"mcp-hub/{__version__}", "accept-encoding": "identity"}
        if token is not None:
            if not _TOKEN.fullmatch(token):
                said = "the token holds characters that an HTTP header cannot carry"
                raise ConfigError(ConfigFinding("invalid_value", said))
            headers["authorization"] = f"Bearer {token}"
        try:
            local = _is_this_machine(httpx2.URL(self.url).host)
        except httpx2.InvalidURL as exc:
            said = f"not the URL of a hub: {self.url}: {exc}"
            raise ConfigError(ConfigFinding("invalid_hub_url", said)) from None
        # a proxy of the environment cannot reach a hub on this machine
        self._http = httpx2.AsyncClient(headers=headers, timeout=_OF_A_LIST, trust_env=not local)
        self._rest = RestClient(self._http, self.url)
        self._patience = patience

    async def __aenter__(self) -> Self:
        await self._http.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.move_on_after(_CLOSING, shield=True):
            await self._http.__aexit__(kind, error, trace)

    async def tools(self) -> list[RawJson]:
        """The definitions of all tools, as sent. Raises `RpcError`, `ConfigError`."""
        listed: list[RawJson] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            entries, cursor = await self._page(cursor)
            listed += entries
            if cursor is None:
                break
        else:
            raise UpstreamLost(f"{self.url} lists more than {_PAGES} pages of tools")
        self._listed, self._headers, self.left_out = {}, {}, {}
        return [raw for raw in listed if self._admits(raw)]

    async def _page(self, cursor: str | None) -> tuple[list[msgspec.Raw], str | None]:
        """A page's entries and the cursor of the next one; an empty string is a cursor."""
        sent = self._request("tools/list", {} if cursor is None else {"cursor": cursor})
        async with HubCall(self._http, self.url, sent, _OF_A_LIST) as answer:
            async for event in answer:
                match event:
                    case Completed(result):
                        return _page(self.url, result)
                    case Failed(error):
                        raise error
                    case _:
                        pass
        raise AssertionError("an answer has an ending")

    def definition(self, name: str) -> RawJson | None:
        """The tool as `tools()` last had it."""
        return self._listed.get(name)

    def call(self, name: str, arguments: RawJson = b"{}") -> HubCall:
        """Calls a tool. Where it wants arguments in headers, too, they are sent only if `tools()` was asked before."""
        wanted = self._headers.get(name)
        headers = mirrored(wanted, _decoded(arguments)) if wanted else None
        sent = self._request("tools/call", {"name": name, "arguments": msgspec.Raw(bytes(arguments))}, name, headers)
        return HubCall(self._http, self.url, sent, _OF_A_CALL, is_listed=name in self._listed)

    async def servers(self) -> list[ServerInfo]:
        """How the servers are that this client may use, in the order of the hub's file. Raises `RpcError`."""
        url = self._rest.url("servers")
        return servers_of(url, await self._rest.told("GET", url))

    async def owners(self) -> dict[str, str]:
        """The name of each tool, and the server that it is of. Raises `RpcError`."""
        url = self._rest.url("tokens")
        return owners_of(url, await self._rest.told("GET", url))

    async def reload(self) -> ReloadAnswer:
        """Has the hub read its configuration again; what changed.

        Raises `RpcError`, `InvalidParams` for a configuration that cannot be used.
        """
        url = self._rest.url("reload")
        return reload_of(url, await self._rest.told("POST", url))

    async def restart(self, server: str) -> None:
        """Has a server started again. Raises `RpcError`, `InvalidParams` for one that is unknown or disabled."""
        await self._rest.told("POST", self._rest.url("servers", server, "restart"))

    # -- durable calls ----------------------------------------------------------------------------------------------

    def stream(self, name: str, arguments: RawJson = b"{}", *, key: str | None = None) -> HubStream:
        """Calls a tool as a durable stream: its events, partial content among them, over as many connections as needed.

        A call with the same `key` is the same call; without one it gets a key of its own.
        """
        return HubStream(self._rest, self._patient(), self._start(name, arguments, key), None, 0)

    def resume(self, stream: str, after: int = 0) -> HubStream:
        """The events of a stream behind number `after`.

        Iterating raises `UnknownStream`, and `EventsGone` (which has the `earliest`) where they are no longer kept.
        """
        return HubStream(self._rest, self._patient(), None, stream, after)

    async def start(self, name: str, arguments: RawJson = b"{}", *, key: str | None = None) -> str:
        """Calls a tool and leaves it alone: the id of its stream. Raises `RpcError`, `StreamInterrupted`."""
        return await started(self._rest, self._start(name, arguments, key), self._patient())

    async def status(self, stream: str) -> StreamStatus:
        """What is known of a stream, open questions and its outcome included. Raises `UnknownStream`."""
        url = self._rest.url("streams", stream)
        return status_of(url, await self._rest.told("GET", url))

    async def streams(self, most: int = 100) -> list[StreamStatus]:
        """This client's streams, the newest first."""
        url = self._rest.url("streams")
        return statuses_of(url, await self._rest.told("GET", url, limit=str(most)))

    async def cancel(self, stream: str) -> StreamStatus:
        """Asks for the end of a call; its state then, an ending if it had ended before. Raises `UnknownStream`."""
        url = self._rest.url("streams", stream)
        return status_of(url, await self._rest.told("DELETE", url))

    async def answer(
        self,
        stream: str,
        key: str,
        *,
        action: str | None = None,
        content: RawJson | None = None,
        result: RawJson | None = None,
        error: RpcError | None = None,
    ) -> None:
        """Answers an open question, in one of three ways.

        An elicitation by its `action` (accept, decline, cancel) and `content`; any by its whole `result`, or an
        `error`. Raises `UnknownStream`, `InvalidParams` for a question that is not open.
        """
        given = {
            "action": action,
            "content": None if content is None else msgspec.Raw(bytes(content)),
            "result": None if result is None else msgspec.Raw(bytes(result)),
            "error": None if error is None else {"code": error.code, "message": error.message},
        }
        await self._rest.told("POST", self._rest.url("streams", stream, "input"), body=answer_body(key, given))

    def _start(self, name: str, arguments: RawJson, key: str | None) -> Start:
        return Start(self._rest.url("tools", name, "call"), call_body(arguments), key or secrets.token_hex(16))

    def _patient(self) -> Patience:
        return Patience(self._patience, random.random)

    def _request(
        self, method: str, params: dict[str, object], name: str | None = None, more: dict[str, str] | None = None
    ) -> HubRequest:
        self._last_id += 1
        return request(self._last_id, method, params, name, more)

    def _admits(self, raw: RawJson) -> bool:
        """Whether the definition can be used; one that has no name is nobody's."""
        members = raw_object(raw) or {}
        name = _decoded(members.get("name", b""))
        if not isinstance(name, str):
            return False
        if b"x-mcp-header" in bytes(raw):
            try:
                self._headers[name] = param_headers(_decoded(members.get("inputSchema", b"")))
            except ValueError as exc:
                self.left_out[name] = str(exc)
                return False
        self._listed[name] = raw
        return True


def _page(url: str, result: RawJson) -> tuple[list[msgspec.Raw], str | None]:
    try:
        page = msgspec.json.decode(result, type=_Page)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UpstreamLost(f"{url} answered with a list that cannot be read: {exc}") from None
    return page.tools, page.nextCursor


class _Page(msgspec.Struct):
    tools: list[msgspec.Raw]
    nextCursor: str | None = None


def _decoded(raw: RawJson) -> object:
    """The value; None for what cannot be decoded, which the hub will say better."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None


def _is_this_machine(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
