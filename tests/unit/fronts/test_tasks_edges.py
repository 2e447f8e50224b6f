"""Tasks where something is missing: another era, a client that is gone for good, a store that fails."""

import json
from collections.abc import Coroutine
from typing import Any, cast

import msgspec
import pytest

from mcp_hub.call import Call, Question
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import CallPlan, ResumePoint, TimeLimits
from mcp_hub.calls.reading.stored import fetched
from mcp_hub.calls.runner import new_record
from mcp_hub.clock import SystemClock
from mcp_hub.errors import RpcError, StoreError
from mcp_hub.events import Completed, Failed, Started
from mcp_hub.fronts.mcp.bonds import ClientBond
from mcp_hub.fronts.mcp.results import result_for
from mcp_hub.hub import HubPort
from mcp_hub.ids import new_call_id
from mcp_hub.protocol.meta import take_meta
from mcp_hub.protocol.shape import tasks
from mcp_hub.protocol.shape.stream_events import decoded
from mcp_hub.protocol.shape.tasks import TaskState
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.stores.base import Fetched
from mcp_hub.types import CallId, Era, RawJson
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.fakes import unused
from tests.unit.fronts.task_hub import AFTER, TASKS, TaskHub, on_each_front, over_the_pipe


@over_the_pipe
async def test_a_handshake_session_has_no_tasks_whatever_it_declares(hub: TaskHub) -> None:
    session = Session("s", LOCAL, Era.HANDSHAKE, "2025-11-25", dict(TASKS))
    for method in ("tasks/get", "tasks/update", "tasks/cancel"):
        params = {"taskId": msgspec.Raw(b'"x"')}
        reply = hub.binding.handle(session, method, params, take_meta({}))
        assert isinstance(reply, Coroutine)
        with pytest.raises(RpcError, check=lambda error: error.code == -32601):
            await reply
    for name in ("always", "required"):
        asked = {"name": msgspec.Raw(json.dumps(name).encode()), "arguments": msgspec.Raw(b"{}")}
        assert hub.port.call(session, "tools/call", asked, take_meta({})).early is None


@pytest.mark.parametrize("ends_hub", [True, False])
@virtual
async def test_with_its_pipe_the_hub_ends_and_that_is_what_becomes_of_a_call(ends_hub: bool) -> None:
    """Where the hub outlives the connection, its calls end with that; a task is no connection's."""

    async def leaves(hub: TaskHub) -> None:
        await hub.task("always")
        await hub.call("slow")
        hub.close()

    hub = TaskHub("pipe", bond=lambda port: ClientBond(ends_hub=ends_hub))
    await hub.serve(leaves)
    await sleep(1)
    assert [call.is_cancelled for call in hub.server.calls] == [False, not ends_hub]
    await hub.registry.close(1)
    await sleep(0.2)
    for running in hub.server.calls[: 2 if ends_hub else 1]:
        row = (await hub.streams.open("me", running.call.id)).row
        assert row.status == "failed"
        _, ending = decoded((await fetched(hub.streams.store.log, row.id, row.last - 1))[-1])
        assert isinstance(ending, Failed) and ending.error.code == 1005


@on_each_front
async def test_a_store_that_fails_is_an_error_of_the_request_and_not_of_the_task(hub: TaskHub) -> None:
    id_ = await hub.task()
    await hub.running.ends()
    store = hub.streams.store
    fetch = store.log.fetch

    def failing(stream: CallId, after: int, limit: int, callback: Fetched) -> None:
        callback(StoreError("disk on fire"))

    store.log.fetch = failing  # type: ignore[method-assign]
    sent = await hub.send("tasks/get", {"taskId": id_})
    assert sent.error["data"]["code"] == "store_unavailable" and "disk on fire" in sent.error["message"]
    store.log.fetch = fetch  # type: ignore[method-assign]
    assert (await hub.get(id_))["status"] == "completed"


@on_each_front
async def test_a_call_that_cannot_be_made_durable_stays_an_ordinary_one(hub: TaskHub) -> None:
    def failing(row: object, chunk: object, callback: Any) -> None:
        callback(StoreError("disk full"))

    hub.streams.store.log.create = failing  # type: ignore[method-assign]
    sent = await hub.call("always")
    await sleep(AFTER)
    assert not sent.is_answered


@virtual
async def test_questions_of_a_call_that_another_hub_began_have_keys_of_their_own() -> None:
    call = Call(new_call_id(), "git", "tools/call", {}, {}, "s", "p", Era.MODERN, {})
    earlier = new_record(call, unused, TimeLimits(9, 9), SystemClock())
    question = Question("elicitation/create", b"{}", lambda outcome: None)
    earlier.log.append(Started())
    keys = [earlier.ask(question) for _ in range(3)]
    events = len(earlier.log.reader(lambda: None).take())
    later = new_record(
        call, unused, TimeLimits(9, 9), SystemClock(), CallPlan(resumption=ResumePoint(b"{}"), events=events)
    )
    later.log.append(Started())
    assert not set(keys) & {later.ask(question) for _ in range(3)}


def test_a_task_has_all_members_that_are_required_and_whole_milliseconds() -> None:
    task = TaskState("st_1", "working", 0, 1.5, 0.0001)
    assert task.members == {
        "taskId": "st_1",
        "status": "working",
        "createdAt": "1970-01-01T00:00:00.000Z",
        "lastUpdatedAt": "1970-01-01T00:00:01.500Z",
        "ttlMs": 1,
        "pollIntervalMs": 1000,
    }
    assert json.loads(tasks.created(task)) == {"resultType": "task", **task.members}


class Exporting:
    """The part of the port that a result needs."""

    def __init__(self) -> None:
        self.pending_input = PendingInput(SystemClock(), 1, lambda record, why: None)

    def mark_state(self, call: Call, state: str) -> str:
        return self.pending_input.mark(call, state)

    def exported(self, session: Session, call: Call, result: RawJson) -> RawJson:
        return bytes(result).replace(b"file:///own", b"hub:///exported")


@pytest.mark.parametrize("era", list(Era))
def test_a_result_is_readdressed_marked_and_shaped(era: Era) -> None:
    session = Session("s", LOCAL, Era.MODERN, "2026-07-28")
    call = Call(CallId("st_1"), "git", "tools/call", {}, {}, "s", "p", Era.MODERN, {})
    members = {"content": [{"type": "resource_link", "uri": "file:///own"}]}
    result = json.dumps({"resultType": "complete", **members} if era is Era.MODERN else members).encode()
    shown = json.loads(
        b"".join(result_for(cast(HubPort, Exporting()), session, call, Completed(result, era), cursor=7))
    )
    assert shown["resultType"] == "complete"
    assert shown["content"][0]["uri"] == "hub:///exported"
    assert shown["_meta"]["dev.mcp-hub/streams"] == {"stream": "st_1", "cursor": "7", "status": "completed"}
