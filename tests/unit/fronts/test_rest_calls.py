"""Calls over REST: the forms of the answer, who waits how long, and which requests are one call."""

import json
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from mcp_hub.calls.plan import TimeLimits
from mcp_hub.errors import UpstreamUnavailable
from mcp_hub.fronts.rest import streams
from mcp_hub.fronts.rest.calls import digest_of
from mcp_hub.ids import new_call_id
from mcp_hub.stores.base import Chunk
from tests.unit.fronts.local_hub import TOOLS
from tests.unit.fronts.rest_peer import BOB, BOTH, NARROW, SSE, RestPeer, problem, rest_hub
from tests.upstreams.child import WAIT


async def test_every_tool_is_listed_as_it_is_defined_and_always_in_the_same_bytes(peer: RestPeer) -> None:
    first = await peer.ask("GET", "/v1/tools")
    again = await peer.ask("GET", "/v1/tools?format=mcp")
    narrow = await peer.ask("GET", "/v1/tools", token=NARROW)
    assert first.status == 200 and first.body == again.body
    assert [tool["name"] for tool in first.json["tools"]] == TOOLS
    assert first.json["tools"][0]["inputSchema"]["required"] == ["text"]
    assert [tool["name"] for tool in narrow.json["tools"]] == ["echo"]


@pytest.mark.parametrize(
    "accept", [None, "*/*", "application/json", "application/*;q=0.5", "text/event-stream;q=0, */*"]
)
async def test_call_that_is_done_in_time_is_answered_with_its_result(peer: RestPeer, accept: str | None) -> None:
    response = await peer.call("echo", {"text": "hi"}, headers={"accept": accept}).ended()
    answer = response.json
    assert (response.status, answer["status"]) == (200, "completed")
    assert answer["result"] == {"content": [{"type": "text", "text": "hi"}], "isError": False}
    kept = await peer.ask("GET", f"/v1/streams/{answer['stream']}")
    assert kept.json["result"] == answer["result"]


async def test_call_that_takes_longer_is_accepted_and_continues(peer: RestPeer) -> None:
    id_ = await peer.detached("hold", {"nonce": "a"})
    await peer.tools.has_come("a")
    assert (await peer.ask("GET", f"/v1/streams/{id_}")).json["status"] == "working"
    peer.tools.go.set()
    known = await peer.until(id_, "completed")
    assert known["result"]["content"] == [{"type": "text", "text": "a"}]
    assert (known["name"], known["tool"], known["server"], known["method"]) == (
        "hold", "hold", "local", "tools/call",
    )  # fmt: skip


@pytest.mark.parametrize("prefer", ["wait=0", "respond-async", 'handling=lenient; wait="0"', "WAIT = 0"])
async def test_caller_may_prefer_not_to_wait(peer: RestPeer, prefer: str) -> None:
    response = await peer.call("hold", {"nonce": "a"}, headers={"prefer": prefer}).ended()
    assert response.status == 202


async def test_events_of_a_call_are_its_stored_lines_and_end_with_closed(peer: RestPeer) -> None:
    response = peer.call("steps", {"n": 2}, headers=SSE)
    await response.has(b"part 1")
    assert response.status == 200 and response.headers["content-type"] == "text/event-stream"
    peer.tools.go.set()
    *events, closed = (await response.ended()).events
    assert [event.id for event in events] == [str(number) for number in range(1, len(events) + 1)]
    assert [event.event for event in events] == ["start", *["progress", "delta"] * 2, "end"]
    assert all(json.loads(event.data)["type"] == event.event for event in events)
    assert (closed.id, closed.event) == (None, "closed")
    assert closed.message == {"cursor": len(events), "status": "completed"}
    stream = json.loads(events[0].data)["stream"]
    page = await peer.ask("GET", f"/v1/streams/{stream}/events", headers={"accept": "application/x-ndjson"})
    assert page.body.splitlines() == response.lines


