"""Tools that callers of the REST front execute, and what their workers ask; over one hub in memory."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.fronts.rest import executors
from mcp_hub.upstreams.executors.posts import ExecutorLimits
from tests.unit.fronts.rest_peer import ALICE, BOB, NARROW, SSE, Response, RestPeer, problem, rest_hub

BUILD = {"name": "build", "inputSchema": {"type": "object"}}
FORM = {"message": "sure?", "requestedSchema": {"type": "object", "properties": {}}}


async def register(peer: RestPeer, id_: str = "w1", tools: Any = (BUILD,), **more: Any) -> int:
    response = await peer.ask("PUT", f"/v1/executors/{id_}", {"tools": list(tools), **more})
    assert response.status == 200, response.body
    return int(response.json["epoch"])


async def post(peer: RestPeer, epoch: Any, seq: Any, body: object, token: str = ALICE) -> Response:
    headers = {"producer-epoch": epoch, "producer-seq": seq}
    sent = {name: str(value) for name, value in headers.items() if value is not None}
    return await peer.ask("POST", "/v1/tool-results/stream", body, headers=sent, token=token)


async def offer(peer: RestPeer, epoch: int = 1) -> Any:
    """The one thing that there is to do."""
    (found,) = (await peer.ask("GET", f"/v1/executors/w1/calls?epoch={epoch}")).json["offers"]
    return found


async def given(peer: RestPeer) -> tuple[str, Response]:
    """The id of a call that the worker has fetched, and the caller's response."""
    await register(peer)
    response = peer.call("build", {"n": 1}, headers=SSE)
    return (await offer(peer))["tool_call_id"], response


async def test_worker_executes_a_call_and_its_events_are_the_callers(peer: RestPeer) -> None:
    epoch = await register(peer, lease="60s")
    listed = (await peer.ask("GET", "/v1/tools")).json["tools"]
    assert listed[-1]["name"] == "build"
    response = peer.start("POST", "/v1/tools/build/call", {"arguments": {"n": 1}, "_meta": {"x/y": 2}}, headers=SSE)
    call = await offer(peer)
    assert (call["type"], call["name"], call["arguments"]) == ("call", "build", {"n": 1})
    assert call["_meta"] == {"x/y": 2} and call["credit"] > 0
    id_ = call["tool_call_id"]
    short = await post(peer, epoch, 1, {"tool_call_id": id_, "content": "one\n", "complete": False})
    assert short.status == 200 and short.json["credit"] > 0
    await response.has(b"one")
    again = await post(peer, epoch, 1, {"tool_call_id": id_, "content": "one\n"})
    assert (again.status, again.body) == (204, b"")
    events = [{"type": "progress", "data": {"progress": 1}}]
    assert (await post(peer, epoch, 2, {"tool_call_id": id_, "events": events})).status == 200
    last = {"tool_call_id": id_, "content": "two", "complete": True}
    assert (await post(peer, epoch, 3, last)).status == 200
    await response.ended()
    assert [event.event for event in response.events] == ["start", "delta", "progress", "delta", "end", "closed"]
    assert b"one\\ntwo" in response.lines[-1]
    problem(await post(peer, epoch, 4, last), 410, "call_ended")


async def test_short_form_needs_no_numbers(peer: RestPeer) -> None:
    id_, response = await given(peer)
    body = {"tool_call_id": id_, "complete": False}
    assert (await post(peer, None, None, {**body, "content": "one "})).json == {"credit": 255}
    assert (await post(peer, 1, 2, {**body, "content": "two "})).status == 200, "it counts as a post"
    problem(await post(peer, None, None, {**body, "content": "x"}, token=BOB), 404, "unknown_executor_or_call")
    last = {"tool_call_id": id_, "content": "three", "complete": True}
    assert (await post(peer, None, None, last)).status == 200
    await response.ended()
    assert b"one two three" in response.lines[-1]
    problem(await post(peer, None, None, last), 410, "call_ended")


