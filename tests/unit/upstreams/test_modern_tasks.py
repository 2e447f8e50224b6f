"""Tasks that modern servers make of calls by themselves: followed, asked about, cancelled, answered as plain calls."""

import json

import anyio
import msgspec
import pytest

from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import UpstreamLost
from mcp_hub.events import Completed
from mcp_hub.types import Era, JsonObject
from mcp_hub.upstreams.peer import task_poll
from mcp_hub.upstreams.peer.task_poll import ServerTask, TaskHandle
from tests.unit.upstreams import task_calls
from tests.unit.upstreams.scripted import EXTENSIONS, talking
from tests.unit.upstreams.task_calls import BORN, DONE, META, Running, asks, cancelled, created, running, state
from tests.unit.wire.raw_lines import WAIT, group

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_polls")]


async def test_a_task_is_followed_and_its_result_is_the_calls() -> None:
    async with running() as (_, server, made):
        for status in ("working", "working"):
            look = await server.answer("tasks/get", state(status))
            assert {**look["params"], "_meta": None} == {"taskId": "t1", "_meta": None}
        assert not made.has_ended
        await server.answer("tasks/get", state("completed", result=DONE))
        outcome = await made.outcome()
        assert isinstance(outcome, Completed) and outcome.era is Era.MODERN
        assert json.loads(bytes(outcome.result)) == DONE


async def test_the_bytes_of_the_result_are_the_servers() -> None:
    raw = '{"content":[], "f":1.10,"big":18446744073709551617,"resultType":"complete"}'
    async with running() as (_, server, made):
        shown = json.dumps(state("completed"))[:-1]
        await server.reply("tasks/get", f'"result":{shown},"result":{raw}}}')
        outcome = await made.outcome()
        assert isinstance(outcome, Completed) and bytes(outcome.result) == raw.encode()


async def test_marks_of_this_hop_are_left_out_of_the_result() -> None:
    async with running() as (_, server, made):
        meta = {META + "related-task": {"taskId": "t1"}, "mine": 1}
        await server.answer("tasks/get", state("completed", result={"content": [], "_meta": meta}))
        assert await made.result() == {"content": [], "_meta": {"mine": 1}}


async def test_every_request_about_the_task_says_what_its_caller_can_answer_and_that_tasks_end_here() -> None:
    async with running(log_level="debug") as (_, server, made):
        for _ in range(2):
            look = await server.answer("tasks/get", state())
            assert look["params"]["_meta"][META + "clientCapabilities"] == {**task_calls.ALL, **EXTENSIONS}
            assert META + "logLevel" not in look["params"]["_meta"]
        assert not made.has_ended


async def test_an_error_of_the_task_is_the_calls() -> None:
    raw = '{"code":-32050,"message":"no","data":{"x":1.10},"extra":1}'
    async with running() as (_, server, made):
        shown = json.dumps(state("failed", statusMessage="other words"))[:-1]
        await server.reply("tasks/get", f'"result":{shown},"error":{raw}}}')
        error = await made.error()
        assert (error.code, bytes(error.encoded())) == (-32050, raw.encode())


@pytest.mark.parametrize(
    ("ending", "said"),
    [
        (state("cancelled", statusMessage="by the operator"), "was cancelled: by the operator"),
        (state("cancelled"), "was cancelled: the server does not say why"),
        (state("failed", statusMessage="disk full"), "failed: disk full"),
        (state("failed", error=7), "failed: the server does not say why"),
        (state("paused"), "'paused'"),
        (state("completed"), "without a result"),
        (state("completed", result=[1]), "without a result"),
        (state("completed", result={"resultType": "task", "taskId": "t2"}), "without a result"),
        (state("completed", result={"resultType": "input_required"}), "without a result"),
        ({"taskId": 7}, "without a task"),
        ({"taskId": "t2", "status": "completed", "result": {}}, "another task"),
        ({"content": []}, "without a task"),
    ],
)
async def test_an_end_that_is_no_result_is_an_error_that_says_so(ending: JsonObject, said: str) -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", ending)
        error = await made.error()
        assert said in error.message
        assert (error.data or {})["upstream"] == {"server": "far", "task": "t1"}


@pytest.mark.parametrize("era", Era)
async def test_a_task_that_is_no_longer_known_ends_with_its_outcome_unknown(era: Era) -> None:
    async with running(of=era) as (_, server, made):
        await server.refuse("tasks/get", -32602)
        error = await made.error()
        assert isinstance(error, UpstreamLost) and "does not know task t1" in error.message
        assert (error.data or {})["outcome"] == "unknown"


