"""How long streams and calls outlive their connections, how many of them, and what that is to request ids."""

import pytest

from mcp_hub.fronts import resumption
from mcp_hub.fronts.resumption import KEPT_SECONDS, ORPHAN_SECONDS
from tests.unit.calls.virtual_time import run, sleep
from tests.unit.fronts.http_peer import Connection, MadeCall, World, values, virtual

# -- how long


@virtual
async def test_a_call_goes_on_for_a_while_without_a_client() -> None:
    world = World()
    call = MadeCall(world, world.client())
    await call.progresses(1)
    await call.drops()
    await sleep(ORPHAN_SECONDS - 2)
    resumed = await call.comes_back(2)
    await sleep(ORPHAN_SECONDS * 3)
    assert world.cancelled == []
    resumed.leave()
    await sleep(ORPHAN_SECONDS - 2)
    assert world.cancelled == []
    await sleep(8)
    assert world.cancelled == [call.record]


@virtual
async def test_a_call_whose_client_left_before_it_knew_of_a_stream_goes_on_as_long() -> None:
    world = World()
    client = world.client()
    call = MadeCall(world, client)
    await call.drops()
    await sleep(ORPHAN_SECONDS - 2)
    assert world.cancelled == [] and client.is_taken(1)
    assert (await call.comes_back(0)).status == 400
    await sleep(8)
    assert world.cancelled == [call.record] and client.requests == client.ended == {}


@virtual
async def test_a_stream_stays_for_a_while_after_its_end() -> None:
    world = World()
    call, away = MadeCall(world, world.client()), MadeCall(world, world.client())
    await call.progresses(1)
    await away.progresses(1)
    await away.drops()
    await call.ends()
    await away.ends()
    await sleep(KEPT_SECONDS - 2)
    assert values(await call.comes_back(0)) == values(await away.comes_back(0)) == [1, "answer"]
    await sleep(4)
    assert (await call.comes_back(0)).status == (await away.comes_back(0)).status == 400


@pytest.mark.parametrize("bound", ["of a client", "of all", "of payload"])
def test_of_too_many_ended_streams_the_oldest_goes_first(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = {"of a client": "_MOST_OF_CLIENT", "of all": "_MOST", "of payload": "_MOST_BYTES"}[bound]
    monkeypatch.setattr(resumption, name, 3 if bound != "of payload" else 3 * 1014 + 10)

    async def scenario() -> None:
        world = World()
        one, other = world.client(id_="one"), world.client(id_="other")
        calls = []
        for number in range(5):
            client = other if number == 2 and bound != "of a client" else one
            call = MadeCall(world, client, number, params=b'"%s"' % (b"x" * 998))
            await call.progresses(1)
            await call.ends()
            calls.append(call)
        assert [(await call.comes_back(0)).status for call in calls] == [400, 400, 200, 200, 200]

    run(scenario)


@virtual
async def test_one_client_does_not_push_out_another_ones_streams() -> None:
    world = World()
    quiet, busy = world.client(id_="quiet"), world.client(id_="busy")
    kept = MadeCall(world, quiet)
    for number in range(200):
        call = MadeCall(world, busy, number)
        await call.progresses(1)
        await call.ends()
        if number == 0:
            await kept.progresses(1)
            await kept.ends()
    assert (await kept.comes_back(0)).status == 200


@virtual
async def test_nobody_comes_back_for_the_streams_of_a_session_that_is_over() -> None:
    world = World()
    client = world.client()
    ended, running = MadeCall(world, client, 1), MadeCall(world, client, 2)
    await ended.progresses(1)
    await ended.ends()
    await running.progresses(1)
    world.resumption.forget(client)
    await running.ends()
    assert values(running.post) == [1, "answer"], "the response that is being sent is sent"
    assert client.ended == {} and client.requests == {}
    assert (await ended.comes_back(0)).status == (await running.comes_back(0)).status == 400


# -- polling


async def closed_within(connection: Connection, low: float, high: float) -> bool:
    """Whether it is closed after so many seconds, not before."""
    await sleep(low)
    early = connection.is_complete
    await sleep(high - low)
    return connection.is_complete and not early


@virtual
async def test_a_client_that_was_primed_is_made_to_poll() -> None:
    world = World(close_after=30)
    call = MadeCall(world, world.client())
    await sleep(20)
    await call.progresses(1)
    assert call.post.ids == [0, 2]
    assert await closed_within(call.post, 15, 28), "the time counts from when it became a stream"
    resumed = await call.comes_back(2)
    assert await closed_within(resumed, 28, 33) and resumed.ids == [2]
    await call.ends()
    assert values(await call.comes_back(2)) == ["answer"] and world.cancelled == []


@pytest.mark.parametrize(("version", "close_after"), [("2025-06-18", 30), ("2025-11-25", None)])
def test_others_are_not(version: str, close_after: float | None) -> None:
    async def scenario() -> None:
        world = World(close_after)
        call = MadeCall(world, world.client(version))
        await call.progresses(1)
        await sleep(300)
        assert not call.post.is_complete

    run(scenario)


@virtual
async def test_a_call_that_is_silent_from_the_start_is_not_closed_before_the_client_can_come_back() -> None:
    world = World(close_after=10)
    call = MadeCall(world, world.client())
    await sleep(14)
    assert call.post.status is None
    await sleep(12)
    assert call.post.is_complete and call.post.ids == [0]


# -- request ids


@virtual
async def test_the_id_of_a_request_is_taken_until_its_call_has_ended() -> None:
    world = World()
    client = world.client()
    call = MadeCall(world, client, 7)
    await call.progresses(1)
    await call.drops()
    assert client.is_taken(7)
    await call.ends()
    assert not client.is_taken(7)
    again = MadeCall(world, client, 7)
    await sleep(5)
    assert client.is_taken(7), "the end of the older one does not free the id of the newer"
    await again.ends()
    assert client.requests == {}
