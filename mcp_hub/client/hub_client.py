"""The client of a hub, the hub's lists, and its state as its dashboard shows it."""

import math
import random
import secrets
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, Self

import anyio
import msgspec
from msgspec import Raw

from mcp_hub.client.rest import LIMIT, ConnectionLost, HubTransport, RequestRefused, RestClient
from mcp_hub.client.stream_reader import Patience
from mcp_hub.client.streams import HubStream, OnPause, Start, ignore, started
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.jsonrpc.framing import TooLong
from mcp_hub.protocol.meta import PATH
from mcp_hub.protocol.rest.calls import EventList, FoundTools, InputBody, PromptList, StreamList, StreamStatus, ToolList
from mcp_hub.protocol.rest.history import HistoryCall, HistoryCleared, HistoryPage, HistoryQuery
from mcp_hub.protocol.rest.overview import CallSummary, ClientList, ClientSummary, DashboardBatch, DashboardState
from mcp_hub.protocol.rest.servers import (
    AccountAnswer,
    AccountCode,
    AccountList,
    AccountValue,
    ReloadAnswer,
    RestartAnswer,
    ServerInfo,
    ServerList,
    TokenAccount,
)
from mcp_hub.protocol.sse import EventParser
from mcp_hub.types import RUN_CODE, Kind, RawJson


class HubLists:
    """Servers, tools and past calls. Methods raise `RpcError` and `ConfigError`."""

    def __init__(self, api: RestClient) -> None:
        self._api = api

    async def servers(self) -> ServerList:
        """Servers in configured order, and configured patterns that match nothing."""
        return await self._api.get(ServerList, "servers")

    async def clients(self) -> list[ClientSummary]:
        """Clients of a hub with a dashboard, latest first; empty without access."""
        try:
            url = f"{self._api.endpoint.partition('?')[0].removesuffix('mcp')}api/clients"
            return (await self._api.send(ClientList, "GET", url)).clients
        except HubError:
            return []

    async def account(self, client: str, server: str | None = None, heaviest: int | None = None) -> TokenAccount:
        """Tokens that tools cost. Raises `InvalidParams` for an unknown kind of client."""
        options = {"server": server, "top": None if heaviest is None else str(heaviest)}
        params = {name: value for name, value in options.items() if value is not None}
        return await self._api.get(TokenAccount, "tokens", client=client, **params)

    async def search(self, query: str, limit: int, server: str | None = None) -> FoundTools:
        only = {} if server is None else {"server": server}
        return await self._api.get(FoundTools, "search", q=query, limit=str(limit), **only)

    async def exported(self, **params: str) -> Raw:
        """The tools in a format, as sent. Raises `InvalidParams`."""
        return await self._api.get(Raw, "tools", **params)

    async def exported_search(self, **params: str) -> Raw:
        """The tools that fit, in a format, as sent. Raises `InvalidParams`."""
        return await self._api.get(Raw, "search", **params)

    async def connect(self, server: str, code: str | None = None) -> AccountAnswer:
        """A link to an account of the caller's own; with a login's `code` that account."""
        body = None if code is None else msgspec.json.encode(AccountCode(code))
        url = self._api.url("accounts", server, "login" if code is None else "confirm")
        return await self._api.send(AccountAnswer, "POST", url, body)

    async def prompts(self) -> PromptList:
        return await self._api.get(PromptList, "prompts")

    async def owners(self) -> dict[str, str]:
        return {tool.name: tool.server for tool in (await self._api.get(TokenAccount, "tokens")).tools}

    # -- past calls

    async def history(self, query: HistoryQuery) -> HistoryPage:
        """Past calls, newest first. Raises `InvalidParams` for a bad cursor."""
        fields = msgspec.structs.asdict(query)
        params = {name: _parameter(value) for name, value in fields.items() if value and value != math.inf}
        return await self._api.get(HistoryPage, "history", **params)

    async def past_call(self, id_: str) -> HistoryCall:
        """Raises `InvalidParams` (`not_in_history`)."""
        return await self._api.get(HistoryCall, "history", id_)

    async def clear_history(self) -> int:
        """Returns the number of removed calls."""
        return (await self._api.send(HistoryCleared, "DELETE", self._api.url("history"))).removed


def _parameter(value: object) -> str:
    return "1" if value is True else f"{value:.6f}" if isinstance(value, float) else str(value)