async def test_error_of_a_worker_is_its_own_json_rpc_error(peer: RestPeer) -> None:
    await register(peer)
    for code, status in [(-32602, 400), (-5, 502)]:
        waiting = peer.call("build", {})
        id_ = (await offer(peer))["tool_call_id"]
        error = {"code": code, "message": "no", "data": {"why": 1}}
        assert (await post(peer, 1, 1, {"tool_call_id": id_, "complete": True, "error": error})).status == 200
        told = problem(await waiting.ended(), status, "tool_error")
        assert told["jsonrpc"] == error and told["class"] == "tool" and told["stream"].startswith("st_")


async def test_posts_out_of_order_stale_foreign_or_unknown_are_refused(peer: RestPeer) -> None:
    id_, _ = await given(peer)
    body = {"tool_call_id": id_, "content": "x"}
    assert problem(await post(peer, 1, 2, body), 409, "gap")["expected"] == 1
    assert problem(await post(peer, 7, 1, body), 403, "stale_epoch")["epoch"] == 1
    problem(await post(peer, 1, 1, {**body, "tool_call_id": "tc_x"}), 404, "unknown_executor_or_call")
    problem(await post(peer, 1, 1, body, token=BOB), 404, "unknown_executor_or_call")
    assert (await post(peer, 1, 1, body)).status == 200


async def test_posts_that_cannot_be_read_are_refused(peer: RestPeer) -> None:
    id_, _ = await given(peer)
    body = {"tool_call_id": id_, "content": "x"}
    events = {"tool_call_id": id_, "events": [{"type": "progress", "data": {"progress": 1}}]}
    problem(await post(peer, None, None, events), 400, "missing_header")
    for epoch, seq, code in [(None, 1, "missing_header"), (1, None, "missing_header"), (1, "x", "invalid_header")]:
        problem(await post(peer, epoch, seq, body), 400, code)
    problem(await post(peer, 1, 1, {"tool_call_id": id_, "contents": "x"}), 400, "invalid_body")
    problem(await post(peer, 1, 1, {**body, "events": [{"type": "end", "data": {}}]}), 400, "malformed")
    assert (await post(peer, 1, 1, body)).status == 200


async def test_post_over_a_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.fronts.http.admission._DISCARD", 0.01)
    async with rest_hub(tmp_path, max_body=1_000_000) as peer:
        id_, _ = await given(peer)
        event = ExecutorLimits().event
        over = problem(await post(peer, 1, 1, {"tool_call_id": id_, "content": "x" * (event + 1)}), 413, "too_large")
        assert over["limit"] == event
        monkeypatch.setattr(executors, "_MOST_POST", 1000)
        problem(await post(peer, 1, 1, {"tool_call_id": id_, "content": "x" * 1000}), 413, "body_too_large")


