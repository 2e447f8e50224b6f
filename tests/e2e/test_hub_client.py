"""The client of a running hub against a server that is not a hub, or that breaks off."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from mcp_hub.client.http import connect
from mcp_hub.errors import ConfigError, HubError, UpstreamLost, UpstreamUnavailable
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """The URL of a server that takes a request, sends this answer and hangs up."""

    async def serve(stream: anyio.abc.SocketStream) -> None:
        async with stream:
            await stream.receive()
            await stream.send(answer)

    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, serve)
        port = listener.extra(anyio.abc.SocketAttribute.local_port)
        yield f"http://127.0.0.1:{port}"
        tasks.cancel_scope.cancel()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"
BROKEN: list[tuple[bytes, type[HubError]]] = [
    (b"SSH-2.0-OpenSSH_9.9\r\n", UpstreamLost),
    (b"", UpstreamLost),
    (HEAD % b"text/event-stream" + b"5\r\n: hi\n\r\n", UpstreamLost),
    (HEAD % b"text/event-stream" + b"0\r\n\r\n", ConfigError),
    (HEAD % b"application/json" + b"9\r\n{\"result\"\r\n", UpstreamLost),
    (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", ConfigError),
    (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", UpstreamUnavailable),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "kind"), BROKEN)
async def test_server_that_is_not_a_hub_or_breaks_off_is_an_error_with_its_url(
    answer: bytes, kind: type[HubError]
) -> None:
    with anyio.fail_after(WAIT):
        async with answering(answer) as url, connect(url) as client:
            with pytest.raises(kind) as found:
                await client.tools()
    assert url in str(found.value)
