"""`tasks/get`, `tasks/update` and `tasks/cancel`: what a client is told of a task, and what it can do about it."""

import json
import time
from typing import Any

import msgspec
import pytest

from mcp_hub import masking
from mcp_hub.call import StreamInfo
from mcp_hub.errors import RpcError
from mcp_hub.events import Delta, Progressed
from mcp_hub.fronts.mcp.tasks import task_of
from mcp_hub.ids import new_call_id
from mcp_hub.types import CallId, Era
from tests.unit.calls.virtual_time import sleep
from tests.unit.fronts import task_hub
from tests.unit.fronts.soft_hub import delta
from tests.unit.fronts.task_hub import TaskHub, on_each_front, over_http, text

METHODS = ("tasks/get", "tasks/update", "tasks/cancel")
DONE = {"resultType": "complete"}
TASK = {"taskId", "status", "createdAt", "lastUpdatedAt", "ttlMs", "pollIntervalMs", "resultType"}


def about(method: str, id_: str) -> dict[str, Any]:
    return {"taskId": id_, **({"inputResponses": {}} if method == "tasks/update" else {})}


@on_each_front
async def test_a_result_and_a_tools_own_error_complete_a_task(hub: TaskHub) -> None:
    for result in (text("fine"), b'{"content":[],"isError":true}'):
        id_ = await hub.task("always")
        await hub.running.says(1, "a moment ago")
        await hub.running.ends(result)
        task = await hub.get(id_)
        assert set(task) == TASK | {"result"} and task["status"] == "completed"
        mark = {"dev.mcp-hub/streams": {"stream": id_, "cursor": "3", "status": "completed"}}
        assert task["result"] == {"resultType": "complete", "_meta": mark, **json.loads(result)}


@on_each_front
async def test_a_protocol_error_fails_a_task(hub: TaskHub) -> None:
    id_ = await hub.task()
    await hub.running.fails(RpcError("no such thing", code=-32002, raw=b'{"code":-32002,"message":"no such thing"}'))
    task = await hub.get(id_)
    assert set(task) == TASK | {"error", "statusMessage"} and task["status"] == "failed"
    assert task["error"] == {"code": -32602, "message": "no such thing"}, "as a modern client gets it"
    assert task["statusMessage"] == "no such thing"


@on_each_front
async def test_a_result_that_the_client_has_no_form_for_fails_the_task(hub: TaskHub) -> None:
    id_ = await hub.task()
    await hub.running.ends(b'{"resultType":"of another extension"}', Era.MODERN)
    task = await hub.get(id_)
    assert task["status"] == "failed" and "error" in task and "result" not in task


@on_each_front
async def test_a_task_is_cancelled_by_its_own_request_only(hub: TaskHub) -> None:
    id_ = await hub.task()
    assert (await hub.send("tasks/cancel", {"taskId": id_})).result == DONE
    await sleep(0.2)
    assert hub.running.is_cancelled
    task = await hub.get(id_)
    assert set(task) == TASK | {"statusMessage"} and task["status"] == "cancelled"


@on_each_front
async def test_a_task_that_has_ended_is_acknowledged_and_stays_as_it_is(hub: TaskHub) -> None:
    id_ = await hub.task()
    await hub.running.ends(text("done"))
    before = await hub.get(id_)
    for method in ("tasks/cancel", "tasks/update"):
        assert (await hub.send(method, about(method, id_))).result == DONE
    assert await hub.get(id_) == before


@on_each_front
async def test_a_task_is_kept_for_the_time_that_it_says(hub: TaskHub) -> None:
    id_ = await hub.task()
    await sleep(300)
    task = await hub.get(id_)
    assert set(task) == TASK and (task["resultType"], task["status"]) == ("complete", "working")
    await hub.running.ends()
    row = (await hub.streams.open("me", id_)).row
    assert row.expires is not None
    assert (await hub.get(id_))["ttlMs"] == int((row.expires - row.created) * 1000)


@on_each_front
async def test_time_that_a_task_is_kept_stays_the_same_while_it_runs_though_the_clock_jumps(hub: TaskHub) -> None:
    id_ = await hub.task()
    for jump in (-400 * 86_400, 400 * 86_400):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("time.time", lambda by=jump, now=time.time: now() + by)
            await sleep(30)
            task = await hub.get(id_)
            assert (task["ttlMs"], task["pollIntervalMs"] <= 10_000) == (86_400_000, True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda now=time.time: now() - 400 * 86_400)
        await hub.running.ends()
        assert (await hub.get(id_))["ttlMs"] >= 86_400_000, "never less than it is kept from its end on"


@pytest.mark.parametrize(("age", "kept"), [(0, 60), (29.9, 60), (30, 90), (59.9, 90), (60, 120), (3600, 3660)])
def test_a_running_task_never_promises_more_than_is_kept_if_it_ends_now(age: float, kept: float) -> None:
    row = StreamInfo(CallId("st_1"), "p", "o", "s", "tools/call", "t", 0, 0, ttl=60)
    assert task_of(row, age).kept == kept
    assert age + row.ttl / 2 < kept <= age + row.ttl


