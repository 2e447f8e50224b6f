"""Answers that nobody can be given: which calls are doubted. Messages of no call: in the log, bounded and readable."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import structlog

from mcp_hub import masking
from mcp_hub.call import Call
from mcp_hub.errors import RpcError, UpstreamLost
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage
from mcp_hub.types import CallId, Era
from mcp_hub.upstreams.peer.callers import _AbandonedCalls, _StrayMessages
from mcp_hub.upstreams.peer.peer import Peer
from tests.unit.upstreams.function_calls import Doubting
from tests.unit.upstreams.scripted import Server, talking, together
from tests.unit.upstreams.task_calls import call
from tests.unit.wire.raw_lines import group

pytestmark = pytest.mark.anyio

CALL = Call(CallId("st_1"), "git", "tools/call", {"name": msgspec.Raw(b'"x"')}, {}, "s", "p", Era.HANDSHAKE, {})


@asynccontextmanager
async def two_calls() -> AsyncIterator[tuple[Peer, Server, list[Doubting], list[int]]]:
    """Two calls that the server has not answered yet, and the ids of their requests."""
    async with talking() as (peer, server), group() as tasks:
        channels, ids = [Doubting(), Doubting()], []
        for channel in channels:
            tasks.start_soon(peer.call, CALL, channel)
            ids.append((await server.expect("tools/call"))["id"])
        yield peer, server, channels, ids


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","id":999999,"result":{}}',
        b'{"jsonrpc":"2.0","id":-1,"result":{}}',
        b'{"jsonrpc":"2.0","id":"nobody","result":{}}',
        b'{"jsonrpc":"2.0","id":null,"result":{}}',
        b'{"jsonrpc":"2.0","result":{}}',
        b'{"jsonrpc":"2.0","result":{"content":[',
        b'{"jsonrpc":"2.0","id":999999,"result":{"content":[',
    ],
)
async def test_calls_are_doubted_after_an_answer_that_nobody_can_be_given(line: bytes) -> None:
    async with two_calls() as (peer, server, channels, _):
        await server.write(line + b"\n")
        await server.flush()
        assert [channel.times.doubts for channel in channels] == [1, 1]
        assert len(peer.callers.strays.lines) == 1 and peer.callers.strays.lines[0].startswith("stdout: a message (")


@pytest.mark.parametrize(
    "line",
    [
        b"Loading model...",
        b'{"level":"info","msg":"up"}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":{"level":',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32601,"message":"no such notification"}}',
    ],
)
async def test_what_is_no_answer_of_a_call_raises_no_doubt(line: bytes) -> None:
    async with two_calls() as (_, server, channels, _):
        await server.write(line + b"\n")
        await server.flush()
        assert [channel.times.doubts for channel in channels] == [0, 0]


REFUSED = "The id of a request is neither a string nor an integer."


@pytest.mark.parametrize("id_", [b"null", b"1.5", b"true", b"[]"])
@pytest.mark.parametrize(("method", "doubts"), [(b"roots/list", 1), (b"ping", 0)])
async def test_a_request_that_no_answer_can_name_is_refused_and_calls_that_may_wait_for_it_are_doubted(
    id_: bytes, method: bytes, doubts: int
) -> None:
    async with two_calls() as (peer, server, channels, _):
        await server.write(b'{"jsonrpc":"2.0","id":%s,"method":"%s"}\n' % (id_, method))
        refusal = await server.line()
        error = {"code": -32600, "message": REFUSED, "data": {"code": "invalid_request"}}
        assert refusal == {"jsonrpc": "2.0", "id": None, "error": error}
        assert [channel.times.doubts for channel in channels] == [doubts, doubts]
        assert peer.callers.strays.lines == [f"stdout: a message ({REFUSED})"]


async def test_a_notification_with_an_id_of_null_is_not_answered() -> None:
    async with two_calls() as (peer, server, channels, _):
        await server.write(b'{"jsonrpc":"2.0","id":null,"method":"notifications/message"}\n')
        await server.send(id="flush", method="ping")
        assert (await server.line())["id"] == "flush"
        assert [channel.times.doubts for channel in channels] == [0, 0] and len(peer.callers.strays.lines) == 1


async def test_noise_on_a_calls_own_stream_is_a_matter_of_that_call() -> None:
    async with two_calls() as (peer, server, channels, ids):
        line = b'{"jsonrpc":"2.0","result":{}}'
        peer.messages.on_bad_line(BadMessage(-32600, "no id"), line, peer.wire.requests.pending[ids[1]])
        assert [channel.times.doubts for channel in channels] == [0, 1]


async def test_a_broken_answer_to_one_call_raises_no_doubt_in_another() -> None:
    async with two_calls() as (peer, server, channels, ids):
        bad = BadMessage(-32700, "malformed", b"%d" % ids[0])
        peer.messages.on_bad_line(bad, b'{"jsonrpc":"2.0","id":%d,"result":{"content":[}' % ids[0])
        assert [channel.times.doubts for channel in channels] == [0, 0]


async def test_the_answer_of_the_only_call_may_come_behind_noise_which_is_counted_and_reported() -> None:
    async def answering(server: Server) -> None:
        await server.expect("tools/call")
        await server.write(
            b'{"jsonrpc":"2.0","result":{"content":[}\n{"jsonrpc":"2.0","id":1,"result":{"content":[]}}\n'
        )

    channel = Doubting()
    async with talking() as (peer, server):
        with structlog.testing.capture_logs() as told:
            done = await together(answering(server), peer.call(CALL, channel))
        assert bytes(done.result) == b'{"content":[]}' and channel.times.doubts == 1
        assert "are not messages: 1, the last is stdout: a message" in str(peer.callers.strays.summary)
    assert [entry["upstream"] for entry in told if entry["event"] == "upstream_noise"] == ["git"]


async def test_a_question_without_a_usable_id_in_a_calls_own_stream_is_of_that_call() -> None:
    async with two_calls() as (peer, server, channels, ids):
        message = envelope.decode(b'{"jsonrpc":"2.0","id":1.5,"method":"roots/list"}')
        assert isinstance(message, envelope.Envelope)
        peer.messages.on_request(message, peer.wire.requests.pending[ids[1]])
        assert [channel.times.doubts for channel in channels] == [0, 1]


async def test_an_answer_that_is_given_twice_is_a_matter_of_its_call() -> None:
    async with two_calls() as (peer, server, channels, ids):
        answer = json.dumps({"jsonrpc": "2.0", "id": ids[0], "result": {}}).encode() + b"\n"
        await server.write(answer * 3)
        await server.flush()
        assert [channel.times.doubts for channel in channels] == [0, 0] and not peer.callers.strays.lines
        assert peer.wire.counts["stray"] == 2  # type: ignore[attr-defined]  # it is a pipe


async def test_a_call_that_begins_later_is_not_doubted() -> None:
    async with two_calls() as (peer, server, channels, _):
        await server.write(b'{"jsonrpc":"2.0","id":999999,"result":{}}\n')
        await server.flush()
        later = Doubting()
        await together(server.answer("tools/call", {}), peer.call(CALL, later))
        assert later.times.doubts == 0 and channels[0].times.doubts == 1


@pytest.mark.parametrize("version", [b'"hub"', b'"1.0"'])
@pytest.mark.parametrize(
    ("error", "said"), [(b'{"code":-7,"message":"mine"}', "mine"), (b'"x"', "malformed"), (b"{}", "malformed")]
)
async def test_an_error_is_the_servers_own_whatever_version_it_claims(version: bytes, error: bytes, said: str) -> None:
    async def answering(server: Server) -> None:
        await server.expect("tools/call")
        await server.write(b'{"jsonrpc":%s,"id":1,"error":%s}\n' % (version, error))

    async with talking() as (peer, server):
        with pytest.raises(RpcError, match=said) as caught:
            await together(answering(server), peer.call(CALL, Doubting()))
    assert not isinstance(caught.value, UpstreamLost)


@pytest.mark.parametrize("nulls", ['"error":null', '"method":null', '"method":null,"params":null,"error":null'])
async def test_a_result_among_members_that_are_null_is_a_result(nulls: str) -> None:
    async with talking() as (peer, server):
        answering = server.reply("tools/call", f'{nulls},"result":{{"content":[]}}')
        done = await together(answering, peer.call(CALL, Doubting()))
    assert bytes(done.result) == b'{"content":[]}'


@pytest.mark.parametrize("result", ["null", "{}"])
async def test_an_error_beside_a_result_is_the_error(result: str) -> None:
    answer = f'"result":{result},"error":{{"code":-1,"message":"mine"}}'
    async with talking() as (peer, server):
        with pytest.raises(RpcError, match="mine"):
            await together(server.reply("tools/call", answer), peer.call(CALL, Doubting()))


@pytest.fixture
def told() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as entries:
        yield entries


def params(**members: object) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in members.items()}


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


async def test_what_is_no_warning_is_for_debugging(told: list[Any]) -> None:
    _StrayMessages("s").log("notice", params(data={"rows": 3}))
    assert [(entry["log_level"], entry["data"]) for entry in told] == [("debug", '{"rows": 3}')]


async def test_it_is_short_and_shows_neither_secrets_nor_escapes(told: list[Any]) -> None:
    masking.learn(["s3cr3t-value"])
    try:
        _StrayMessages("s").log("error", params(data="\x1b[31ms3cr3t-value " + "x" * 100_000))
    finally:
        masking.forget()
    (entry,) = told
    assert entry["data"].startswith('"\\u001b[31m*** xxx') and len(entry["data"]) == 500


async def test_a_long_secret_is_masked_as_a_whole(told: list[Any]) -> None:
    secret, strays = "s3cr3t" * 2000, _StrayMessages("s")
    masking.learn([secret])
    try:
        strays.log("error", params(data=f"cannot use {secret}!"))
        strays.unreadable(BadMessage(-32700, "not JSON"), f"cannot use {secret}!".encode())
    finally:
        masking.forget()
    assert told[0]["data"] == '"cannot use ***!"' and strays.lines == ["stdout: cannot use ***!"]


async def test_a_flood_is_logged_once(told: list[Any]) -> None:
    asides = _StrayMessages("s")
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
    [(9.9, "p", True), (10.1, "p", False), (10.1, "q", True), (10.1, "pq", True), (10.1, "", True)],
)
def test_cancelled_call_asks_no_more_beside_its_principals_calls(since: float, principals: str, may_ask: bool) -> None:
    calls = _AbandonedCalls()
    calls.add(1, call(session="a", principal="p"), 10.0)
    calls.read(2)
    assert calls.asking(12.0, since, set(principals)), "its cancellation was not read"
    calls.read(1)
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
    strays = _StrayMessages("s")
    strays.unreadable(BadMessage(-32700, "malformed JSON"), line)
    strays.unreadable(BadMessage(-32700, "malformed JSON"), b"then something else")
    assert strays.framing is None if said is None else said in (strays.framing or "")
