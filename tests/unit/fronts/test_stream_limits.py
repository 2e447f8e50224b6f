"""How long calls outlive their connections, and what that is to request ids."""

from typing import Any, cast

import pytest

from mcp_hub.calls.plan import CallRules, TimeLimits
from mcp_hub.calls.runner import QUIET
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.fronts.http_peer import Connection, MadeCall, World, values

READS, OTHERS = 30, 600
"""Seconds without a client (streams.md §3)."""

# -- how long


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "seconds"), [("reads", READS), ("runs", OTHERS)])
@virtual
async def test_a_call_continues_for_a_while_without_a_client(tool: str, seconds: float) -> None:
    call = MadeCall(World(), tool=tool)
    await call.progresses(1)
    await call.drops()
    await sleep(seconds - 2)
    resumed = await call.comes_back(2)
    await sleep(seconds * 3)
    assert call.world.cancelled == []
    resumed.leave()
    await sleep(seconds - 2)
    assert call.world.cancelled == []
    await sleep(8)
    assert call.world.cancelled == [call.record]


@pytest.mark.slow
@pytest.mark.parametrize(("policy", "is_cancelled"), [("cancel", True), ("finish", False), (5.0, True), (9e5, False)])
@virtual
async def test_what_is_configured_for_the_tool_comes_first(policy: str | float, is_cancelled: bool) -> None:
    call = MadeCall(World(rules=CallRules(orphan=policy)))  # type: ignore[arg-type]
    await call.progresses(1)
    await call.drops()
    assert bool(call.world.cancelled) == (policy == "cancel")
    await sleep(OTHERS * 2)
    assert bool(call.world.cancelled) == is_cancelled


@pytest.mark.slow
@pytest.mark.parametrize(("takes_sse", "is_cut"), [(True, False), (False, False), (True, True)])
@virtual
async def test_call_whose_client_left_before_its_stream_continues_as_long(takes_sse: bool, is_cut: bool) -> None:
    call = MadeCall(World(), takes_sse=takes_sse)
    if is_cut:
        await sleep(0.01)
        call.post.task.cancel()
    else:
        await call.drops()
    await sleep(OTHERS - 2)
    assert call.world.cancelled == [] and call.client.has_open(1)
    await sleep(8)
    assert call.world.cancelled == [call.record] and call.client.requests == {}


@virtual
async def test_a_call_that_has_only_just_begun_is_cancelled_by_its_id() -> None:
    call = MadeCall(World())
    await sleep(0)
    await call.world.resumption.cancel(call.client, 1, "enough")
    assert call.world.cancelled == [call.record]
    await sleep(5)
    assert call.post.is_complete and call.client.requests == {}


@virtual
async def test_a_stream_stays_after_its_end() -> None:
    world = World()
    client = world.client()
    call, away = MadeCall(world, client, 1), MadeCall(world, client, 2)
    await call.progresses(1)
    await away.progresses(1)
    await away.drops()
    await call.ends()
    await away.ends()
    await sleep(3600)
    for _ in range(2):
        assert values(await call.comes_back(0)) == values(await away.comes_back(0)) == [1, "answer"]
    assert client.requests == {} and world.resumption._streams == {}, "the store has it, and nobody else"


@virtual
async def test_a_session_that_made_room_and_is_back_takes_its_streams_over() -> None:
    world = World()
    before, after = world.client(), world.client()
    call = MadeCall(world, before)
    await call.progresses(1)
    world.resumption.close(before)
    resumed = await world.get(after, call.place(2))
    assert call.post.is_complete
    await call.progresses(2)
    assert after.has_open(1)
    await call.ends()
    assert values(call.post) == [1] and values(resumed) == [2, "answer"]


# -- polling


async def closed_within(connection: Connection, low: float, high: float) -> bool:
    """Whether it is closed after so many seconds, not before."""
    await sleep(low)
    early = connection.is_complete
    await sleep(high - low)
    return connection.is_complete and not early


@virtual
async def test_a_client_that_was_primed_is_made_to_poll() -> None:
    call = MadeCall(World(close_after=30))
    await sleep(20)
    await call.progresses(1)
    assert call.post.ids == [0, 2]
    assert await closed_within(call.post, 10, 18), "the time counts from when it became a stream"
    resumed = await call.comes_back(2)
    assert await closed_within(resumed, 28, 33) and resumed.ids == [2]
    await call.ends()
    assert values(await call.comes_back(2)) == ["answer"] and call.world.cancelled == []


@pytest.mark.parametrize(("version", "close_after"), [("2025-06-18", 30), ("2025-11-25", None)])
@virtual
async def test_others_are_not(version: str, close_after: float | None) -> None:
    world = World(close_after)
    call = MadeCall(world, world.client(version))
    await call.progresses(1)
    await sleep(300)
    assert not call.post.is_complete