async def test_post_without_credit_is_to_be_sent_again(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    id_, _ = await given(peer)
    assert peer.app.executors is not None
    virtual = peer.app.executors.workers
    virtual._works[id_].production.credit = 1  # readers that are behind

    async def behind(id_: str, needed: int) -> int:
        return 1

    monkeypatch.setattr(virtual, "_catch_up", behind)
    events = [{"type": "progress", "data": {"progress": n}} for n in (1, 2)]
    refused = await post(peer, 1, 1, {"tool_call_id": id_, "events": events})
    assert problem(refused, 429, "no_credit")["credit"] == 1
    assert refused.headers["retry-after"] == "1"


async def test_the_worker_learns_of_a_cancelled_call(peer: RestPeer) -> None:
    id_, response = await given(peer)
    await response.has(b"event: start")
    stream = response.events[0].message["stream"]
    waiting = peer.start("GET", "/v1/executors/w1/calls?epoch=1")
    assert (await peer.ask("DELETE", f"/v1/streams/{stream}")).status == 202
    (told,) = (await waiting.ended()).json["offers"]
    assert (told["type"], told["tool_call_id"]) == ("cancel", id_) and told["reason"]


async def test_worker_that_follows_gets_each_offer_as_an_event(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "KEEP_ALIVE", 0.01)
    await register(peer)
    following = peer.start("GET", "/v1/executors/w1/calls", headers={**SSE, "producer-epoch": "1"})
    await following.has(b": keep-alive")
    for n in (1, 2):
        peer.start("POST", "/v1/tools/build/call", b'{"arguments":{"n":\r\n%d}}' % n)
        await following.has(b'"arguments":{"n":  %d}' % n)
    assert [(event.event, event.id) for event in following.events] == [("call", None)] * 2
    await register(peer)
    last = (await following.ended()).events[-1]
    assert (last.event, last.message["code"]) == ("problem", "stale_epoch")


@pytest.mark.parametrize("headers", [SSE, {}])
async def test_worker_that_comes_back_replaces_its_old_connection(peer: RestPeer, headers: dict[str, str]) -> None:
    calls = "/v1/executors/w1/calls?epoch=1"
    await register(peer)
    old = peer.start("GET", calls, headers=SSE)
    await anyio.wait_all_tasks_blocked()
    problem(await peer.ask("GET", "/v1/executors/w1/calls?epoch=2", headers=headers), 403, "stale_epoch")
    problem(await peer.ask("GET", calls, token=BOB, headers=headers), 404, "unknown_executor_or_call")
    peer.call("build", {"n": 1})
    await old.has(b'"n": 1')
    new = peer.start("GET", calls, headers=headers)
    last = (await old.ended()).events[-1]
    assert (last.event, last.message["code"], old.is_complete) == ("problem", "replaced", True)
    peer.call("build", {"n": 2})
    await new.has(b'"n": 2')
    assert b'"n": 2' not in old.body and b'"n": 1' not in new.body, "each offer comes once"


async def test_worker_that_comes_back_waits_for_no_stalled_one(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_GOODBYE", 0)
    await register(peer)
    old = peer.start("GET", "/v1/executors/w1/calls?epoch=1", headers=SSE)
    await anyio.wait_all_tasks_blocked()
    old.stall()
    peer.call("build", {"n": 1})
    await anyio.wait_all_tasks_blocked()
    new = peer.start("GET", "/v1/executors/w1/calls?epoch=1", headers=SSE)
    await old.ended()
    peer.call("build", {"n": 2})
    await new.has(b'"n": 2')


async def test_worker_may_poll_without_waiting(peer: RestPeer) -> None:
    await register(peer)
    assert (await peer.ask("GET", "/v1/executors/w1/calls?epoch=1&wait=0")).json == {"offers": []}
    problem(await peer.ask("GET", "/v1/executors/w1/calls?wait=0"), 400, "missing_header")


async def test_removed_executor_takes_its_tools_along(peer: RestPeer) -> None:
    await register(peer)
    waiting = peer.call("build", {})
    await offer(peer)
    problem(await peer.ask("DELETE", "/v1/executors/w1", token=BOB), 404, "unknown_executor_or_call")
    assert (await peer.ask("DELETE", "/v1/executors/w1")).status == 204
    lost = problem(await waiting.ended(), 502, "executor_lost")
    assert lost["outcome"] == "unknown" and lost["retryable"] is False
    problem(await peer.call("build", {}).ended(), 404, "unknown_tool")
    assert await register(peer) == 2


async def test_who_is_bound_to_a_profile_publishes_no_tools_beyond_it(peer: RestPeer) -> None:
    assert await register(peer) == 1
    for method, path in (
        ("PUT", "/v1/executors/w1"),
        ("GET", "/v1/executors/w1/calls?epoch=1"),
        ("DELETE", "/v1/executors/w1"),
        ("POST", "/v1/tool-results/stream"),
    ):
        problem(await peer.ask(method, path, {"tools": [BUILD]}, token=NARROW), 403, "profile_bound")
    assert await register(peer) == 2


async def test_hub_that_anybody_may_reach_takes_no_executors_without_tokens(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, tokens=False, is_open=False) as peer:
        problem(await peer.ask("PUT", "/v1/executors/w1", {"tools": [BUILD]}), 403, "token_required")
        problem(await peer.ask("DELETE", "/v1/executors/w1"), 403, "token_required")
        problem(await peer.ask("GET", "/v1/executors/w1/calls?epoch=1"), 403, "token_required")
        problem(await post(peer, 1, 1, {"tool_call_id": "tc_1"}), 403, "token_required")
        assert (await peer.call("echo", {"text": "x"}).ended()).status == 200
    async with rest_hub(tmp_path, tokens=False) as peer:
        assert await register(peer) == 1


# -- questions


async def asking(peer: RestPeer, method: str = "elicitation/create", params: object = FORM) -> tuple[str, str]:
    """A worker that has asked under the key `mine`: the call's stream, and its id at the worker."""
    await register(peer)
    stream = await peer.detached("build", {})
    id_ = (await offer(peer))["tool_call_id"]
    events = [{"type": "input-required", "data": {"key": "mine", "method": method, "params": params}}]
    assert (await post(peer, 1, 1, {"tool_call_id": id_, "events": events})).status == 200
    return stream, id_


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"action": "accept", "content": {"a": 1}}, {"action": "accept", "content": {"a": 1}}),
        ({"action": "decline"}, {"action": "decline"}),
        ({"result": {"action": "cancel"}}, {"action": "cancel"}),
    ],
)
async def test_question_waits_on_the_stream_for_its_answer(peer: RestPeer, answer: Any, result: Any) -> None:
    stream, id_ = await asking(peer)
    (question,) = (await peer.until(stream, "input_required"))["questions"]
    assert (question["method"], question["params"]) == ("elicitation/create", FORM)
    accepted = await peer.ask("POST", f"/v1/streams/{stream}/input", {"key": question["key"], **answer})
    assert accepted.status == 202 and accepted.json["stream"] == stream
    told = await offer(peer)
    assert told == {"type": "input", "tool_call_id": id_, "key": "mine", "result": result}
    twice = await peer.ask("POST", f"/v1/streams/{stream}/input", {"key": question["key"], **answer})
    problem(twice, 404, "unknown_question")
    await post(peer, 1, 2, {"tool_call_id": id_, "content": "thanks", "complete": True})
    await peer.until(stream, "completed")
    page = (await peer.ask("GET", f"/v1/streams/{stream}/events")).json
    kinds = [event["type"] for event in page["events"]]
    assert kinds == ["start", "input-required", "input-received", "delta", "end"]
    late = await peer.ask("POST", f"/v1/streams/{stream}/input", {"key": question["key"], **answer})
    problem(late, 409, "stream_ended")


