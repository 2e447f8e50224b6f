"""What could go wrong between two connections of one stream, and at the edges of it."""

import pytest

from mcp_hub.call import Early
from mcp_hub.calls.plan import CallRules, StreamLimits
from mcp_hub.calls.reading import stream as stream_module
from mcp_hub.fronts.http.resume import ClientCalls
from mcp_hub.sessions.session import LOCAL
from mcp_hub.stores.base import StoreLimits
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual
from tests.unit.fronts.http_peer import LateStore, MadeCall, World, values


@virtual
async def test_a_place_that_is_found_to_be_gone_too_late_is_not_called_the_end() -> None:
    store = LateStore(StoreLimits(stream_events=16))
    call = MadeCall(World(store=store))
    for number in range(1, 30):
        await call.progresses(number)
    await call.drops()
    store.log.is_stale = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "_TAIL_EVENTS", 4)
        patch.setattr(stream_module, "_KEPT_EVENTS", 4)
        await call.progresses(31)
        await sleep(1)
        resumed = await call.comes_back(2)
        await sleep(1)
    assert (resumed.status, resumed.messages, resumed.is_complete) == (200, [], True)
    store.log.is_stale = False
    assert (await call.comes_back(2)).status == 410


@virtual
async def test_a_newer_connection_is_no_loss_of_the_older() -> None:
    call = MadeCall(World(rules=CallRules(orphan="cancel")))
    await call.progresses(1)
    resumed = await call.comes_back(2)
    await sleep(5)
    assert call.world.cancelled == [] and call.post.is_complete
    resumed.leave()
    await sleep(1)
    assert call.world.cancelled == [call.record]


@virtual
async def test_a_call_whose_newer_connection_is_refused_is_without_one() -> None:
    call = MadeCall(World(limits=StreamLimits(followers=2)))
    await call.progresses(1)
    stream = await call.world.streams.open("local", call.record.call.id)
    others = [stream.reader(lambda: None, 0, is_follower=True) for _ in range(2)]
    assert (await call.comes_back(2)).status == 503 and call.post.is_complete
    for other in others:
        other.close()
    await sleep(700)
    assert call.world.cancelled == [call.record]


@virtual
async def test_what_stands_in_for_the_result_has_no_place_and_frees_the_id_of_the_request() -> None:
    call = MadeCall(World(), early=Early(10.0, is_task=True))
    await call.progresses(1)
    await sleep(11)
    assert call.post.messages[-1]["id"] == 1 and call.post.messages[-1]["result"]["resultType"] == "task"
    assert call.post.events[-1].id is None and call.post.is_complete
    assert not call.client.has_open(1) and call.world.cancelled == []
    resumed = await call.comes_back(2)
    await call.ends()
    assert values(resumed) == ["answer"], "who comes back has not heard of it"


@virtual
async def test_of_two_that_come_while_the_store_is_slow_the_second_follows() -> None:
    call = MadeCall(World(store=LateStore()))
    await call.progresses(1, 2)
    beside = call.world.beside()
    kept = await beside.resumption.sessions.find("s", LOCAL)
    assert kept is not None
    client = ClientCalls(kept)
    first, second = await beside.get(client, call.place(2)), await beside.get(client, call.place(2))
    await sleep(1)
    assert (first.status, first.messages) == (200, []) and first.is_complete
    assert values(second) == [2] and not second.is_complete


@virtual
async def test_a_call_that_waits_for_its_turn_gives_no_place() -> None:
    """Nothing of it is in the store, so nobody could come back after the hub was killed."""
    call = MadeCall(World())
    call.record.is_short = False
    await sleep(20)
    assert (call.post.status, call.post.ids) == (200, []) and b": keep-alive" in call.post.body
    call.record.is_short = True
    call.record.look(LoopClock().now())
    await sleep(0.1)
    assert call.post.ids == [0], "its time counts from its turn"
    await call.progresses(1)
    assert call.post.ids == [0, 2]
