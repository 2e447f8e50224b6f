"""Workers that register, are replaced and go; calls of virtual tools: what workers get and post, and clients get."""

import json

import anyio
import msgspec
import pytest

from mcp_hub.errors import (
    Busy,
    HubRestarted,
    InvalidParams,
    Rejected,
    RpcError,
    UnknownEntry,
)
from mcp_hub.events import Completed, Delta, Post, Progressed
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.executors.registry import CallOffer, _CancelOffer, _InputOffer
from mcp_hub.upstreams.executors.upstream import _Posted
from tests.unit.fakes import Channel
from tests.unit.upstreams.executor_workers import ASK, STEP, Hub, can_elicit, listed, played, refusing, tool
from tests.unit.upstreams.function_calls import request
from tests.unit.wire.raw_lines import group

pytestmark = pytest.mark.anyio


def is_lost(end: object) -> bool:
    return isinstance(end, RpcError) and end.symbol == "executor_lost"


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
            hub.upstream.workers.remove("p", "e")
        else:
            hub.upstream.workers.register("p", "e", [tool("t")])


@played()
async def test_a_new_epoch_loses_what_was_fetched_and_gets_what_was_not(hub: Hub) -> None:
    await hub.calls.start()
    old = await hub.fetch_one()
    await hub.post(old, 1, STEP)
    await hub.calls.start()
    assert hub.upstream.workers.register("p", "e", [tool("t")]) == 2
    lost = await hub.calls.end()
    assert isinstance(lost, RpcError) and is_lost(lost) and lost.data is not None
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
    hub.upstream.workers.remove("p", "e")
    assert hub.upstream.workers.register("p", "e", [tool("t")]) == 2
    with refusing("stale_epoch"):
        await hub.fetch(epoch=1)
    with refusing("stale_epoch"):
        await hub.post(old, 1)
    with refusing("call_ended"):
        await hub.post(old, 1, epoch=2)
    assert hub.upstream.workers.register("q", "e", [tool("u")]) == 1


@played()
async def test_calls_of_a_removed_executor_are_lost_and_those_nobody_fetched_never_ran(hub: Hub) -> None:
    await hub.calls.start()
    id_ = await hub.fetch_one()
    await hub.calls.start()
    hub.upstream.workers.remove("p", "e")
    await anyio.wait_all_tasks_blocked()
    assert [is_lost(end) for end in hub.calls.ends] == [True, True]
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
    hub.upstream.workers.register("p", "e", [tool("t")], lease=10)
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
    assert is_lost(await hub.calls.end())


@played()
async def test_a_fetched_call_without_posts_is_lost_and_the_worker_learns_it(hub: Hub) -> None:
    hub.upstream.workers.register("p", "e", [tool("t")], lease=1000)
    channel, _ = await hub.calls.start()
    hub.sweep(100)
    assert await hub.calls.all_run(), "it waits for a worker"
    id_ = await hub.fetch_one(epoch=2)
    hub.clock.time = 159
    await hub.post(id_, 1, epoch=2)
    assert (channel.sent, channel.times.signs) == ([], 1), "an empty post is a sign of life"
    hub.sweep(218)
    assert await hub.calls.all_run()
    hub.sweep(219)
    end = await hub.calls.end()
    assert isinstance(end, RpcError) and is_lost(end) and end.data and end.data["outcome"] == "unknown"
    (offer,) = await hub.fetch(epoch=2)
    assert isinstance(offer, _CancelOffer) and offer.tool_call_id == id_