async def test_caller_of_both_forms_gets_json_for_a_quick_quiet_call_only(peer: RestPeer) -> None:
    quiet = await peer.call("echo", {"text": "hi"}, headers=BOTH).ended()
    assert quiet.headers["content-type"] == "application/json" and quiet.json["status"] == "completed"
    loud = await peer.call("hurry", {"n": 1}, headers=BOTH).ended()
    assert [event.event for event in loud.events] == ["start", "progress", "end", "closed"]
    assert [event.id for event in loud.events] == ["1", "2", "3", None]
    slow = peer.call("hold", {"nonce": "a"}, headers=BOTH)
    await slow.has(b"event: start")
    assert slow.headers["content-type"] == "text/event-stream"
    peer.tools.go.set()
    assert [event.event for event in (await slow.ended()).events] == ["start", "end", "closed"]


async def test_connection_that_closes_does_not_end_the_call(peer: RestPeer) -> None:
    response = peer.call("hold", {"nonce": "a"})
    await peer.tools.has_come("a")
    response.leave()
    await response.done.wait()
    assert not response.status
    (row,) = (await peer.ask("GET", "/v1/streams")).json["streams"]
    assert row["status"] == "working"
    peer.tools.go.set()
    assert (await peer.until(row["stream"], "completed"))["result"]["isError"] is False


@pytest.mark.slow
async def test_call_that_nobody_asks_after_ends_by_the_rule_of_its_tool(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, per_tool={"hold": {"orphan": 0.2}}) as peer:
        left, asked_after = peer.call("hold", {"nonce": "a"}), peer.call("hold", {"nonce": "b"}, headers=SSE)
        await peer.tools.has_come("b")
        left.leave()
        await left.done.wait()
        with anyio.fail_after(WAIT):
            while "a" not in peer.tools.cancelled:
                await peer.ask("GET", "/v1/tools")
        assert peer.tools.cancelled == ["a"]
        asked_after.leave()
        with anyio.fail_after(WAIT):
            while "b" not in peer.tools.cancelled:
                await peer.ask("GET", "/v1/tools")


async def test_call_of_an_unknown_or_hidden_tool_is_refused_alike(peer: RestPeer) -> None:
    unknown = problem(await peer.call("ecko", {"text": "hi"}).ended(), 404, "unknown_tool")
    assert unknown["nearest"] == ["echo"]
    problem(await peer.call("hold", {"nonce": "a"}, token=NARROW).ended(), 404, "unknown_tool")
    selected = {"arguments": {"text": "hi"}, "tools": ["hold"]}
    problem(await peer.ask("POST", "/v1/tools/echo/call", selected), 404, "unknown_tool")
    assert (await peer.ask("POST", "/v1/tools/echo/call", {**selected, "tools": ["echo"]})).status == 200
    assert len((await peer.ask("GET", "/v1/streams")).json["streams"]) == 1


async def test_too_many_calls_without_a_client_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, limits={"detached_calls": 1}) as peer:
        first = await peer.detached("hold", {"nonce": "a"})
        refused = await peer.call("hold", {"nonce": "b"}, headers={"idempotency-key": "k"}).ended()
        problem(refused, 503, "busy")
        assert refused.headers["retry-after"] == "5"
        peer.tools.go.set()
        await peer.until(first, "completed")
        assert "b" not in peer.tools.held
        assert (await peer.call("hold", {"nonce": "b"}, headers={"idempotency-key": "k"}).ended()).status == 200
        assert len((await peer.ask("GET", "/v1/streams")).json["streams"]) == 2


async def test_call_that_waits_for_its_turn_has_a_stream_and_can_be_cancelled(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, limits={"running_calls": 1}) as peer:
        await peer.detached("hold", {"nonce": "a"})
        await peer.tools.has_come("a")
        waiting = await peer.detached("hold", {"nonce": "b"}, **{"idempotency-key": "k"})
        known = await peer.ask("GET", f"/v1/streams/{waiting}")
        assert (known.json["status"], known.json["last"]) == ("working", 1)
        assert (await peer.ask("DELETE", f"/v1/streams/{waiting}")).status == 202
        await peer.until(waiting, "cancelled")
        peer.tools.go.set()
        await peer.call("echo", {"text": "hi"}).ended()
        assert peer.tools.held == ["a"]


# -- which requests are one call


