"""Tasks of a real server over HTTP, for one hub and for the next: questions, steps, failures, cancellation."""

import json
from pathlib import Path
from typing import Any

import pytest

from mcp_hub.types import RawJson
from mcp_hub.upstreams.peer import task_poll
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from tests.unit.upstreams.remote import supervised
from tests.unit.upstreams.task_calls import HANDSHAKE, Running, call, resumed
from tests.unit.wire.raw_lines import group
from tests.upstreams.child import HttpUpstream, until
from tests.upstreams.launch import events, received

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_poll, "_POLL", (0.01, 0.01, 0.01))


ANSWER = b'{"action":"accept","content":{"answer":"yes"}}'


async def left_behind(far: ManagedUpstream, **differs: Any) -> RawJson:
    """What the first hub, which ends now, knows of the task that it made."""
    async with group() as tasks:
        made = Running(tasks, far.call, call(**differs))
        await until(lambda: made.record.resumption is not None or made.has_ended)
        assert not made.has_ended, await made.outcome()
        far.lifecycle.leave_tasks()
        return made.how


@pytest.mark.parametrize(("era", "option"), [("modern", "--tasks-extension"), ("handshake", "--tasks-capability")])
async def test_task_of_a_real_server_is_ended_by_the_next_hub(era: str, option: str, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    caller = HANDSHAKE if era == "handshake" else {}
    async with HttpUpstream(option, era=era, journal=journal) as child:
        arguments = {"nonce": "n"}
        async with supervised(child) as first:
            how = await left_behind(first, name="task_asks", arguments=arguments, **caller)
        async with supervised(child) as second, resumed(second, how, **caller) as made:
            (key,) = await made.asked()
            made.record.questions.answer(key, ANSWER)
            answers = (await made.result())["structuredContent"]["answers"]
            assert answers == {"form": {"result": json.loads(ANSWER)}}
    assert len(received(journal, "tools/call")) == 1 and not received(journal, "tasks/cancel")


async def test_a_real_task_tells_its_steps_fails_as_it_says_and_is_cancelled_with_its_call(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with HttpUpstream("--tasks-extension", era="modern", journal=journal) as child, supervised(child) as far:
        async with group() as tasks:
            slow = Running(tasks, far.call, call("task_required", {"seconds": 0.3}, wants_progress=True))
            assert (await slow.result())["structuredContent"] == {"seconds": 0.3}
            assert {"of 10" in step["message"] for step in slow.steps} == {True}
            error = await Running(tasks, far.call, call("task_fails", {"nonce": "f"})).error()
            assert (error.code, error.message) == (4242, "it failed")
            never = Running(tasks, far.call, call("task_never", {"nonce": "n"}))
            await until(lambda: never.record.resumption)
            never.scope.cancel()
            await until(lambda: [event["nonce"] for event in events(journal, "cancelled")] == ["n"])
