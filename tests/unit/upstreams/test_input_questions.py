"""Tasks of handshake servers, and what tasks of modern ones ask: put to the caller once, withdrawn with the task."""

import json
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Progressed
from mcp_hub.types import Era, JsonObject
from mcp_hub.upstreams.peer.tasks import ServerTasks
from tests.unit.upstreams.scripted import Server, talking, together
from tests.unit.upstreams.task_calls import (
    DONE,
    FORM,
    HANDSHAKE,
    Running,
    asks,
    call,
    cancelled,
    record_of,
    running,
    state,
    updated,
)
from tests.unit.wire.raw_lines import WAIT, group

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_polls")]


@pytest.mark.parametrize("caller", [HANDSHAKE, {}], ids=["handshake", "modern"])
async def test_a_question_is_asked_once_and_its_answer_handed_back_byte_for_byte(caller: dict[str, Any]) -> None:
    async with running(**caller) as (_, server, made):
        await server.answer("tasks/get", asks("a"))
        (key,) = await made.asked()
        question = made.record.questions.open[key]
        assert (question.method, json.loads(bytes(question.params))) == ("elicitation/create", FORM)
        for _ in range(3):  # the task is looked at meanwhile, and the question is no other one
            await server.answer("tasks/get", asks("a"))
        assert await made.asked() == [key]
        answer = '{"action":"accept","content":{"n":1.10},"later":18446744073709551617}'
        made.record.questions.answer(key, msgspec.Raw(answer.encode()))
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
        assert await made.result() == DONE and not made.record.questions.open


async def test_answers_go_back_together_when_none_is_missing() -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", asks("a", "b"))
        first, second = await made.asked(2)
        made.record.questions.answer(first, b'{"action":"cancel"}')
        for _ in range(3):
            await server.answer("tasks/get", asks("a", "b"))
        made.record.questions.answer(second, b'{"action":"accept","content":{}}')
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
        assert not made.record.questions.open and made.has_ended == (shown["status"] == "completed")


async def test_a_caller_that_answers_with_an_error_fails_the_call_and_cancels_the_task() -> None:
    async with running() as (_, server, made):
        await server.answer("tasks/get", asks("a", "b"))
        key, _ = await made.asked(2)
        made.record.questions.answer(key, RpcError("rejected", code=-1))
        assert await cancelled(server, "a", "b") == {"taskId": "t1"}
        error = await made.error()
        assert "elicitation/create with an error: rejected" in error.message
        assert not made.record.questions.open


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
        made.record.questions.answer(key, b'{"action":"accept"}')
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
        made.record.questions.answer(key, b'{"action":"accept"}')
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
    made.record.questions.answer(key, b'{"action":"accept"}')
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


TASKS: JsonObject = {"tasks": {"requests": {"tools": {"call": {}}}}}
RELATED = "io.modelcontextprotocol/related-task"


async def test_a_task_is_made_followed_and_its_result_is_the_calls() -> None:
    async with running(of=Era.HANDSHAKE) as (_, server, made):
        assert made.request["params"]["task"]["ttl"] > 0 and made.request["params"]["name"] == "x"
        for status in ("working", "working", "completed"):
            look = await server.answer("tasks/get", state(status))
            assert look["params"] == {"taskId": "t1"}
        result = {"content": [], "n": 2**70, "_meta": {RELATED: {"taskId": "t1"}, "mine": 1}}
        await server.answer("tasks/result", result)
        outcome = await made.outcome()
        assert isinstance(outcome, Completed)
        assert json.loads(bytes(outcome.result)) == {"content": [], "n": 2**70, "_meta": {"mine": 1}}


async def test_a_task_that_wants_input_asks_the_caller_even_beside_others_calls() -> None:
    async with running(of=Era.HANDSHAKE) as (peer, server, made), group() as tasks:
        other = Running(tasks, peer.call, call(session="other", method="prompts/get", **HANDSHAKE))
        for message in (await server.line(), await server.line()):  # in whichever order
            if message["method"] == "tasks/get":
                await server.send(id=message["id"], result=state("input_required"))
        fetching = await server.expect("tasks/result")
        await server.expect("tasks/get")  # and is not answered before the result is there
        about = {"_meta": {RELATED: {"taskId": "t1"}}}
        await server.send(id="q", method="roots/list", params=about)
        (key,) = await made.asked()
        assert not other.record.questions.open
        made.record.questions.answer(key, msgspec.Raw(b'{"roots":[]}'))
        assert (await server.line())["result"] == {"roots": []}
        await server.send(id=fetching["id"], result={"content": []})
        assert isinstance(await made.outcome(), Completed)


