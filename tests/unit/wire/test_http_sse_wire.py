"""The deprecated HTTP+SSE transport as a wire: one stream in, POSTs out."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import httpx2
import msgspec
import pytest

from mcp_hub.errors import HttpRefused, StartFailed
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Envelope
from mcp_hub.wire.base import Pending, WireClosed
from mcp_hub.wire.remote import AT_ONCE
from mcp_hub.wire.sse import SseWire
from tests.unit.wire.http_server import HttpServer, Reply, Request, Script, serving
from tests.unit.wire.http_wires import LIMIT, OldServer, Sourced, says
from tests.unit.wire.raw_lines import WAIT, group, within
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(script: Script, url: str | None = None) -> AsyncIterator[tuple[SseWire, Sourced, HttpServer]]:
    async with serving(script) as server, group() as tasks:
        async with httpx2.AsyncClient(timeout=None, trust_env=False, verify=False) as http:
            told = Sourced()
            wire = SseWire(told, http, tasks, server="old", url=url or server.url, limit=LIMIT)
            try:
                await within(wire.open())
                yield wire, told, server
            finally:
                wire.close()


def is_over(wire: SseWire, key: int) -> bool:
    """Whether the POST of this request is."""
    return not wire._exchanges.is_running(key)


async def answered(wire: SseWire, pending: Pending) -> Envelope:
    return await within(wire.answer(pending, None))


async def result(wire: SseWire, pending: Pending) -> Any:
    found = (await answered(wire, pending)).result
    assert isinstance(found, msgspec.Raw)
    return json.loads(bytes(found))


async def failing(script: Script, url: str | None = None) -> BaseException:
    """What opening comes to."""
    with pytest.raises(ExceptionGroup) as caught:
        async with opened(script, url):
            raise AssertionError("it came up")
    (error,) = caught.value.exceptions
    return error


async def test_requests_go_to_the_endpoint_and_answers_come_on_the_stream() -> None:
    old = OldServer()
    async with opened(old) as (wire, told, server):
        pending = wire.request("tools/call", b'{"name":"x"}')
        (sent,) = await server.until("tools/call")
        assert sent.path == "/messages?session_id=1" and sent.headers["content-type"] == "application/json"
        await old.say(method="notifications/progress", params={"progressToken": 1, "progress": 1})
        await old.say(id=7, method="ping")
        await old.say(id=sent.message["id"], result={"n": 1})
        assert await result(wire, pending) == {"n": 1}
        assert told.sources == [None] and [ask.method for ask in told.requests] == ["ping"]


async def test_answers_find_their_requests_in_any_order() -> None:
    old = OldServer()
    async with opened(old) as (wire, _, server):
        pendings = [wire.request("tools/call", b"{}") for _ in range(100)]
        for request in reversed(await server.until("tools/call", 100)):
            await old.say(id=request.message["id"], result={"id": request.message["id"]})
        for pending in pendings:
            assert await result(wire, pending) == {"id": pending.id}


async def test_a_request_that_is_given_up_is_cancelled_by_name() -> None:
    async with opened(OldServer()) as (wire, _, server):
        pending = wire.request("tools/call", b"{}")
        async with group() as tasks:
            tasks.start_soon(wire.answer, pending, lambda id_: envelope.notification_frame("cancelled", b"%d" % id_))
            await server.until("tools/call")
        (told,) = await server.until("cancelled")
        assert told.message["params"] == pending.id and told.path == "/messages?session_id=1"


async def test_a_request_that_is_not_accepted_has_failed() -> None:
    async def script(request: Request, reply: Reply) -> None:
        await (reply.status(503) if request.body else OldServer()(request, reply))

    async with opened(script) as (wire, _, _):
        with pytest.raises(HttpRefused, match='"old" answered with HTTP 503'):
            await answered(wire, wire.request("tools/call", b"{}"))


async def test_a_response_that_never_ends_is_given_up_after_the_answer() -> None:
    old = OldServer()

    async def script(request: Request, reply: Reply) -> None:
        if request.body:
            await old.say(id=request.message["id"], result={})
            await reply.gone()
        else:
            await old(request, reply)

    async with opened(script) as (wire, told, _):
        for pending in [wire.request("tools/call", b"{}") for _ in range(AT_ONCE + 1)]:
            assert await result(wire, pending) == {}
        assert wire.can_send and not told.bad


async def test_an_answer_in_the_response_counts_and_what_is_none_does_not() -> None:
    old = OldServer()
    bodies: list[object] = [{"id": 1, "result": {"n": 1}}, {"id": 9, "result": {}}, {"status": "ok"}, {"id": 4}, b"{"]

    async def script(request: Request, reply: Reply) -> None:
        await (reply.json(bodies.pop(0)) if request.body else old(request, reply))

    async with opened(script) as (wire, told, server):
        pending = wire.request("tools/call", b"{}")
        assert await result(wire, pending) == {"n": 1}
        for count in range(2, 6):
            pending = wire.request("tools/call", b"{}")
            await server.until("tools/call", count)
            await until(partial(is_over, wire, pending.id))
            assert not pending.future.done()
            await old.say(id=pending.id, result={})
            await answered(wire, pending)
        assert not told.bad and not any(wire.counts.values())


@pytest.mark.parametrize("cut", [True, False])
async def test_the_end_of_the_stream_is_the_end_of_the_connection(cut: bool) -> None:
    old = OldServer()
    async with opened(old) as (wire, told, server):
        pending = wire.request("tools/call", b"{}")
        await server.until("tools/call")
        assert old.stream is not None
        await old.stream.leave(cut)
        with pytest.raises(WireClosed):
            await answered(wire, pending)
        (reason,) = told.reasons
        assert reason.startswith("the event stream broke off: " if cut else "the event stream ended")
        assert not wire.can_send


async def test_a_message_over_the_limit_is_skipped_and_ends_only_the_request_that_it_answers() -> None:
    old = OldServer()
    async with opened(old) as (wire, told, server):
        first, second = (wire.request("tools/call", b"{}") for _ in range(2))
        await server.until("tools/call", 2)
        await old.say(method="n", params={"t": "x" * LIMIT})
        await old.say(id=first.id, result={"t": "x" * LIMIT})
        answer = await answered(wire, first)
        assert f"message over the limit of {LIMIT} bytes" in bytes(answer.error).decode()
        assert not second.future.done()
        await old.say(id=second.id, result={"n": 2})
        assert await result(wire, second) == {"n": 2}
        assert [bad.id for bad, _ in told.bad] == [None, b"%d" % first.id]
        assert wire.can_send and not told.reasons


async def test_why_the_stream_is_given_up_does_not_name_the_server_whose_connection_it_was() -> None:
    reasons: list[str] = []
    async with serving(says(503)) as server, anyio.create_task_group() as tasks:
        async with httpx2.AsyncClient(timeout=None, trust_env=False, verify=False) as http:
            told = Sourced()
            with pytest.raises(HttpRefused, match='"old" answered with HTTP 503'), anyio.fail_after(WAIT):
                await SseWire(told, http, tasks, server="old", url=server.url, limit=LIMIT).open()
            reasons = await told.until("reasons")
    assert [reason[:22] for reason in reasons] == ["answered with HTTP 503"]


@pytest.mark.parametrize(
    "endpoint", ["http://127.0.0.1:1/x", "//evil.example/x", "https://127.0.0.1/x", "http://localhost/x", "ftp://x/"]
)
async def test_an_endpoint_elsewhere_is_refused(endpoint: str) -> None:
    error = await failing(OldServer(endpoint))
    assert isinstance(error, StartFailed) and error.code == "endpoint_elsewhere"
    assert (endpoint if "//" in endpoint else "").removesuffix("/x").removesuffix("/") in str(error)


async def test_an_endpoint_with_a_user_is_refused() -> None:
    old = OldServer()

    async def script(request: Request, reply: Reply) -> None:
        old.endpoint = f"http://user:word@{request.headers['host']}/x"
        await old(request, reply)

    error = await failing(script)
    assert isinstance(error, StartFailed) and error.code == "endpoint_elsewhere" and "word" not in str(error)


async def test_a_stream_that_ends_before_the_endpoint_is_no_connection() -> None:
    async def script(request: Request, reply: Reply) -> None:
        await (await reply.stream()).end()

    error = await failing(script)
    assert isinstance(error, StartFailed) and error.code == "no_endpoint"
