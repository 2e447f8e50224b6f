"""Tools that handshake servers run only as tasks: made, followed, asked about, cancelled, answered as plain calls."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.errors import RpcError, UpstreamLost
from mcp_hub.events import Completed, Progressed
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.tasks import ServerTasks
from tests.unit.upstreams.scripted import Server, talking, together
from tests.unit.upstreams.task_calls import HANDSHAKE, Running, call, group, record_of
from tests.unit.wire.raw_lines import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("quick_polls")]

TASKS: JsonObject = {"tasks": {"requests": {"tools": {"call": {}}}}}
RELATED = "io.modelcontextprotocol/related-task"


def task(status: str = "working", **more: Any) -> JsonObject:
    stamp = "2025-11-25T10:00:00Z"
    return {"taskId": "t1", "status": status, "createdAt": stamp, "lastUpdatedAt": stamp, "ttl": 1000, **more}


@asynccontextmanager
async def tasked(**more: Any) -> AsyncIterator[tuple[Peer, Server, Running, Any]]:
    """A call whose server has made a task; the request that made it."""
    async with talking() as (peer, server), group() as tasks:
        peer.tasks.required = frozenset({"x"})
        made = Running(tasks, peer.call, call(**HANDSHAKE, **more))
        request = await server.answer("tools/call", {"task": task()})
        yield peer, server, made, request


async def test_a_task_is_made_followed_and_its_result_is_the_calls() -> None:
    async with tasked() as (_, server, made, request):
        assert request["params"]["task"]["ttl"] > 0 and request["params"]["name"] == "x"
        for status in ("working", "working", "completed"):
            look = await server.answer("tasks/get", task(status))
            assert look["params"] == {"taskId": "t1"}
        result = {"content": [], "n": 2**70, "_meta": {RELATED: {"taskId": "t1"}, "mine": 1}}
        await server.answer("tasks/result", result)
        outcome = await made.outcome()
        assert isinstance(outcome, Completed)
        assert json.loads(bytes(outcome.result)) == {"content": [], "n": 2**70, "_meta": {"mine": 1}}


async def test_a_task_that_wants_input_asks_the_caller_even_beside_others_calls() -> None:
    async with tasked() as (peer, server, made, _), group() as tasks:
        other = Running(tasks, peer.call, call(session="other", method="prompts/get", **HANDSHAKE))
        for message in (await server.line(), await server.line()):  # in whichever order
            if message["method"] == "tasks/get":
                await server.send(id=message["id"], result=task("input_required"))
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


async def test_progress_goes_on_under_the_calls_token() -> None:
    async with tasked(wants_progress=True) as (_, server, made, request):
        reader = made.record.log.reader(lambda: None)
        token = request["params"]["_meta"]["progressToken"]
        await server.send(method="notifications/progress", params={"progressToken": token, "progress": 3})
        await server.answer("tasks/get", task("completed"))
        await server.answer("tasks/result", {"content": []})
        await made.outcome()
        assert [event.progress for event in reader.take() if isinstance(event, Progressed)] == [3]


async def test_a_caller_that_gives_up_cancels_the_task() -> None:
    async with tasked() as (_, server, made, _):
        await server.expect("tasks/get")
        made.scope.cancel()
        with anyio.fail_after(WAIT):
            while (message := await server.line())["method"] != "tasks/cancel":
                pass
        assert message["params"] == {"taskId": "t1"}


async def test_the_server_is_heard_of_at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    async with tasked() as (_, server, made, _):
        heard: list[None] = []
        monkeypatch.setattr(type(made.record), "touch", lambda _: heard.append(None))
        for _ in range(3):
            await server.answer("tasks/get", task())
        await server.expect("tasks/get")
        assert len(heard) == 3


async def test_a_task_that_has_asked_is_looked_at_beside_its_result_and_is_heard_of_while_it_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with tasked() as (_, server, made, _):
        await server.answer("tasks/get", task("input_required"))
        fetching = await server.expect("tasks/result")
        heard: list[None] = []
        monkeypatch.setattr(type(made.record), "touch", lambda _: heard.append(None))
        look = await server.expect("tasks/get")
        for status, times in (("input_required", 0), ("input_required", 0), ("working", 1), ("working", 2)):
            await server.send(id=look["id"], result=task(status))
            look = await server.expect("tasks/get")
            assert len(heard) == times
        await server.send(id=fetching["id"], result={"content": []})
        assert isinstance(await made.outcome(), Completed)


async def test_a_look_that_fails_leaves_it_to_the_result_what_the_task_came_to() -> None:
    async with tasked() as (_, server, made, _):
        await server.answer("tasks/get", task("input_required"))
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
            await server.answer("tools/call", {"task": task("input_required")})
            requests = {message["method"]: message for message in (await server.line(), await server.line())}
            await server.send(id=requests["tasks/get"]["id"], result=task("completed"))
            await server.send(id=requests["tasks/result"]["id"], result={"content": []})

        monkeypatch.setattr("mcp_hub.upstreams.peer.tasks.anyio.sleep", sleep)
        peer.tasks.required = frozenset({"x"})
        made = call()
        await together(script(), peer.call(made, record_of(made)))
        assert len(slept) == 1


async def test_a_caller_that_gives_up_a_task_that_has_asked_cancels_it() -> None:
    async with tasked() as (_, server, made, _):
        await server.answer("tasks/get", task("input_required"))
        await server.expect("tasks/result")
        made.scope.cancel()
        with anyio.fail_after(WAIT):
            while (await server.line())["method"] != "tasks/cancel":
                pass


async def test_a_hub_that_leaves_its_tasks_to_another_does_not_cancel_them() -> None:
    async with tasked() as (peer, server, made, _):
        await server.expect("tasks/get")
        assert json.loads(made.how) == {"era": "handshake", "task": "t1", "created": "2025-11-25T10:00:00Z"}
        peer.tasks.leave()
        made.scope.cancel()
        await anyio.wait_all_tasks_blocked()
        await server.send(id="flush", method="ping")
        with anyio.fail_after(WAIT):
            while (message := await server.line()).get("id") != "flush":
                assert message["method"] == "notifications/cancelled", message


async def test_a_task_that_is_no_longer_known_ends_with_its_outcome_unknown() -> None:
    async with tasked() as (_, server, made, _):
        await server.refuse("tasks/get", -32602)
        outcome = await made.outcome()
        assert isinstance(outcome, UpstreamLost) and "does not know task t1" in outcome.message
        assert (outcome.data or {})["outcome"] == "unknown"


async def test_an_invalid_params_error_of_the_tool_is_no_lost_task() -> None:
    async with tasked() as (_, server, made, _):
        await server.answer("tasks/get", task("failed"))
        await server.refuse("tasks/result", -32602, {"why": 1})
        outcome = await made.outcome()
        assert type(outcome) is RpcError and outcome.code == -32602


async def test_a_result_that_cannot_be_read_is_fetched_again() -> None:
    async with tasked() as (_, server, made, _):
        await server.answer("tasks/get", task("completed"))
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


async def test_what_is_no_task_ends_the_call() -> None:
    async with tasked() as (_, server, made, _):
        await server.answer("tasks/get", {"taskId": 7})
        outcome = await made.outcome()
        assert isinstance(outcome, RpcError) and "without a task" in outcome.message


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
