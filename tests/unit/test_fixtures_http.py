"""The fixture server over Streamable HTTP: sessions, streams, and what each era has of them."""

import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client

from tests.e2e.answers import EVERYTHING, Answers
from tests.e2e.client import HttpClient, SseStream, StdioClient, modern, until
from tests.unit.asked_peers import ALL
from tests.upstreams.child import PeerClosed
from tests.upstreams.http_child import HttpUpstream
from tests.upstreams.launch import argv, events, received

pytestmark = pytest.mark.anyio

CHANGED = "notifications/tools/list_changed"


@asynccontextmanager
async def session(*options: str, answers: Answers | None = None, **named: Any) -> AsyncIterator[HttpClient]:
    """A client with a session of a new server."""
    async with HttpUpstream(*options, **named) as server, HttpClient(server.url) as c:
        c.answers = answers
        assert (await c.initialize()).status == 200
        yield c


def call(c: HttpClient, tool: str, *, token: str | None = None, **arguments: Any) -> dict[str, Any]:
    """A `tools/call` of the handshake era to hand to `post` or `stream`."""
    meta = {} if token is None else {"_meta": {"progressToken": token}}
    return c.message("tools/call", {"name": tool, "arguments": arguments, **meta})


async def methods(stream: SseStream, count: int) -> list[str]:
    """The methods of so many messages that come next."""
    return [(await stream.wait_for(lambda _: True))["method"] for _ in range(count)]


# -- sessions


