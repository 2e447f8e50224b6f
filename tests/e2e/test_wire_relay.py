"""What the hub relays, seen by raw clients: each front, each era of client, each era of upstream."""

import json
from typing import Any

import pytest

from tests.e2e.client import HttpClient
from tests.e2e.raw_wire import Wire
from tests.interaction.fronts import HANDSHAKE, MODERN
from tests.upstreams.messages import MODERN_VERSION, Message
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio


# -- progress


@pytest.mark.parametrize("token", ["t", "7", 7, 2**70, 'a "quoted" \\ token\n✓' * 20], ids=repr)
@pytest.mark.first(2)
async def test_progress_comes_before_the_result_under_the_token_that_was_given(
    wire: Wire, upstream: str, token: str | int
) -> None:
    seen = await wire.peer.call(f"{upstream}_progress", {"n": 4, "nonce": "x"}, token=token)
    expected = [{"progressToken": token, "progress": i, "total": 4, "message": f"x {i}"} for i in range(1, 5)]
    assert seen.progress == expected
    assert {type(params["progressToken"]) for params in seen.progress} == {type(token)}
    assert json.loads(seen.text)["n"] == 4


ODD = ('"12"', "1e400", "1" + "0" * 400, "null", "NaN", "-Infinity", "[]", "true", 1e300, -6, 1)


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: str(odd)[:9])
async def test_odd_progress_harms_nothing_and_what_remains_increases(wire: Wire, upstream: str, odd: Any) -> None:
    seen = await wire.peer.call(f"{upstream}_progress_odd", {"values": [1, odd, 2, 2]}, token="odd")
    progress = [params["progress"] for params in seen.progress]
    assert seen.text == "odd"
    assert progress[0] == 1
    assert 2 in progress
    assert all(a < b for a, b in zip(progress, progress[1:], strict=False))
    assert 2 < progress[-1] < 2.001


async def test_no_progress_comes_after_the_result(wire: Wire, upstream: str) -> None:
    seen = await wire.peer.call(f"{upstream}_progress_odd", {"values": [1], "after": [8, 9]}, token="after")
    assert [params["progress"] for params in seen.progress] == [1]
    assert (await wire.peer.call(f"{upstream}_echo", {"text": "next"})).progress == []


# -- ids


IDS = (7, "7", 0, -12, "", "a/b", 'quo"te \\ back\nslash\t✓\u2028', "x" * 400, 2**53 + 1, 2**80, "-1", "1.5")


@pytest.mark.parametrize("id_", IDS, ids=lambda id_: repr(id_)[:20])
async def test_ids_are_echoed_as_they_came(wire: Wire, id_: str | int) -> None:
    seen = await wire.peer.call("h_echo", {"text": "x"}, id=id_)
    assert seen.answer["id"] == id_
    assert type(seen.answer["id"]) is type(id_)
    unknown = await wire.peer.call("nobody", id=id_)
    assert (unknown.answer["id"], unknown.error["code"]) == (id_, -32602)


async def bytes_sent(wire: Wire, body: bytes, tool: str, id: str) -> tuple[str, Message]:
    """The answer to these bytes, which call a tool: as it came (over stdio: decoded and encoded), and decoded."""
    peer = wire.peer.wire
    if isinstance(peer, StdioClient):
        position = len(peer.transcript)
        await peer.send_raw(body + b"\n")
        message = await peer.response(id, after=position)
        return json.dumps(message), message
    assert isinstance(peer, HttpClient)
    headers = {
        "mcp-protocol-version": MODERN_VERSION if wire.peer.era == MODERN else peer.version,
        "mcp-session-id": peer.session,
        "mcp-method": "tools/call",
        "mcp-name": tool,
        "accept": "application/json, text/event-stream",
    }
    answer = await peer.post(body, headers)
    return answer.text, answer.last


async def test_even_the_spelling_of_an_id_is_kept(wire: Wire) -> None:
    message: Message = {"jsonrpc": "2.0", "id": "SPELLED", "method": "tools/call"}
    message["params"] = wire.peer.params({"name": "h_echo", "arguments": {"text": "x"}})
    body = json.dumps(message).replace('"SPELLED"', r'"\u0041\/\u00e9"').encode()
    text, answer = await bytes_sent(wire, body, "h_echo", "A/é")
    assert "result" in answer and (wire.front == "stdio" or r'"id":"\u0041\/\u00e9"' in text)


# -- payloads


async def test_results_are_marked_only_where_the_callers_era_has_marks(wire: Wire, upstream: str) -> None:
    marks = {"resultType", "ttlMs", "cacheScope"}
    echoed = (await wire.peer.call(f"{upstream}_echo", {"text": "x"})).result
    read = (await wire.peer.request("resources/read", {"uri": f"test://{upstream}/readme"})).result
    prompt = (await wire.peer.request("prompts/get", {"name": f"{upstream}_fixed"})).result
    listed = (await wire.peer.request("tools/list")).result
    if wire.peer.era == HANDSHAKE:
        assert all(not marks & result.keys() for result in (echoed, read, prompt, listed))
    else:
        assert all(result["resultType"] == "complete" for result in (echoed, read, prompt, listed))
        assert all(marks <= result.keys() for result in (read, listed))
        assert not {"ttlMs", "cacheScope"} & echoed.keys()
        assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")  # one contributor has no hints


async def test_bad_utf8_is_replaced(wire: Wire, upstream: str) -> None:
    params = wire.peer.params({"name": f"{upstream}_echo", "arguments": {"text": "BAD"}})
    body = json.dumps({"jsonrpc": "2.0", "id": "utf8", "method": "tools/call", "params": params}).encode()
    body = body.replace(b"BAD", b"\xff\xc3\x28")
    _, answer = await bytes_sent(wire, body, f"{upstream}_echo", "utf8")
    assert answer["result"]["structuredContent"] == {"text": "\ufffd\ufffd("}


# -- errors


async def test_resource_that_is_not_there_has_the_code_of_the_callers_era(wire: Wire, upstream: str) -> None:
    """A modern server's -32602 is what a handshake server may say, too, and is relayed as it is."""
    missing = -32002 if wire.peer.era == HANDSHAKE else -32602
    for uri, code in (("nobody://x", missing), (f"test://{upstream}/item/", -32602 if upstream == "m" else missing)):
        error = (await wire.peer.request("resources/read", {"uri": uri})).error
        assert (error["code"], error["data"]["uri"]) == (code, uri)
