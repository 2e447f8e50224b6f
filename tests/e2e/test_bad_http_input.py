"""What a client can do wrong in an HTTP request of either era: it gets the right error, and the next is served."""

import json

import pytest

from tests.e2e.bad_input import BAD, PARAMS, bearer, headers_of, line, send
from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN
from tests.upstreams.messages import modern

pytestmark = pytest.mark.anyio


# -- the message


@pytest.mark.parametrize("name", BAD)
async def test_http_answers_what_is_no_message_with_400_and_continues(alice: HttpClient, name: str) -> None:
    raw, code = BAD[name]
    answer = await alice.post(raw, headers_of(HANDSHAKE, alice))
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


# -- what guards the door


async def test_media_types_that_cannot_work_are_refused(hub: Hub, alice: HttpClient) -> None:
    good = headers_of(HANDSHAKE, alice)
    assert (await alice.post(line(1), {**good, "accept": "text/html"})).status == 406
    assert (await alice.post(line(1), {**good, "accept": "application/xml;q=1, image/*"})).status == 406
    for content_type in (
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "application/json-patch+json",
        "",
    ):
        assert (await alice.post(line(1), {**good, "content-type": content_type})).status == 415
    assert (await alice.post(line(1), {**good, "content-type": "application/json; charset=utf-8"})).status == 200
    assert (await alice.post(line(1), {**good, "accept": "*/*"})).status == 200
    assert (await alice.post(line(1), {**good, "accept": "Application/JSON;q=0.9,text/event-stream"})).status == 200
    compressed = await alice.post(line(1), {**good, "content-encoding": "gzip"})
    assert compressed.status == 415 and "Content-Encoding" in compressed.text
    assert (await alice.post(line(1), {**good, "content-encoding": "identity"})).status == 200
    bare = {key: value for key, value in good.items() if value is not None and key != "accept"}
    no_accept = await send(hub, "POST", bearer(**{"content-type": "application/json", **bare}), line(1))
    assert no_accept.status_code in (200, 406)


async def test_client_that_takes_only_an_event_stream_gets_every_answer_in_one(alice: HttpClient) -> None:
    for era, body in ((HANDSHAKE, line(1)), (MODERN, line(1, "server/discover", params=modern()))):
        headers = {**headers_of(era, alice, "server/discover"), "accept": "text/event-stream"}
        answer = await alice.post(body, headers)
        assert answer.status == 200 and answer.headers["content-type"] == "text/event-stream"
        assert answer.last["id"] == 1 and "result" in answer.last


async def test_client_that_takes_only_json_gets_the_answer_alone(alice: HttpClient) -> None:
    params = {"name": "a_progress", "arguments": {"n": 3}, "_meta": {"progressToken": 1}}
    body = line(1, "tools/call", params=params)
    answer = await alice.post(body, {**headers_of(HANDSHAKE, alice), "accept": "application/json"})
    assert answer.status == 406 or answer.headers["content-type"] == "application/json"