async def test_session_begins_with_initialize_and_ends_with_delete(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with session(journal=log) as c:
        first = c.session
        assert (await c.request("ping")).last["result"] == {}
        assert (await c.initialize()).headers["mcp-session-id"] != first
        c.session = None
        assert (await c.request("ping")).status == 400
        c.session = "unknown"
        assert (await c.request("ping")).status == 404
        c.session = first
        assert (await c.request("ping", headers={"mcp-protocol-version": "1999-01-01"})).status == 400
        async with c.listen() as stream:
            assert (await c.delete()).status == 200
            assert (await stream.rest()).messages == []
        assert (await c.delete()).status == 404
        assert (await c.request("ping")).status == 404
    verbs = [event["verb"] for event in events(log, "http")]
    assert (verbs.count("DELETE"), {event["path"] for event in events(log, "http")}) == (2, {"/mcp"})
    assert events(log, "http")[0]["headers"]["content-type"] == "application/json"
    assert [m["method"] for m in received(log)][:2] == ["initialize", "notifications/initialized"]


async def test_server_of_one_era_refuses_the_other_in_its_way() -> None:
    async with session(era="handshake", max_version="2025-06-18") as c:
        assert c.version == "2025-06-18"
        for version in ("2025-11-25", "2026-07-28"):
            refused = await c.request("ping", headers={"mcp-protocol-version": version})
            assert (refused.status, refused.last["error"]["code"]) == (400, -32000)
    async with HttpUpstream(era="modern") as server, HttpClient(server.url) as c:
        async with c.listen() as stream:
            assert stream.status == 405
        assert (await c.delete()).status == 405
        refused = await c.initialize()
        assert (refused.status, refused.last["error"]["code"]) == (400, -32020)


async def test_sessions_know_nothing_of_each_other() -> None:
    async with session(answers=Answers(ALL)) as one, HttpClient(one.url) as other:
        other.answers = Answers(ALL)
        await other.initialize()
        await one.request("resources/subscribe", {"uri": "test://x"})
        async with one.listen() as mine, other.listen() as theirs:
            await other.post(call(other, "touch", uri="test://x"))
            await other.post(call(other, "add_tool", name="t"))
            assert await methods(mine, 2) == ["notifications/resources/updated", CHANGED]
            assert await methods(theirs, 1) == [CHANGED]
        await one.post(call(one, "ask_form"))
        assert (len(one.answers.asked if one.answers else []), other.answers.asked) == (1, [])


async def test_one_session_without_an_id_serves_everybody() -> None:
    async with session("--no-session-id") as c:
        assert c.session is None
        assert (await c.request("ping")).status == 200
        c.answers = Answers(ALL)
        await c.initialize()
        assert (await c.post(call(c, "ask_form"))).last["result"]["structuredContent"]["answers"]["form"]["result"]
        async with c.listen() as stream:
            await c.post(call(c, "add_tool", name="t"))
            assert await methods(stream, 1) == [CHANGED]


async def test_sessions_are_forgotten_by_tool_and_by_signal() -> None:
    async with HttpUpstream() as server, HttpClient(server.url) as c:
        await c.initialize()
        async with c.listen() as stream:
            assert (await c.post(call(c, "forget_sessions"))).last["result"]
            assert (await stream.rest()).messages == []
        assert (await c.request("ping")).status == 404
        await c.initialize()
        assert (await c.request("ping")).status == 200
        server.process.send_signal(signal.SIGUSR1)
        with anyio.fail_after(5):
            while (await c.request("ping")).status == 200:
                pass
        assert (await c.request("ping")).status == 404


# -- streams


async def test_answer_is_json_unless_something_comes_before_it() -> None:
    async with session() as c:
        alone = await c.post(call(c, "echo", text="x"))
        assert (alone.events, alone.last["result"]["structuredContent"]) == ([], {"text": "x"})
        after = await c.post(call(c, "progress", n=2, token="t"))
        assert [event.data == "" for event in after.events] == [True, False, False, False]
        stream, _, number = (after.events[-1].id or "").partition(":")
        assert (after.events[0].id, number, after.events[-1].event) == (f"{stream}:0", "3", "message")
        assert [message.get("method") for message in after.messages] == ["notifications/progress"] * 2 + [None]
    async with session("--always-sse", "--retry", "70") as c:
        alone = await c.post(call(c, "echo", text="x"))
        assert (len(alone.events), alone.events[0].retry) == (2, 70)
        c.version = "2025-06-18"
        await c.initialize("2025-06-18")
        assert [event.id for event in (await c.request("ping")).events][0] is None  # no priming yet


async def test_line_breaks_in_json_do_not_break_the_stream() -> None:
    async with session("--always-sse") as c:
        spelled = '{"content":[],\r"x":\n1.50}'
        assert (await c.post(call(c, "raw", json=spelled))).last["result"] == {"content": [], "x": 1.5}


async def test_get_has_what_belongs_to_no_call_even_from_before() -> None:
    answers = Answers(ALL)
    async with session("--ask-roots-at-start", answers=answers) as c:
        await c.post(call(c, "add_tool", name="t"))
        async with c.listen() as stream:
            assert set(await methods(stream, 2)) == {"roots/list", CHANGED}  # asked by a thread of its own
            await c.post(call(c, "ask_later", delay=0.01, kind="sampling"))
            assert await methods(stream, 1) == ["sampling/createMessage"]
            seen = stream.last_id
            await until(lambda: len(c.answered) == 2)
        await c.post(call(c, "remove_tool", name="t"))
        async with c.listen() as stream:
            assert await methods(stream, 1) == [CHANGED]  # and nothing twice
        async with c.listen((seen or "").rpartition(":")[0] + ":2") as stream:
            assert await methods(stream, 2) == ["sampling/createMessage", CHANGED]
            await until(lambda: len(c.answered) == 3)  # a replayed question is answered again
    assert [answer.status for answer in c.answered] == [202, 202, 202]


@pytest.mark.parametrize("how", ["broken", "clean"])
async def test_answer_that_was_cut_is_resumed_where_it_stopped(how: str) -> None:
    options = ["--drop-stream-after", "2", "--drop-times", "2", "--retry", "5"]
    async with session(*options, *(["--drop-cleanly"] if how == "clean" else [])) as c:
        async with c.stream(call(c, "progress", n=5, token="t")) as stream:
            with pytest.raises(PeerClosed, match="ended" if how == "clean" else "broke off"):
                while True:
                    await stream.next_event()
        assert ([event.data != "" for event in stream.events], stream.retry) == ([False, True, True], 5)
        async with c.listen(stream.last_id) as second:
            with pytest.raises(PeerClosed):
                while True:
                    await second.next_event()
        assert len(second.events) == 2
        async with c.listen(second.last_id) as third:
            rest = await third.rest()
        steps = [event.message for one in (stream, second) for event in one.events if event.data] + rest.messages
        assert [step["params"]["progress"] for step in steps[:-1]] == [1, 2, 3, 4, 5]
        assert json.loads(steps[-1]["result"]["content"][0]["text"])["n"] == 5
        for steps_before in (0, 1):
            assert (await c.post(call(c, "progress", n=steps_before, token="t"))).last["result"]  # nothing to cut
        async with c.listen("nobody:1") as stream:
            assert stream.status == 400


async def test_who_follows_a_stream_ends_the_connection_of_who_did() -> None:
    async with session() as c, c.listen() as first:
        await c.post(call(c, "add_tool", name="t"))
        assert await methods(first, 1) == [CHANGED]
        async with c.listen() as second:
            assert (await first.rest()).messages != []
            await c.post(call(c, "remove_tool", name="t"))
            assert await methods(second, 1) == [CHANGED]
        assert len(first.events) == 1


async def test_question_is_not_lost_with_its_connection() -> None:
    answers = Answers(ALL)
    async with session("--drop-stream-after", "0", answers=answers) as c:
        async with c.stream(call(c, "ask_form")) as stream:
            with pytest.raises(PeerClosed):
                while True:
                    await stream.next_event()
        assert answers.asked == []
        async with c.listen(stream.last_id) as resumed:
            rest = await resumed.rest()
    assert len(answers.asked) == 1
    assert rest.last["result"]["structuredContent"]["answers"]["form"]["result"]["action"] == "accept"


async def test_connection_that_goes_does_not_cancel_a_handshake_call(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with session("--always-sse", journal=log) as c:
        async with c.stream(call(c, "slow", seconds=0.2)) as stream:
            primed = await stream.next_event()
        async with c.listen(primed.id) as resumed:
            assert (await resumed.rest()).last["result"]
        waiting = call(c, "wait_cancel", nonce="w")
        async with c.stream(waiting):
            await c.notify("notifications/cancelled", {"requestId": waiting["id"]})
            await until(lambda: events(log, "cancelled"))


async def test_no_get_means_no_stream_and_no_resumption() -> None:
    async with session("--no-get") as c:
        for last in (None, "x:0"):
            async with c.listen(last) as stream:
                assert stream.status == 405


async def test_clients_must_accept_both_kinds_of_answer() -> None:
    async with session() as c:
        assert (await c.request("ping", headers={"accept": "application/json"})).status == 406
        async with c.listen(headers={"accept": "application/json"}) as stream:
            assert stream.status == 406
        assert (await c.post(b"{")).status == 400
        assert (await c.post([])).status == 400
        no_object = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []}
        assert (await c.post(no_object)).last["error"]["code"] == -32602


# -- the modern era


async def test_modern_request_is_refused_by_the_status_that_the_specification_names() -> None:
    async with HttpUpstream(era="modern") as server, HttpClient(server.url) as c:
        cases: list[tuple[int, int, str, dict[str, Any], dict[str, str | None]]] = [
            (404, -32601, "ping", modern(), {}),
            (400, -32022, "tools/list", modern(version="2099-01-01"), {}),
            (400, -32020, "tools/list", modern(), {"mcp-method": "tools/call"}),
            (400, -32020, "tools/list", modern(), {"mcp-method": None}),
            (400, -32020, "tools/list", modern(), {"mcp-protocol-version": "2025-11-25"}),
            (400, -32020, "tools/call", modern({"name": "echo"}), {"mcp-name": "other"}),
            (400, -32020, "resources/read", modern({"uri": "test://x"}), {"mcp-name": None}),
            (200, 4242, "tools/call", modern({"name": "error", "arguments": {"code": 4242, "message": "m"}}), {}),
        ]
        for status, code, method, params, headers in cases:
            answer = await c.request(method, params, headers=headers)
            assert (answer.status, answer.last["error"]["code"]) == (status, code), (method, headers)
        assert (await c.request("tools/list", modern(), headers={"mcp-session-id": "ignored"})).status == 200
        encoded = {"mcp-name": "=?base64?ZWNobw==?="}
        answer = await c.request("tools/call", modern({"name": "echo", "arguments": {}}), headers=encoded)
        assert "result" in answer.last


async def test_arguments_are_mirrored_in_headers() -> None:
    async with HttpUpstream() as server, HttpClient(server.url) as c:
        params = modern({"name": "region", "arguments": {"region": "zürich", "n": 7, "flag": True}})
        right: dict[str, str | None] = {"mcp-param-region": "=?base64?esO8cmljaA==?=", "mcp-param-n": "7"}
        right["mcp-param-flag"] = "true"
        assert "result" in (await c.request("tools/call", params, headers=right)).last
        for name, value in (("mcp-param-n", "8"), ("mcp-param-region", None), ("mcp-param-flag", "True")):
            wrong = await c.request("tools/call", params, headers={**right, name: value})
            assert (wrong.status, wrong.last["error"]["code"]) == (400, -32020), name
        absent = modern({"name": "region", "arguments": {}})
        assert "result" in (await c.request("tools/call", absent)).last
        assert (await c.request("tools/call", absent, headers={"mcp-param-n": "7"})).status == 400
        seen = await c.request("tools/call", modern({"name": "headers"}), headers={"x-own": "1"})
        assert json.loads(seen.last["result"]["content"][0]["text"])["x-own"] == "1"


async def test_closing_the_stream_cancels_a_modern_request(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with HttpUpstream("--always-sse", journal=log) as server, HttpClient(server.url) as c:
        async with c.stream(c.message("tools/call", modern({"name": "wait_cancel", "arguments": {"nonce": "m"}}))):
            pass
        await until(lambda: events(log, "cancelled"))
    async with (
        HttpUpstream("--drop-stream-after", "1", journal=log) as server,
        HttpClient(server.url) as c,
        c.stream(
            c.message("tools/call", modern({"name": "progress", "arguments": {"n": 3, "delay": 0.3}}, token="t"))
        ) as stream,
    ):
        with pytest.raises(PeerClosed):
            while True:
                await stream.next_event()
        assert [event.id for event in stream.events] == [None]
        await until(lambda: len(events(log, "cancelled")) == 2)


async def test_subscriptions_are_streams_of_their_own(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with HttpUpstream(era="modern", journal=log) as server, HttpClient(server.url) as c:
        tools = c.message("subscriptions/listen", modern({"notifications": {"toolsListChanged": True}}), id=1)
        updates = modern({"notifications": {"resourceSubscriptions": ["test://x"]}})
        async with c.stream(tools) as first, c.stream(c.message("subscriptions/listen", updates, id=1)) as second:
            await methods(first, 1)
            await methods(second, 1)
            await c.request("tools/call", modern({"name": "add_tool", "arguments": {"name": "t"}}))
            await c.request("tools/call", modern({"name": "touch", "arguments": {"uri": "test://x"}}))
            assert await methods(first, 1) == [CHANGED]
            assert await methods(second, 1) == ["notifications/resources/updated"]
        await until(lambda: len(events(log, "unlistened")) == 2)
        async with c.stream(tools) as stream:
            await methods(stream, 1)
            await c.request("tools/call", modern({"name": "end_listens", "arguments": {}}))
            assert (await stream.rest()).last["result"]["resultType"] == "complete"


async def test_modern_question_needs_no_session() -> None:
    async with HttpUpstream() as server, HttpClient(server.url) as c:
        params = modern({"name": "ask_form", "arguments": {}}, capabilities=EVERYTHING)
        first = (await c.request("tools/call", params)).last["result"]
        retry = {"inputResponses": {"form": {"action": "accept"}}, "requestState": first["requestState"]}
        assert "structuredContent" in (await c.request("tools/call", {**params, **retry})).last["result"]


# -- as others see it


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_sdk_client_accepts_the_server_over_http(mode: str) -> None:
    async with HttpUpstream("--page", "5") as server:
        with anyio.fail_after(20):
            async with Client(server.url, mode=mode) as client:
                assert client.protocol_version == ("2025-11-25" if mode == "legacy" else "2026-07-28")
                assert (await client.list_tools()).next_cursor == ""
                assert (await client.call_tool("echo", {"text": "hi"})).structured_content == {"text": "hi"}


async def test_modes_that_spoil_lines_are_for_stdio() -> None:
    async with StdioClient(argv("--http", "0", mode="noise")) as c:
        await c.wait_stderr("--mode noise is for stdio alone")
        assert await c.wait() == 2
    with pytest.raises(PeerClosed, match="did not start"):
        async with HttpUpstream(mode="crash-start"):
            raise NotImplementedError
