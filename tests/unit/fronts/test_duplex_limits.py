"""What one client on a connection both ways may send: arrays, depth, unanswered requests; at the limit and past it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.fronts import limits
from mcp_hub.protocol.jsonrpc import envelope
from tests.unit.fronts.local_hub import Tools, hello, local_hub
from tests.unit.fronts.test_duplex import Message, Wire, serving
from tests.upstreams.child import until
from tests.upstreams.messages import rpc

DEPTH, BATCH, OPEN = 12, 3, 5
BATCHING = "2025-03-26"


@pytest.fixture
async def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Any]:
    async with local_hub(tmp_path) as (app, tools):
        for name, limit in (("DEPTH", DEPTH), ("BATCH", BATCH), ("OPEN_REQUESTS", OPEN)):
            monkeypatch.setattr(limits, name, limit)
        yield app, tools


def array(wire: Wire, *messages: Any) -> None:
    """Sends it as a pipe hands it on."""
    line = json.dumps(messages).encode()
    bad = envelope.decode(line)
    assert isinstance(bad, envelope.BadMessage)
    wire.duplex.on_bad_line(bad, line)


def call(id_: Any, name: str = "echo", **arguments: Any) -> Message:
    return rpc("tools/call", {"name": name, "arguments": arguments}, id=id_)


async def test_array_is_answered_message_by_message_in_the_version_that_has_them(hub: tuple[Any, Tools]) -> None:
    async with serving(hub[0]) as wire:
        await wire.ask(0, "initialize", hello(BATCHING))
        array(wire, call(1, text="a"), {"jsonrpc": "2.0", "method": "notifications/x"}, call(2, text="b"))
        assert (await wire.answer(1))["result"]["content"][0]["text"] == "a"
        assert (await wire.answer(2))["result"]["content"][0]["text"] == "b"
        array(wire, {"jsonrpc": "2.0", "id": 3, "method": 5}, {"jsonrpc": "1.0", "id": 4, "method": "ping"}, 7)
        assert [(await wire.answer(id_))["error"]["code"] for id_ in (3, 4, None)] == [-32600] * 3


async def test_array_of_too_many_or_none_is_refused_whole(hub: tuple[Any, Tools]) -> None:
    async with serving(hub[0]) as wire:
        await wire.ask(0, "initialize", hello(BATCHING))
        array(wire, *(call(id_, text="x") for id_ in range(1, BATCH + 1)))
        for id_ in range(1, BATCH + 1):
            assert "result" in await wire.answer(id_)
        position = len(wire.sent)
        array(wire, *(call(id_, text="x") for id_ in range(10, 11 + BATCH)))
        array(wire)
        assert [(m["id"], m["error"]["code"]) for m in wire.sent[position:]] == [(None, -32600)] * 2
        assert f"over {BATCH} messages" in wire.sent[position]["error"]["message"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", None])
async def test_array_is_no_message_in_any_other_version(hub: tuple[Any, Tools], version: str | None) -> None:
    async with serving(hub[0]) as wire:
        if version is not None:
            await wire.ask(0, "initialize", hello(version))
        position = len(wire.sent)
        array(wire, call(1, text="a"))
        assert [m["error"]["code"] for m in wire.sent[position:]] == [-32600]


def nested(levels: int) -> Any:
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


async def test_params_may_be_nested_so_deep(hub: tuple[Any, Tools]) -> None:
    """The message is a level, its params and their arguments are two."""
    async with serving(hub[0]) as wire:
        await wire.ask(0, "initialize", hello())
        for id_, levels, is_taken in ((1, DEPTH, True), (2, DEPTH + 1, False), (3, 500, False)):
            wire.receive("tools/call", {"name": "echo", "arguments": {"text": "x", "deep": nested(levels - 3)}}, id_)
            answer = await wire.answer(id_)
            assert answer.get("error", {}).get("code") != -32700 if is_taken else answer["error"]["code"] == -32700
            assert is_taken or f"over {DEPTH} levels" in answer["error"]["message"]


async def test_so_many_requests_may_be_unanswered(hub: tuple[Any, Tools]) -> None:
    app, tools = hub
    async with serving(app) as wire:
        await wire.ask(0, "initialize", hello())
        for id_ in range(1, OPEN + 1):
            wire.call(id_, "hold", nonce=str(id_))
        wire.call("more", "hold", nonce="more")
        error = (await wire.answer("more"))["error"]
        assert (error["code"], error["data"]["limit"], error["data"]["value"]) == (1004, "open_requests", 5)
        assert "setting" not in error["data"] and error["message"].endswith("Try again in 5 s."), "it has no key"
        await until(lambda: len(tools.held) == OPEN)
        tools.go.set()
        for id_ in range(1, OPEN + 1):
            assert "result" in await wire.answer(id_)
        assert "result" in await wire.ask("again", "tools/call", {"name": "echo", "arguments": {"text": "x"}})


async def test_message_for_a_session_goes_at_once_only_to_a_client_that_reads(hub: Any) -> None:
    app, _ = hub
    async with serving(app) as wire:
        await wire.ask(0, "initialize", hello())
        session = wire.duplex._session
        assert session is not None
        for method in ("first", "last"):
            app.hub.changes.tell(session.id, envelope.notification_frame(method, b"{}"))
            assert [message["method"] for message in wire.sent if "method" in message] == ["first"]
            wire.is_congested = True
        wire.is_congested = False
        wire.duplex.on_writable()
        await until(lambda: wire.sent[-1].get("method") == "last")