@virtual
async def test_a_call_that_is_silent_from_the_start_can_be_come_back_to_soon() -> None:
    call = MadeCall(World(close_after=10))
    await sleep(QUIET - 0.01)
    assert (call.post.status, call.world.window.log.writes) == (0, 0)
    await sleep(0.02)
    assert call.post.status == 200 and call.post.ids == [0] and not call.post.is_complete
    assert call.post.body.startswith(b"id: ")
    assert await closed_within(call.post, 6, 15) and call.post.ids == [0]
    resumed = await call.comes_back(0)
    await call.ends()
    assert values(resumed) == ["answer"]


@virtual
async def test_who_is_made_to_poll_has_time_to_come_back_whatever_the_rule_for_orphans() -> None:
    call = MadeCall(World(close_after=30, rules=CallRules(orphan="cancel")))
    await call.progresses(1)
    assert await closed_within(call.post, 28, 33)
    await sleep(20)
    assert call.world.cancelled == []
    resumed = await call.comes_back(2)
    assert await closed_within(resumed, 28, 33) and call.world.cancelled == []
    await sleep(40)
    assert call.world.cancelled == [call.record]


# -- request ids


@virtual
async def test_the_id_of_a_request_is_taken_until_its_call_has_ended() -> None:
    world = World()
    client = world.client()
    call = MadeCall(world, client, 7)
    await call.progresses(1)
    await call.drops()
    assert client.has_open(7)
    await call.ends()
    assert not client.has_open(7)
    again = MadeCall(world, client, 7)
    await sleep(5)
    assert client.has_open(7), "the end of the older one does not free the id of the newer"
    await again.ends()
    assert client.requests == {}


# -- while the store that replicas share is away


class HeldWorld(World):
    """Its appends wait until `let_go`."""

    def __init__(self) -> None:
        super().__init__()
        self.store.replicas = cast(Any, object())
        self.held: list[Any] = []
        self.is_alone = False
        self.window.log.survives = lambda stream: not self.is_alone  # type: ignore[attr-defined]

    def hold(self) -> None:
        self.window.log.append = lambda *write: self.held.append(write)  # type: ignore[method-assign]

    def let_go(self) -> None:
        del self.window.log.append
        for write in self.held:
            self.window.log.append(*write)


def has_ended(response: Connection) -> bool:
    return response.is_complete


def held_call(world: HeldWorld, **how: Any) -> MadeCall:
    call = MadeCall(world, **how)
    call.record.times.limits = TimeLimits(30, 30)
    return call


@pytest.mark.parametrize("is_resumed", [True, False])
@virtual
async def test_a_response_ends_without_an_answer_and_its_client_comes_back_to_it(is_resumed: bool) -> None:
    call = held_call(world := HeldWorld())
    await call.progresses(1)
    seen = call.post
    if is_resumed:
        await call.drops()
        seen = await call.comes_back(2)
    world.hold()
    await call.progresses(2)
    await call.ends()
    await sleep(28)
    assert not has_ended(seen) and b": keep-alive" in seen.body
    await sleep(4)
    assert has_ended(seen) and "answer" not in values(seen)
    assert (await call.comes_back(2)).status == 503
    world.let_go()
    await sleep(1)
    assert values(await call.comes_back(2)) == [2, "answer"]


@virtual
async def test_a_client_without_a_place_is_told_that_the_outcome_is_unknown() -> None:
    world = HeldWorld()
    created: list[Any] = []
    world.window.log.create = lambda *write: created.append(write)  # type: ignore[method-assign]
    call = held_call(world)
    await call.progresses(1)
    await call.ends()
    await sleep(28)
    assert not has_ended(call.post)
    await sleep(8)
    [answer] = call.post.messages
    assert (answer["error"]["data"]["code"], answer["error"]["data"]["outcome"]) == ("store_unavailable", "unknown")


@virtual
async def test_a_stream_that_other_replicas_cannot_find_gives_no_place_to_come_back_to() -> None:
    world = HeldWorld()
    world.is_alone = True
    call = held_call(world)
    await call.progresses(1)
    assert values(call.post) == [1] and call.post.ids == []
    world.is_alone = False
    await call.progresses(2)
    assert values(call.post) == [1, 2] and call.post.ids == [0, 3]
    await call.ends()
    assert call.post.messages[-1]["result"]["_meta"]


@virtual
async def test_the_result_of_a_stream_that_other_replicas_cannot_find_names_none() -> None:
    world = HeldWorld()
    world.is_alone = True
    call = held_call(world)
    await call.progresses(1)
    await call.ends()
    assert values(call.post) == [1, "answer"] and "_meta" not in call.post.messages[-1]["result"]
