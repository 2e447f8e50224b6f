"""`notifications/tasks` on `subscriptions/listen`: whole tasks, of the client's own, and nothing else."""

from typing import Any

import msgspec

from mcp_hub.call import Question
from mcp_hub.events import Log, Progressed
from mcp_hub.fronts.mcp.subscriptions import MOST_TASKS
from mcp_hub.ids import new_call_id
from tests.unit.calls.virtual_time import sleep
from tests.unit.fronts.task_hub import Sent, TaskHub, on_each_front, text

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


async def listen(hub: TaskHub, *ids: str, **more: Any) -> Sent:
    sent = await hub.send("subscriptions/listen", {"notifications": {"taskIds": list(ids), **more}})
    await sleep(0.5)
    return sent


def notices(sent: Sent) -> list[Any]:
    return [message["params"] for message in sent.messages if message["method"] == "notifications/tasks"]


def statuses(sent: Sent) -> list[tuple[str, str | None]]:
    return [(each["status"], each.get("statusMessage")) for each in notices(sent)]


@on_each_front
async def test_a_task_is_announced_from_its_first_state_to_its_end(hub: TaskHub) -> None:
    id_ = await hub.task()
    sent = await listen(hub, id_)
    assert sent.messages[0]["params"]["notifications"] == {"taskIds": [id_]}
    await hub.running.says(1, "half")
    await hub.running.asks()
    await sleep(0.5)
    (key,) = notices(sent)[-1]["inputRequests"]
    await hub.send("tasks/update", {"taskId": id_, "inputResponses": {key: {"action": "accept"}}})
    await sleep(0.5)
    await hub.running.ends(text("done"))
    await sleep(0.5)
    half = [("working", "half"), ("input_required", "half"), ("working", "half")]
    assert statuses(sent) == [("working", None), *half, ("completed", None)]
    task = await hub.get(id_)
    (stamp,) = {each["_meta"][SUBSCRIPTION] for each in notices(sent)}
    expected = {**task, "_meta": {SUBSCRIPTION: stamp}, "ttlMs": notices(sent)[-1]["ttlMs"]}
    assert {**notices(sent)[-1], "resultType": "complete"} == expected


@on_each_front
async def test_only_the_clients_own_tasks_are_honoured(hub: TaskHub) -> None:
    mine, foreign = await hub.task("always"), (await hub.call("always", principal="you")).result["taskId"]
    sent = await listen(hub, foreign, new_call_id(), mine, mine)
    assert sent.messages[0]["params"]["notifications"] == {"taskIds": [mine]}
    assert len((await hub.streams.open("me", mine)).readers) == 1
    await hub.running.ends()
    await sleep(0.5)
    assert {each["taskId"] for each in notices(sent)} == {mine}


@on_each_front
async def test_no_client_that_takes_no_tasks_may_listen_to_one(hub: TaskHub) -> None:
    sent = await hub.send("subscriptions/listen", {"notifications": {"taskIds": ["x"]}}, capabilities={})
    assert sent.error["code"] == -32021 and sent.status in (None, 400)
    wanted = {"notifications": {"toolsListChanged": True}}
    assert (await hub.send("subscriptions/listen", wanted, capabilities={})).methods == [
        "notifications/subscriptions/acknowledged"
    ]


@on_each_front
async def test_neither_progress_nor_log_messages_come_this_way(hub: TaskHub) -> None:
    id_ = await hub.task(token="t")
    sent = await listen(hub, id_)
    await hub.running.happens(Log("error", b'{"level":"error","data":"x"}'))
    await hub.running.says(1, "half")
    await sleep(0.5)
    assert set(sent.methods) == {"notifications/subscriptions/acknowledged", "notifications/tasks"}


@on_each_front
async def test_of_changes_in_a_row_the_last_is_sent(hub: TaskHub) -> None:
    id_ = await hub.task()
    sent = await listen(hub, id_)
    for number in range(1, 200):
        hub.running.channel.send(Progressed(number, None, {"message": msgspec.Raw(b'"%d"' % number)}))
    await sleep(1)
    for _ in range(50):
        await sleep(0.005)
        key = hub.running.channel.ask(Question("elicitation/create", b"{}", hub.running.answers.append))
        await sleep(0.005)
        hub.running.channel.questions.withdraw(key)
    await sleep(1)
    assert statuses(sent)[-1] == ("working", "199")
    assert len(statuses(sent)) < 20
    (reader,) = (await hub.streams.open("me", id_)).readers
    assert reader.cursor > 100, "nothing piles up for who only wants to know the last"


@on_each_front
async def test_a_task_that_was_listened_to_has_its_time_again_afterwards(hub: TaskHub) -> None:
    id_ = await hub.task("kept")
    sent = await listen(hub, id_)
    await sleep(200)
    assert not hub.running.is_cancelled, "somebody listens"
    sent.leave()
    await sleep(50)
    assert not hub.running.is_cancelled
    await sleep(20)
    assert hub.running.is_cancelled


@on_each_front
async def test_a_stream_of_too_many_tasks_is_refused(hub: TaskHub) -> None:
    sent = await listen(hub, *(f"st_{number}" for number in range(MOST_TASKS + 1)))
    assert "taskIds" in sent.error["message"]
