"""A hub in the same process: its answers chunk by chunk, within a bound."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import anyio
import pytest

from mcp_hub.client.in_process import AsgiTransport
from mcp_hub.client.transport import ConnectionLost

pytestmark = pytest.mark.anyio

SECONDS = 240
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
HEAD = {"type": "http.response.start", "status": 201, "headers": [(b"Content-Type", b"x/y")]}


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def test_chunk_is_handed_on_before_the_application_ends() -> None:
    go_on = anyio.Event()

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        asked = scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], (await receive())["body"]
        await send(HEAD)
        await send(part(repr(asked).encode()))
        await go_on.wait()
        await send(part(b"last", more=False))

    with anyio.fail_after(SECONDS):
        async with AsgiTransport(application) as transport:
            answer = await transport.send("POST", "http://hub/a%2Fb?c=d", {"Accept": "e"}, b"body")
            chunks = answer.chunks()
            assert (answer.status, answer.headers) == (201, {"content-type": "x/y"})
            assert await anext(chunks) == repr(("POST", b"/a%2Fb", b"c=d", [(b"accept", b"e")], b"body")).encode()
            go_on.set()
            assert [chunk async for chunk in chunks] == [b"last"]
            await answer.aclose()


async def test_application_waits_for_a_client_that_does_not_read() -> None:
    sent: list[int] = []

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        await send(HEAD)
        for number in range(1000):
            await send(part(b"x"))
            sent.append(number)

    with anyio.fail_after(SECONDS):
        async with AsgiTransport(application) as transport:
            answer = await transport.send("GET", "http://hub/", {}, None)
            await anyio.wait_all_tasks_blocked()
            assert len(sent) < 100
            assert len([chunk async for chunk in answer.chunks()]) == 1000
            await answer.aclose()


async def test_client_that_leaves_is_a_disconnect() -> None:
    ended = anyio.Event()

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        await receive()
        await send(HEAD)
        assert (await receive())["type"] == "http.disconnect"
        await send(part(b"nobody reads it"))
        ended.set()

    with anyio.fail_after(SECONDS):
        async with AsgiTransport(application) as transport:
            answer = await transport.send("GET", "http://hub/", {}, None)
            await answer.aclose()
            await ended.wait()


async def test_application_without_an_answer_is_a_lost_connection() -> None:
    async def application(scope: Message, receive: Receive, send: Send) -> None:
        """Answers nothing."""

    with anyio.fail_after(SECONDS):
        async with AsgiTransport(application) as transport:
            with pytest.raises(ConnectionLost):
                await transport.send("GET", "http://hub/", {}, None)
