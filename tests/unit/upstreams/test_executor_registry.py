"""Workers that register, are replaced, fall silent and go."""

import anyio
import pytest

from mcp_hub.errors import ExecutorLost, NotKept, RpcError, UnknownEntry
from mcp_hub.events import Completed
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.executors.registry import CallOffer, _CancelOffer
from tests.unit.upstreams.executor_workers import STEP, Hub, listed, played, refusing, tool

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("does", ["remove", "register"])
@played()
async def test_a_waiting_worker_learns_that_it_has_been_replaced_or_removed(hub: Hub, does: str) -> None:
    async def worker() -> None:
        with refusing("unknown_executor_or_call" if does == "remove" else "stale_epoch"):
            await hub.fetch(wait=60)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker)
        await anyio.wait_all_tasks_blocked()
        if does == "remove":
            hub.upstream.remove("p", "e")
        else:
            hub.upstream.register("p", "e", [tool("t")])


@played()
async def test_a_new_epoch_loses_what_was_fetched_and_gets_what_was_not(hub: Hub) -> None:
    await hub.calls.start()
    old = await hub.fetch_one()
    await hub.post(old, 1, STEP)
    await hub.calls.start()
    assert hub.upstream.register("p", "e", [tool("t")]) == 2
    lost = await hub.calls.end()
    assert isinstance(lost, ExecutorLost) and lost.data is not None
    assert lost.data["outcome"] == "unknown" and lost.data["executor"] == "e"
    with refusing("stale_epoch"):
        await hub.post(old, 2, STEP)
    for seq in (1, 2):  # the first, too: what it says now was never taken
        with refusing("call_ended"):
            await hub.post(old, seq, STEP, epoch=2)
    with refusing("stale_epoch"):
        await hub.fetch(epoch=1)
    offers = await hub.fetch(epoch=2)
    assert [type(offer) for offer in offers] == [CallOffer], "no news of the old epoch"
    await hub.post(offers[0].tool_call_id, 1, complete=True, epoch=2)
    await anyio.wait_all_tasks_blocked()
    assert isinstance(hub.calls.ends[1], Completed)


@played()
async def test_epochs_go_on_after_a_removal(hub: Hub) -> None:
    await hub.calls.start()
    old = await hub.fetch_one()
    hub.upstream.remove("p", "e")
    assert hub.upstream.register("p", "e", [tool("t")]) == 2
    with refusing("stale_epoch"):
        await hub.fetch(epoch=1)
    with refusing("stale_epoch"):
        await hub.post(old, 1)
    with refusing("call_ended"):
        await hub.post(old, 1, epoch=2)
    assert hub.upstream.register("q", "e", [tool("u")]) == 1


@played()
async def test_calls_of_a_removed_executor_are_lost_and_those_nobody_fetched_never_ran(hub: Hub) -> None:
    await hub.calls.start()
    id_ = await hub.fetch_one()
    await hub.calls.start()
    hub.upstream.remove("p", "e")
    await anyio.wait_all_tasks_blocked()
    assert [isinstance(end, ExecutorLost) for end in hub.calls.ends] == [True, True]
    outcomes = [end.data.get("outcome") for end in hub.calls.ends if isinstance(end, RpcError) and end.data]
    assert outcomes == ["unknown", None]
    with refusing("call_ended"):
        await hub.post(id_, 1)
    with refusing("unknown_executor_or_call"):
        await hub.fetch()
    assert listed(hub) == ()
    await hub.calls.start()
    assert isinstance(hub.calls.ends[2], UnknownEntry)


@played()
async def test_a_lease_is_renewed_by_every_sign_of_life_and_then_runs_out(hub: Hub) -> None:
    await hub.calls.start()
    hub.upstream.register("p", "e", [tool("t")], lease=10)
    hub.clock.time = 9
    id_ = await hub.fetch_one(epoch=2)
    hub.sweep(18)
    await hub.fetch(epoch=2)
    hub.sweep(27)
    await hub.post(id_, 1, epoch=2)
    hub.sweep(36)
    with refusing("stale_epoch"):
        await hub.post(id_, 2, epoch=1)
    assert listed(hub)
    hub.sweep(37)
    assert listed(hub) == ()
    assert isinstance(await hub.calls.end(), ExecutorLost)


