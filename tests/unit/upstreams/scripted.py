"""A `Peer` and the server it talks to, which follows a script; over real pipes."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import anyio

from mcp_hub.types import Era, JsonObject
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.state import Observer, PeerInfo, not_settled
from mcp_hub.wire.server_pipe import ServerPipe
from tests.unit.wire.raw_lines import WAIT, OtherEnd, connected_to

T = TypeVar("T")

DISCOVERED: JsonObject = {
    "resultType": "complete",
    "supportedVersions": ["2026-07-28"],
    "capabilities": {"tools": {}},
    "instructions": "say please",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "m", "version": "2"}},
}
INITIALIZED: JsonObject = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}, "logging": {}},
    "serverInfo": {"name": "h", "version": "1"},
    "instructions": "be brief",
}

APPS: JsonObject = {"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html;profile=mcp-app"]}}
EXTENSIONS: JsonObject = {
    "extensions": {
        "io.modelcontextprotocol/tasks": {},
        "dev.mcp-hub/streams": {},
        "io.modelcontextprotocol/skills": {},
        "io.modelcontextprotocol/events": {},
        **APPS,
    }
}
"""Declared to every modern server, whatever the client of a call declares."""


class Server(OtherEnd):
    """The server's end. A step of a script is a method that says what comes in and what goes out."""

    async def expect(self, method: str) -> JsonObject:
        """The next message, which must be of this method."""
        message: JsonObject = await self.line()
        assert message.get("method") == method, message
        return message

    async def answer(self, method: str, result: Any) -> JsonObject:
        request = await self.expect(method)
        await self.send(id=request["id"], result=result)
        return request

    async def refuse(self, method: str, code: int, data: Any = None) -> JsonObject:
        request = await self.expect(method)
        await self.send(id=request["id"], error={"code": code, "message": "no", "data": data})
        return request

    async def reply(self, method: str, raw: str) -> JsonObject:
        """Answers with this text after the id."""
        request = await self.expect(method)
        await self.write(f'{{"jsonrpc":"2.0","id":{json.dumps(request["id"])},{raw}}}\n'.encode())
        return request

    async def flush(self) -> None:
        """Returns when the peer has read all that was written: it has answered a ping that came after it."""
        await self.send(id="flush", method="ping")
        while (await self.line()).get("id") != "flush":
            pass

    async def handshake(self) -> JsonObject:
        hello = await self.answer("initialize", INITIALIZED)
        await self.expect("notifications/initialized")
        return hello


Script = Callable[[Server], Awaitable[object]]


def answering(*steps: tuple[str, Any]) -> Script:
    """Requests of these methods, each with its answer: a result, the code of an error with or without data, or text.

    One whose answer is None gets none; after "close" there is no server.
    """

    async def script(server: Server) -> None:
        for method, answer in steps:
            if method == "close":
                server.close()
            elif answer is None:
                await server.expect(method)
            elif isinstance(answer, str):
                await server.reply(method, answer)
            elif isinstance(answer, int | tuple):
                await server.refuse(method, *(answer if isinstance(answer, tuple) else (answer,)))
            else:
                await server.answer(method, answer)

    return script


@asynccontextmanager
async def talking(
    era: Era = Era.HANDSHAKE, *, apps: bool = True, observer: Observer | None = None, **capabilities: Any
) -> AsyncIterator[tuple[Peer, Server]]:
    """A peer whose negotiation is over, and its server."""
    version = "2026-07-28" if era is Era.MODERN else "2025-11-25"
    info = PeerInfo(era, version, capabilities=capabilities, declares=not_settled(apps=apps).declares)
    peers: list[Peer] = []

    def pipe_of(_: None, **limits: Any) -> ServerPipe:
        peers.append(Peer("git", lambda messages, peer: ServerPipe(messages, **limits), info, observer))
        pipe = peers[0].wire
        assert isinstance(pipe, ServerPipe)
        return pipe

    async with connected_to(Server, None, kind=pipe_of) as (_, server):
        (peer,) = peers
        peer.ending.explained.set()  # no process that would have an exit code
        yield peer, server


async def together(script: Awaitable[object], asking: Awaitable[T]) -> T:
    """What the asking side gets while the other side follows its script; both come to their end."""
    outcome: list[T | Exception] = []

    async def ask() -> None:
        try:
            outcome.append(await asking)
        except Exception as exc:
            outcome.append(exc)

    async def follow() -> None:
        await script

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(follow)
    (result,) = outcome
    if isinstance(result, Exception):
        raise result
    return result
