"""A cancel that was acknowledged holds whatever becomes of the hub; calls that another hub could go on with, only."""

import asyncio

import anyio
import msgspec
import pytest

from mcp_hub.call import Call, CallChannel, StreamInfo
from mcp_hub.calls.gates import steps
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.starter import _Continuation
from mcp_hub.errors import HubRestarted, RpcError
from mcp_hub.events import Cancelled, Completed, Failed, Progressed, Started
from mcp_hub.sessions.clients import ClientsSeen
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.types import ClientKind, Era, RawJson
from tests.unit.calls.call_scripts import DONE, LONG, new_call
from tests.unit.calls.durable_hub import HOW, DurableHub, Pair, settle
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual


class Far:
    """A server whose task goes on until it is cancelled; it `has_ended` if it answers that it was, at once."""

    name = "far"

    def __init__(self, *, has_ended: bool = False, state: msgspec.Raw = HOW) -> None:
        self.has_ended = has_ended
        self.state = state
        self.resumed: list[bytes] = []
        self.cancelled_after: float | None = None

    def begin(self, call: Call, channel: CallChannel) -> None:
        """Never in place."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """The hub is killed before the server has heard of the cancellation."""
        channel.continuable(self.state)
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            await asyncio.sleep(3)
            raise
        raise AssertionError

    async def resume(self, call: Call, channel: CallChannel, how: RawJson) -> Completed:
        self.resumed.append(bytes(how))
        began = LoopClock().now()
        if self.has_ended:
            raise RpcError("the task was cancelled")
        try:
            await sleep(5)
        except asyncio.CancelledError:
            self.cancelled_after = LoopClock().now() - began
            raise
        return DONE


@pytest.mark.parametrize(
    "changes", [{"principal": "q"}, {"server": "other"}, {"method": "prompts/get"}, {"id": "st_x"}]
)
def test_continuation_of_another_call_is_refused(changes: dict[str, str]) -> None:
    call = msgspec.structs.replace(new_call("p"), people=None)
    text = msgspec.json.encode({"call": call, "how": {}})
    row = StreamInfo(call.id, "p", "in_1", call.upstream, call.method, "x", 1.0, 1.0, continuation=text)
    assert _Continuation.of(row).call.id == call.id
    with pytest.raises(ValueError, match="another call"):
        _Continuation.of(msgspec.structs.replace(row, **changes))


def goes_on(hub: DurableHub, far: Far | None, row: StreamInfo) -> CallRecord:
    left = _Continuation.of(row)
    record = left.started(far, hub.registry, LONG, left.plan(row))
    hub.streams.take_up(record, row)
    return record


async def left_to(pair: Pair, far: Far, *, cancel: str | None, is_configured: bool = True) -> str:
    """A call whose hub dies as soon as its cancellation was acknowledged; its id. The other hub goes on with it."""

    async def go_on(row: StreamInfo, progressed: object) -> None:
        goes_on(pair.two, far if is_configured else None, row)

    pair.two.go_on = go_on
    record = pair.one.registry.start(new_call("p"), far.call, LONG)
    await sleep(2)
    if cancel is not None:
        await pair.one.streams.cancel("p", record.call.id, cancel)
    assert pair.status(record.call.id) == "working"
    await pair.one.dies()
    record.task and record.task.cancel()
    await settle(lambda: pair.status(record.call.id) != "working")
    return record.call.id


@pytest.mark.parametrize("has_ended", [False, True])
@virtual
async def test_a_cancelled_call_is_cancelled_by_the_hub_that_continues_it(has_ended: bool) -> None:
    pair, far = Pair(takes_up=True, delay=0.3), Far(has_ended=has_ended)
    id_ = await left_to(pair, far, cancel="enough")
    assert pair.events(id_) == [Started(), Cancelled("enough")]
    assert far.resumed == [bytes(HOW)]
    assert has_ended or far.cancelled_after == pytest.approx(1), "its server is told once it is there"


@pytest.mark.parametrize(("state", "is_configured"), [(HOW, False), (msgspec.Raw(steps._WAITS + b"1}"), True)])
@virtual
async def test_cancelled_call_that_cannot_be_continued_or_was_not_sent_ends_as_cancelled(
    state: msgspec.Raw, is_configured: bool
) -> None:
    pair, far = Pair(takes_up=True, delay=0.3), Far(state=state)
    id_ = await left_to(pair, far, cancel="enough", is_configured=is_configured)
    assert pair.events(id_) == [Started(), Cancelled("enough")] and not far.resumed


@virtual
async def test_one_that_was_not_ends_as_its_server_says() -> None:
    pair = Pair(takes_up=True, delay=0.3)
    assert pair.events(await left_to(pair, Far(), cancel=None))[-1] == DONE
    pair = Pair(takes_up=True, delay=0.3)
    *_, ending = pair.events(await left_to(pair, Far(has_ended=True), cancel=None))
    assert isinstance(ending, Failed) and ending.error.message == "the task was cancelled"


@virtual
async def test_a_hub_that_dies_as_well_leaves_it_cancelled() -> None:
    pair, far = Pair(takes_up=True, delay=0.3), Far()
    rows = []

    async def goes_down(row: StreamInfo, progressed: object) -> None:
        rows.append(row)
        goes_on(pair.two, far, row).continuable(msgspec.Raw(b'{"task":"t1","seen":1}'))

    pair.two.go_on = goes_down
    session = Session("s", LOCAL, Era.HANDSHAKE, "2025-11-25", client_info={"name": "Editor"})
    ClientsSeen(lambda session: ClientKind(), lambda: 0.0, lambda: 0.0)(session)
    client = session.offer.client
    record = pair.one.registry.start(msgspec.structs.replace(new_call("p"), client=client), far.call, LONG)
    await sleep(2)
    await pair.one.streams.cancel("p", record.call.id, "enough")
    await pair.one.dies()
    await settle(lambda: bool(rows))
    await sleep(0.8)
    await pair.two.dies()
    third, taken = pair.beside(), []

    async def takes(row: StreamInfo, progressed: object) -> None:
        taken.append(_Continuation.of(row))
        raise HubRestarted("seen enough")

    third.go_on = takes
    await settle(lambda: bool(taken))
    assert [(bytes(left.state), left.revoked) for left in taken] == [(b'{"task":"t1","seen":1}', "enough")]
    assert taken[0].call.client_name == "Editor"


@virtual
async def test_a_follower_at_another_hub_that_keeps_up_misses_no_step() -> None:
    pair = Pair()
    alone, followed = pair.one.call(), pair.one.call()
    await sleep(1)
    follower = await pair.two.follow(followed.id)
    await sleep(1)
    for step in range(1, 301):
        for call in (alone, followed):
            call.says(Progressed(step))
        await sleep(0.01)
    followed.ends()
    await settle(lambda: follower.at_end)
    steps = [event.progress for event in follower.events if isinstance(event, Progressed)]
    assert steps == list(range(1, 301))
    assert len(pair.events(alone.id)) < 100, "nobody waits for each of these"
