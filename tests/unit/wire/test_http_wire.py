"""Streamable HTTP as a wire: what is sent, what the answers come to. Sessions and streams that break off: next door."""

import json
from typing import Any

import anyio
import pytest

from mcp_hub.errors import HttpRefused, UpstreamLost
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.types import Era
from mcp_hub.wire import remote
from mcp_hub.wire.base import WireClosed
from mcp_hub.wire.remote import AT_ONCE
from tests.unit.wire.http_server import Reply, Request
from tests.unit.wire.http_wires import echo, refuses, says, wired, with_session
from tests.unit.wire.raw_lines import WAIT, cancellation, within
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

MODERN = "2026-07-28"


async def test_a_json_answer_comes_as_its_bytes() -> None:
    raw = b'{"n":1e400,"i":184467440737095516160, "s":"\\u00e9\xc3\xa9"}'

    async def script(request: Request, reply: Reply) -> None:
        await reply.json(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (request.message["id"], raw))

    async with wired(script) as talk:
        assert bytes((await talk.ask()).result) == raw


async def test_what_a_stream_brings_before_the_answer_comes_in_order_with_its_request_and_nothing_after() -> None:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        await stream.raw(b": hello\n\nid: 1\ndata:\n\n")
        for number in range(50):
            await stream.progress("t", number)
        await stream.event({"jsonrpc": "2.0", "id": request.message["id"], "result": {}}, event="other")
        await stream.event({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create", "params": {}})
        await stream.answer(request.message["id"], {"done": True})
        await stream.progress("t", 99)
        await stream.end()

    async with wired(script) as talk:
        pending = talk.wire.request("tools/call", b"{}")
        answer = await talk.answer(pending)
        assert bytes(answer.result) == b'{"done": true}'
        values = [json.loads(bytes(note.params))["progress"] for note in talk.told.notifications]  # type: ignore[arg-type]
        assert values == list(range(50))
        assert set(talk.told.sources) == {pending} and talk.told.bad == []
        assert [ask.method for ask in talk.told.requests] == ["elicitation/create"]
        await talk.ask()
        assert talk.server.connections == 1, "a stream that was read to its end leaves its connection to the next"


async def test_a_modern_server_that_asks_is_not_answered() -> None:
    """2026-07-28, streamable-http "Receiving Messages": it must not, and a client must send no responses."""

    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        await stream.event({"jsonrpc": "2.0", "id": 9, "method": "ping"})
        await stream.answer(request.message["id"], {})
        await stream.end()

    async with wired(script, Era.MODERN) as talk:
        await talk.ask()
        assert talk.told.requests == [] and talk.wire.counts["stray"] == 1


async def test_an_answer_arrives_however_slowly_it_trickles() -> None:
    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        data = json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": {"text": "ü" * 20}})
        for byte in f"event: message\r\ndata: {data}\r\n\r\n".encode():
            await stream.raw(bytes([byte]))

    async with wired(script) as talk:
        assert json.loads(bytes((await talk.ask()).result)) == {"text": "ü" * 20}


ANSWER = b'{"jsonrpc":"2.0","id":1,"result":{"n":1}}'
LOG = b'{"jsonrpc":"2.0","method":"notifications/message","params":{}}'


@pytest.mark.parametrize(
    ("status", "body", "kind", "before"),
    [
        *((200, ANSWER, kind, 0) for kind in (None, "text/plain", "text/html", "application/octet-stream")),
        (200, ANSWER, "application/json, application/json", 0),
        *((status, ANSWER, "application/json", 0) for status in (201, 202, 203)),
        (200, b"[" + ANSWER + b"]", "application/json", 0),
        (200, b"[" + LOG + b"," + ANSWER + b"]", "application/json", 1),
        (200, b"[" + ANSWER + b"," + LOG + b"]", "application/json", 1),
        (200, LOG + b"\n" + ANSWER + b"\n", "application/x-ndjson", 1),
        (200, LOG + b"\n" + ANSWER + b"\n" + LOG, "application/x-ndjson", 2),
        (200, b"event: message\ndata: " + ANSWER + b"\n\n", "text/plain", 0),
        (200, b"data: " + ANSWER.replace(b"1", b"1.0", 1) + b"\n\n", "text/event-stream", 0),
        (200, b"data: [" + ANSWER + b"]\n\n", "text/event-stream", 0),
        (200, b"data: [" + LOG + b", " + ANSWER + b"]\n\n", "text/event-stream", 1),
        *((200, b"data: " + ANSWER + end, "text/event-stream", 0) for end in (b"", b"\n", b"\r\n")),
    ],
)
async def test_answer_counts_in_whatever_form_it_comes(status: int, body: bytes, kind: str | None, before: int) -> None:
    async with wired(says(status, body, kind)) as talk:
        assert bytes((await talk.ask()).result) == b'{"n":1}'
        assert len(talk.told.sources) == before


@pytest.mark.parametrize("body", [b'{"n":1}', b'{"jsonrpc":"2.0","id":1}', b"<p>", ANSWER[:-1], b"[]"])
async def test_text_without_an_answer_is_none(body: bytes) -> None:
    async with wired(says(200, body, "text/plain")) as talk:
        with pytest.raises(HttpRefused, match="text/plain in place of a message"):
            await talk.ask()


async def test_half_an_event_is_no_answer() -> None:
    async with wired(says(200, b"data: " + ANSWER[:-1], "text/event-stream")) as talk:
        with pytest.raises(UpstreamLost, match="ended its answer without a result"):
            await talk.ask()


@pytest.mark.parametrize(("status", "code"), [(400, -32602), (404, -32602), (500, -32602), (400, 0)])
async def test_a_json_rpc_error_is_the_answer_whatever_the_status(status: int, code: int) -> None:
    async with wired(refuses(code, "no", 1, status), Era.MODERN) as talk:
        assert json.loads(bytes((await talk.ask()).error))["code"] == code


async def test_session_id_counts_whatever_stands_behind_the_answer_in_its_body() -> None:
    async with wired(says(200, b"[" + ANSWER + b"," + LOG + b"]", "application/json", mcp_session_id="s-1")) as talk:
        await talk.begin()
        assert talk.wire.session.id == "s-1"


async def test_a_refusal_that_names_no_request_answers_the_one_that_was_posted() -> None:
    async with wired(refuses(-32600, "no")) as talk:
        assert b"-32600" in bytes((await talk.ask()).error)


async def test_a_handshake_request_has_the_settled_version_once_there_is_one() -> None:
    async with wired(with_session(echo)) as talk:
        await talk.begin()
        await talk.ask("tools/list", b"{}")
        talk.wire.send(envelope.notification_frame("notifications/x"))
        await talk.wire.drained()
        first, *later = [request.headers for request in talk.server.seen]
        assert "mcp-protocol-version" not in first and "mcp-session-id" not in first
        assert {(h["mcp-protocol-version"], h["mcp-session-id"]) for h in later} == {("2025-06-18", "s-1")}
        assert {h["accept"] for h in (first, *later)} == {"application/json, text/event-stream"}
        assert {h["content-type"] for h in (first, *later)} == {"application/json"}
        assert not any(name.startswith(("mcp-method", "mcp-name")) for h in (first, *later) for name in h)


@pytest.mark.parametrize(
    ("method", "params", "name"),
    [
        ("tools/call", {"name": "get", "arguments": {"name": "no"}}, "get"),
        ("prompts/get", {"name": "grüß"}, "=?base64?Z3LDvMOf?="),
        ("resources/read", {"uri": "file:///a b"}, "file:///a b"),
        ("tools/list", {"name": "no"}, None),
        ("tools/call", {"name": 5}, None),
    ],
)
async def test_a_modern_request_repeats_method_and_name_in_headers(method: str, params: Any, name: str | None) -> None:
    async with wired(echo, Era.MODERN) as talk:
        await talk.ask(method, json.dumps(params).encode(), **{"mcp-param-region": "eu"})
        headers = talk.server.seen[0].headers
        assert (headers["mcp-protocol-version"], headers["mcp-method"]) == (MODERN, method)
        assert headers.get("mcp-name") == name and headers["mcp-param-region"] == "eu"
        assert "mcp-session-id" not in headers


@pytest.mark.parametrize("era", Era)
async def test_request_that_is_given_up_has_its_stream_closed_and_is_cancelled_by_name_by_its_era(era: Era) -> None:
    gone = anyio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if request.rpc == "tools/call":
            if era is Era.HANDSHAKE:
                await reply.stream()
            await reply.gone()
            gone.set()
        else:
            await echo(request, reply)

    async with wired(script, era) as talk:
        await talk.give_up(cancellation)
        await within(gone.wait())
        if era is Era.HANDSHAKE:
            (told,) = await talk.server.until("notifications/cancelled")
            assert told.message["params"] == {"requestId": talk.server.seen[0].message["id"]}
        else:
            await talk.ask("tools/list", b"{}")
            assert [request.rpc for request in talk.server.seen] == ["tools/call", "tools/list"]


async def test_notifications_leave_one_after_the_other_and_a_refused_one_holds_none_up() -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.status(500 if request.message["method"] == "n3" else 202)

    async with wired(script) as talk:
        for number in range(8):
            talk.wire.send(envelope.notification_frame(f"n{number}"))
        await talk.wire.drained()
        assert [request.rpc for request in talk.server.seen] == [f"n{number}" for number in range(8)]
        assert talk.server.most == 1


async def test_a_notification_that_nobody_takes_is_given_up_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_NOTE_SECONDS", 0.05)

    async def script(request: Request, reply: Reply) -> None:
        await (reply.gone() if request.rpc == "n0" else reply.status(202))

    async with wired(script) as talk:
        for number in range(2):
            talk.wire.send(envelope.notification_frame(f"n{number}"))
        await talk.server.until("n1")


async def test_a_server_that_takes_no_notifications_is_congested_and_holds_only_so_many() -> None:
    async def script(request: Request, reply: Reply) -> None:
        await reply.gone()

    async with wired(script) as talk:
        for _ in range(1000):
            talk.wire.send(envelope.notification_frame("n"))
        assert talk.wire.is_congested
        assert 400 < talk.wire.counts["dropped"] < 600


@pytest.mark.slow
async def test_many_requests_share_a_bounded_number_of_connections() -> None:
    full = anyio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if talk.server.now == AT_ONCE:
            full.set()
        await full.wait()
        await reply.result(request, request.message["params"])

    async with wired(script) as talk:
        pendings = [talk.wire.request("tools/call", b'{"n":%d}' % number) for number in range(AT_ONCE + 72)]
        with anyio.fail_after(WAIT):
            answers = [await talk.answer(pending) for pending in pendings]
        values = [json.loads(bytes(answer.result))["n"] for answer in answers]
        assert values == list(range(AT_ONCE + 72))
        assert talk.server.connections == talk.server.most == AT_ONCE


async def test_a_request_that_stays_open_delivers_for_as_long_as_it_is() -> None:
    more = anyio.Event()

    async def script(request: Request, reply: Reply) -> None:
        if request.rpc != "subscriptions/listen":
            return await echo(request, reply)
        stream = await reply.stream()
        await stream.event({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged"})
        await more.wait()
        await stream.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        await stream.gone()

    async with wired(script, Era.MODERN) as talk:
        listen = talk.wire.request("subscriptions/listen", b"{}")
        await talk.told.until("notifications")
        await talk.ask()
        more.set()
        await talk.told.until("notifications", 2)
        assert talk.told.sources == [listen, listen] and not listen.future.done()
        talk.wire.close("enough")
        with pytest.raises(WireClosed, match="enough"):
            await talk.answer(listen)


async def test_closing_lets_go_of_every_connection() -> None:
    gone: list[str] = []

    async def script(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        await stream.raw(b": open\n\n")
        await stream.gone()
        gone.append(request.rpc)

    async with wired(script) as talk:
        talk.wire.request("tools/call", b"{}")
        await talk.wire.listen()
        talk.wire.send(envelope.notification_frame("n"))
        for method in ("tools/call", "GET", "n"):
            await talk.server.until(method)
        talk.wire.close()
        await until(lambda: len(gone) == 3)