async def test_same_key_and_request_is_one_call_however_it_is_written(peer: RestPeer) -> None:
    key = {"idempotency-key": "k"}
    bodies = [b'{"arguments":{"n":2}}', b'{ "arguments" : {\n"n": 2 } }']
    both = [peer.start("POST", "/v1/tools/steps/call", body, headers={**key, **SSE}) for body in bodies]
    for response in both:
        await response.has(b"part 1")
    peer.tools.go.set()
    first, second = [(await response.ended()).body for response in both]
    assert first == second and b"event: closed" in first
    later = await peer.call("steps", {"n": 2}, headers=key).ended()
    assert later.json["result"]["content"][0]["text"] == "2 steps"
    replayed = await peer.call("steps", {"n": 2}, headers={**key, **BOTH}).ended()
    assert replayed.body == first
    assert len((await peer.ask("GET", "/v1/streams")).json["streams"]) == 1


async def test_same_key_for_another_request_is_refused(peer: RestPeer) -> None:
    await peer.detached("hold", {"nonce": "a"}, **{"idempotency-key": "k"})
    for tool, arguments in [("hold", {"nonce": "b"}), ("echo", {"nonce": "a"}), ("hold", {"nonce": ["a"]})]:
        refused = await peer.call(tool, arguments, headers={"idempotency-key": "k"}).ended()
        problem(refused, 422, "idempotency_key_reused")
    await peer.tools.has_come("a")
    assert peer.tools.held == ["a"]


async def test_without_a_key_only_a_running_call_of_an_idempotent_tool_is_joined(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, per_tool={"hold": {"idempotent": True}}) as peer:
        first = await peer.detached("hold", {"nonce": "a"})
        assert await peer.detached("hold", {"nonce": "a"}) == first
        assert await peer.detached("hold", {"nonce": "b"}) != first
        theirs = await peer.call("hold", {"nonce": "a"}, token=BOB, headers={"prefer": "wait=0"}).ended()
        assert theirs.json["stream"] != first
        steps = await peer.detached("steps", {"n": 2})
        assert await peer.detached("steps", {"n": 2}) != steps
        peer.tools.go.set()
        await peer.until(first, "completed")
        assert await peer.detached("hold", {"nonce": "a"}) != first


async def test_hub_that_was_sooner_with_the_key_has_the_call(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"idempotency-key": "k"}
    first = await peer.call("hold", {"nonce": "a"}, headers={**key, "prefer": "wait=0"}).ended()
    await peer.tools.has_come("a")
    store, streams = peer.app.streams.store, peer.app.streams
    find = store.log.find_key
    answers = [None, find]  # not there yet when it is asked first

    async def find_key(principal: str, key: str) -> object:
        answer = answers.pop(0)
        return answer if answer is None else await answer(principal, key)

    monkeypatch.setattr(store.log, "find_key", find_key)
    monkeypatch.setattr(streams, "running", lambda *about, **more: None)
    second = await peer.call("hold", {"nonce": "a"}, headers={**key, "prefer": "wait=0"}).ended()
    assert second.json["stream"] == first.json["stream"] and peer.tools.held == ["a"]
    answers[:] = [None, find]
    other = await peer.call("hold", {"nonce": "b"}, headers={**key, "prefer": "wait=0"}).ended()
    problem(other, 422, "idempotency_key_reused")
    assert peer.tools.held == ["a"]


async def test_what_is_asked_for_again_after_its_end_stays_cancelled(peer: RestPeer) -> None:
    key = {"idempotency-key": "k"}
    id_ = await peer.detached("hold", {"nonce": "a"}, **key)
    await peer.ask("DELETE", f"/v1/streams/{id_}")
    await peer.until(id_, "cancelled")
    cancelled = problem(await peer.call("hold", {"nonce": "a"}, headers=key).ended(), 409, "cancelled")
    assert cancelled["stream"] == id_


@pytest.mark.parametrize(
    ("refusal", "status", "is_free"),
    [
        (UpstreamUnavailable("not up yet"), 503, True),
        (UpstreamUnavailable("gone", data={"outcome": "unknown"}), 502, False),
    ],
    ids=["never made", "may have been made"],
)
async def test_key_is_free_again_where_the_call_was_never_made(
    peer: RestPeer, refusal: UpstreamUnavailable, status: int, is_free: bool
) -> None:
    peer.tools.refusals.append(refusal)
    first, *others = [
        await peer.call("refuse", {"text": "a"}, headers={"idempotency-key": "k"}).ended() for _ in range(3)
    ]
    refused = problem(first, status, "upstream_unavailable")
    assert refused["retryable"] is is_free and ("retry-after" in first.headers) is is_free
    assert [answer.status for answer in others] == [200 if is_free else 502] * 2 and others[0].json == others[1].json
    assert (others[0].json["stream"] != refused["stream"]) is is_free and (is_free or others[0].json == refused)