async def test_question_may_be_answered_with_an_error(peer: RestPeer) -> None:
    params = {"messages": [], "maxTokens": 1}
    stream, _ = await asking(peer, "sampling/createMessage", params)
    (question,) = (await peer.until(stream, "input_required"))["questions"]
    by_action = {"key": question["key"], "action": "accept"}
    problem(await peer.ask("POST", f"/v1/streams/{stream}/input", by_action), 400, "invalid_body")
    error = {"code": -1, "message": "no model"}
    answered = await peer.ask("POST", f"/v1/streams/{stream}/input", {"key": question["key"], "error": error})
    assert answered.status == 202
    assert (await offer(peer))["error"] == error


async def test_answer_that_is_none_is_refused_and_the_question_stays(peer: RestPeer) -> None:
    stream, _ = await asking(peer)
    await peer.until(stream, "input_required")
    accepts: dict[str, object] = {"key": "q1", "action": "accept"}
    answers: list[object] = [
        *({}, {"key": 1, "action": "accept"}, {"action": "accept"}, {"key": "q1"}, {"key": "q1", "action": "maybe"}),
        *({**accepts, "result": {}}, {**accepts, "content": []}, {"key": "q1", "action": "decline", "content": {}}),
        *({"key": "q1", "result": []}, {"key": "q1", "result": {}, "content": {}}, {"key": "q1", "answer": {}}),
        {"key": "q1", "error": {"message": "x"}},
    ]
    for answer in answers:
        problem(await peer.ask("POST", f"/v1/streams/{stream}/input", answer), 400, "invalid_body")
        assert len((await peer.ask("GET", f"/v1/streams/{stream}")).json["questions"]) == 1, answer
