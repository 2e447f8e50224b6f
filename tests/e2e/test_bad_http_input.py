"""What a client can do wrong in an HTTP request of either era: it gets the right error, and the next is served."""

import json
from pathlib import Path

import anyio
import pytest

from tests.e2e.bad_input import ALICE, BAD, LIMIT, PARAMS, bearer, headers_of, line, send
from tests.e2e.client import Answer, HttpClient, Hub, modern, until
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN
from tests.upstreams.launch import received

pytestmark = pytest.mark.anyio


# -- the message


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("era", ERAS)
async def test_http_answers_what_is_no_message_with_400_and_goes_on(alice: HttpClient, era: str, name: str) -> None:
    raw, code = BAD[name]
    answer = await alice.post(raw, headers_of(era, alice))
    assert (answer.status, answer.last["error"]["code"]) == (400, code), answer.text
    assert answer.last["id"] in (None, 1, 2)
    assert (await alice.request("ping")).last["result"] == {}


@pytest.mark.parametrize("body", [b"", b"   ", b"\n\n"], ids=repr)
async def test_http_body_without_a_message_is_a_parse_error(alice: HttpClient, body: bytes) -> None:
    for era in ERAS:
        answer = await alice.post(body, headers_of(era, alice))
        assert (answer.status, answer.last["error"]["code"]) == (400, -32700)


@pytest.mark.parametrize("name", PARAMS)
async def test_http_answers_malformed_params_with_invalid_params(alice: HttpClient, name: str) -> None:
    method, params = PARAMS[name]
    answer = await alice.post(line(name, method, params=params), headers_of(HANDSHAKE, alice))
    assert (answer.status, answer.last["error"]["code"]) == (200, -32602)
    if method == "logging/setLevel":
        return
    if isinstance(params, dict) and "_meta" not in params:
        refused = await alice.request(method, modern(params), headers={"mcp-name": str(params.get("name", ""))})
        assert refused.status == 400
        assert refused.last["error"]["code"] in (-32602, -32020)


