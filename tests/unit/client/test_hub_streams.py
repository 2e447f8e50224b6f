"""What a client asks of a hub about streams: one request each, and what comes of it."""

import re

import pytest

from mcp_hub.client import StreamInterrupted
from mcp_hub.client.http import connect
from mcp_hub.errors import (
    Busy,
    ConfigError,
    HubError,
    InvalidParams,
    UnknownStream,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.events import Started
from mcp_hub.protocol.rest.streams import ErrorBody, InputBody
from tests.unit.client.scripted_peer import STREAM, connected, events_answer, json_answer, lines, problem, sse

pytestmark = pytest.mark.anyio

ROW: dict[str, object] = {"stream": STREAM, "status": "working", "method": "tools/call", "name": "job", "server": "git"}
ROW |= {"created": "2026-11-20T11:00:00.000Z", "updated": "2026-11-20T11:00:01.000Z", "first": 1, "last": 2}


async def test_detached_call_is_answered_with_its_stream() -> None:
    async with connected([json_answer(202, ROW)], "secret") as (hub, client):
        assert await client.start("a/b", b'{"x":1.0}', key="mine") == STREAM
    [asked] = hub.asked
    assert (asked.method, asked.path, asked.body) == ("POST", "/v1/tools/a%2Fb/call", b'{"arguments":{"x":1.0}}')
    said = {name: asked.headers[name] for name in ("prefer", "idempotency-key", "accept", "authorization")}
    assert said == {
        "prefer": "wait=0", "idempotency-key": "mine", "accept": "application/json", "authorization": "Bearer secret",
    }  # fmt: skip


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


async def test_detached_call_whose_answer_was_lost_is_not_made_twice() -> None:
    async with connected([b"", json_answer(202, ROW)]) as (hub, client):
        assert await client.start("job") == STREAM
    first, second = hub.asked
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert re.fullmatch(r"[0-9a-f]{32}", first.headers["idempotency-key"])


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
        with pytest.raises(Busy):
            await client.start("job")
    assert len(hub.asked) == 1
    async with connected([b""], patience=0) as (hub, client):
        with pytest.raises(StreamInterrupted, match="whether the call was made is unknown"):
            await client.start("job")
    async with connect(f"http://127.0.0.1:{free_tcp_port}") as client:
        with pytest.raises(UpstreamUnavailable, match="No hub answers"):
            await client.start("job")


async def test_state_list_and_cancel_are_one_request_each() -> None:
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


async def test_question_is_refused_with_an_error() -> None:
    async with connected([json_answer(202, ROW)]) as (hub, client):
        await client.answer(STREAM, InputBody("q", error=ErrorBody(-5, "no")))
    [asked] = hub.asked
    assert (asked.method, asked.path) == ("POST", f"/v1/streams/{STREAM}/input")
    assert asked.headers["content-type"] == "application/json"
    assert asked.body == b'{"key":"q","error":{"code":-5,"message":"no"}}'


async def test_refusals_are_errors_by_what_they_name() -> None:
    answers = [problem(404, "unknown_stream"), problem(404, "unknown_question"), b""]
    async with connected(answers) as (hub, client):
        with pytest.raises(UnknownStream):
            await client.status("st_nope")
        with pytest.raises(InvalidParams, match="said unknown_question"):
            await client.answer(STREAM, InputBody("q", action="decline"))
        with pytest.raises(UpstreamLost, match="lost the connection"):
            await client.cancel(STREAM)
    assert len(hub.asked) == 3


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
    async with connected([answer]) as (hub, client):
        with pytest.raises(kind) as found:
            await client.tools()
    assert hub.url.removesuffix("/mcp") in str(found.value)
