"""One request and its answer: of streams, of a hub in the same process, and with a certificate that nobody signed."""

import asyncio
import re
import ssl
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from mcp_hub import errors
from mcp_hub.client import StreamInterrupted
from mcp_hub.client.http import HttpTransport
from mcp_hub.client.in_process import AsgiTransport, connect_here
from mcp_hub.client.rest import ConnectionLost
from mcp_hub.events import Started
from mcp_hub.protocol.rest.calls import ErrorBody, InputBody
from tests.unit.client.scripted_peer import (
    SECONDS,
    STREAM,
    connect,
    connected,
    each_way,
    events_answer,
    json_answer,
    lines,
    problem,
    sse,
)

__all__ = ["each_way"]
pytestmark = pytest.mark.anyio

ROW: dict[str, object] = {"stream": STREAM, "status": "working", "method": "tools/call", "name": "job", "server": "git"}
ROW |= {"created": "2026-11-20T11:00:00.000Z", "updated": "2026-11-20T11:00:01.000Z", "first": 1, "last": 2}


async def test_detached_call_is_answered_with_its_stream_and_never_made_twice() -> None:
    async with connected([json_answer(202, ROW)], "secret") as (hub, client):
        assert await client.start("a/b", b'{"x":1.0}', key="mine") == STREAM
    [asked] = hub.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/v1/tools/a%2Fb/call", b'{"arguments":{"x":1.0}}')
    said = {name: asked.headers[name] for name in ("prefer", "idempotency-key", "accept", "authorization")}
    assert said == {
        "prefer": "wait=0", "idempotency-key": "mine", "accept": "application/json", "authorization": "Bearer secret",
    }  # fmt: skip
    async with connected([b"", json_answer(202, ROW)]) as (hub, client):
        assert await client.start("job") == STREAM
    first, second = hub.asked
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert re.fullmatch(r"[0-9a-f]{32}", first.headers["idempotency-key"])


@pytest.mark.parametrize(
    "answer",
    [
        json_answer(200, {"stream": STREAM, "status": "completed", "result": {}}),
        problem(502, "tool_error", stream=STREAM, jsonrpc={"code": -5, "message": "no"}),
    ],
)
async def test_detached_call_that_has_ended_already_has_its_stream_all_the_same(answer: bytes) -> None:
    async with connected([answer]) as (hub, client):
        assert await client.start("job") == STREAM


async def test_each_call_has_a_key_of_its_own() -> None:
    def answer(_: object) -> bytes:
        return events_answer(sse(lines([Started()])))

    async with connected(answer) as (hub, client):
        for key in (None, None, "mine"):
            async with client.stream("job", b"{}", key=key) as stream:
                await anext(stream)
    keys = [asked.headers["idempotency-key"] for asked in hub.asked]
    assert (len({*keys}), keys[2]) == (3, "mine")


async def test_detached_call_that_is_refused_or_never_answered_is_an_error(free_tcp_port: int) -> None:
    async with connected([problem(503, "busy")]) as (hub, client):
        with pytest.raises(errors.Busy):
            await client.start("job")
    assert len(hub.asked) == 1
    async with connected([b""], patience=0) as (hub, client):
        with pytest.raises(StreamInterrupted, match="whether the call was made is unknown"):
            await client.start("job")
    async with connect(f"http://127.0.0.1:{free_tcp_port}") as client:
        with pytest.raises(errors.UpstreamUnavailable, match="No hub answers"):
            await client.start("job")


async def test_state_list_cancel_and_answers_are_one_request_each() -> None:
    answers = [json_answer(200, ROW), json_answer(200, {"streams": [ROW, ROW]}), json_answer(202, ROW)]
    async with connected(answers) as (hub, client):
        assert (await client.status(STREAM)).name == "job"
        assert [status.last for status in await client.streams(7)] == [2, 2]
        assert (await client.cancel(STREAM)).status == "working"
    assert [(asked.method, asked.path, asked.query) for asked in hub.asked] == [
        ("GET", f"/v1/streams/{STREAM}", {}),
        ("GET", "/v1/streams", {"limit": "7"}),
        ("DELETE", f"/v1/streams/{STREAM}", {}),
    ]
    async with connected([json_answer(202, ROW)]) as (hub, client):
        await client.answer(STREAM, InputBody("q", error=ErrorBody(-5, "no")))
    [asked] = hub.asked
    assert (asked.method, asked.path) == ("POST", f"/v1/streams/{STREAM}/input")
    assert asked.headers["content-type"] == "application/json"
    assert asked.body == b'{"key":"q","error":{"code":-5,"message":"no"}}'