async def test_http_takes_params_that_are_null_for_none(alice: HttpClient) -> None:
    headers = headers_of(HANDSHAKE, alice)
    for method in ("ping", "tools/list"):
        answer = await alice.post(line("null", method, params=None), headers)
        assert (answer.status, "result" in answer.last) == (200, True), answer.text
    told = await alice.post(b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":null}', headers)
    assert (told.status, told.text) == (202, "")


async def test_http_accepts_pretty_printed_json(alice: HttpClient) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call"}
    params = {"name": "a_echo", "arguments": {"text": "x\ny\r"}}
    for newline in ("\n", "\r\n", "\r"):
        pretty = json.dumps({**message, "params": params}, indent=2).replace("\n", newline).encode()
        answer = await alice.post(pretty, headers_of(HANDSHAKE, alice))
        assert answer.last["result"]["structuredContent"] == {"text": "x\ny\r"}


async def test_notifications_and_responses_are_accepted_without_a_body(alice: HttpClient) -> None:
    for raw in (
        b'{"jsonrpc":"2.0","method":"notifications/nobody"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"nobody"}}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[]}}',
        b'{"jsonrpc":"2.0","id":5,"result":{}}',
    ):
        answer = await alice.post(raw, headers_of(HANDSHAKE, alice))
        assert (answer.status, answer.text) == (202, "")


async def test_same_id_in_flight_is_refused_in_one_session_and_only_there(alice: HttpClient, hub: Hub) -> None:
    slow = {"name": "a_slow", "arguments": {"seconds": 1}}
    echo = {"name": "a_echo", "arguments": {"text": "x"}}
    arrived = Path(hub.argv[hub.argv.index("--config") + 1]).parent / "journal"

    def slows() -> int:
        return sum(m["params"]["name"] == "slow" for m in received(arrived, "tools/call"))

    answers: list[Answer] = []

    async def first() -> None:
        answers.append(await alice.request("tools/call", slow, id=9))

    before = slows()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(first)
        await until(lambda: slows() > before)
        refused = await alice.request("tools/call", echo, id=9)
        async with HttpClient(hub.url, ALICE) as other:
            await other.initialize()
            assert "result" in (await other.request("tools/call", echo, id=9)).last
        assert "result" in (await alice.request("tools/call", modern(echo), id=9)).last
        assert not answers
    assert (refused.status, refused.last["error"]["code"]) == (400, -32600)
    assert "result" in answers[0].last
    assert "result" in (await alice.request("tools/call", echo, id=9)).last


# -- what guards the door


METHODS = ("POST", "GET", "DELETE")


@pytest.mark.parametrize("method", METHODS)
async def test_foreign_host_is_misdirected(hub: Hub, method: str) -> None:
    for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil.example", ""):
        answer = await send(hub, method, bearer(host=host))
        assert answer.status_code == 421, host
    for host in ("localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:80"):
        answer = await send(hub, method, bearer(host=host))
        assert answer.status_code != 421, host


@pytest.mark.parametrize("method", METHODS)
async def test_foreign_origin_is_forbidden(hub: Hub, method: str) -> None:
    for origin in ("https://evil.example", "null", "", "file://", "https://app.example.evil.example", "http://[", "*"):
        answer = await send(hub, method, bearer(origin=origin))
        assert answer.status_code == 403, origin
    for origin in ("http://localhost:3000", "http://127.0.0.1", "https://app.example", "https://app.example/"):
        answer = await send(hub, method, bearer(origin=origin))
        assert answer.status_code != 403, origin


@pytest.mark.parametrize("method", METHODS)
async def test_missing_and_wrong_tokens_are_unauthorized(hub: Hub, method: str) -> None:
    for headers in (
        {},
        bearer("wrong"),
        bearer(ALICE + "x"),
        bearer(ALICE[:-1]),
        {"authorization": ALICE},
        {"authorization": f"Basic {ALICE}"},
    ):
        answer = await send(hub, method, headers)
        assert answer.status_code == 401, headers
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert ALICE not in answer.text


async def test_host_and_origin_are_checked_on_every_path(hub: Hub) -> None:
    for path in ("/", "/sse/x", "/mcp/", "/health", "/v1/nothing"):
        assert (await send(hub, "GET", bearer(host="evil.example"), path=path)).status_code in (404, 421)
        assert (await send(hub, "GET", bearer(), path=path)).status_code != 200


async def test_media_types_that_cannot_work_are_refused(hub: Hub, alice: HttpClient) -> None:
    good = headers_of(HANDSHAKE, alice)
    assert (await alice.post(line(1), {**good, "accept": "text/html"})).status == 406
    assert (await alice.post(line(1), {**good, "accept": "application/xml;q=1, image/*"})).status == 406
    for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert (await alice.post(line(1), {**good, "content-type": content_type})).status == 415
    assert (await alice.post(line(1), {**good, "content-type": "application/json; charset=utf-8"})).status == 200
    assert (await alice.post(line(1), {**good, "accept": "*/*"})).status == 200
    assert (await alice.post(line(1), {**good, "accept": "Application/JSON;q=0.9,text/event-stream"})).status == 200
    bare = {key: value for key, value in good.items() if value is not None and key != "accept"}
    no_accept = await send(hub, "POST", bearer(**{"content-type": "application/json", **bare}), line(1))
    assert no_accept.status_code in (200, 406)


async def test_client_that_takes_only_an_event_stream_gets_one_or_is_told_to_take_both(alice: HttpClient) -> None:
    for era, body in ((HANDSHAKE, line(1)), (MODERN, line(1, "server/discover", params=modern()))):
        headers = {**headers_of(era, alice, "server/discover"), "accept": "text/event-stream"}
        answer = await alice.post(body, headers)
        assert answer.status == 406 or answer.headers["content-type"].startswith("text/event-stream")


async def test_client_that_takes_only_json_gets_the_answer_alone(alice: HttpClient) -> None:
    params = {"name": "a_progress", "arguments": {"n": 3}, "_meta": {"progressToken": 1}}
    body = line(1, "tools/call", params=params)
    answer = await alice.post(body, {**headers_of(HANDSHAKE, alice), "accept": "application/json"})
    assert answer.status == 406 or answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("size", [LIMIT, 10 * LIMIT])
async def test_body_over_the_limit_is_refused(alice: HttpClient, size: int) -> None:
    body = line(1, "tools/call", params={"name": "a_echo", "arguments": {"text": "x" * size}})
    answer = await alice.post(body, headers_of(HANDSHAKE, alice))
    assert answer.status == 413
    assert (await alice.request("ping")).last["result"] == {}