async def test_progress_continues_under_the_calls_token() -> None:
    async with running(of=Era.HANDSHAKE, wants_progress=True) as (_, server, made):
        reader = made.record.log.reader(lambda: None)
        token = made.request["params"]["_meta"]["progressToken"]
        await server.send(method="notifications/progress", params={"progressToken": token, "progress": 3})
        await server.answer("tasks/get", state("completed"))
        await server.answer("tasks/result", {"content": []})
        await made.outcome()
        assert [event.progress for event in reader.take() if isinstance(event, Progressed)] == [3]


async def test_task_that_has_asked_is_looked_at_beside_its_result_while_it_works(heard: list[None]) -> None:
    async with running(of=Era.HANDSHAKE) as (_, server, made):
        await server.answer("tasks/get", state())
        await server.answer("tasks/get", state("input_required"))
        fetching = await server.expect("tasks/result")
        assert len(heard) == 2
        heard.clear()
        look = await server.expect("tasks/get")
        for status, times in (("input_required", 0), ("input_required", 0), ("working", 1), ("working", 2)):
            await server.send(id=look["id"], result=state(status))
            look = await server.expect("tasks/get")
            assert len(heard) == times
        await server.send(id=fetching["id"], result={"content": []})
        assert isinstance(await made.outcome(), Completed)


async def test_a_look_that_fails_leaves_it_to_the_result_what_the_task_came_to() -> None:
    async with running(of=Era.HANDSHAKE) as (_, server, made):
        await server.answer("tasks/get", state("input_required"))
        fetching = await server.expect("tasks/result")
        await server.refuse("tasks/get", -32602)
        await server.refuse("tasks/get", -32603)
        await server.answer("tasks/get", {"taskId": 7})
        await server.expect("tasks/get")
        await server.send(id=fetching["id"], error={"code": -32050, "message": "no"})
        outcome = await made.outcome()
        assert isinstance(outcome, RpcError) and outcome.code == -32050


async def test_a_task_that_has_ended_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with talking() as (peer, server):
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        async def script() -> None:
            await server.answer("tools/call", {"task": state("input_required")})
            requests = {message["method"]: message for message in (await server.line(), await server.line())}
            await server.send(id=requests["tasks/get"]["id"], result=state("completed"))
            await server.send(id=requests["tasks/result"]["id"], result={"content": []})

        monkeypatch.setattr("mcp_hub.upstreams.peer.tasks.anyio.sleep", sleep)
        peer.tasks.required = frozenset({"x"})
        made = call()
        await together(script(), peer.call(made, record_of(made)))
        assert len(slept) == 1


async def test_a_caller_that_gives_up_a_task_that_has_asked_cancels_it() -> None:
    async with running(of=Era.HANDSHAKE) as (_, server, made):
        await server.answer("tasks/get", state("input_required"))
        await server.expect("tasks/result")
        made.scope.cancel()
        assert await cancelled(server) == {"taskId": "t1"}


async def test_an_invalid_params_error_of_the_tool_is_no_lost_task() -> None:
    async with running(of=Era.HANDSHAKE) as (_, server, made):
        await server.answer("tasks/get", state("failed"))
        await server.refuse("tasks/result", -32602, {"why": 1})
        outcome = await made.outcome()
        assert type(outcome) is RpcError and outcome.code == -32602


async def test_a_result_that_cannot_be_read_is_fetched_again() -> None:
    async with running(of=Era.HANDSHAKE) as (_, server, made):
        await server.answer("tasks/get", state("completed"))
        await server.reply("tasks/result", '"result":null')
        await server.answer("tasks/result", {"content": []})
        assert isinstance(await made.outcome(), Completed)


async def test_an_answer_without_a_task_is_the_result() -> None:
    async with talking() as (peer, server), group() as tasks:
        peer.tasks.required = frozenset({"x"})
        made = Running(tasks, peer.call, call(**HANDSHAKE))
        await server.answer("tools/call", {"content": [{"type": "text", "text": "quick"}]})
        outcome = await made.outcome()
        assert isinstance(outcome, Completed) and b"quick" in bytes(outcome.result)


def tool(name: str, support: object) -> bytes:
    return json.dumps({"name": name, "inputSchema": {}, "execution": {"taskSupport": support}}).encode()


def test_only_tools_that_require_a_task_of_servers_that_take_one() -> None:
    tools = [tool("a", "required"), tool("b", "optional"), tool("c", 7), b'{"name":"d"}', b'{"taskSupport"']
    tasks = ServerTasks(outlive=False)
    tasks.learn(TASKS, tools)
    assert tasks.required == {"a"}
    lacks: list[JsonObject] = [{}, {"tasks": {}}, {"tasks": {"requests": {"tools": 1}}}, {"tasks": []}]
    for lacking in lacks:
        tasks.learn(lacking, tools)
        assert not tasks.required