@pytest.mark.parametrize(
    ("age", "interval"), [(0, 1000), (9.9, 1000), (10, 1000), (30, 3000), (64.26, 6426), (100, 10_000), (9e9, 10_000)]
)
def test_an_older_task_is_asked_for_less_often(age: float, interval: int) -> None:
    row = StreamInfo(CallId("st_1"), "p", "o", "s", "tools/call", "t", 0, 0)
    assert task_of(row, age).members["pollIntervalMs"] == interval


@on_each_front
async def test_the_interval_grows_with_the_task_and_not_after_its_end(hub: TaskHub) -> None:
    id_ = await hub.task("always")
    intervals = []
    for pause in (4, 11, 20, 100):
        await sleep(pause)
        intervals.append((await hub.get(id_))["pollIntervalMs"])
    assert intervals[0] == 1000 and 2000 <= intervals[1] < 2200 and 4000 <= intervals[2] < 4300
    assert intervals[3] == 10_000
    await hub.running.ends()
    task = await hub.get(id_)
    await sleep(50)
    assert await hub.get(id_) == task


@on_each_front
async def test_a_task_says_the_last_line_of_what_is_newer_partial_text_or_progress(hub: TaskHub) -> None:
    id_ = await hub.task()
    for event, said in (
        (delta("ok test_a\nFAIL test_b\n"), "FAIL test_b"),
        (delta("ok te"), "ok te"),
        (delta("st_c"), "ok test_c"),
        (Progressed(1, None, {"message": msgspec.Raw(b'"one\\nhalf  way\\n"')}), "half way"),
        (Delta(b'[{"type":"image","data":"","mimeType":"image/png"}]', 1), "half way"),
        (Progressed(2), "half way"),
        (delta(f"\x1b[31m{'x' * 500}"), "…" + "x" * 199),
    ):
        await hub.running.happens(event)
        assert (await hub.get(id_))["statusMessage"] == said
        assert (await hub.streams.store.log.find(CallId(id_))).message == said, "so each replica says it"  # type: ignore[union-attr]
    await sleep(25)
    assert (await hub.get(id_))["statusMessage"] == said, "though heartbeats repeat the last progress message"


@on_each_front
async def test_a_task_does_not_say_secrets(hub: TaskHub) -> None:
    id_ = await hub.task()
    secret = "s3cret-" + "k" * 250
    masking.learn([secret])
    await hub.running.happens(delta(f"the key is {secret[:40]}"), delta(secret[40:]))
    assert (await hub.get(id_))["statusMessage"] == "the key is ***"
    await hub.running.says(1, f"{secret} is the key")
    assert (await hub.get(id_))["statusMessage"] == "*** is the key"


@on_each_front
async def test_unknown_and_foreign_tasks_get_the_same_error_and_are_left_alone(hub: TaskHub) -> None:
    id_ = await hub.task()
    for method in METHODS:
        foreign = await hub.send(method, about(method, id_), principal="you")
        unknown = await hub.send(method, about(method, new_call_id()), principal="you")
        assert foreign.error == unknown.error and foreign.error["code"] == -32602
        assert foreign.status == unknown.status == 400
        odd = await hub.send(method, about(method, "\u2603\x00"), headers={"mcp-name": "=?base64?4piDAA==?="})
        assert odd.error == unknown.error
    await sleep(1)
    assert not hub.running.is_cancelled


@on_each_front
async def test_no_client_that_takes_no_tasks_may_ask_for_one(hub: TaskHub) -> None:
    id_ = await hub.task()
    for method in METHODS:
        sent = await hub.send(method, about(method, id_), capabilities={"elicitation": {}})
        assert sent.error["code"] == -32021 and sent.status in (None, 400)
        assert sent.error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    assert not hub.running.is_cancelled


@on_each_front
async def test_methods_of_the_earlier_tasks_are_not_there(hub: TaskHub) -> None:
    for method in ("tasks/result", "tasks/list"):
        sent = await hub.send(method, {"taskId": await hub.task("always")})
        assert sent.error["code"] == -32601 and sent.status in (None, 404)


@pytest.mark.parametrize("params", [{}, {"taskId": 7}, {"taskId": None}])
@on_each_front
async def test_a_request_without_a_task_names_what_is_missing(hub: TaskHub, params: dict[str, Any]) -> None:
    for method in METHODS:
        sent = await hub.send(method, {**about(method, ""), "taskId": None, **params}, headers={"mcp-name": "7"})
        assert sent.error["code"] in (-32602, -32020)
        assert "taskId" in sent.error["message"]


@on_each_front
async def test_responses_have_to_be_an_object_of_objects(hub: TaskHub) -> None:
    id_ = await hub.task()
    values: list[Any] = [[], {"q1": "yes"}, None, "q1"]
    wrong: list[dict[str, Any]] = [{}, *({"inputResponses": value} for value in values)]
    for params in wrong:
        sent = await hub.send("tasks/update", {"taskId": id_, **params})
        assert sent.error["code"] == -32602 and "inputResponses" in sent.error["message"]


# -- questions