@played()
async def test_a_fetched_call_without_posts_is_lost_and_the_worker_learns_it(hub: Hub) -> None:
    hub.upstream.register("p", "e", [tool("t")], lease=1000)
    channel, _ = await hub.calls.start()
    hub.sweep(100)
    assert await hub.calls.all_run(), "it waits for a worker"
    id_ = await hub.fetch_one(epoch=2)
    hub.clock.time = 159
    await hub.post(id_, 1, epoch=2)
    assert (channel.sent, channel.signs) == ([], 1), "an empty post is a sign of life"
    hub.sweep(218)
    assert await hub.calls.all_run()
    hub.sweep(219)
    end = await hub.calls.end()
    assert isinstance(end, ExecutorLost) and end.data and end.data["outcome"] == "unknown"
    (offer,) = await hub.fetch(epoch=2)
    assert isinstance(offer, _CancelOffer) and offer.tool_call_id == id_


@played()
async def test_the_watch_sweeps_by_itself(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.executors.upstream._SWEEP", 0)
    version = hub.changes.version
    hub.clock.time = 60
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hub.upstream.lifecycle.run)
        await hub.changes.wait(version)
        tasks.cancel_scope.cancel()
    assert listed(hub) == ()


@played()
async def test_the_list_is_ordered_by_executor_and_changes_only_with_definitions(hub: Hub) -> None:
    odd = b'{ "name":"z", "inputSchema":{} }'
    version = hub.changes.version
    hub.upstream.register("q", "a", [odd, tool("b")])
    assert listed(hub) == (odd, tool("b"), tool("t"))
    hub.upstream.register("q", "a", [odd, tool("b")])
    hub.upstream.register("q", "empty", [])
    assert hub.changes.version == version + 1
    hub.upstream.register("q", "a", [odd, tool("b", title="new")])
    assert hub.changes.version == version + 2
    assert hub.upstream.status().state is UpstreamState.READY and "3" in str(hub.upstream.status().reason)
    hub.upstream.register("q", "a", [tool("c")])
    assert hub.upstream.register("q", "empty", [odd]) == 2, "a name that was given up is free"


@played()
async def test_a_name_that_another_executor_has_is_refused_and_nothing_changes(hub: Hub) -> None:
    before = listed(hub), hub.changes.version
    for principal, holder, whose in (("p", "e", 'executor "e"'), ("q", None, "an executor of another principal")):
        with refusing("name_taken", match=f'"t": {whose}') as caught:
            hub.upstream.register(principal, "f", [tool("new"), tool("t")])
        assert caught.value.members.get("holder") == holder
    assert (listed(hub), hub.changes.version) == before
    with refusing("unknown_executor_or_call"):
        await hub.fetch(id_="f")


@pytest.mark.parametrize(
    ("id_", "lease"), [("", 60), ("a b", 60), ("x" * 129, 60), ("e", 4.9), ("e", 3601), ("e", float("nan"))]
)
@played()
async def test_a_registration_with_a_bad_id_or_lease_is_refused(hub: Hub, id_: str, lease: float) -> None:
    with refusing("malformed"):
        hub.upstream.register("p", id_, [], lease)
    assert listed(hub) == (tool("t"),)


@pytest.mark.parametrize("complete", [False, True])
@played(keeping=0)
async def test_a_post_is_answered_once_it_is_kept_and_a_repeat_of_it_too(hub: Hub, complete: bool) -> None:
    channel, _ = await hub.calls.start()
    id_ = await hub.fetch_one()
    channel.is_unkept = True
    for _ in range(2):
        with pytest.raises(NotKept, match="Post it again under the same number"):
            await hub.post(id_, 1, STEP, complete=complete)
    channel.is_unkept = False
    assert (await hub.post(id_, 1, STEP, complete=complete)).is_duplicate
    assert channel.kept_calls == [complete] * 3 and len(channel.sent) == 1