@played()
async def test_the_watch_sweeps_by_itself(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.executors.upstream._SWEEP", 0)
    version = hub.changes.version
    hub.clock.time = 60
    async with group() as tasks:
        tasks.start_soon(hub.upstream.lifecycle.run)
        await hub.changes.wait(version)
    assert listed(hub) == ()


@played()
async def test_the_list_is_ordered_by_executor_and_changes_only_with_definitions(hub: Hub) -> None:
    odd = b'{ "name":"z", "inputSchema":{} }'
    version = hub.changes.version
    hub.upstream.workers.register("q", "a", [odd, tool("b")])
    assert listed(hub) == (odd, tool("b"), tool("t"))
    hub.upstream.workers.register("q", "a", [odd, tool("b")])
    hub.upstream.workers.register("q", "empty", [])
    assert hub.changes.version == version + 1
    hub.upstream.workers.register("q", "a", [odd, tool("b", title="new")])
    assert hub.changes.version == version + 2
    assert hub.upstream.status().state is UpstreamState.READY and "3" in str(hub.upstream.status().reason)
    hub.upstream.workers.register("q", "a", [tool("c")])
    assert hub.upstream.workers.register("q", "empty", [odd]) == 2, "a name that was given up is free"


@played()
async def test_a_name_that_another_executor_has_is_refused_and_nothing_changes(hub: Hub) -> None:
    before = listed(hub), hub.changes.version
    for principal, holder, whose in (("p", "e", 'executor "e"'), ("q", None, "an executor of another principal")):
        with refusing("name_taken", match=f'"t": {whose}') as caught:
            hub.upstream.workers.register(principal, "f", [tool("new"), tool("t")])
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
        hub.upstream.workers.register("p", id_, [], lease)
    assert listed(hub) == (tool("t"),)


@pytest.mark.parametrize("complete", [False, True])
@played(keeping=0)
async def test_a_post_is_answered_once_it_is_kept_and_a_repeat_of_it_too(hub: Hub, complete: bool) -> None:
    channel, _ = await hub.calls.start()
    id_ = await hub.fetch_one()
    channel.is_unkept = True
    for _ in range(2):
        with pytest.raises(Rejected, match="Post it again under the same number"):
            await hub.post(id_, 1, STEP, complete=complete)
    channel.is_unkept = False
    assert (await hub.post(id_, 1, STEP, complete=complete)).is_duplicate
    assert channel.kept_calls == [complete] * 3 and len(channel.sent) == 1


@played()
async def test_a_call_is_fetched_streams_and_ends_with_what_the_worker_posts(hub: Hub) -> None:
    channel, _ = await hub.calls.start()
    (offer,) = await hub.fetch()
    assert (offer.name, json.loads(bytes(offer.arguments)), offer.credit) == ("t", {"a": 1}, 256)
    assert await hub.fetch() == [], "each is given out once"
    id_ = offer.tool_call_id
    assert await hub.post(id_, 1, STEP) == _Posted(255)
    assert await hub.post(id_, 1, STEP) == _Posted(255, is_duplicate=True)
    await hub.post(id_, 2, content="ab")
    last = await hub.post(id_, 3, STEP, complete=True)
    assert channel.sent == [Progressed(1), Delta(b'[{"type":"text","text":"ab"}]'), Progressed(1)]
    end = await hub.calls.end()
    assert end == Completed(b'{"content":[{"type":"text","text":"ab"}],"isError":false}')
    assert last.is_duplicate is False and (await hub.post(id_, 3, complete=True)).is_duplicate
    with refusing("call_ended"):
        await hub.post(id_, 4)
    assert await hub.fetch() == []


@played()
async def test_an_error_of_the_worker_is_the_calls(hub: Hub) -> None:
    await hub.calls.start()
    await hub.post(await hub.fetch_one(), 1, complete=True, error=b'{"code":7,"message":"no"}')
    end = await hub.calls.end()
    assert isinstance(end, RpcError) and (end.code, end.message) == (7, "no")
    assert await hub.fetch() == [], "the worker knows"


@played()
async def test_a_cancelled_call_is_withdrawn_or_the_worker_learns_it(hub: Hub) -> None:
    _, first = await hub.calls.start()
    id_ = await hub.fetch_one()
    _, second = await hub.calls.start()
    first.cancel()
    second.cancel()
    await anyio.wait_all_tasks_blocked()
    assert await hub.fetch() == [_CancelOffer(id_, "The call was cancelled.")]
    with refusing("call_ended"):
        await hub.post(id_, 1, STEP)


@played()
async def test_foreign_executors_and_calls_are_unknown(hub: Hub) -> None:
    await hub.calls.start()
    up, foreign = hub.upstream.workers, Post(1, 1)
    waiting = next(iter(up._works))
    with refusing("unknown_executor_or_call"):
        await hub.post(waiting, 1)  # nobody has fetched it
    id_ = await hub.fetch_one()
    for unknown in ("tc_none", id_):
        with refusing("unknown_executor_or_call", match=unknown):
            await up.post("q", unknown, foreign)
    for principal, executor in (("q", "e"), ("p", "f")):
        with refusing("unknown_executor_or_call"):
            await up.calls(principal, executor, 1, 1)
        with refusing("unknown_executor_or_call"):
            up.remove(principal, executor)
    await hub.post(id_, 1, complete=True)
    with refusing("unknown_executor_or_call"):
        await up.post("q", id_, foreign)


@played(window=4)
async def test_readers_that_are_behind_stop_the_worker_and_the_end_needs_no_credit(hub: Hub) -> None:
    channel, _ = await hub.calls.start()
    id_ = await hub.fetch_one()
    assert await hub.post(id_, 1, STEP, STEP, STEP, STEP) == _Posted(4), "they keep up"
    channel.is_behind = True
    assert await hub.post(id_, 2, STEP, STEP, STEP) == _Posted(1)
    with refusing("no_credit"):
        await hub.post(id_, 3, STEP, STEP)
    assert len(channel.sent) == 7
    channel.is_behind = False
    assert await hub.post(id_, 3, STEP, STEP) == _Posted(2), "posted again, it is taken"
    channel.is_behind = True
    await hub.post(id_, 4, STEP, STEP)
    assert await hub.post(id_, 5, complete=True) == _Posted(0)
    assert isinstance(await hub.calls.end(), Completed)


@played()
async def test_answers_come_on_the_feed_under_the_workers_key(hub: Hub) -> None:
    hub.upstream.workers.register("p", "e", [tool("t")], lease=1000)
    channel, _ = await hub.calls.start(call=can_elicit())
    id_ = await hub.fetch_one(epoch=2)
    await hub.post(id_, 1, ASK, epoch=2)
    (question,) = channel.asked
    assert (question.method, question.params) == ("elicitation/create", b'{"message":"?"}')
    hub.sweep(500)
    assert await hub.calls.all_run(), "a worker may be silent while its question is open"
    question.answered(b'{"action":"accept"}')
    hub.sweep(500)
    assert await hub.calls.all_run(), "silence counts from the answer"
    with refusing("malformed"):
        await hub.post(id_, 2, ASK, epoch=2)
    assert await hub.fetch(epoch=2) == [_InputOffer(id_, "mine", msgspec.Raw(b'{"action":"accept"}'))]
    await hub.post(id_, 2, ASK, epoch=2)
    channel.asked[1].answered(RpcError("no"))
    (offer,) = await hub.fetch(epoch=2)
    assert offer.result is msgspec.UNSET and json.loads(bytes(offer.error))["message"] == "no"
    hub.sweep(560)
    assert is_lost(await hub.calls.end()), "and from the last post"


@played()
async def test_a_question_that_the_caller_cannot_be_asked_is_declined_at_once(hub: Hub) -> None:
    channel, _ = await hub.calls.start()
    id_ = await hub.fetch_one()
    await hub.post(id_, 1, ASK)
    (offer,) = await hub.fetch()
    assert isinstance(offer, _InputOffer) and offer.error and not channel.asked


@played(waiting=2, running=1, executors=2)
async def test_queues_are_bounded(hub: Hub) -> None:
    for _ in range(3):
        await hub.calls.start()
    assert isinstance(await hub.calls.end(), Busy)
    assert len(await hub.fetch(most=1)) == 1, "no more than asked for"
    assert await hub.fetch() == [], "no more than may run"
    with refusing("malformed"):
        await hub.fetch(most=0)
    hub.upstream.workers.register("p", "f", [])
    with refusing("busy"):
        hub.upstream.workers.register("p", "g", [])


@played(own_executors=2, own_tools=3, executors=4)
async def test_a_principal_has_no_more_than_its_part_of_executors_and_tools(hub: Hub) -> None:
    def refused(principal: str, id_: str, *tools: bytes) -> object:
        with pytest.raises(Rejected) as refusal:
            hub.upstream.workers.register(principal, id_, tools)
        assert refusal.value.code == "busy"
        return refusal.value.members["limit"]

    assert refused("p", "f", *(tool(f"p{n}") for n in range(3))) == "own_tools"
    hub.upstream.workers.register("p", "f", [tool("p0"), tool("p1")])
    assert refused("p", "g") == "own_executors"
    assert hub.upstream.workers.register("p", "f", [tool("p1")]) == 2, "it may register again"
    hub.upstream.workers.register("q", "e", [tool("q0")])
    hub.upstream.workers.register("r", "e", [])
    assert refused("s", "e") == "executors"


@played(ended=1)
async def test_only_the_latest_ended_calls_are_remembered(hub: Hub) -> None:
    done = []
    for _ in range(2):
        await hub.calls.start()
        done.append(await hub.fetch_one())
        await hub.post(done[-1], 1, complete=True)
    assert (await hub.post(done[1], 1)).is_duplicate
    with refusing("unknown_executor_or_call"):
        await hub.post(done[0], 1)


@played()
async def test_what_is_no_call_of_a_tool_is_refused(hub: Hub) -> None:
    for call, error in (
        (request("none"), UnknownEntry),
        (request(7), InvalidParams),
        (request("t", [1]), InvalidParams),
        (request("t", {}, method="prompts/get"), RpcError),
    ):
        with pytest.raises(error):
            await hub.upstream.call(call, Channel())
    with pytest.raises(HubRestarted):
        await hub.upstream.resume(request("t"), Channel(), b"{}")
    with pytest.raises(RpcError, check=lambda error: error.code == -32601):
        await hub.upstream.subscribe("x:y", request("x"))