async def test_refusals_are_errors_by_what_they_name() -> None:
    answers = [problem(404, "unknown_stream"), problem(404, "unknown_question"), b""]
    async with connected(answers) as (hub, client):
        with pytest.raises(errors.UnknownStream):
            await client.status("st_nope")
        with pytest.raises(errors.InvalidParams, match="said unknown_question"):
            await client.answer(STREAM, InputBody("q", action="decline"))
        with pytest.raises(errors.UpstreamLost, match="lost the connection"):
            await client.cancel(STREAM)
    assert len(hub.asked) == 3


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ntransfer-encoding: chunked\r\n\r\n"
BROKEN: list[tuple[bytes, type[errors.HubError]]] = [
    (b"SSH-2.0-OpenSSH_9.9\r\n", errors.UpstreamLost),
    (b"", errors.UpstreamLost),
    (HEAD % b"text/event-stream" + b"5\r\n: hi\n\r\n", errors.UpstreamLost),
    (HEAD % b"text/event-stream" + b"0\r\n\r\n", errors.ConfigError),
    (HEAD % b"application/json" + b"9\r\n{\"result\"\r\n", errors.UpstreamLost),
    (b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n", errors.ConfigError),
    (b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\n\r\n", errors.UpstreamUnavailable),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "kind"), BROKEN)
async def test_server_that_is_not_a_hub_or_breaks_off_is_an_error_with_its_url(
    answer: bytes, kind: type[errors.HubError]
) -> None:
    async with connected([answer]) as (hub, client):
        with pytest.raises(kind) as found:
            await client.tools()
    assert hub.url.removesuffix("/mcp") in str(found.value)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "Server disconnected without sending a response."),
        (HEAD % b"application/json" + b'9\r\n{"result"\r\n', r"message body \(incomplete chunked read\)"),
        (json_answer(200, ROW)[:-1], r"message body \(received \d+ bytes, expected \d+\)"),
    ],
)
async def test_lost_connection_is_named_alike_by_each_transport(answer: bytes, reason: str) -> None:
    async with connected([answer]) as (_, client):
        with pytest.raises(errors.UpstreamLost, match=reason):
            await client.status(STREAM)


@pytest.mark.parametrize("key", ["a\r\nx-other: 1", "ä"])
async def test_header_that_cannot_be_sent_is_never_sent(key: str) -> None:
    client = connect_here("http://127.0.0.1:1")
    assert client is not None
    with pytest.raises(errors.UpstreamUnavailable, match="Illegal header value"):
        await client.start("job", key=key)


Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
BEGINNING = {"type": "http.response.start", "status": 201, "headers": [(b"Content-Type", b"x/y")]}


def part(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}


async def test_chunk_is_handed_on_before_the_application_ends() -> None:
    go_on = anyio.Event()

    async def application(scope: Message, receive: Receive, send: Send) -> None:
        asked = scope["method"], scope["raw_path"], scope["query_string"], scope["headers"], (await receive())["body"]
        await send(BEGINNING)
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
        await send(BEGINNING)
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
        await send(BEGINNING)
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


def unsigned(root: Path) -> ssl.SSLContext:
    """A server's, with a certificate of 127.0.0.1 that no authority has signed."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    host = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    certificate = made.add_extension(host, critical=False).sign(key, hashes.SHA256())
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    file = root / "server.pem"
    file.write_bytes(certificate.public_bytes(pem))
    with file.open("ab") as more:
        more.write(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


async def test_a_hub_on_this_machine_with_a_certificate_that_nobody_signed_is_refused(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=unsigned(tmp_path))
    url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    with anyio.fail_after(240):
        async with server, HttpTransport(url, None) as transport:
            with pytest.raises(ConnectionLost, match="(?i)certificate") as refused:
                await transport.send("POST", url, {}, b"{}")
            assert not refused.value.was_made
