"""Connections that nobody reads from or writes to any more, at a real server in this process."""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
import uvicorn

from mcp_hub.fronts.http import connections
from mcp_hub.fronts.http.connections import affordable, bounded, look_after
from mcp_hub.fronts.http.response import HttpExchange, Message, respond, respond_with
from mcp_hub.protocol.jsonrpc.envelope import response, whole
from mcp_hub.sessions.session import LOCAL
from tests.upstreams.child import until

WAIT = 240.0
LARGE = b"x" * 30_000_000
PART = 1_000_000
LONG = response(b"1", b'{"text":"%b"}' % LARGE)


async def answer(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/echo":
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        await respond(send, 200, b"<%b|%b>" % (b",".join(name for name, _ in scope["headers"]), body))
        return
    if scope["path"] == "/parts":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for start in range(0, len(LARGE), PART):
            await send({"type": "http.response.body", "body": LARGE[start : start + PART], "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        return
    if scope["path"] == "/long":
        http = HttpExchange(scope=scope, headers={}, caller=LOCAL, receive=receive, send=send)
        await respond_with(http, LONG)
        return
    await respond(send, 200, LARGE if scope["path"] == "/large" else b"{}")


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    config = uvicorn.Config(
        answer, lifespan="off", log_config=None, ws="none", http=bounded(**limits),
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look_after, server.server_state.connections)
            tasks.start_soon(server._serve, [listener])
            await until(lambda: server.started)
            yield server, listener.getsockname()[1]
            server.should_exit = True
            tasks.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_TICK", 0.05)


@pytest.mark.slow
async def test_client_that_takes_nothing_of_a_complete_answer_is_cut_off() -> None:
    async with serving(stalled=0.4) as (server, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: len(server.server_state.connections) == 1)
        await until(lambda: not server.server_state.connections)


@pytest.mark.slow
async def test_client_that_reads_slowly_is_not() -> None:
    async with serving(stalled=1.5) as (server, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        size = 0
        while size < len(LARGE):
            size += len(await client.receive(2_000_000))
            if size < 20_000_000:
                await anyio.sleep(0.02)
        assert len(server.server_state.connections) == 1


async def test_an_answer_in_parts_waits_for_its_client_again_and_again() -> None:
    async with serving() as (server, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(b"GET /parts HTTP/1.1\r\nhost: x\r\n\r\n")
        (connection,) = await opened(server)
        size, pauses, flow = 0, 0, connection.flow
        while size < len(LARGE):
            # at the end the rest may be too little to pause for, and too much for the system's buffers
            await until(lambda: flow.write_paused or not connection.is_answering or connection.cycle.response_complete)
            pauses += flow.write_paused
            assert connection.transport.get_write_buffer_size() < PART * 2
            size += len(await client.receive(PART * 8))
        assert pauses > 2


async def test_a_connection_that_waits_holds_no_event() -> None:
    async with serving() as (server, port), await anyio.connect_tcp("127.0.0.1", port):
        (connection,) = await opened(server)
        held = vars(connection.flow).values()
        assert not [thing for thing in held if isinstance(thing, asyncio.Event)]


async def test_many_requests_at_once_are_answered_in_their_order_and_few_of_them_wait_here() -> None:
    count, body = 500, b"x" * 2_000
    one = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 2008\r\n\r\n"
    async with serving() as (server, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        seen, longest, number = b"", 0, 0

        async def send() -> None:
            for start in range(0, count, 50):
                await client.send(b"".join(one + b"%08d" % n + body for n in range(start, start + 50)))

        with anyio.fail_after(WAIT):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(send)
                (connection,) = await opened(server)
                while number < count:
                    longest = max(longest, len(connection.pipeline))
                    if b"|%08d" % number not in seen:
                        seen += await client.receive()
                        continue
                    _, _, seen = seen.partition(b"|%08d" % number)
                    number += 1
        assert longest <= connections._PIPELINED + 1


async def opened(server: uvicorn.Server) -> list[Any]:
    await until(lambda: bool(server.server_state.connections))
    return list(server.server_state.connections)


async def test_connections_beyond_those_that_get_an_answer_are_just_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SPARE", 2)
    async with serving(max_connections=1) as (server, port):
        clients = [await anyio.connect_tcp("127.0.0.1", port) for _ in range(10)]
        await until(lambda: len(server.server_state.connections) == 3)
        for client in clients:
            await client.aclose()
        await until(lambda: not server.server_state.connections)


@pytest.mark.skipif(sys.platform == "win32", reason="no such limit there")
def test_connections_leave_room_for_other_files(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, wanted, most in ((1024, 4096, 512), (1024, 12, 12), (256, 4096, 64), (100_000, 4096, 4096)):
        monkeypatch.setattr(
            "mcp_hub.fronts.http.connections.resource.getrlimit", lambda what, files=files: (files, files)
        )
        assert affordable(wanted) == most


class Transport:
    """Keeps what each write sends."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        if data:
            self.sent.append(data)

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.write(b"".join(parts))

    def close(self) -> None:
        self.sent.append(b"closed")

    def is_closing(self) -> bool:
        return False


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize(
    ("written", "sent"),
    [
        ([HEAD, b"HTTP/1.1 20", b"0"], [HEAD + b"HTTP/1.1 20", b"0"]),
        ([CONTINUE, HEAD, b""], [CONTINUE, HEAD]),
        ([STREAM, b"5\r\n: hi\n\r\n"], [STREAM, b"5\r\n: hi\n\r\n"]),
        ([HEAD], [HEAD]),
    ],
    ids=["head with body", "100 Continue", "event stream", "body that never comes"],
)
def test_a_head_leaves_with_its_body_or_at_once(written: list[bytes], sent: list[bytes]) -> None:
    transport = Transport()
    joined = connections._Joined(transport)
    for data in written:
        joined.write(data)
    joined.close()
    assert transport.sent == [*sent, b"closed"]


async def test_head_is_answered_without_a_body() -> None:
    async with serving() as (_, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(b"HEAD / HTTP/1.1\r\nhost: x\r\n\r\n")
        with anyio.fail_after(240):
            assert (await client.receive()).endswith(b"\r\ncontent-length: 2\r\n\r\n")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://evil.example/mcp", b"421"),
        ("HTTPS://evil.example:80?x", b"421"),
        ("http://localhost:80@evil.example/", b"421"),
        ("http://localhost:80/mcp", b"200"),
        ("http://LOCALHOST:80/", b"200"),
        ("/mcp?u=http://evil.example/", b"200"),
    ],
)
async def test_a_target_that_names_another_host_is_misdirected(target: str, status: bytes) -> None:
    async with serving() as (_, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(f"GET {target} HTTP/1.1\r\nhost: localhost:80\r\n\r\n".encode())
        with anyio.fail_after(240):
            assert (await client.receive()).split()[1] == status


# -- Upgrade, as Java's HttpClient asks for with each first request

WISH = b"connection: keep-alive, Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAA\r\n"
WHOLE = b"POST /echo HTTP/1.1\r\nhost: x\r\n%bcontent-length: 5\r\n\r\nhello"
CHUNKED = b"POST /echo HTTP/1.1\r\nhost: x\r\n%btransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
BODYLESS = b"GET /echo HTTP/1.1\r\nhost: x\r\n%b\r\n"


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
async def test_an_upgrade_header_changes_nothing_of_a_request_or_of_the_next_one(size: int) -> None:
    asked = [WHOLE % WISH, CHUNKED % WISH, BODYLESS % WISH, WHOLE % b"", WHOLE % WISH, BODYLESS % b""]
    bodies = [b"hello", b"hello", b"", b"hello", b"hello", b""]
    async with serving() as (_, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        text = b"".join(asked)
        for start in range(0, len(text), size):
            await client.send(text[start : start + size])
        answers = b""
        with anyio.fail_after(240):
            while answers.count(b">") < len(asked):
                answers += await client.receive()
    told = [part.partition(b"<")[2] for part in answers.split(b">")[:-1]]
    assert [part.partition(b"|")[2] for part in told] == bodies
    assert all(b"upgrade" not in part.partition(b"|")[0].split(b",") for part in told)
    keeps = [b"connection" in part.partition(b"|")[0].split(b",") for part in told]
    assert keeps == [WISH in request for request in asked]


async def test_what_comes_behind_the_head_of_an_upgrade_is_its_body_and_no_request() -> None:
    inner = b"GET /echo HTTP/1.1\r\nhost: y\r\n\r\n"
    head = b"POST /echo HTTP/1.1\r\nhost: x\r\n%bcontent-length: %d\r\n\r\n" % (WISH, len(inner))
    async with serving() as (_, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(head)
        await anyio.wait_all_tasks_blocked()
        await client.send(inner + BODYLESS.replace(b"host", b"last") % b"")
        answers = b""
        with anyio.fail_after(240):
            while b"last" not in answers:
                answers += await client.receive()
        assert answers.count(b"HTTP/1.1 200") == 2 and b"|" + inner + b">" in answers


async def test_a_head_that_is_too_large_is_refused_with_an_upgrade_too() -> None:
    async with serving(max_headers=4096) as (_, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        await client.send(BODYLESS % (WISH + b"x-large: " + b"x" * 5000 + b"\r\n"))
        with anyio.fail_after(240):
            assert (await client.receive()).split()[1] == b"431"


async def test_a_long_response_arrives_whole_and_its_connection_is_used_again() -> None:
    assert isinstance(LONG, tuple)
    async with serving() as (_, port), await anyio.connect_tcp("127.0.0.1", port) as client:
        for _ in range(2):
            await client.send(b"GET /long HTTP/1.1\r\nhost: x\r\n\r\n")
            received = b""
            while not received.endswith(b"}\n"):
                received += await client.receive(2_000_000)
            head, _, body = received.partition(b"\r\n\r\n")
            assert body == whole(LONG) and b"content-length: %d" % len(body) in head


async def test_a_server_that_knows_nothing_of_parts_gets_a_long_response_in_one() -> None:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise NotImplementedError

    await respond_with(HttpExchange(scope={}, headers={}, caller=LOCAL, receive=receive, send=send), LONG)
    assert sent[-1] == {"type": "http.response.body", "body": whole(LONG)}
