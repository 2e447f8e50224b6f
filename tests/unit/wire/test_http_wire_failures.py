"""Streamable HTTP as a wire: answers that are none or compressed, streams that end too early, servers that are gone."""

import gzip
import json
import zlib
from collections.abc import Callable

import anyio
import httpx2
import msgspec
import pytest

from mcp_hub.errors import HttpRefused, UpstreamLost, UpstreamUnavailable
from mcp_hub.protocol.jsonrpc.repair import Placeholder
from mcp_hub.types import Era
from mcp_hub.wire.base import NotSent, WireClosed
from mcp_hub.wire.bodies import inflater
from mcp_hub.wire.responses import JSON
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


PIECE = 1 << 18
RESULT = {"jsonrpc": "2.0", "id": 1, "result": {"content": []}}


@pytest.mark.parametrize(("encoding", "packed"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
@pytest.mark.parametrize("size", [0, 1, PIECE, 3 * PIECE + 7])
def test_pieces_make_the_whole_however_it_is_cut(encoding: str, packed: object, size: int) -> None:
    assert callable(packed)
    data = bytes(i % 251 for i in range(1000)) * (size // 1000) + b"x" * (size % 1000)
    body: bytes = packed(data)
    for cut in (1, 100, len(body)):
        inflate = inflater(encoding)
        pieces = [piece for at in range(0, len(body), cut) for piece in inflate(body[at : at + cut])]
        assert b"".join(pieces) == data
        assert all(0 < len(piece) <= PIECE for piece in pieces)


def test_a_bomb_goes_off_in_pieces_and_only_as_far_as_it_is_wanted() -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    pieces = inflater("gzip")(bomb)
    assert [len(next(pieces)) for _ in range(4)] == [PIECE] * 4


def test_what_is_not_what_it_says_is_an_error() -> None:
    with pytest.raises(httpx2.DecodingError, match="the body is not gzip"):
        list(inflater("gzip")(b"<html>"))


@pytest.mark.parametrize(
    ("encoding", "said"),
    [("gzip, gzip", "content-encoding 'gzip, gzip'"), ("br", "content-encoding 'br'"), ("gzip", "is not gzip")],
)
async def test_a_body_that_cannot_be_decoded_ends_its_request_alone(encoding: str, said: str) -> None:
    async with wired(says(200, json.dumps(RESULT).encode(), JSON, content_encoding=encoding)) as talk:
        with pytest.raises(UpstreamLost, match=said):
            await talk.ask()
        assert talk.wire.can_send


@pytest.mark.parametrize("encoding", ["utf-8", "UTF8", "none", "binary", "iso-8859-1"])
async def test_encoding_that_is_none_changes_nothing(encoding: str) -> None:
    async with wired(says(200, json.dumps(RESULT).encode(), JSON, content_encoding=encoding)) as talk:
        assert (await talk.ask()).kind == "result"


@pytest.mark.parametrize("status", [400, 404, 200])
async def test_error_with_an_id_of_the_servers_own_is_the_answer(status: int) -> None:
    body = b'{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Bad Request: no such version"}}'
    async with wired(says(status, body, JSON)) as talk:
        assert b"no such version" in bytes((await talk.ask()).error)


async def test_a_bomb_ends_its_request_at_the_limit() -> None:
    async with wired(says(200, gzip.compress(b" " * (10 * LIMIT)), JSON, content_encoding="gzip")) as talk:
        with pytest.raises(UpstreamLost, match=f"over the limit of {LIMIT} bytes"):
            await talk.ask()


async def test_a_compressed_answer_is_read() -> None:
    async with wired(says(200, gzip.compress(json.dumps(RESULT).encode()), JSON, content_encoding="gzip")) as talk:
        assert (answer := await talk.ask()).result and msgspec.json.decode(answer.result) == {"content": []}