async def test_another_error_of_the_look_is_the_calls() -> None:
    async with running() as (_, server, made):
        await server.refuse("tasks/get", -32021, {"requiredCapabilities": {}})
        assert (await made.error()).code == -32021


@pytest.mark.parametrize("first", [{"resultType": "task"}, {"resultType": "task", "taskId": 1}])
async def test_a_task_that_cannot_be_followed_is_an_error(first: JsonObject) -> None:
    async with running(first) as (_, _, made):
        assert 'server "far"' in (await made.error()).message


async def test_only_a_tools_call_can_become_a_task() -> None:
    async with talking(Era.MODERN) as (peer, server), group() as tasks:
        made = Running(tasks, peer.call, task_calls.call(method="prompts/get"))
        await server.answer("prompts/get", created())
        assert "prompts/get with a task" in (await made.error()).message


async def test_a_task_that_has_ended_when_it_is_made_is_fetched_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_poll, "_POLL", (WAIT * 2, WAIT * 2, WAIT * 2))
    async with running(created(status="completed")) as (_, server, made):
        await server.answer("tasks/get", state("completed", result=DONE))
        assert await made.result() == DONE


async def test_a_new_status_message_is_a_step_of_progress() -> None:
    async with running(created(statusMessage="queued"), wants_progress=True) as (_, server, made):
        for message in ("a", "a", None, "b"):
            await server.answer("tasks/get", state(statusMessage=message))
        await server.answer("tasks/get", state("completed", statusMessage="done", result=DONE))
        await made.result()
        assert made.steps == [
            {"progress": 1, "message": "queued"},
            {"progress": 2, "message": "a"},
            {"progress": 3, "message": "b"},
        ]


async def test_server_is_heard_of_at_each_look_but_not_while_the_caller_is_asked(heard: list[None]) -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", state())
        await server.answer("tasks/get", state())
        look = await server.expect("tasks/get")
        assert len(heard) == 2
        for _ in range(3):
            await server.send(id=look["id"], result=asks("a"))
            look = await server.expect("tasks/get")
        assert len(heard) == 2, "a question that nobody answers must not be open for ever"


@pytest.mark.parametrize("era", Era)
async def test_a_caller_that_gives_up_cancels_the_task(era: Era) -> None:
    async with running(of=era) as (_, server, made):
        await server.expect("tasks/get")
        made.scope.cancel()
        assert await cancelled(server) == {"taskId": "t1"}


@pytest.mark.parametrize("survives", [False, True], ids=["all tasks are left", "another hub continues this call"])
@pytest.mark.parametrize("era", Era)
async def test_task_left_to_a_hub_is_not_cancelled(era: Era, survives: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CallRecord, "survives", survives)
    async with running(of=era) as (peer, server, made):
        if not survives:
            peer.tasks.leave()
        await server.expect("tasks/get")
        made.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        await server.send(id="flush", method="ping")
        with anyio.fail_after(WAIT):
            while (message := await server.line()).get("id") != "flush":
                assert message["method"] == "notifications/cancelled", message


@pytest.mark.parametrize("era", Era)
async def test_another_hub_can_continue_as_soon_as_there_is_a_task(era: Era) -> None:
    async with running(of=era) as (_, server, made):
        await server.expect("tasks/get")
        assert msgspec.json.decode(made.how, type=TaskHandle) == TaskHandle(era, "t1", BORN)


async def test_a_process_that_ends_takes_its_tasks_along() -> None:
    async with running() as (_, server, made):
        await server.expect("tasks/get")
        server.close("write")
        error = await made.error()
        assert isinstance(error, UpstreamLost) and "lost its connection" in error.message
        assert type(error) is UpstreamLost, "nobody need look for the task over another connection"


def test_a_task_is_looked_at_as_often_as_it_says_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_poll, "_POLL", (0.1, 1.0, 30.0))
    waits = {None: 1.0, 0: 1.0, 1: 0.1, -5: 0.1, 250: 0.25, 3e9: 30.0}
    for milliseconds, seconds in waits.items():
        assert ServerTask("t", pollIntervalMs=milliseconds).pause == seconds
        assert ServerTask("t", pollInterval=milliseconds).pause == seconds
