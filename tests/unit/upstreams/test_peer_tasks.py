"""Tools that handshake servers run only as tasks: made, followed, asked about, cancelled, answered as plain calls."""

import json

import msgspec
import pytest

from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Progressed
from mcp_hub.types import Era, JsonObject
from mcp_hub.upstreams.peer.tasks import ServerTasks
from tests.unit.upstreams.scripted import talking, together
from tests.unit.upstreams.task_calls import HANDSHAKE, Running, call, cancelled, group, record_of, running, state

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_polls")]

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
        assert not other.record.open_questions
        made.record.answer(key, msgspec.Raw(b'{"roots":[]}'))
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
