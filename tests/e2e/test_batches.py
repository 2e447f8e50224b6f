"""Arrays of messages over HTTP: taken in a session of 2025-03-26, refused in every other and without one."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from mcp_hub.fronts.limits import BATCH
from rigs.hostile_clients.cases import ALICE, BOB, Site, http_site
from rigs.hostile_clients.doors import HandshakeDoor, SseDoor
from rigs.hostile_clients.sockets import opened
from tests.upstreams.messages import rpc

pytestmark = pytest.mark.anyio

BATCHING = "2025-03-26"


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with http_site(tmp_path_factory.mktemp("batches")) as running:
        yield running


def echo(id_: Any, text: str = "x") -> Any:
    return rpc("tools/call", {"name": "a_echo", "arguments": {"text": text}}, id=id_)


def array(*messages: Any) -> bytes:
    return json.dumps(messages).encode()


@pytest.fixture
async def door(site: Site) -> HandshakeDoor:
    door = HandshakeDoor(site.url, ALICE)
    await door.initialize(BATCHING)
    return door


async def test_requests_are_answered_in_one_array_in_their_order(door: HandshakeDoor) -> None:
    slow = rpc("tools/call", {"name": "a_slow", "arguments": {"seconds": 0.4, "nonce": "first"}}, id="s")
    answer = await door.post(array(slow, rpc("notifications/x", None), echo(2, "two"), rpc("ping", None, id=3)))
    assert (answer.status, answer.header("content-type")) == (200, "application/json")
    assert [message["id"] for message in answer.json] == ["s", 2, 3]
    assert answer.json[1]["result"]["structuredContent"] == {"text": "two"}


async def test_an_id_that_comes_twice_is_answered_once(door: HandshakeDoor) -> None:
    answer = await door.post(array(echo(1, "first"), echo(1, "second"), rpc("ping", None, id=1), echo(2, "other")))
    assert [message["id"] for message in answer.json] == [1, 2]
    assert answer.json[0]["result"]["structuredContent"] == {"text": "first"}


async def test_what_is_broken_takes_no_request_s_id(door: HandshakeDoor) -> None:
    broken = {"jsonrpc": "2.0", "id": 1, "method": 7}
    answer = await door.post(array(broken, echo(1, "mine"), {**broken, "id": 2}, {**broken, "id": 2}))
    assert [message.get("id") for message in answer.json] == [None, 1, 2, None]
    assert answer.json[1]["result"]["structuredContent"] == {"text": "mine"}


async def test_an_id_in_another_spelling_is_answered_in_that_spelling(door: HandshakeDoor) -> None:
    slow = rpc("tools/call", {"name": "a_slow", "arguments": {"seconds": 0.2}}, id=1)
    answer = await door.post(array(slow, echo("1"), echo("2"), rpc("ping", None, id="1")))
    assert [message["id"] for message in answer.json] == [1, "1", "2"]


async def test_what_needs_no_answer_is_accepted(door: HandshakeDoor) -> None:
    answer = await door.post(array(rpc("notifications/x", None), {"jsonrpc": "2.0", "id": 1, "result": {}}))
    assert (answer.status, answer.body) == (202, b"")


async def test_bad_parts_are_refused_one_by_one(door: HandshakeDoor) -> None:
    answer = await door.post(array(5, {"jsonrpc": "2.0", "id": 1, "method": 7}, {"jsonrpc": "1.0", "id": 2}, echo(3)))
    assert [message.get("error", {}).get("code") for message in answer.json] == [-32600, -32600, -32600, None]


async def test_too_many_none_and_what_is_no_json_are_refused_whole(door: HandshakeDoor) -> None:
    full = await door.post(array(*(echo(id_) for id_ in range(BATCH))))
    assert (full.status, len(full.json)) == (200, BATCH)
    for body, code in ((array(*(echo(id_) for id_ in range(BATCH + 1))), -32600), (b"[]", -32600), (b"[{]", -32700)):
        refused = await door.post(body)
        assert (refused.status, refused.json["error"]["code"]) == (400, code), body


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25"])
async def test_array_is_no_message_in_another_version(site: Site, version: str) -> None:
    door = HandshakeDoor(site.url, ALICE)
    await door.initialize(version)
    refused = await door.post(array(echo(1)))
    assert (refused.status, refused.json["error"]["code"]) == (400, -32600)
    assert BATCHING in refused.json["error"]["message"]


async def test_array_for_no_session_or_a_foreign_one(site: Site, door: HandshakeDoor) -> None:
    bare = HandshakeDoor(site.url, ALICE)
    assert (await bare.post(array(echo(1)))).status == 400
    bob = HandshakeDoor(site.url, BOB)
    bob.headers |= {"mcp_session_id": door.session}
    assert (await bob.post(array(echo(1)))).status == 404


async def test_array_over_sse(site: Site) -> None:
    async with opened(site.url) as socket, anyio.create_task_group() as tasks:
        door = SseDoor(site.url, ALICE)
        await door.open(socket, tasks, BATCHING)
        assert (await door.post(array(echo(1, "one"), echo(2, "two")))).status == 202
        assert [(await door.answer(id_))["result"]["structuredContent"]["text"] for id_ in (1, 2)] == ["one", "two"]
        tasks.cancel_scope.cancel()
