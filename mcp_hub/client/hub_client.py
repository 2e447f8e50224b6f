"""The client of a hub: its tools, servers and durable calls, over whatever transport."""

import random
import secrets
from typing import Self

import msgspec
from msgspec import Raw

from mcp_hub.client.lists import HubLists
from mcp_hub.client.rest import RestClient
from mcp_hub.client.retrying import Patience
from mcp_hub.client.streams import HubStream, OnPause, Start, ignore, started
from mcp_hub.client.transport import HubTransport
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.rest.calls import ToolList
from mcp_hub.protocol.rest.servers import ReloadAnswer, RestartAnswer, ServerInfo
from mcp_hub.protocol.rest.streams import InputBody, StreamList, StreamStatus
from mcp_hub.types import Kind, RawJson


class HubClient:
    """A hub whose MCP endpoint is `url`. An `async with` block; nothing is sent before it is asked.

    A stream whose connection is lost is tried again for `patience` seconds, unless there was no hub to begin with.
    `program` is the name of a command, for the hub's history.
    Methods raise `RpcError`, and `ConfigError` when the URL does not belong to a hub or the hub refuses this client.
    """

    def __init__(self, url: str, transport: HubTransport, *, patience: float = 30.0, program: str = "1") -> None:
        self.url = url
        self._transport = transport
        self._api = RestClient(transport, url, program)
        self.lists = HubLists(self._api)
        self._patience = patience

    async def __aenter__(self) -> Self:
        await self._transport.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._transport.__aexit__(*error)

    async def tools(self, *, explains_hints: bool = False) -> list[Raw]:
        """The definitions of all tools, as sent; `_meta` may say which hints count and where they come from."""
        params = {"hints": "1"} if explains_hints else {}
        return (await self._api.get(ToolList, "tools", **params)).tools

    async def servers(self) -> list[ServerInfo]:
        """The servers that this client may use and their state, in the order of the hub's file."""
        return (await self.lists.servers()).servers

    async def reload(self) -> ReloadAnswer:
        """Makes the hub read its configuration again. Raises `InvalidParams` for an invalid configuration."""
        return await self._api.send(ReloadAnswer, "POST", self._api.url("reload"))

    async def restart(self, server: str) -> None:
        """Restarts a server. Raises `InvalidParams` for an unknown or disabled one."""
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
    ) -> HubStream:
        """Calls a tool as a durable stream, gets a prompt, or reads a resource, whose name is its URI.

        A call with the same `key` is the same call; without one it gets a key of its own. A `past` call is made again
        with its own arguments; iterating raises `InvalidParams` where that is refused.
        """
        start = self._start(name, arguments, key, kind)
        if past:
            start = Start(self._api.url("history", past, "run"), b"{}", start.key)
        return HubStream(self._api, self._patient(), start, on_pause=on_pause)

    def resume(self, stream: str, after: int = 0, *, on_pause: OnPause = ignore) -> HubStream:
        """The events of a stream behind number `after`.

        Iterating raises `UnknownStream`, and `EventsGone` (which has the `earliest`) where they are no longer kept.
        """
        return HubStream(
            api=self._api, patience=self._patient(), start=None, stream=stream, after=after, on_pause=on_pause
        )

    async def start(self, name: str, arguments: RawJson = b"{}", *, key: str | None = None) -> str:
        """Starts a detached call; the id of its stream. Raises `StreamInterrupted`."""
        return await started(self._api, self._start(name, arguments, key), self._patient())

    async def status(self, stream: str) -> StreamStatus:
        """The state of a stream, with its open questions and its outcome. Raises `UnknownStream`."""
        return await self._api.get(StreamStatus, "streams", stream)

    async def streams(self, limit: int = 100) -> list[StreamStatus]:
        """This client's streams, the newest first."""
        return (await self.stream_list(limit)).streams

    async def stream_list(self, limit: int = 100) -> StreamList:
        """The same with the number of calls that run and have no stream yet."""
        return await self._api.get(StreamList, "streams", limit=str(limit))

    async def cancel(self, stream: str) -> StreamStatus:
        """Asks for the end of a call; its state then, an ending if it had ended before. Raises `UnknownStream`."""
        return await self._api.send(StreamStatus, "DELETE", self._api.url("streams", stream))

    async def answer(self, stream: str, body: InputBody) -> None:
        """Answers an open question. Raises `UnknownStream`, `InvalidParams` if it is not open."""
        url = self._api.url("streams", stream, "input")
        await self._api.send(StreamStatus, "POST", url, msgspec.json.encode(body))

    def _start(self, name: str, arguments: RawJson, key: str | None, kind: Kind = Kind.TOOL) -> Start:
        path, body = ("tools", name, "call"), {"arguments": Raw(bytes(arguments))}
        if kind is Kind.PROMPT:
            path = ("prompts", name, "get")
        elif kind is Kind.RESOURCE:
            path, body = ("resources", "read", ""), {"uri": Raw(msgspec.json.encode(name))}
        return Start(self._api.url(*filter(None, path)), object_bytes(body), key or secrets.token_hex(16))

    def _patient(self) -> Patience:
        return Patience(self._patience, random.random)