class _HubEvents:
    """Events of servers. Methods raise `RpcError` and `ConfigError`."""

    def __init__(self, api: RestClient) -> None:
        self._api = api

    async def types(self) -> EventList:
        return await self._api.get(EventList, "events")

    async def page(self, name: str, arguments: str, after: str | None, wait: int) -> EventList:
        """Events behind a cursor (None: from now on); waits up to `wait` seconds for one. Raises `InvalidParams`."""
        begin = {} if after is None else {"after": after}
        return await self._api.get(EventList, "events", name=name, arguments=arguments, wait=str(wait), **begin)


class _HubAccounts:
    """Accounts at servers with one for each caller: the caller's own, for operators those of everybody."""

    def __init__(self, api: RestClient) -> None:
        self._api = api

    async def listed(self, principal: str | None = None) -> AccountList:
        return await self._api.get(AccountList, "accounts", **({} if principal is None else {"principal": principal}))

    async def remove(self, server: str, principal: str | None = None) -> AccountAnswer:
        """Removes and revokes the account of the caller, or of a principal."""
        return await self._api.send(AccountAnswer, "DELETE", self._url(server, principal=principal))

    async def put_value(self, server: str, name: str, value: str, principal: str | None = None) -> None:
        """Sets a value for `${account:NAME}`."""
        url = self._url(server, "values", name, principal=principal)
        await self._api.send(AccountAnswer, "PUT", url, msgspec.json.encode(AccountValue(value)))

    def _url(self, *segments: str, principal: str | None) -> str:
        return self._api.url("accounts", *segments, **({} if principal is None else {"principal": principal}))


class HubClient:
    """A hub with MCP endpoint `url`; an `async with` block.

    A lost stream is retried for `patience` seconds. `program`: a command's name, for the hub's history. Methods raise
    `RpcError`, and `ConfigError` if `url` is not a hub's or the hub refuses this client.
    """

    def __init__(self, url: str, transport: HubTransport, *, patience: float = 30.0, program: str = "1") -> None:
        self.url = url
        self._transport = transport
        self._api = RestClient(transport, url, program)
        self.lists = HubLists(self._api)
        self.accounts = _HubAccounts(self._api)
        self.events = _HubEvents(self._api)
        self._patience = patience

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._transport.__aexit__(*error)

    async def tools(self, *, explains_hints: bool = False, wait: int = 0) -> list[Raw]:
        """All definitions, as sent; `explains_hints` adds effective hints to `_meta`. Starting servers are waited for,
        at most `wait` seconds. Raises `UpstreamUnavailable` if no tool is known since they still start.
        """
        url = self._api.url("tools", **({"hints": "1"} if explains_hints else {}))
        return (await self._api.send(ToolList, "GET", url, headers={"prefer": f"wait={wait}"})).tools

    async def servers(self) -> list[ServerInfo]:
        return (await self.lists.servers()).servers

    async def reload(self) -> ReloadAnswer:
        """Raises `InvalidParams` for an invalid configuration."""
        return await self._api.send(ReloadAnswer, "POST", self._api.url("reload"))

    async def restart(self, server: str) -> None:
        """Raises `InvalidParams` for an unknown or disabled server."""
        await self._api.send(RestartAnswer, "POST", self._api.url("servers", server, "restart"))

    # -- durable calls

    def stream(
        self,
        name: str,
        arguments: RawJson = b"{}",
        *,
        kind: Kind = Kind.TOOL,
        key: str | None = None,
        on_pause: OnPause = ignore,
        past: str = "",
        path: str | None = None,
    ) -> HubStream:
        """Calls a tool as a durable stream, gets a prompt, or reads a resource (`name`: its URI).

        `key`: the idempotency key, by default a new one. `past`: a past call to repeat; iterating may raise
        `InvalidParams`. `path`: a JSON path into a tool's result.
        """
        start = self._start(name, arguments, key, kind, path)
        if past:
            start = Start(self._api.url("history", past, "run"), b"{}", start.key)
        return HubStream(self._api, self._patient(), start, on_pause=on_pause)

    def resume(self, stream: str, after: int = 0, *, on_pause: OnPause = ignore) -> HubStream:
        """Iterating raises `UnknownStream`, or `EventsGone` (with `earliest`)."""
        return HubStream(
            api=self._api, patience=self._patient(), start=None, stream=stream, after=after, on_pause=on_pause
        )

    async def start(
        self, name: str, arguments: RawJson = b"{}", *, key: str | None = None, path: str | None = None
    ) -> str:
        """Starts a detached call; returns its stream's id. Raises `StreamInterrupted`."""
        return await started(self._api, self._start(name, arguments, key, path=path), self._patient())

    async def status(self, stream: str) -> StreamStatus:
        """State, open questions, outcome. Raises `UnknownStream`."""
        return await self._api.get(StreamStatus, "streams", stream)

    async def streams(self, limit: int = 100) -> list[StreamStatus]:
        return (await self.stream_list(limit)).streams

    async def stream_list(self, limit: int = 100) -> StreamList:
        """With the number of running calls without a stream."""
        return await self._api.get(StreamList, "streams", limit=str(limit))

    async def cancel(self, stream: str) -> StreamStatus:
        """Asks for the end of a call; returns its state. Raises `UnknownStream`."""
        return await self._api.send(StreamStatus, "DELETE", self._api.url("streams", stream))

    async def answer(self, stream: str, body: InputBody) -> None:
        """Raises `UnknownStream`, `InvalidParams` if the question is not open."""
        url = self._api.url("streams", stream, "input")
        await self._api.send(StreamStatus, "POST", url, msgspec.json.encode(body))

    def _start(
        self, name: str, arguments: RawJson, key: str | None, kind: Kind = Kind.TOOL, path: str | None = None
    ) -> Start:
        segments, body = ("tools", name, "call"), {"arguments": Raw(bytes(arguments))}
        if kind is Kind.PROMPT:
            segments = ("prompts", name, "get")
        elif name == RUN_CODE and kind is Kind.TOOL:
            selects = {} if path is None else {"path": path}
            return Start(self._api.url("code", **selects), bytes(arguments), key or secrets.token_hex(16))
        elif kind is Kind.RESOURCE:
            segments, body = ("resources", "read", ""), {"uri": Raw(msgspec.json.encode(name))}
        if path is not None:
            body["_meta"] = Raw(object_bytes({PATH: path}))
        return Start(self._api.url(*filter(None, segments)), object_bytes(body), key or secrets.token_hex(16))

    def _patient(self) -> Patience:
        return Patience(self._patience, random.random)


