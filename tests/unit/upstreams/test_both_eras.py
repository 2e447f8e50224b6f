"""Servers that speak both eras: which connection a call takes, when it is made and ended, and where lists come from."""

from functools import partial

import anyio
import pytest

from mcp_hub.types import HANDSHAKE, MODERN, Era, Kind, UpstreamState
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.server_eras import ClientEra
from mcp_hub.upstreams.supervision.managed_upstream import Handover
from tests.unit.calls.virtual_time import virtual
from tests.unit.upstreams.era_toys import EraToys, following

READY = UpstreamState.READY


@virtual
async def test_each_caller_gets_a_connection_of_its_era_and_one_client_costs_one_process() -> None:
    async with following(EraToys()) as far:
        await far.until(READY)
        assert await far.call(HANDSHAKE) is HANDSHAKE
        assert far.toys.begun == [HANDSHAKE]
        assert await far.call(MODERN) is MODERN
        assert await far.call(MODERN, is_program=True) is HANDSHAKE, "programs count as handshake callers"
        assert far.toys.begun == [HANDSHAKE, MODERN]
        assert (far.status.era, far.status.second and far.status.second.era) == (HANDSHAKE, MODERN)


@virtual
async def test_a_call_before_the_first_start_is_over_waits_until_the_era_is_known() -> None:
    async with following(EraToys()) as far:
        assert await far.call(MODERN) is MODERN
        assert far.toys.begun == [HANDSHAKE, MODERN]


@pytest.mark.parametrize("spoken", list(Era))
def test_a_server_of_one_era_has_one_connection_for_all(spoken: Era) -> None:
    @virtual
    async def check() -> None:
        async with following(EraToys(eras={spoken})) as far:
            for era in (HANDSHAKE, MODERN, HANDSHAKE):
                assert await far.call(era) is spoken
            await anyio.sleep(5000)
            assert far.status.state is READY and far.toys.begun == [spoken]

    check()


@pytest.mark.parametrize("eras", [set(Era), {HANDSHAKE}])
def test_a_quick_call_takes_as_many_steps_in_either_era(eras: set[Era]) -> None:
    @virtual
    async def check() -> None:
        async with following(EraToys(eras=eras)) as far:
            steps = {}
            for era in Era:
                await far.call(era)
                far.toys.wire.is_pipe = True
                far.begin(era)
                steps[era] = far.begin(era)
            assert far.toys.called == [HANDSHAKE] * 3 + [MODERN if MODERN in eras else HANDSHAKE] * 3
            assert steps[HANDSHAKE] == steps[MODERN]

    check()


# -- which comes first


@pytest.mark.parametrize("era", list(Era))
def test_the_client_of_a_hub_over_stdio_decides_with_which_era_its_servers_start(era: Era) -> None:
    @virtual
    async def check() -> None:
        client = ClientEra(waits=True)
        async with following(EraToys(), client=client) as far:
            await anyio.sleep(0.3)
            client.meet(era)
            assert await far.call(era) is era
            assert far.toys.begun == [era]

    check()


@virtual
async def test_a_client_that_says_nothing_is_not_waited_for_and_the_era_needed_last_comes_first() -> None:
    cache = EraCache(None)
    async with following(EraToys(), cache) as far:
        assert await far.call(MODERN) is MODERN
        lists = far.state()
    async with following(EraToys(), cache, ClientEra(waits=True), lists) as far:
        await far.until(READY)
        assert far.toys.begun[0] is MODERN


# -- idle connections


@virtual
async def test_the_connection_that_was_not_needed_last_ends_after_ten_idle_minutes() -> None:
    async with following(EraToys()) as far:
        assert await far.call(MODERN) is MODERN
        await far.call(HANDSHAKE)
        await anyio.sleep(700)
        assert far.toys.running == [HANDSHAKE]
        assert await far.call(MODERN) is MODERN
        assert sorted(far.toys.running) == [HANDSHAKE, MODERN]
        await anyio.sleep(700)
        assert far.toys.running == [MODERN] and far.status.state is READY
        assert far.status.era is MODERN and far.status.second is None and not far.status.rests
        await anyio.sleep(5000)
        assert far.toys.running == [MODERN], "what callers need is kept up"


