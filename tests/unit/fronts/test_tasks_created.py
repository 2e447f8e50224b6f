"""Which calls of modern clients become tasks, when, and whose they are until then and from then on."""

import pytest

from mcp_hub.calls.plan import CallRules
from mcp_hub.events import Log
from mcp_hub.protocol.shape.stream_events import timestamp
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.fronts import task_hub
from tests.unit.fronts.task_hub import AFTER, TaskHub, on_each_front, over_the_pipe, text


@on_each_front
async def test_a_call_that_takes_long_is_answered_with_a_task(hub: TaskHub) -> None:
    sent = await hub.call("slow")
    await sleep(AFTER - 0.5)
    assert not sent.is_answered
    await sleep(1)
    row = hub.streams.owned(hub.running.call.id).stream.row  # type: ignore[union-attr]
    assert sent.result == {
        "resultType": "task",
        "taskId": hub.running.call.id,
        "status": "working",
        "createdAt": timestamp(row.created),
        "lastUpdatedAt": timestamp(row.updated),
        "ttlMs": sent.result["ttlMs"],
        "pollIntervalMs": 1000,
    }
    assert sent.result["ttlMs"] >= 86_400_000


@pytest.mark.parametrize("tool", ["slow", "always"])
@on_each_front
async def test_no_client_that_did_not_say_so_gets_a_task(hub: TaskHub, tool: str) -> None:
    sent = await hub.call(tool, capabilities={"elicitation": {}})
    await sleep(AFTER * 3)
    assert not sent.is_answered
    await hub.running.ends()
    assert sent.result["resultType"] == "complete"
    assert not hub.running.call.wants_progress


@on_each_front
async def test_a_tool_of_tasks_only_is_not_called_for_a_client_that_takes_none(hub: TaskHub) -> None:
    sent = await hub.call("required", capabilities={})
    assert sent.error["code"] == -32021
    assert sent.error["data"] == {"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
    assert sent.status in (None, 400)
    assert hub.server.calls == []
    for tool in ("required", "always"):
        assert (await hub.call(tool)).result["resultType"] == "task", "at once"


@on_each_front
async def test_progress_comes_before_the_task_and_stops_with_it(hub: TaskHub) -> None:
    sent = await hub.call("slow", token="t")
    await hub.running.says(1, "one")
    await sleep(AFTER)
    await hub.running.says(2, "two")
    await hub.running.happens(Log("error", b'{"level":"error","data":"x"}'))
    await hub.running.ends()
    assert sent.methods == ["notifications/progress", "answer"]


@on_each_front
async def test_the_upstream_is_asked_for_progress_although_the_client_gave_no_token(hub: TaskHub) -> None:
    id_ = await hub.task()
    assert hub.running.call.wants_progress
    await hub.running.says(1, "half way")
    assert (await hub.get(id_))["statusMessage"] == "half way"


@on_each_front
async def test_a_client_that_gives_up_before_the_task_cancels_the_call(hub: TaskHub) -> None:
    for tool, wait in (("slow", 0.0), ("slow", AFTER - 1), ("never", AFTER + 1)):
        sent = await hub.call(tool)
        await sleep(wait)
        assert not hub.running.is_cancelled
        sent.leave()
        await sleep(0.5)
        assert (hub.running.is_cancelled, sent.is_answered) == (True, False)


@on_each_front
async def test_a_client_that_goes_away_after_the_task_leaves_it_alone(hub: TaskHub) -> None:
    sent = await hub.call("always")
    id_ = sent.result["taskId"]
    sent.leave()
    await sleep(60)
    assert not hub.running.is_cancelled
    await hub.running.ends(text("kept"))
    assert (await hub.get(id_))["result"]["content"][0]["text"] == "kept"


@virtual
async def test_a_client_that_is_gone_before_it_gets_the_task_cancels_it() -> None:
    """Nobody watches the connection of a request that is answered at once."""

    async def served(hub: TaskHub) -> None:
        sending = hub.call("always")
        post, hub._post = hub._post, lambda *given: (left := post(*given), left.leave())[0]  # type: ignore[method-assign]
        sent = await sending
        assert sent.messages == []
        await sleep(1)
        assert hub.running.is_cancelled

    await TaskHub("http").serve(served)


@on_each_front
async def test_a_call_stays_ordinary_when_too_many_go_on_without_a_client(hub: TaskHub) -> None:
    for _ in range(3):
        await hub.task("always")
    sent = await hub.call("always")
    await sleep(AFTER * 2)
    assert not sent.is_answered
    await hub.running.ends()
    assert sent.result["resultType"] == "complete"
    await hub.server.calls[0].ends()
    assert (await hub.call("always")).result["resultType"] == "task"


@pytest.mark.slow
@over_the_pipe
async def test_a_task_that_nobody_asks_after_ends_in_an_hour_and_one_that_is_polled_does_not(hub: TaskHub) -> None:
    polled, forgotten = await hub.task(), await hub.task()
    first, second = hub.server.calls
    for _ in range(4):
        await sleep(1000)
        assert (await hub.get(polled))["status"] == "working"
    assert second.is_cancelled and not first.is_cancelled
    assert await hub.get(forgotten) == {**await hub.get(forgotten), "status": "cancelled"}


@pytest.mark.slow
@on_each_front
async def test_a_task_outlives_its_request_even_where_others_end_with_their_client(hub: TaskHub) -> None:
    task_hub.RULES["slow"] = CallRules(orphan="cancel")
    try:
        await hub.task()
    finally:
        del task_hub.RULES["slow"]
    await sleep(600)
    assert not hub.running.is_cancelled
