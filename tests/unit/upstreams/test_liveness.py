"""Servers that let a call run out of time: one that hangs is started anew, one that lives is left alone."""

from collections.abc import Callable

import anyio
import pytest

from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.peer.peer import Peer
from tests.unit.calls.virtual_time import virtual
from tests.unit.upstreams.function_calls import Recorder, request
from tests.unit.upstreams.toy_servers import Kept, envelope, up

READY, BACKING_OFF = UpstreamState.READY, UpstreamState.BACKING_OFF


async def give_up(far: Kept, *, is_overdue: bool = True) -> None:
    """A call that is not answered in 10 seconds."""
    with anyio.move_on_after(10) as limit:
        await far.supervisor.call(request("x"), Recorder(is_overdue=is_overdue))
    assert limit.cancelled_caught


@virtual
async def test_a_server_that_says_nothing_any_more_is_started_anew_and_serves_again() -> None:
    async with up(request_timeout=60.0) as far:
        far.toys.frozen = True
        await give_up(far)
        await anyio.sleep(59)
        assert (far.state, far.toys.starts) == (READY, 1)
        far.start_call()
        await far.until(BACKING_OFF)
        assert 70.5 <= far.now < 71
        assert (far.status.reason or "").startswith("it hangs: after a call timed out it was silent for 60 s")
        far.toys.frozen = False
        await far.until(READY)
        assert far.toys.starts == 2
        (lost,) = far.outcomes
        assert "lost its connection: it hangs" in lost[1], "its other calls do not wait any longer either"
        assert await far.call() == "ok"


@pytest.mark.parametrize("method", ["ping", "tools/list"])
@virtual
async def test_a_server_that_answers_anything_at_all_lives(method: str) -> None:
    async with up(request_timeout=60.0) as far:
        far.toys.slow = {"ping": 1e6, "tools/list": 1e6, "tools/call": 1e6, method: 50.0}
        await give_up(far)
        await anyio.sleep(1000)
        assert (far.state, far.toys.starts) == (READY, 1)


SIGNS: dict[str, Callable[[Peer], None]] = {
    "given up by its caller": lambda peer: None,
    "notification": lambda peer: peer.on_notification(envelope(method="notifications/message")),
    "request": lambda peer: peer.on_request(envelope(method="ping", id=1)),
    "late answer": lambda peer: peer.on_late_answer(1),
}


@pytest.mark.parametrize("sign", SIGNS)
@virtual
async def test_a_server_that_says_something_of_its_own_or_whose_caller_gave_up_lives(sign: str) -> None:
    async with up(request_timeout=60.0) as far:
        far.toys.frozen = True
        await give_up(far, is_overdue=sign != "given up by its caller")
        await anyio.sleep(30)
        peer = far.supervisor.state.peer
        assert peer is not None
        SIGNS[sign](peer)
        await anyio.sleep(1000)
        assert (far.state, far.toys.starts) == (READY, 1)