@virtual
async def test_a_rule_for_idle_servers_holds_for_both_connections() -> None:
    async with following(EraToys(), idle_stop=60.0) as far:
        await far.call(HANDSHAKE)
        assert await far.call(MODERN) is MODERN
        await anyio.sleep(80)
        assert far.toys.running == [] and far.status.rests


# -- lists


async def modern_hub_after(first: Era, cache: EraCache, toys: EraToys) -> tuple[list[bytes], Handover, list[Era]]:
    """What a hub with a modern client lists, knows at its end, and has started; an earlier one had a `first` client."""
    lists = None
    for client in (first, MODERN, MODERN):
        toys.begun.clear()
        async with following(toys, cache, ClientEra(client), lists) as far:
            await far.call(client)
            await anyio.sleep(100)
            tools, lists = far.tools, far.state()
    assert lists is not None
    return tools, lists, toys.begun


@pytest.mark.parametrize("first", list(Era))
def test_lists_are_those_of_the_first_era_whoever_comes_and_do_not_cost_another_process(first: Era) -> None:
    @virtual
    async def check() -> None:
        toys = EraToys()
        tools, _, begun = await modern_hub_after(first, EraCache(None), toys)
        assert (b"modern" in tools[0]) is (first is MODERN)
        assert begun == [MODERN], "its lists are those that are known: the handshake one need not be asked again"

    check()


@virtual
async def test_lists_are_read_again_in_their_era_when_the_other_connection_lists_something_else() -> None:
    cache, toys = EraCache(None), EraToys()
    _, lists, _ = await modern_hub_after(HANDSHAKE, cache, toys)
    toys.tools.append("y")
    toys.begun.clear()
    async with following(toys, cache, ClientEra(MODERN), lists) as far:
        assert len(far.tools) == 1, "what is known is offered at once"
        await far.until(READY)
        await anyio.sleep(10)
        assert len(far.tools) == 2 and b"modern" not in far.tools[0] and toys.begun == [MODERN, HANDSHAKE]
        toys.tools.append("z")
        toys.wire.announces(Kind.TOOL)
        await anyio.sleep(700)
        assert len(far.tools) == 3 and toys.running == [MODERN]
        lists = far.state()
    toys.begun.clear()
    async with following(toys, cache, ClientEra(MODERN), lists) as far:
        await anyio.sleep(100)
        assert len(far.tools) == 3 and toys.begun == [MODERN, HANDSHAKE]


@pytest.mark.parametrize("announced", [[], [HANDSHAKE], [HANDSHAKE, MODERN], [MODERN, HANDSHAKE]])
def test_a_hub_starts_with_one_connection_when_an_earlier_one_has_read_the_lists_over_both(
    announced: list[Era],
) -> None:
    @virtual
    async def check() -> None:
        cache, toys = EraCache(None), EraToys()
        async with following(toys, cache) as far:
            wires = {}
            for era in Era:
                await far.call(era)
                wires[era] = toys.wire
            await anyio.sleep(10)
            toys.tools += ["y"] * (len(announced) == 2)
            for era in announced:
                wires[era].announces(Kind.TOOL)
                await anyio.sleep(10)
            lists = far.state()
        toys.begun.clear()
        async with following(toys, cache, ClientEra(MODERN), lists):
            await anyio.sleep(100)
        assert toys.begun == [MODERN]

    check()


@virtual
async def test_a_change_that_only_the_other_connection_announces_is_seen_in_the_lists() -> None:
    async with following(EraToys()) as far:
        for era in Era:
            await far.call(era)
        far.toys.tools.append("y")
        assert far.toys.wire.era is MODERN
        far.toys.wire.announces(Kind.TOOL)
        await anyio.sleep(10)
        assert len(far.tools) == 2 and b"modern" not in far.tools[1]


