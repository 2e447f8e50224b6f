"""The fixture server's tasks of the modern era."""

from typing import Any

import anyio
import pytest

from tests.e2e.client import Message, StdioClient, modern
from tests.upstreams.launch import argv

pytestmark = pytest.mark.anyio

EXTENSION = "io.modelcontextprotocol/tasks"
DECLARED: Message = {"extensions": {EXTENSION: {}}}


async def ask(c: StdioClient, method: str, declared: Message = DECLARED, **params: Any) -> Message:
    """The whole answer."""
    return await c.request(method, modern(params, capabilities=declared))


async def start(c: StdioClient, tool: str, declared: Message = DECLARED, **arguments: Any) -> Message:
    return await ask(c, "tools/call", declared, name=tool, arguments=arguments)


async def reaches(c: StdioClient, task: Message, status: str) -> Message:
    """Poll until it has that status."""
    with anyio.fail_after(5):
        while True:
            found: Message = (await ask(c, "tasks/get", taskId=task["taskId"]))["result"]
            assert found["resultType"] == "complete"
            if found["status"] == status:
                return found
            await anyio.sleep(found["pollIntervalMs"] / 1000)


async def test_the_extension_is_there_with_the_option_only_and_in_the_modern_era_only() -> None:
    async with StdioClient(argv()) as c:
        assert "extensions" not in (await ask(c, "server/discover"))["result"]["capabilities"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await ask(c, method, taskId="t"))["error"]["code"] == -32601
    async with StdioClient(argv("--tasks-extension")) as c:
        assert (await ask(c, "server/discover"))["result"]["capabilities"]["extensions"] == {EXTENSION: {}}
        listed = {tool["name"]: tool for tool in (await ask(c, "tools/list"))["result"]["tools"]}
        assert "execution" not in listed["task_required"]
        assert "tasks" not in (await c.initialize())["result"]["capabilities"]
        old = [tool["name"] for tool in (await c.request("tools/list"))["result"]["tools"]]
        assert "echo" in old and "task_required" not in old


async def test_who_did_not_declare_it_gets_no_task() -> None:
    async with StdioClient(argv("--tasks-extension", era="modern")) as c:
        refused = (await start(c, "task_required", {}))["error"]
        assert (refused["code"], refused["data"]) == (-32021, {"requiredCapabilities": DECLARED})
        assert (await start(c, "task_optional", {}))["result"]["resultType"] == "complete"
        task = (await start(c, "task_never"))["result"]
        for method in ("tasks/get", "tasks/update", "tasks/cancel"):
            assert (await ask(c, method, {}, taskId=task["taskId"]))["error"]["code"] == -32021


async def test_task_goes_from_question_to_result() -> None:
    async with StdioClient(argv("--tasks-extension", era="modern")) as c:
        task = (await start(c, "task_asks", {**DECLARED, "elicitation": {}}, nonce="q"))["result"]
        assert task["resultType"] == "task" and isinstance(task["ttlMs"], int)
        asks = await reaches(c, task, "input_required")
        (key,) = asks["inputRequests"]
        assert asks["inputRequests"][key]["method"] == "elicitation/create"
        for responses in ({"other": {}}, {key: {"action": "decline"}}, {key: {"action": "accept"}}):
            ack = await ask(c, "tasks/update", taskId=task["taskId"], inputResponses=responses)
            assert ack["result"]["resultType"] == "complete"
        done = await reaches(c, task, "completed")
        assert done["result"]["structuredContent"]["answers"] == {"form": {"result": {"action": "decline"}}}


async def test_task_fails_is_cancelled_and_unknown() -> None:
    async with StdioClient(argv("--tasks-extension", era="modern")) as c:
        failed = await reaches(c, (await start(c, "task_fails", nonce="f"))["result"], "failed")
        assert failed["error"] == {"code": 4242, "message": "it failed", "data": {"nonce": "f"}}
        never = (await start(c, "task_never"))["result"]
        assert "error" not in await ask(c, "tasks/cancel", taskId=never["taskId"])
        await reaches(c, never, "cancelled")
        assert (await ask(c, "tasks/get", taskId="nobody"))["error"]["code"] == -32602