@pytest.mark.parametrize("key", ["", " ", "a" * 256, "\x7f", "é"])
async def test_key_that_is_none_is_refused(peer: RestPeer, key: str) -> None:
    refused = await peer.call("echo", {"text": "hi"}, headers={"idempotency-key": key}).ended()
    problem(refused, 400, "invalid_idempotency_key")


async def test_hub_that_stops_gives_waiting_callers_the_ending_of_their_calls(peer: RestPeer) -> None:
    waiting, following = (peer.call("hold", {"nonce": n}, headers=h) for n, h in [("a", {}), ("b", SSE)])
    await peer.tools.has_come("a")
    await peer.tools.has_come("b")
    peer.rest.close()
    await peer.app.stop()
    stopped = problem(await waiting.ended(), 502, "hub_stopped")
    assert stopped["outcome"] == "unknown" and stopped["jsonrpc"]["code"] == 1005
    assert [event.event for event in (await following.ended()).events] == ["start", "error", "closed"]


async def test_listing_has_as_many_of_the_newest_as_the_query_asks_for(peer: RestPeer) -> None:
    ids = [await peer.detached("hold", {"nonce": nonce}) for nonce in "abc"]
    for query, newest in (("", ids[::-1]), ("?limit=2", ids[:0:-1])):
        assert [row["stream"] for row in (await peer.ask("GET", f"/v1/streams{query}")).json["streams"]] == newest


async def test_without_tokens_nothing_of_another_session_is_listed(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, tokens=False) as peer:
        answer = await peer.call("hold", {"nonce": "a"}, headers={"prefer": "wait=0"}, token=None).ended()
        mine = answer.json["stream"]
        row, store = (await peer.app.streams.open("local", mine)).row, peer.app.streams.store
        confirmed = anyio.Event()
        other = msgspec.structs.replace(row, id=new_call_id(), session="se_X", last=1)
        store.log.create(other, Chunk(1, (b"{}",)), lambda error: confirmed.set())
        await confirmed.wait()
        assert {other.id, mine} == {each.id for each in await store.log.rows("local", 9)}
        listed = (await peer.ask("GET", "/v1/streams", token=None)).json["streams"]
        assert [each["stream"] for each in listed] == [mine]


async def test_call_of_the_hub_s_own_tool_continues_as_any_other(peer: RestPeer) -> None:
    key = {"idempotency-key": "k"}
    id_ = await peer.detached("find_tools", {"query": "hold"}, **key)
    assert "hold" in json.dumps((await peer.until(id_, "completed", "cancelled")).get("result"))
    again = await peer.call("find_tools", {"query": "hold"}, headers=key).ended()
    assert (again.status, again.json["stream"]) == (200, id_)


def through(tool: str, **arguments: Any) -> dict[str, Any]:
    """The arguments of `run_tool`."""
    return {"name": tool, "arguments": arguments}


async def call(peer: RestPeer, tool: str, arguments: Any, selected: list[str] | None = None, **options: Any) -> Any:
    body = {"arguments": arguments} if selected is None else {"arguments": arguments, "tools": selected}
    return await peer.ask("POST", f"/v1/tools/{tool}/call", body, **options)


@pytest.mark.parametrize("runner", ["run_tool", "read_tool"])
async def test_what_is_not_selected_is_unknown_through_run_tool_too(peer: RestPeer, runner: str) -> None:
    for selected in ([runner], ["echo"], []):
        refused = await call(peer, runner, through("echo", text="x"), selected)
        problem(refused, 404, "unknown_tool")
    written = await call(peer, "read_tool", through("echo", text="x"))
    assert written.json["result"]["isError"] and b"Use run_tool" in written.body
    done = await call(peer, "run_tool", through("echo", text="x"), ["run_tool", "echo"])
    assert done.status == 200 and b'"x"' in done.body
    assert (await call(peer, "run_tool", {"arguments": {}}, ["run_tool"])).status == 400


