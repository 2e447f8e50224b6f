"""The fixture server's tasks of 2025-11-25."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.answers import Answers, form, never
from tests.e2e.client import HttpClient, Message, StdioClient, modern, until
from tests.unit.asked_peers import ALL
from tests.upstreams.http_child import HttpUpstream
from tests.upstreams.launch import argv, events

pytestmark = pytest.mark.anyio

RELATED = "io.modelcontextprotocol/related-task"
STATUS = "notifications/tasks/status"


@asynccontextmanager
async def served(*options: str, answers: Answers | None = None, **named: Any) -> AsyncIterator[StdioClient]:
    """A client, its handshake done, of a server with tasks."""
    async with StdioClient(argv("--tasks-capability", *options, **named)) as c:
        c.answers = answers
        await c.initialize()
        yield c
        assert await c.close() == 0


async def call(c: StdioClient, tool: str, ttl: int | None = 60_000, **arguments: Any) -> Message:
    """Start a task: the whole answer."""
    params = {"name": tool, "arguments": arguments, "task": {} if ttl is None else {"ttl": ttl}}
    return await c.request("tools/call", {**params, "_meta": {"progressToken": "t"}})


async def start(c: StdioClient, tool: str, ttl: int | None = 60_000, **arguments: Any) -> Message:
    task: Message = (await call(c, tool, ttl, **arguments))["result"]["task"]
    return task


async def reaches(c: StdioClient, task: Message, status: str) -> Message:
    """Poll until it has that status."""
    with anyio.fail_after(5):
        while True:
            found: Message = (await c.request("tasks/get", {"taskId": task["taskId"]}))["result"]
            if found["status"] == status:
                return found
            await anyio.sleep(found["pollInterval"] / 1000)


async def outcome(c: StdioClient, task: Message) -> Message:
    return await c.request("tasks/result", {"taskId": task["taskId"]})


async def test_only_who_asked_for_it_has_tasks() -> None:
    async with StdioClient(argv()) as c:
        assert "tasks" not in (await c.initialize())["result"]["capabilities"]
        assert (await c.request("tasks/list"))["error"]["code"] == -32601
        names = [tool["name"] for tool in (await c.request("tools/list"))["result"]["tools"]]
        assert not [name for name in names if name.startswith("task_")]
        ignored = await c.request("tools/call", {"name": "echo", "arguments": {"text": "x"}, "task": {}})
        assert "content" in ignored["result"]
    async with StdioClient(argv("--tasks-capability")) as c:
        assert "tasks" not in (await c.initialize("2025-06-18"))["result"]["capabilities"]
    async with StdioClient(argv("--tasks-capability", era="both")) as c:
        answer = await c.initialize()
        capability: Message = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        assert answer["result"]["capabilities"]["tasks"] == capability
        assert "tasks" not in (await c.request("server/discover", modern()))["result"]["capabilities"]
        names = [tool["name"] for tool in (await c.request("tools/list", modern()))["result"]["tools"]]
        assert not [name for name in names if name.startswith("task_")]
        assert (await c.call_modern("task_optional"))["error"]["code"] == -32602
        assert (await c.request("tasks/list", modern()))["error"]["code"] == -32601


async def test_tools_say_and_enforce_how_they_run() -> None:
    async with served() as c:
        tools = {tool["name"]: tool for tool in (await c.request("tools/list"))["result"]["tools"]}
        assert tools["task_required"]["execution"] == {"taskSupport": "required"}
        assert tools["task_optional"]["execution"] == {"taskSupport": "optional"}
        assert "execution" not in tools["echo"]
        assert (await c.call("task_required"))["error"]["code"] == -32601
        assert (await call(c, "echo", text="x"))["error"]["code"] == -32601
        plain = await c.call("task_optional", {"nonce": "p"})
        assert plain["result"]["structuredContent"] == {"nonce": "p"}


async def test_task_is_worked_on_then_completed() -> None:
    async with served() as c:
        task = await start(c, "task_required", seconds=0.2, nonce="w")
        assert (task["status"], task["ttl"], task["pollInterval"]) == ("working", 60_000, 20)
        assert task["createdAt"].endswith("Z")
        waiting = await outcome(c, task)
        result = waiting["result"]
        assert result["structuredContent"] == {"seconds": 0.2, "nonce": "w"}
        assert result["_meta"] == {RELATED: {"taskId": task["taskId"]}}
        found = (await c.request("tasks/get", {"taskId": task["taskId"]}))["result"]
        assert found["status"] == "completed"
        assert found["lastUpdatedAt"] > found["createdAt"] == task["createdAt"]
        assert (await outcome(c, task))["result"] == result
        progress = [message["params"] for message in c.notifications("notifications/progress")]
        assert [(p["progressToken"], p["progress"]) for p in progress] == [("t", i) for i in range(1, 11)]
        assert {p["_meta"][RELATED]["taskId"] for p in progress} == {task["taskId"]}
        assert c.notifications(STATUS) == []


async def test_result_of_a_task_may_be_any_object() -> None:
    async with served() as c:
        task = await start(c, "task_optional", result={"content": [], "x": 2**70, "_meta": {"k": 1}})
        found = (await outcome(c, task))["result"]
        assert found == {"content": [], "x": 2**70, "_meta": {"k": 1, RELATED: {"taskId": task["taskId"]}}}


async def test_task_fails_by_error_or_by_tool() -> None:
    async with served() as c:
        task = await start(c, "task_fails", nonce="e")
        found = await reaches(c, task, "failed")
        assert found["statusMessage"] == "it failed"
        error = {"code": 4242, "message": "it failed", "data": {"nonce": "e"}}
        assert (await outcome(c, task))["error"] == error
        task = await start(c, "task_fails", how="tool")
        await reaches(c, task, "failed")
        assert (await outcome(c, task))["result"]["isError"] is True


async def test_task_can_be_cancelled_once(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with served(journal=log) as c:
        task = await start(c, "task_never", ttl=None, nonce="c")
        assert task["ttl"] is None
        blocked = await c.send_request("tasks/result", {"taskId": task["taskId"]})
        cancelled = (await c.request("tasks/cancel", {"taskId": task["taskId"]}))["result"]
        assert (cancelled["status"], cancelled["taskId"]) == ("cancelled", task["taskId"])
        assert (await c.response(blocked))["error"]["code"] == -32603
        again = await c.request("tasks/cancel", {"taskId": task["taskId"]})
        assert again["error"]["code"] == -32602
        await until(lambda: events(log, "cancelled"))
        assert (await outcome(c, task))["error"]["message"] == "The task was cancelled"
    assert (events(log, "cancelled")[0]["task"], events(log, "cancelled")[0]["nonce"]) == (task["taskId"], "c")


async def test_tasks_are_listed_until_they_expire() -> None:
    async with served("--page", "1") as c:
        kept = [await start(c, "task_never"), await start(c, "task_never")]
        gone = await start(c, "task_never", ttl=0)
        first = (await c.request("tasks/list"))["result"]
        second = (await c.request("tasks/list", {"cursor": first["nextCursor"]}))["result"]
        assert [t["taskId"] for t in first["tasks"] + second["tasks"]] == [task["taskId"] for task in kept]
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            for task_id in (gone["taskId"], "unknown"):
                assert (await c.request(method, {"taskId": task_id}))["error"]["code"] == -32602


async def test_question_waits_for_somebody_who_waits_for_the_result() -> None:
    answers = Answers(ALL)
    async with served(answers=answers) as c:
        task = await start(c, "task_asks", nonce="q")
        await reaches(c, task, "input_required")
        assert answers.asked == []
        result = (await outcome(c, task))["result"]
        (question,) = answers.asked
        assert question["params"]["_meta"] == {"example.org/nonce": "q", RELATED: {"taskId": task["taskId"]}}
        given = {"form": {"result": {"action": "accept", "content": {"answer": "yes"}}}}
        assert json.loads(result["content"][0]["text"]) == {"nonce": "q", "answers": given}
        await reaches(c, task, "completed")


async def test_question_is_asked_again_when_the_wait_was_given_up() -> None:
    answers = Answers({"elicitation/create": [never(), form(n=2)]})
    async with served(answers=answers) as c:
        task = await start(c, "task_asks")
        given_up = await c.send_request("tasks/result", {"taskId": task["taskId"]})
        await c.wait_for(lambda m: m.get("method") == "elicitation/create")
        await c.notify("notifications/cancelled", {"requestId": given_up})
        await c.wait_for(lambda m: m.get("method") == "notifications/cancelled")
        await reaches(c, task, "input_required")
        result = (await outcome(c, task))["result"]
        assert result["structuredContent"]["answers"]["form"]["result"]["content"] == {"n": 2}
        assert not [m for m in c.transcript if m.get("id") == given_up and "method" not in m]


async def test_question_may_come_at_once() -> None:
    answers = Answers(ALL)
    async with served("--task-status", answers=answers) as c:
        task = await start(c, "task_asks", at_once=True)
        await reaches(c, task, "completed")
        assert answers.asked[0]["params"]["_meta"] == {RELATED: {"taskId": task["taskId"]}}
        statuses = [message["params"]["status"] for message in c.notifications(STATUS)]
        assert statuses == ["input_required", "working", "completed"]
        params: Message = {"name": "task_asks", "arguments": {}, "task": {}}
        created = await c.request("tools/call", params, id="over")
        await c.notify("notifications/cancelled", {"requestId": "over"})  # the call is over: its task goes on
        assert "result" in await outcome(c, created["result"]["task"])


async def test_task_of_a_client_that_cannot_be_asked_says_so() -> None:
    async with served() as c:
        task = await start(c, "task_asks")
        assert (await outcome(c, task))["result"]["content"][0]["text"] == "client cannot form"


async def test_question_of_a_task_comes_on_the_stream_that_waits_for_its_result() -> None:
    answers = Answers(ALL)
    async with HttpUpstream("--tasks-capability") as server, HttpClient(server.url) as c:
        c.answers = answers
        await c.initialize()
        params: Message = {"name": "task_asks", "arguments": {"nonce": "h"}, "task": {}}
        created = (await c.request("tools/call", params)).last["result"]["task"]
        answer = await c.request("tasks/result", {"taskId": created["taskId"]})
    assert [message.get("method") for message in answer.messages] == ["elicitation/create", None]
    assert answer.last["result"]["structuredContent"]["answers"]["form"]["result"]["action"] == "accept"


async def test_task_outlives_the_session_that_started_it() -> None:
    async with HttpUpstream("--tasks-capability") as server, HttpClient(server.url) as c:
        await c.initialize()
        params: Message = {"name": "task_required", "arguments": {"seconds": 0.3, "nonce": "o"}, "task": {}}
        created = (await c.request("tools/call", params)).last["result"]["task"]
        await c.delete()
        await c.initialize()
        answer = await c.request("tasks/result", {"taskId": created["taskId"]})
    assert answer.last["result"]["structuredContent"]["nonce"] == "o"
