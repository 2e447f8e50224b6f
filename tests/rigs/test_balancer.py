"""The balancer of the rigs does what a balancer before replicas has to, and nothing else."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketAttribute, SocketStream

from rigs.replicas.balancer import balancer
from tests.upstreams.launch import free_port

pytestmark = pytest.mark.anyio

WAIT = 240.0
GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n"
Serve = Callable[[SocketStream], Awaitable[None]]


@asynccontextmanager
async def replica(serve: Serve) -> AsyncIterator[str]:
    """A server that answers each request with this; its URL."""

    async def handle(stream: SocketStream) -> None:
        async with stream:
            await serve(stream)

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, handle)
        yield f"http://127.0.0.1:{listener.extra(SocketAttribute.local_port)}"
        tasks.cancel_scope.cancel()


def answering(name: bytes, heard: list[bytes] | None = None) -> Serve:
    async def serve(stream: SocketStream) -> None:
        request = await stream.receive()
        if heard is not None:
            heard.append(request)
        await stream.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + name)

    return serve


async def asked(url: str, request: bytes = GET) -> bytes:
    """The whole answer."""
    found = b""
    with anyio.fail_after(WAIT):
        async with await anyio.connect_tcp("127.0.0.1", int(url.rpartition(":")[2])) as stream:
            await stream.send(request)
            async for part in stream:
                found += part
    return found


async def four(url: str) -> set[bytes]:
    """The replicas that answer four requests in a row."""
    return {(await asked(url))[-1:] for _ in range(4)}


async def test_requests_go_round_and_past_replicas_that_accept_none() -> None:
    heard: list[bytes] = []
    gone = f"http://127.0.0.1:{free_port()}"
    async with replica(answering(b"a", heard)) as a, replica(answering(b"b")) as b:
        async with balancer([a, gone, b], checks=False) as proxy:
            answers = [(await asked(proxy.url))[-1:] for _ in range(6)]
        assert answers == [b"a", b"b", b"b", b"a", b"b", b"b"]
        assert [url for _, url in proxy.taken] == [a, b, b, a, b, b]
    assert heard[0] == b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


async def test_who_is_alone_or_lost_is_told() -> None:
    async def hang_up(stream: SocketStream) -> None:
        await stream.receive()

    async with replica(hang_up) as a:
        async with balancer([a], checks=False) as proxy:
            assert (await asked(proxy.url)).startswith(b"HTTP/1.1 502 ")
        async with balancer([f"http://127.0.0.1:{free_port()}"], checks=False) as proxy:
            assert (await asked(proxy.url)).startswith(b"HTTP/1.1 503 ")


async def test_a_response_is_passed_on_as_it_comes_until_the_balancer_flips_or_the_client_leaves() -> None:
    left = anyio.Event()

    async def stream_on(stream: SocketStream) -> None:
        await stream.receive()
        await stream.send(b"one")
        await stream.receive()
        await stream.send(b"two")
        try:
            await stream.receive()
        except anyio.EndOfStream:
            left.set()

    with anyio.fail_after(WAIT):
        async with replica(stream_on) as a, balancer([a], checks=False) as proxy, AsyncExitStack() as stack:
            port = int(proxy.url.rpartition(":")[2])
            for leave in (lambda stream: stream.aclose(), None):
                stream = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", port))
                await stream.send(GET)
                assert await stream.receive() == b"one"
                await stream.send(b"more of the request")
                assert await stream.receive() == b"two"
                if leave is not None:
                    await leave(stream)
                    await left.wait()
            left = anyio.Event()
            proxy.flip()
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
            await left.wait()
            assert proxy.flips == 1


async def test_a_replica_that_fails_its_health_check_gets_no_requests_until_it_passes_again() -> None:
    is_healthy = anyio.Event()

    async def serve(stream: SocketStream) -> None:
        request = await stream.receive()
        code = b"200" if is_healthy.is_set() or not request.startswith(b"GET /livez") else b"500"
        await stream.send(b"HTTP/1.1 " + code + b" x\r\nConnection: close\r\n\r\nb")

    async with replica(answering(b"a")) as a, replica(serve) as b, balancer([a, b]) as proxy:
        with anyio.fail_after(WAIT):
            while await four(proxy.url) != {b"a"}:
                pass
            is_healthy.set()
            while await four(proxy.url) != {b"a", b"b"}:
                pass