async def test_key_of_a_call_gives_no_result_to_a_token_that_may_not_call_the_tool(peer: RestPeer) -> None:
    peer.tools.go.set()
    for tool, arguments in (("wait", {"nonce": "n"}), ("run_tool", through("wait", nonce="n"))):
        headers = {"idempotency-key": tool}
        first = await call(peer, tool, arguments, headers=headers)
        assert first.status == 200 and (await call(peer, tool, arguments, headers=headers)).json == first.json
        foreign = await call(peer, tool, arguments, headers=headers, token=NARROW)
        assert b"n 0" not in foreign.body and b"Unknown tool: wait" in foreign.body


async def test_call_whose_turn_never_came_leaves_its_key_free(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, limits={"running_calls": 1}) as peer:
        key = {"idempotency-key": "k"}
        first = await peer.detached("hold", {"nonce": "a"})
        await peer.tools.has_come("a")
        id_ = await peer.detached("echo", {"text": "x"}, **key)
        (waiting,) = (record for record in peer.app.registry.under_way if record.call.id == id_)
        waiting.times.limits = TimeLimits(0.01, 0.01)
        peer.app.registry.reschedule(waiting.times.due)
        known = await peer.until(id_, "failed")
        assert known["error"]["code"] == "busy" and known["error"]["retryable"] is True
        await peer.ask("DELETE", f"/v1/streams/{first}")
        await peer.until(first, "cancelled")
        made = await peer.call("echo", {"text": "x"}, headers=key).ended()
        assert made.status == 200 and made.json["stream"] != id_


async def test_hub_that_stops_says_of_a_waiting_call_that_nothing_was_done(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, limits={"running_calls": 1}) as peer:
        await peer.detached("hold", {"nonce": "a"})
        await peer.tools.has_come("a")
        waiting = peer.call("echo", {"text": "x"})
        while len(peer.app.registry) < 2:
            await anyio.lowlevel.checkpoint()
        peer.rest.close()
        await peer.app.stop()
        stopped = await waiting.ended()
        said = problem(stopped, 503, "hub_stopped")
        assert said["retryable"] is True and "outcome" not in said and "retry-after" in stopped.headers


@pytest.mark.parametrize("accept", ["application/json", "application/json, text/event-stream"])
async def test_call_that_outlives_the_hub_is_located(
    peer: RestPeer, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    monkeypatch.setattr(streams, "_LAST_EVENTS", 0.01)
    waiting = peer.call("hold", {"nonce": "a"}, headers={"accept": accept})
    await peer.tools.has_come("a")
    await anyio.wait_all_tasks_blocked()
    peer.rest.close()
    accepted = await waiting.ended()
    assert (accepted.status, accepted.json["status"]) == (202, "working")
    assert accepted.headers["location"] == f"/v1/streams/{accepted.json['stream']}"
    assert accepted.headers["content-type"] == "application/json" and "retry-after" not in accepted.headers
    known = await peer.ask("GET", accepted.headers["location"])
    assert known.json["status"] == "working" and peer.tools.cancelled == []


async def test_call_that_begins_after_that_is_located_too(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_LAST_EVENTS", 0)
    peer.rest.close()
    await anyio.lowlevel.checkpoint()
    await anyio.wait_all_tasks_blocked()
    late = await peer.call("hold", {"nonce": "a"}, headers={"accept": "text/event-stream"}).ended()
    assert late.status == 202 and late.headers["location"] == f"/v1/streams/{late.json['stream']}"


def test_each_request_has_a_digest_of_its_own() -> None:
    same = [b'{"a":1,"b":{"c":[2]}}', b' {"b": {"c": [2]}, "a": 1}', b'{"a":0,"b":{"c":[2]},"a":1}']
    others = [
        *(b'{"a":1}', b'{"a":"1"}', b'{"a":1.0}', b'{"a":[1]}', b'{"a":{"b":1}}', b'{"a":[["b",1]]}', b'{"a":[]}'),
        *(b'{"a":{}}', b'{"a":true}', b'{"a":"True"}', b'{"a":null}', b'{"a":"None"}', b'{"a":"\'1\'"}', b"{}"),
        *(b'{"a":["\\u0000number","1"]}', b'{"a":NaN}', b'{"a":"nan"}'),
    ]
    assert len({digest_of("t", msgspec.Raw(text)) for text in same}) == 1
    assert len({digest_of("t", msgspec.Raw(text)) for text in (same[0], *others)}) == 1 + len(others)