@virtual
async def test_lists_change_their_era_only_when_the_server_stops_speaking_it() -> None:
    cache, toys = EraCache(None), EraToys()
    _, lists, _ = await modern_hub_after(HANDSHAKE, cache, toys)
    toys.eras = {MODERN}
    async with following(toys, cache, known=lists) as far:
        assert await far.call(HANDSHAKE) is MODERN
        assert b"modern" in far.tools[0] and cache.listed("toy") is MODERN


# -- questions


@pytest.mark.parametrize("listed", list(Era))
def test_sessions_take_turns_at_the_handshake_connection_of_a_server_that_asks_and_not_at_the_modern_one(
    listed: Era,
) -> None:
    @virtual
    async def check() -> None:
        cache = EraCache(None)
        cache.put_interactive("toy")
        cache.put_listed("toy", listed)
        async with following(EraToys(calls=100.0), cache, ClientEra(listed)) as far:
            await far.until(READY)
            for era in Era:
                for session in ("a", "b"):
                    far.tasks.start_soon(partial(far.call, era, session=session))
                await anyio.sleep(10)
            assert sorted(far.toys.called) == [HANDSHAKE, MODERN, MODERN]

    check()


# -- failures


@virtual
async def test_where_the_other_connection_cannot_be_had_the_listed_one_takes_the_call() -> None:
    toys = EraToys(broken={MODERN})
    async with following(toys) as far:
        await far.until(READY)
        assert await far.call(MODERN) is HANDSHAKE
        assert await far.call(MODERN) is HANDSHAKE
        await anyio.sleep(5000)
        assert far.status.state is READY and toys.running == [HANDSHAKE]
        assert far.status.second is not None and far.status.second.state is UpstreamState.FAILED


@virtual
async def test_a_hub_that_begins_with_the_other_connection_has_the_listed_one_when_that_fails() -> None:
    cache, toys = EraCache(None), EraToys()
    _, lists, _ = await modern_hub_after(HANDSHAKE, cache, toys)
    toys.broken.add(MODERN)
    async with following(toys, cache, ClientEra(MODERN), lists) as far:
        await far.until(READY)
        assert far.toys.running == [HANDSHAKE]
        assert await far.call(MODERN) is HANDSHAKE


# -- operators


@virtual
async def test_a_restart_makes_both_connections_anew_and_a_drain_ends_both() -> None:
    async with following(EraToys()) as far:
        for era in Era:
            assert await far.call(era) is era
        far.upstream.restart()
        await anyio.sleep(10)
        assert sorted(far.toys.begun) == [HANDSHAKE, HANDSHAKE, MODERN, MODERN]
        assert far.status.restarts == 2
        for era in Era:
            assert await far.call(era) is era
        await far.upstream.drain(5.0)
        assert far.toys.running == [] and far.status.state is UpstreamState.STOPPED
        assert "stopped" in str(await far.call(MODERN))


@virtual
async def test_a_restart_does_not_make_a_connection_that_nobody_needs() -> None:
    async with following(EraToys()) as far:
        await far.call(HANDSHAKE)
        far.upstream.restart()
        await anyio.sleep(10)
        assert far.toys.begun == [HANDSHAKE, HANDSHAKE]


@virtual
async def test_other_limits_and_the_log_level_reach_both_connections() -> None:
    async with following(EraToys()) as far, following(EraToys(), idle_stop=60.0) as twin:
        for era in Era:
            await far.call(era)
        far.upstream.set_log_level("debug")
        await anyio.sleep(1)
        assert far.toys.levels == ["debug"], "the modern era asks with each call"
        far.upstream.use(twin.upstream)
        await anyio.sleep(80)
        assert far.toys.running == []


@virtual
async def test_the_other_connection_is_checked_by_the_lists_that_are_approved() -> None:
    seen: list[tuple[Era, Era]] = []
    async with following(EraToys()) as far:
        far.upstream._gate = lambda call, snapshot, own: seen.append((snapshot.era, own.era))
        far.upstream._other._gate = far.upstream._check_listed
        for era in Era:
            await far.call(era)
    assert sorted(seen) == [(HANDSHAKE, HANDSHAKE), (HANDSHAKE, MODERN)], "and by its own"
