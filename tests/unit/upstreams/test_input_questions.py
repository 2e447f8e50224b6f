"""What the tasks of modern servers ask: put to the caller once, answered together, withdrawn with the task."""

import json
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.errors import RpcError
from mcp_hub.types import JsonObject
from tests.unit.upstreams.scripted import Server
from tests.unit.upstreams.task_calls import DONE, FORM, HANDSHAKE, Running, asks, cancelled, running, state, updated
from tests.unit.wire.raw_lines import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_polls")]


@pytest.mark.parametrize("caller", [HANDSHAKE, {}], ids=["handshake", "modern"])
async def test_a_question_is_asked_once_and_its_answer_handed_back_byte_for_byte(caller: dict[str, Any]) -> None:
    async with running(**caller) as (_, server, made):
        await server.answer("tasks/get", asks("a"))
        (key,) = await made.asked()
        question = made.record.open_questions[key]
        assert (question.method, json.loads(bytes(question.params))) == ("elicitation/create", FORM)
        for _ in range(3):  # the task is looked at meanwhile, and the question is no other one
            await server.answer("tasks/get", asks("a"))
        assert await made.asked() == [key]
        answer = '{"action":"accept","content":{"n":1.10},"later":18446744073709551617}'
        made.record.answer(key, msgspec.Raw(answer.encode()))
        update = ""
        with anyio.fail_after(WAIT):
            while "tasks/update" not in update:
                update = (await server.chunk()).decode()
                for line in update.splitlines():
                    message = json.loads(line)
                    shown = asks("a") if message["method"] == "tasks/get" else {"resultType": "complete"}
                    await server.send(id=message["id"], result=shown)
        assert f'"inputResponses":{{"a":{answer}}}' in update
        await server.answer("tasks/get", asks("a"))  # it takes the server a while to notice
        await server.answer("tasks/get", state("completed", result=DONE))
        assert await made.result() == DONE and not made.record.open_questions


async def test_answers_go_back_together_when_none_is_missing() -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", asks("a", "b"))
        first, second = await made.asked(2)
        made.record.answer(first, b'{"action":"cancel"}')
        for _ in range(3):
            await server.answer("tasks/get", asks("a", "b"))
        made.record.answer(second, b'{"action":"accept","content":{}}')
        assert await updated(server, "a", "b") == {"a": {"action": "cancel"}, "b": {"action": "accept", "content": {}}}


@pytest.mark.parametrize("shown", [state(), state("completed", result=DONE)], ids=["works on", "has ended"])
async def test_a_question_that_the_task_no_longer_has_is_withdrawn(shown: JsonObject) -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", asks("a"))
        await made.asked()
        await server.answer("tasks/get", shown)
        if shown["status"] == "completed":
            assert await made.result() == DONE
        else:
            await server.expect("tasks/get")
        assert not made.record.open_questions and made.has_ended == (shown["status"] == "completed")


async def test_a_caller_that_answers_with_an_error_fails_the_call_and_cancels_the_task() -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", asks("a", "b"))
        key, _ = await made.asked(2)
        made.record.answer(key, RpcError("rejected", code=-1))
        assert await cancelled(server, "a", "b") == {"taskId": "t1"}
        error = await made.error()
        assert "elicitation/create with an error: rejected" in error.message
        assert not made.record.open_questions


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (asks("a", method="sampling/createMessage", params={"tools": []}), "sampling.tools"),
        (asks("a", method="tools/call"), "no client can be asked for"),
        (state("input_required", inputRequests=[1]), "not an object"),
        (state("input_required", inputRequests={"a": 1}), "cannot be read"),
        (asks(*map(str, range(65))), "65 inputs at once"),
    ],
)
async def test_question_that_is_impossible_fails_the_call_and_cancels_the_task(shown: JsonObject, said: str) -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", shown)
        assert await cancelled(server) == {"taskId": "t1"}
        assert said in (await made.error()).message


@pytest.mark.parametrize("nothing", [{}, {"inputRequests": {}}, {"inputRequests": None}])
async def test_a_task_that_wants_input_without_saying_which_is_looked_at_again(nothing: JsonObject) -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", state("input_required", **nothing))
        await server.answer("tasks/get", state("completed", result=DONE))
        assert await made.result() == DONE


@pytest.mark.parametrize("shown", [asks("a"), state("input_required", inputRequests={})])
async def test_task_that_waits_for_nothing_it_could_get_is_silent(shown: JsonObject, heard: list[None]) -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", asks("a"))
        (key,) = await made.asked()
        made.record.answer(key, b'{"action":"accept"}')
        await updated(server, "a")
        look = await server.expect("tasks/get")
        heard.clear()
        for now, times in ((shown, 0), (shown, 0), (state(), 1), (state(), 2), (shown, 2)):
            await server.send(id=look["id"], result=now)
            look = await server.expect("tasks/get")
            assert len(heard) == times


async def test_a_server_that_is_only_slow_to_take_an_answer_is_heard_of(heard: list[None]) -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", asks("a"))
        (key,) = await made.asked()
        await server.answer("tasks/get", asks("a"))
        look = await server.expect("tasks/get")
        made.record.answer(key, b'{"action":"accept"}')
        await server.send(id=look["id"], result=asks("a"))
        await server.reply("tasks/update", '"result":null')
        heard.clear()
        await server.answer("tasks/get", asks("a"))
        await server.reply("tasks/update", '"result":{}')
        assert len(heard) == 1


async def test_a_task_may_not_ask_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.peer.input_questions.MOST_QUESTIONS", 2)
    async with running() as (_, server, made):
        for keys in (("a",), ("a", "b"), ("b", "c")):
            await server.answer("tasks/get", asks(*keys))
        await cancelled(server)
        assert "more than 2 inputs" in (await made.error()).message


async def refusing(server: Server, made: Running) -> None:
    """The question `a` is answered and the server does not take the answer."""
    await server.answer("tasks/get", asks("a"))
    (key,) = await made.asked()
    made.record.answer(key, b'{"action":"accept"}')
    with anyio.fail_after(WAIT):
        while (message := await server.line())["method"] != "tasks/update":
            await server.send(id=message["id"], result=asks("a"))
    await server.send(id=message["id"], error={"code": -32602, "message": "not so"})


async def test_an_answer_that_came_too_late_does_no_harm() -> None:
    async with running() as (_, server, made):
        await refusing(server, made)
        await server.answer("tasks/get", state("completed", result=DONE))
        assert await made.result() == DONE


async def test_an_answer_that_the_server_refuses_and_still_waits_for_fails_the_call() -> None:
    async with running() as (_, server, made):
        await refusing(server, made)
        await server.answer("tasks/get", asks("a"))
        assert await cancelled(server) == {"taskId": "t1"}
        error = await made.error()
        assert (error.code, error.message) == (-32602, "not so")
