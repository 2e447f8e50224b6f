"""A call that is cancelled has its task cancelled at the server, unless another hub goes on with the call."""

import anyio
import pytest

from mcp_hub.types import Era, RawJson, RawObject
from mcp_hub.upstreams.followed import Followed, Known, Line
from tests.unit.calls.call_scripts import new_call
from tests.unit.upstreams.virtual_workers import Channel

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Kept(Channel):
    """A call's channel: `is_left` once its hub has stopped it for another one to go on with."""

    is_left = False

    def continuable(self, how: RawJson | None) -> None:
        assert how is not None


class Endless(Followed):
    async def _follow(self, line: Line) -> RawJson:
        await anyio.sleep_forever()
        raise AssertionError


@pytest.mark.parametrize("is_left", [True, False])
async def test_the_task_of_a_call_that_is_left_is_not_cancelled(is_left: bool) -> None:
    asked: list[str] = []

    async def ask(method: str, params: RawObject) -> RawJson:
        asked.append(method)
        return b"{}"

    channel = Kept()
    channel.is_left = is_left
    task = Endless(new_call(), channel, Known(Era.MODERN, "t1"))
    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(task.follow, Line(ask, lambda: True, True, lambda: False))
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
    assert asked == ([] if is_left else ["tasks/cancel"])
