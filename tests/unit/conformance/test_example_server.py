"""The example of a server: what the vectors of docs/specification do not ask of it."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcp_hub.conformance.peers import RawClient
from mcp_hub.types import Era, JsonObject
from tests.e2e.broken_streams import piped
from tests.streaming import server as example

pytestmark = pytest.mark.anyio

STREAMS = "dev.mcp-hub/streams"
QUICK: JsonObject = {"lines": 2, "pause": 0}
SECONDS = 60


@asynccontextmanager
async def client(era: Era = Era.HANDSHAKE, **capabilities: JsonObject) -> AsyncIterator[RawClient]:
    declared = capabilities or {"extensions": {STREAMS: {}}, "elicitation": {}}
    with anyio.fail_after(SECONDS):
        async with piped(example.StreamingServer().make, era, declared, "test") as peer:
            yield peer


async def called(peer: RawClient, **arguments: Any) -> JsonObject:
    params = {"name": "report", "arguments": {**QUICK, **arguments}, "_meta": {"progressToken": "p"}}
    return await (await peer.send("tools/call", params)).answer()


async def read(peer: RawClient, **params: Any) -> JsonObject:
    return await (await peer.send(f"{STREAMS}.read", params)).answer()


async def log_of(peer: RawClient, stream: str) -> list[JsonObject]:
    page = (await read(peer, stream=stream))["result"]
    assert page["closed"]
    events: list[JsonObject] = page["events"]
    return events


def stream_of(result: JsonObject) -> str:
    return str(result["result"]["_meta"][STREAMS]["stream"])


@pytest.mark.parametrize("cursor", ["", 0, False, [], {}])
async def test_a_cursor_of_another_type_is_refused(cursor: object) -> None:
    async with client() as peer:
        error = (await read(peer, stream="st_0", cursor=cursor))["error"]
    assert error["data"] == {"code": "invalid_params"}


async def test_a_cursor_may_be_null() -> None:
    async with client() as peer:
        page = (await read(peer, stream=stream_of(await called(peer)), cursor=None))["result"]
    assert page["events"][0]["type"] == "start"


async def test_the_modern_era_has_one_place_for_the_extension() -> None:
    async with client(Era.MODERN, experimental={STREAMS: {}}) as peer:
        assert (await read(peer, stream="st_0"))["error"]["code"] == -32601


async def test_the_hash_is_that_of_the_arguments_without_defaults() -> None:
    async with client() as peer:
        answer = await (await peer.send("tools/call", {"name": "report", "arguments": {}})).answer()
        start = (await log_of(peer, stream_of(answer)))[0]["data"]
    assert start["args_sha256"] == hashlib.sha256(b"{}").hexdigest()


@pytest.mark.parametrize("answer", [{"error": {"code": -32603, "message": "no"}}, {"result": {"action": "perhaps"}}])
async def test_a_call_whose_question_fails_has_the_error_as_its_ending(answer: JsonObject) -> None:
    async with client() as peer:
        params = {"name": "report", "arguments": {**QUICK, "asks": True}, "_meta": {"progressToken": "p"}}
        exchange = await peer.send("tools/call", params)
        question = await peer.question()
        await peer._write({"jsonrpc": "2.0", "id": question["id"], **answer}, None)
        error = (await exchange.answer())["error"]
        stream = exchange.notifications[0]["params"]["_meta"][STREAMS]["stream"]
        ending = (await log_of(peer, stream))[-1]
    assert (ending["type"], ending["data"]["jsonrpc"]) == ("error", error)


async def test_a_question_is_not_open_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "LONGEST_ANSWER", 0.0)
    async with client() as peer:
        answer = await called(peer, asks=True)
    assert "answered" in answer["error"]["message"]


@pytest.mark.parametrize(("level", "count"), [("debug", 2), ("info", 2), ("warning", 0)])
async def test_log_messages_below_the_level_are_events_only(level: str, count: int) -> None:
    async with client(Era.MODERN) as peer:
        meta = {"progressToken": "p", "io.modelcontextprotocol/logLevel": level}
        exchange = await peer.send(
            "tools/call", {"name": "report", "arguments": {**QUICK, "logs": True}, "_meta": meta}
        )
        events = await log_of(peer, stream_of(await exchange.answer()))
    messages = [one for one in exchange.notifications if one["method"] == "notifications/message"]
    assert len(messages) == count
    assert [event["type"] for event in events].count("log") == 2


async def test_a_log_is_bounded_in_bytes_and_keeps_its_ending() -> None:
    log = example.EventLog("report", {})
    for _ in range(5):
        log.add("delta", {"text": "x" * (example.MOST_BYTES // 2)})
    log.add("end", {"outcome": "ok", "result": {"content": "x" * example.MOST_BYTES}})
    page = await log.read(0, 10, 0)
    assert [event["type"] for event in page["events"]] == ["end"]
    assert (page["truncated"], page["closed"]) == (True, True)


async def test_an_ended_stream_expires_and_a_running_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "KEPT_SECONDS", -1.0)
    streams = example.Streams()
    ended, running = streams.open("report", {}), streams.open("report", {})
    ended.add("end", {"outcome": "cancelled"})
    assert streams.known(running.id) is running
    assert streams.known(ended.id) is None
