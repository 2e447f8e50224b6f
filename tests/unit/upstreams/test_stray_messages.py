"""Messages of a server that belong to no call in flight: in the hub's log, bounded and fit to be read."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import structlog

from mcp_hub import masking
from mcp_hub.protocol.jsonrpc.envelope import BadMessage
from mcp_hub.upstreams.peer.callers import StrayMessages, _AbandonedCalls
from tests.unit.upstreams.scripted import talking
from tests.unit.upstreams.task_calls import call


@pytest.fixture
def told() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


def params(**members: object) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in members.items()}


@pytest.mark.anyio
async def test_what_a_server_says_between_calls_is_in_the_hubs_log(told: list[Any]) -> None:
    async with talking() as (_, server):
        message = {"level": "critical", "logger": "db", "data": "the disk is full"}
        await server.send(method="notifications/message", params=message)
        await server.send(id=1, method="ping")
        await server.line()
    (entry,) = [entry for entry in told if entry["event"] == "upstream_log"]
    assert entry == {
        "event": "upstream_log",
        "log_level": "info",
        "upstream": "git",
        "severity": "critical",
        "logger": "db",
        "data": "the disk is full",
    }


@pytest.mark.anyio
async def test_what_is_no_warning_is_for_debugging(told: list[Any]) -> None:
    StrayMessages("s").log("notice", params(data={"rows": 3}))
    assert [(entry["log_level"], entry["data"]) for entry in told] == [("debug", '{"rows": 3}')]


@pytest.mark.anyio
async def test_it_is_short_and_shows_neither_secrets_nor_escapes(told: list[Any]) -> None:
    masking.learn(["s3cr3t-value"])
    try:
        StrayMessages("s").log("error", params(data="\x1b[31ms3cr3t-value " + "x" * 100_000))
    finally:
        masking.forget()
    (entry,) = told
    assert entry["data"].startswith('"\\u001b[31m*** xxx') and len(entry["data"]) == 500


@pytest.mark.anyio
async def test_a_long_secret_is_masked_as_a_whole(told: list[Any]) -> None:
    secret, strays = "s3cr3t" * 2000, StrayMessages("s")
    masking.learn([secret])
    try:
        strays.log("error", params(data=f"cannot use {secret}!"))
        strays.unreadable(BadMessage(-32700, "not JSON"), f"cannot use {secret}!".encode())
    finally:
        masking.forget()
    assert told[0]["data"] == '"cannot use ***!"' and strays.lines == ["stdout: cannot use ***!"]


@pytest.mark.anyio
async def test_a_flood_is_logged_once(told: list[Any]) -> None:
    asides = StrayMessages("s")
    for _ in range(1000):
        asides.log("error", params(data="again"))
        asides.log("debug", params(data="again"))
    count = {level: sum(entry["log_level"] == level for entry in told) for level in ("info", "debug")}
    assert count == {"info": 21, "debug": 201}
    assert sum(entry["event"] == "upstream_log_floods" for entry in told) == 2


def heard(calls: _AbandonedCalls, now: float, session: str = "b", *, is_question: bool = False) -> bool:
    """Whether a message that comes now may belong to a call of another session that was given up."""
    gone = calls.asking(now, now, {"p"}) if is_question else calls.logging(now)
    return any(one.session != session for one in gone)


def test_for_five_seconds_what_is_said_may_be_for_another_session() -> None:
    for is_question in (False, True):
        calls = _AbandonedCalls()
        calls.add(1, call(session="a"), 10.0)
        assert heard(calls, 14.9, is_question=is_question)
        assert not heard(calls, 14.9, "a", is_question=is_question), "it is for this one in any case"
        calls = _AbandonedCalls()
        calls.add(1, call(session="a"), 10.0)
        assert not heard(calls, 15.0, is_question=is_question)


def test_each_log_message_begins_the_time_anew_but_not_for_questions() -> None:
    calls = _AbandonedCalls()
    calls.add(1, call(session="a"), 10.0)
    assert all(heard(calls, now) for now in (14.0, 18.0, 22.0))
    assert not heard(calls, 22.0, is_question=True)
    assert heard(calls, 26.9) and not heard(calls, 31.9)


@pytest.mark.parametrize(
    ("since", "principals", "may_ask"),
    [(10.9, "p", True), (11.0, "p", False), (11.0, "q", True), (11.0, "pq", True), (11.0, "", True)],
)
def test_cancelled_call_asks_no_more_beside_its_principals_calls(since: float, principals: str, may_ask: bool) -> None:
    calls = _AbandonedCalls()
    calls.add(1, call(session="a", principal="p"), 10.0)
    calls.read(2, 10.5)
    calls.read(1, 11.0)
    assert bool(calls.asking(12.0, since, set(principals))) == may_ask
    assert calls.logging(12.0), "it may still log"


def test_one_that_is_answered_after_all_says_no_more() -> None:
    calls = _AbandonedCalls()
    calls.add(1, call(session="a"), 10.0)
    calls.answered(2)
    assert heard(calls, 11.0)
    calls.answered(1)
    assert not heard(calls, 11.0)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "JSON over several lines"),
        (b'  {"jsonrpc": "2.0",\r', "JSON over several lines"),
        (b'{ "result": {', "JSON over several lines"),
        (b'{"tools": [', "JSON over several lines"),
        (b"Content-Length: 85\r", "Content-Length"),
        (b"content-type: application/vscode-jsonrpc; charset=utf-8\r", "Content-Length"),
        (b"listening on port 80, and {", None),
        (b'{"jsonrpc": "2.0"} and more', None),
        (b'  "params": {', "JSON over several lines"),
        (b"}", None),
        (b"", None),
    ],
)
def test_framing_that_is_not_that_of_mcp_is_recognized_by_its_lines(line: bytes, said: str | None) -> None:
    strays = StrayMessages("s")
    strays.unreadable(BadMessage(-32700, "malformed JSON"), line)
    strays.unreadable(BadMessage(-32700, "malformed JSON"), b"then something else")
    assert strays.framing is None if said is None else said in (strays.framing or "")
