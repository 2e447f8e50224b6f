"""A call that is cancelled has its task cancelled at the server, unless another hub goes on with the call."""

import anyio
import pytest

from mcp_hub.types import Era, RawJson, RawObject
from mcp_hub.upstreams.peer.task_poll import Known, TaskConnection, TaskPoll
from tests.unit.calls.call_scripts import new_call
from tests.unit.fakes import Channel

pytestmark = pytest.mark.anyio


class Kept(Channel):
    """The channel of a call that another hub could continue."""

    def continuable(self, how: RawJson | None) -> None:
        assert how is not None


class Endless(TaskPoll):
    async def _follow(self, line: TaskConnection) -> RawJson:
        await anyio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize("survives", [True, False])
async def test_the_task_of_a_call_that_is_left_is_not_cancelled(survives: bool) -> None:
    asked: list[str] = []

    async def ask(method: str, params: RawObject) -> RawJson:
        asked.append(method)
        return b"{}"

    channel = Kept()
    channel.survives = survives
    task = Endless(new_call(), channel, Known(Era.MODERN, "t1"))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(task.follow, TaskConnection(ask, lambda: True, True, lambda: False))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert asked == ([] if survives else ["tasks/cancel"])