MOST_CALLS: Final = 1000
"""Calls that have ended and are kept, the newest."""
_FIRST_PAUSE: Final = 0.3
_LONGEST_PAUSE: Final = 5.0


class HubFeed:
    """Follows the hub whose page is `page` (`http://127.0.0.1:8765/`), and reconnects.

    `problem` is empty while connected.
    """

    def __init__(self, page: str, transport: HubTransport) -> None:
        self.state: DashboardState | None = None
        self.servers: list[ServerInfo] = []
        self.calls: list[CallSummary] = []
        self.live: list[CallSummary] = []
        self.problem = "connecting"
        self._api = f"{page}api/"
        self._rest = RestClient(transport, f"{page}api/mcp")
        self._cursor: str | None = None

    async def run(self, changed: Callable[[], object]) -> None:
        """Calls `changed` after each change. Raises `ConfigError` if the hub denies access."""
        pause = _FIRST_PAUSE
        while True:
            try:
                if self._cursor is None:
                    await self._snapshot()
                    changed()
                pause = _FIRST_PAUSE
                await self._follow(changed)
            except ConfigError:
                raise
            except RequestRefused as refused:
                if isinstance(refused.error, ConfigError):
                    raise refused.error from None
                self.problem = str(refused)
            except (HubError, ConnectionLost) as lost:
                self.problem = str(lost)
            changed()
            await anyio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _snapshot(self) -> None:
        state = await self._rest.send(DashboardState, "GET", f"{self._api}state")
        self.state, self._cursor, self.problem = state, state.cursor, ""
        self.servers, self.calls, self.live = state.servers.servers, state.calls[:MOST_CALLS], state.live

    async def _follow(self, changed: Callable[[], object]) -> None:
        answer = await self._rest.open("GET", f"{self._api}feed?after={self._cursor}", media="text/event-stream")
        parser = EventParser(LIMIT)
        try:
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    self.problem = ""
                    for event in parser.events(chunk):
                        if isinstance(event, TooLong) or event.type != b"batch":
                            self._cursor = None
                            return
                        self._take(msgspec.json.decode(event.data, type=DashboardBatch))
                        self._cursor = (parser.last_id or b"").decode() or None
                    changed()
        except msgspec.DecodeError as broken:
            self._cursor, self.problem = None, f"the feed cannot be read: {broken}"
            return
        finally:
            await answer.aclose()
        self.problem = "the hub has ended the connection"

    def _take(self, batch: DashboardBatch) -> None:
        if batch.ended:
            self.calls = [*reversed(batch.ended), *self.calls][:MOST_CALLS]
        if isinstance(batch.live, list):
            self.live = batch.live
        if batch.servers:
            self.servers = batch.servers.servers