@on_each_front
async def test_a_question_of_a_task_is_asked_by_the_task(hub: TaskHub) -> None:
    id_ = await hub.task()
    key = await hub.running.asks("sure?", elicitationId="of the other era")
    task = await hub.get(id_)
    assert set(task) == TASK | {"inputRequests"} and task["status"] == "input_required"
    asked = {"message": "sure?", "requestedSchema": {"type": "object"}}
    assert task["inputRequests"] == {key: {"method": "elicitation/create", "params": asked}}
    accepted = {"action": "accept", "content": {"ok": True}}
    update = await hub.send("tasks/update", {"taskId": id_, "inputResponses": {key: accepted}})
    assert update.result == DONE
    (answer,) = hub.running.answers
    assert json.loads(bytes(answer)) == accepted  # type: ignore[arg-type]
    await sleep(0.2)
    assert (await hub.get(id_))["status"] == "working"


@on_each_front
async def test_questions_are_answered_one_by_one_and_once(hub: TaskHub) -> None:
    id_ = await hub.task()
    first, second = await hub.running.asks("one?"), await hub.running.asks("two?")

    async def update(**responses: Any) -> None:
        assert (await hub.send("tasks/update", {"taskId": id_, "inputResponses": responses})).result == DONE

    await update(**{first: {"action": "accept"}, "never asked": {"action": "accept"}})
    assert list((await hub.get(id_))["inputRequests"]) == [second]
    await update(**{first: {"action": "decline"}})
    assert [json.loads(bytes(answer)) for answer in hub.running.answers] == [{"action": "accept"}]  # type: ignore[arg-type]
    await update(**{second: {"action": "cancel"}})
    task = await hub.get(id_)
    assert task["status"] == "working" and "inputRequests" not in task
    assert len(hub.running.answers) == 2
    third = await hub.running.asks("three?")
    assert third not in (first, second)


@on_each_front
async def test_an_answer_is_not_asked_for_again_before_it_is_written(hub: TaskHub) -> None:
    id_ = await hub.task()
    first, second = await hub.running.asks("one?"), await hub.running.asks("two?")
    record = hub.streams.owned(hub.running.call.id).record  # type: ignore[union-attr]
    record.questions.answer(first, b"{}")
    assert list((await hub.get(id_))["inputRequests"]) == [second]
    record.questions.answer(second, b"{}")
    stream = await hub.streams.open("me", id_)
    assert stream.row.status == "input_required", "it is written in a moment"
    assert (await hub.get(id_))["status"] == "working"


@on_each_front
async def test_a_question_before_the_task_is_asked_by_the_call(hub: TaskHub) -> None:
    sent = await hub.call("slow")
    key = await hub.running.asks("sure?")
    assert sent.result["resultType"] == "input_required" and "taskId" not in sent.result
    retry = {"inputResponses": {key: {"action": "accept"}}, "requestState": sent.result["requestState"]}
    again = await hub.send("tools/call", {"name": "slow", "arguments": {}, **retry})
    assert not again.is_answered
    await sleep(task_hub.AFTER)
    assert again.result["resultType"] == "task"
    assert not {"requestState", "inputRequests"} & set(again.result)
    await hub.running.ends(text("Alice"))
    assert (await hub.get(again.result["taskId"]))["result"]["content"][0]["text"] == "Alice"
    assert len(hub.server.calls) == 1


ASKS = json.dumps(
    {
        "resultType": "input_required",
        "inputRequests": {"who": {"method": "elicitation/create", "params": {"message": "who?"}}},
        "requestState": "mine",
    }
).encode()


@on_each_front
async def test_what_a_modern_server_asks_for_is_passed_on_before_the_task_and_asked_by_it_after(hub: TaskHub) -> None:
    sent = await hub.call("slow")
    await hub.running.ends(ASKS, Era.MODERN)
    assert list(sent.result["inputRequests"]) == ["who"]
    id_ = await hub.task()
    await hub.running.ends(ASKS, Era.MODERN)
    task = await hub.get(id_)
    assert task["status"] == "input_required" and "requestState" not in task
    ((key, request),) = task["inputRequests"].items()
    assert request["params"]["message"] == "who?"
    await hub.send("tasks/update", {"taskId": id_, "inputResponses": {key: {"action": "accept", "content": {}}}})
    await sleep(0.2)
    retried = hub.running.call
    assert json.loads(bytes(retried.input_responses["who"])) == {"action": "accept", "content": {}}  # type: ignore[index]
    assert retried.request_state == "mine" and retried.id == id_
    await hub.running.ends(text("hello"), Era.MODERN)
    assert (await hub.get(id_))["result"]["content"][0]["text"] == "hello"


# -- headers


@over_http
async def test_over_http_the_task_is_named_in_a_header_too(hub: TaskHub) -> None:
    id_ = await hub.task()
    for method in METHODS:
        for named in (None, "another", f"=?base64?{id_}?="):
            sent = await hub.send(method, about(method, id_), headers={"mcp-name": named})
            assert sent.error["code"] == -32020 and sent.status == 400, (method, named)
    assert not hub.running.is_cancelled
    for method in METHODS:
        sent = await hub.send(method, about(method, id_), headers={"mcp-name": id_})
        assert sent.result["resultType"] == "complete"
