"""Streamable HTTP as a wire: answers that are none, streams that end too early, servers that are not there."""

from collections.abc import Callable

import anyio
import pytest

from mcp_hub.errors import HttpRefused, UpstreamLost, UpstreamUnavailable
from mcp_hub.protocol.jsonrpc.repair import Placeholder
from mcp_hub.types import Era
from mcp_hub.wire.base import NotSent, WireClosed
from tests.unit.wire.http_server import Reply, Request, Script, serving
from tests.unit.wire.http_wires import LIMIT, echo, says, wired

pytestmark = pytest.mark.anyio


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "body", "kind", "said"),
    [
        (401, b'{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}', "application/json", "HTTP 401"),
        (400, b'{"error":"invalid_request"}', "application/json", "HTTP 400"),
        (400, b"{not json", "application/json", "HTTP 400"),
        (500, b'{"jsonrpc":"2.0","id":1,"result":{}}', "application/json", "HTTP 500"),
        (502, b"<html>", "text/html", "HTTP 502"),
        (200, b"<html>", "text/html", "HTTP 200 Said and text/html in place of a message"),
        (202, b"", None, "HTTP 202 Said and nothing in place of a message"),
    ],
)
async def test_status_without_a_message_ends_the_request(status: int, body: bytes, kind: str | None, said: str) -> None:
    async with wired(says(status, body, kind)) as talk:
        with pytest.raises(HttpRefused, match=f'"far" answered with {said}') as caught:
            await talk.ask()
        assert (caught.value.data or {}).get("outcome") == (None if 400 <= status < 500 else "unknown")
        assert talk.wire.can_send


ERROR = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"full"}}'
DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "header", "seconds"),
    [
        (503, "7", 7),
        (429, " 7 ", 7),
        (429, "9" * 400, 86400),
        (503, DATE, 0),
        (503, "soon", None),
        (503, "-1", None),
        (503, "1.5", None),
        (500, "7", None),
    ],
)
@pytest.mark.parametrize("body", [b"", ERROR])
async def test_seconds_that_a_server_wants_are_told(status: int, header: str, seconds: int | None, body: bytes) -> None:
    async with wired(says(status, body, "application/json" if body else None, retry_after=header)) as talk:
        if status == 500 and body:
            assert b"full" in bytes((await talk.ask()).error)
            return
        with pytest.raises(HttpRefused) as caught:
            await talk.ask()
    data = caught.value.data or {}
    assert data.get("retryAfter") == seconds and caught.value.status == status
    assert ("outcome" in data) is (status != 429 and seconds is None)
    assert ("full" in caught.value.message) is bool(body)
    error = caught.value.about_upstream.get("error")
    assert error is None if not body else b'"full"' in bytes(error)  # type: ignore[arg-type]  # as it was sent


async def test_a_redirect_is_named_and_not_followed() -> None:
    async with serving(echo) as elsewhere:
        async with wired(says(307, location=f"{elsewhere.url}?secret=1")) as talk:
            with pytest.raises(HttpRefused, match=f"redirect to '{elsewhere.url}', which is not followed"):
                await talk.ask()
        assert elsewhere.seen == []


def streamed(*events: str) -> Script:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        for event in events:
            await stream.event(event.replace("ID", str(request.message["id"])))
        await stream.end()

    return script


def whole(body: str) -> Script:
    async def script(request: Request, reply: Reply) -> None:
        await reply.json(body.replace("ID", str(request.message["id"])).encode())

    return script


@pytest.mark.parametrize("how", [streamed, whole])
@pytest.mark.parametrize("body", ['{"jsonrpc":"2.0","id":ID,"result":{]}', '{"id":ID,"jsonrpc":"2.0","result":[[}'])
async def test_an_answer_that_cannot_be_read_settles_its_request(how: Callable[[str], Script], body: str) -> None:
    async with wired(how(body)) as talk:
        answer = await talk.ask()
        assert isinstance(answer, Placeholder) and b"malformed JSON" in bytes(answer.error)


async def test_messages_after_one_another_in_one_event_are_these_messages() -> None:
    note = '{"jsonrpc":"2.0","method":"notifications/x"}'
    async with wired(streamed(note + '{"result":{},"jsonrpc":"2.0","id":ID}')) as talk:
        assert bytes((await talk.ask()).result) == b"{}"
        assert len(talk.told.notifications) == 1 and talk.told.bad == []
    async with wired(streamed(note + '{"jsonrpc":"2.0","id":ID,"result":NaN}')) as talk:
        assert isinstance(await talk.ask(), Placeholder)


async def test_a_json_answer_to_another_request_is_none() -> None:
    async with wired(whole('{"jsonrpc":"2.0","id":77,"result":{}}')) as talk:
        answer = await talk.ask()
        assert isinstance(answer, Placeholder) and b"another request" in bytes(answer.error)


@pytest.mark.parametrize("how", [streamed, whole])
async def test_a_message_over_the_limit_ends_the_request_and_not_the_session(how: Callable[[str], Script]) -> None:
    async def script(request: Request, reply: Reply) -> None:
        size = LIMIT + 1 if request.message["method"] == "big" else 1000
        await how('{"jsonrpc":"2.0","id":ID,"result":{"t":"' + "x" * size + '"}}')(request, reply)

    async with wired(script) as talk:
        with pytest.raises(UpstreamLost, match=f"over the limit of {LIMIT} bytes"):
            await talk.ask("big")
        assert (await talk.ask()).kind == "result"


@pytest.mark.parametrize("cut", [True, False])
@pytest.mark.parametrize("era", Era)
async def test_a_stream_without_ids_that_ends_before_the_answer_loses_the_request(era: Era, cut: bool) -> None:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        await stream.progress("t", 1)
        await stream.leave(cut)

    async with wired(script, era) as talk:
        with pytest.raises(UpstreamLost, match="broke off" if cut else "ended its answer without a result") as caught:
            await talk.ask()
        assert caught.value.data == {"upstream": {"server": "far"}, "outcome": "unknown"}
        assert len(talk.server.seen) == 1 and talk.wire.can_send


async def test_a_connection_that_is_cut_instead_of_an_answer_loses_the_request() -> None:
    async def script(request: Request, reply: Reply) -> None:
        reply.cut()

    async with wired(script) as talk:
        with pytest.raises(UpstreamLost, match="broke off the connection"):
            await talk.ask()


async def test_a_server_that_is_gone_ends_the_session_when_nothing_else_is_under_way() -> None:
    async with wired(echo) as talk:
        async with serving(echo) as other:
            talk.wire._exchanges.server.url = other.url
        with pytest.raises(NotSent, match=f"cannot connect to http://127.0.0.1:{other.port}: "):
            await talk.ask()
        assert talk.told.reasons == [f"cannot connect to http://127.0.0.1:{other.port}: Connection refused"]
        assert not talk.wire.can_send
        with pytest.raises(WireClosed):
            talk.wire.request("tools/call", b"{}")


async def test_a_connection_that_fails_takes_no_other_request_along() -> None:
    go = anyio.Event()

    async def script(request: Request, reply: Reply) -> None:
        await go.wait()
        await reply.result(request, {})

    async with wired(script) as talk:
        slow = talk.wire.request("slow", b"{}")
        await talk.server.until("slow")
        async with serving(echo) as other:
            here, talk.wire._exchanges.server.url = talk.wire._exchanges.server.url, other.url
        with pytest.raises(UpstreamUnavailable, match=r"cannot connect to .*. The request was not sent"):
            await talk.ask()
        talk.wire._exchanges.server.url = here
        go.set()
        assert (await talk.answer(slow)).kind == "result"
