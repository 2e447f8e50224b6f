"""Servers that speak both eras: which connection a call takes, when it is made and ended, and what is listed there."""

from contextlib import nullcontext
from functools import partial

import anyio
import pytest
from msgspec.structs import replace

from mcp_hub.errors import RpcError
from mcp_hub.types import HANDSHAKE, MODERN, Era, Kind, UpstreamState
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.server_eras import ClientEra
from mcp_hub.upstreams.supervision.server import Handover, Repetition, SupervisorRules
from tests.unit.calls.virtual_time import virtual
from tests.unit.fakes import NotedTimes
from tests.unit.upstreams.era_toys import Caller, EraToys, following

READY = UpstreamState.READY
ABOUT = {"server": "toy", "question": "elicitation/create"}


def asking() -> EraCache:
    """It is known that the server asks its callers."""
    cache = EraCache(None)
    cache.put_interactive("toy")
    return cache


@pytest.mark.parametrize("first", list(Era))
@virtual
async def test_callers_of_both_eras_share_one_connection_in_the_era_of_the_first_one(first: Era) -> None:
    async with following(EraToys(), client=ClientEra(first)) as far:
        for era in (first, *Era):
            assert await far.call(era) is first
        assert await far.call(MODERN, is_program=True) is first
        assert far.toys.begun == [first] and far.status.second is None


@pytest.mark.parametrize("spoken", list(Era))
@virtual
async def test_a_server_of_one_era_has_one_connection_for_all(spoken: Era) -> None:
    async with following(EraToys(eras={spoken})) as far:
        for era in (HANDSHAKE, MODERN, HANDSHAKE):
            assert await far.call(era) is spoken
        await anyio.sleep(5000)
        assert far.status.state is READY and far.toys.running == [spoken]


@pytest.mark.parametrize("eras", [set(Era), {HANDSHAKE}])
@virtual
async def test_a_quick_call_takes_as_many_steps_in_either_era(eras: set[Era]) -> None:
    async with following(EraToys(eras=eras)) as far:
        steps = {}
        for era in Era:
            await far.call(era)
            far.toys.wire.is_pipe = True
            far.begin(era)
            steps[era] = far.begin(era)
        assert len(far.toys.called) == 6
        assert steps[HANDSHAKE] == steps[MODERN]


@pytest.mark.parametrize("era", list(Era))
@virtual
async def test_the_client_of_a_hub_over_stdio_decides_with_which_era_its_servers_start(era: Era) -> None:
    client = ClientEra(waits=True)
    async with following(EraToys(), client=client) as far:
        await anyio.sleep(0.3)
        client.meet(era)
        assert await far.call(era) is era
        assert far.toys.begun == [era]


@pytest.mark.parametrize("era", list(Era))
@virtual
async def test_a_connection_that_nobody_has_used_begins_anew_in_the_era_of_the_first_client(era: Era) -> None:
    client = ClientEra()
    async with following(EraToys(), client=client) as far:
        await far.until(READY)
        client.meet(era)
        await anyio.sleep(10)
        assert far.toys.running == [era] and far.status.restarts == 0
        assert far.toys.begun == ([MODERN] if era is MODERN else [MODERN, HANDSHAKE])
        assert await far.call(era) is era


@virtual
async def test_the_first_caller_decides_if_no_client_has_spoken() -> None:
    async with following(EraToys()) as far:
        await far.until(READY)
        assert await far.call(HANDSHAKE) is HANDSHAKE
        assert await far.call(MODERN) is HANDSHAKE
        assert far.toys.begun == [MODERN, HANDSHAKE]


@virtual
async def test_a_connection_that_is_in_use_keeps_its_era() -> None:
    client = ClientEra()
    async with following(EraToys(), client=client) as far:
        await far.call(MODERN)
        client.meet(HANDSHAKE)
        await anyio.sleep(10)
        assert far.toys.begun == [MODERN]


@virtual
async def test_a_client_that_says_nothing_is_not_waited_for_and_the_era_needed_last_comes_first() -> None:
    cache = EraCache(None)
    cache.need("toy", HANDSHAKE)
    async with following(EraToys(), cache, ClientEra(waits=True)) as far:
        await far.until(READY)
        assert far.toys.begun == [HANDSHAKE]


@virtual
async def test_the_next_connection_has_the_era_of_the_last_caller() -> None:
    async with following(EraToys(), client=ClientEra(HANDSHAKE)) as far:
        assert await far.call(HANDSHAKE) is HANDSHAKE
        assert await far.call(MODERN) is HANDSHAKE
        far.upstream.lifecycle.restart()
        assert await far.call(MODERN) is MODERN
        assert far.toys.begun == [HANDSHAKE, MODERN]


@pytest.mark.parametrize("last", list(Era))
@virtual
async def test_a_server_that_replaces_another_one_has_the_era_of_the_last_caller_and_begins_once(last: Era) -> None:
    toys, cache, client = EraToys(), EraCache(None), ClientEra(MODERN)
    async with following(toys, cache, client) as far:
        await far.call(MODERN)
        await far.call(last)
    async with following(toys, cache, client) as far:
        await far.until(READY)
        await anyio.sleep(10)
        assert [await far.call(era) for era in Era] == [last, last]
        assert toys.begun == [MODERN, last]


@virtual
async def test_handshake_callers_of_a_modern_server_that_asks_get_a_connection_over_which_it_can() -> None:
    toys, cache = EraToys(asks=True), EraCache(None)
    async with following(toys, cache, ClientEra(MODERN)) as far:
        assert "back-channel" in str(await far.call(MODERN))
        before = len(toys.called)
        assert await far.call(HANDSHAKE) is HANDSHAKE and len(toys.called) == before + 1
        assert toys.begun == [MODERN, HANDSHAKE] and cache.is_interactive("toy")
        second = far.status.second
        assert second is not None and (second.era, second.reason) == (HANDSHAKE, "for questions")
        assert "back-channel" in str(await far.call(MODERN)), "modern callers stay where they are"


@virtual
async def test_a_call_that_could_not_ask_begins_anew_over_the_connection_on_which_it_can() -> None:
    async with following(EraToys(asks=True), client=ClientEra(MODERN)) as far:
        await far.until(READY)
        assert far.upstream.apart(far.caller(HANDSHAKE)) is None
        far.upstream._eras.need(MODERN)
        far.upstream._last = MODERN
        assert await far.call(HANDSHAKE) is MODERN
        assert far.toys.called == [MODERN, HANDSHAKE]
        assert await far.call(HANDSHAKE) is HANDSHAKE and far.toys.called[2:] == [HANDSHAKE]


@pytest.mark.parametrize(
    ("method", "repetition", "action", "questions", "called"),
    [
        ("tools/call", "safe", "decline", 0, [MODERN, HANDSHAKE]),
        ("tools/call", "agreed", "accept", 1, [MODERN, HANDSHAKE]),
        ("tools/call", "agreed", "decline", 1, [MODERN]),
        ("tools/call", "never", "accept", 0, [MODERN]),
        ("prompts/get", "never", "decline", 0, [MODERN, HANDSHAKE]),
        ("resources/read", "never", "decline", 0, [MODERN, HANDSHAKE]),
    ],
)
@virtual
async def test_a_call_that_could_not_ask_begins_anew_only_if_that_is_safe_or_its_caller_agrees(
    method: str, repetition: Repetition, action: str, questions: int, called: list[Era]
) -> None:
    toys, channel = EraToys(asks=True), Caller(action=action)
    async with following(toys, client=ClientEra(MODERN), repetition=lambda *_: repetition) as far:
        await far.until(READY)
        far.upstream._last = MODERN
        call = replace(far.caller(HANDSHAKE), method=method)
        with nullcontext() if len(called) == 2 else pytest.raises(RpcError, match="Call it again") as failed:
            await far.upstream.call(call, channel)
        assert toys.called == called and len(channel.asked_params) == questions
        assert all("toy" in asked["message"] for asked in channel.asked_params)
        if failed is not None:
            assert failed.value.is_outcome_unknown and failed.value.about_upstream == ABOUT
        assert await far.call(HANDSHAKE) is HANDSHAKE and toys.called == [*called, HANDSHAKE], "it can ask now"


@virtual
async def test_a_caller_that_only_samples_is_not_asked_whether_its_call_may_begin_anew() -> None:
    toys, channel = EraToys(asks=True, question="sampling/createMessage"), Caller()
    async with following(toys, client=ClientEra(MODERN)) as far:
        await far.until(READY)
        far.upstream._last = MODERN
        with pytest.raises(RpcError, match="Call it again"):
            await far.upstream.call(replace(far.caller(HANDSHAKE), capabilities={"sampling": {}}), channel)
        assert toys.called == [MODERN] and not channel.asked_params


@virtual
async def test_a_caller_that_cannot_be_asked_gets_the_error_of_the_server() -> None:
    async with following(EraToys(asks=True), client=ClientEra(MODERN)) as far:
        await far.until(READY)
        far.upstream._last = MODERN
        mute = far.caller(HANDSHAKE)
        mute.capabilities.clear()
        far.caller = lambda era, **more: mute  # type: ignore[method-assign]
        assert "back-channel" in str(await far.call(HANDSHAKE)) and far.toys.called == [MODERN]


@virtual
async def test_a_handshake_connection_serves_both_eras_of_a_server_that_asks() -> None:
    async with following(EraToys(asks=True), asking(), ClientEra(HANDSHAKE)) as far:
        for era in Era:
            assert await far.call(era) is HANDSHAKE
        assert far.toys.begun == [HANDSHAKE]


@virtual
async def test_sessions_take_turns_at_the_connection_over_which_a_server_asks() -> None:
    async with following(EraToys(calls=100.0), asking(), ClientEra(MODERN)) as far:
        await far.call(MODERN)
        far.toys.called.clear()
        waits = {(era, session): NotedTimes() for era in Era for session in "ab"}
        for (era, session), times in waits.items():
            far.tasks.start_soon(partial(far.call, era, session=session, channel=Caller(times=times)))
            await anyio.sleep(5)
        assert sorted(far.toys.called) == [HANDSHAKE, MODERN, MODERN]
        assert waits[HANDSHAKE, "a"].reasons == ['server "toy" to start', None]
        (reason,) = waits[HANDSHAKE, "b"].reasons  # it still waits
        assert callable(reason) and set(reason()) == {"a"}
        far.tasks.cancel_scope.cancel()
    assert waits[HANDSHAKE, "b"].reasons[-1] is None


@virtual
async def test_the_connection_for_questions_ends_after_ten_idle_minutes() -> None:
    async with following(EraToys(), asking(), ClientEra(MODERN)) as far:
        assert await far.call(MODERN) is MODERN
        assert await far.call(HANDSHAKE) is HANDSHAKE
        await anyio.sleep(800)
        assert far.toys.running == [MODERN] and far.status.second is None
        assert await far.call(HANDSHAKE) is HANDSHAKE
        assert sorted(far.toys.running) == [HANDSHAKE, MODERN]


@virtual
async def test_a_rule_for_idle_servers_holds_for_both_connections() -> None:
    async with following(EraToys(), asking(), ClientEra(MODERN), idle_stop=60.0) as far:
        for era in (MODERN, HANDSHAKE):
            assert await far.call(era) is era
        await anyio.sleep(90)
        assert far.toys.running == [] and far.status.rests


@virtual
async def test_each_caller_is_listed_what_the_connection_of_its_calls_lists() -> None:
    async with following(EraToys(), asking(), ClientEra(MODERN)) as far:
        wires = {}
        for era in (MODERN, HANDSHAKE):
            assert await far.call(era) is era
            wires[era] = far.toys.wire
        for era in Era:
            version = far.upstream._first.state.changes.version
            wires[era].more.append(era.value)
            wires[era].announces(Kind.TOOL)
            await anyio.sleep(10)
            assert far.upstream._first.state.changes.version > version, "its caller hears of it"
        assert far.seen(MODERN) == ["x", "modern"]
        assert far.seen(HANDSHAKE) == ["x", "modern", "handshake"], "the union, in the order of the listed ones"
        wires[HANDSHAKE].more.clear()
        wires[HANDSHAKE].announces(Kind.TOOL)
        await anyio.sleep(10)
        assert far.seen(HANDSHAKE) == ["x", "modern"]


@virtual
async def test_updates_come_from_the_connection_of_the_callers_calls_also_if_that_changes() -> None:
    async with following(EraToys(asks=True), client=ClientEra(MODERN)) as far:
        old, new = far.caller(HANDSHAKE), far.caller(MODERN)
        await far.upstream.subscribe("toy://r", new)
        await far.upstream.subscribe("toy://r", old)
        here, there = (one.state.subscriptions.resources for one in (far.upstream._first, far.upstream._second))
        assert here.reference_counts["toy://r"] == 2
        await far.call(HANDSHAKE)  # it has asked
        await anyio.sleep(1)
        assert (here.reference_counts["toy://r"], there.reference_counts["toy://r"]) == (1, 1)
        place = far.upstream.apart(old)
        assert place is not None and far.upstream.apart(new) is None
        far.toys.wire.updates("toy://r")
        changes = far.upstream._first.state.changes
        assert changes.notices((place.topic, "toy://r"), 0) and not changes.notices(("toy", "toy://r"), 0)
        assert [uri for uri, _ in far.state().references] == ["toy://r"] * 2
        for caller in (old, new):
            far.upstream.unsubscribe("toy://r", caller)
        assert not here.reference_counts and not there.reference_counts and not far.state().references


async def hub_after(first: Era, cache: EraCache, toys: EraToys, era: Era) -> list[bytes]:
    """The lists of a hub with a client of this era; an earlier one had a `first` client."""
    lists: Handover | None = None
    for client in (first, era):
        async with following(toys, cache, ClientEra(client), lists) as far:
            await far.call(client)
            tools, lists = far.tools, far.state()
    return tools


@virtual
async def test_lists_cost_no_second_process_whichever_era_the_next_client_speaks() -> None:
    toys, cache = EraToys(), EraCache(None)
    tools = await hub_after(HANDSHAKE, cache, toys, MODERN)
    assert toys.begun == [HANDSHAKE, MODERN] and b"modern" in tools[0], "they are those of the connection"


@virtual
async def test_the_first_connection_takes_the_calls_if_there_cannot_be_a_second_one() -> None:
    toys = EraToys(broken={HANDSHAKE})
    async with following(toys, asking(), ClientEra(MODERN)) as far:
        assert await far.call(MODERN) is MODERN
        assert await far.call(HANDSHAKE) is MODERN
        await anyio.sleep(5000)
        assert far.status.state is READY and toys.running == [MODERN]
        assert far.status.second is not None and far.status.second.state is UpstreamState.FAILED


@virtual
async def test_a_restart_makes_both_connections_anew_and_a_drain_ends_both() -> None:
    async with following(EraToys(), asking(), ClientEra(MODERN)) as far:
        for era in (HANDSHAKE, MODERN):
            await far.call(MODERN)
            await far.call(era)
        far.upstream.lifecycle.restart()
        await anyio.sleep(10)
        assert sorted(far.toys.begun) == [HANDSHAKE, HANDSHAKE, MODERN, MODERN]
        assert far.status.restarts == 2
        await far.upstream.lifecycle.drain(5.0)
        assert far.toys.running == [] and far.status.state is UpstreamState.STOPPED
        assert "stopped" in str(await far.call(MODERN))


@virtual
async def test_a_restart_does_not_make_a_connection_that_nobody_needs() -> None:
    async with following(EraToys(), client=ClientEra(HANDSHAKE)) as far:
        await far.call(HANDSHAKE)
        far.upstream.lifecycle.restart()
        await anyio.sleep(10)
        assert far.toys.begun == [HANDSHAKE, HANDSHAKE]


@virtual
async def test_other_limits_and_the_log_level_reach_both_connections() -> None:
    async with following(EraToys(), asking(), ClientEra(MODERN)) as far:
        assert [await far.call(era) for era in (MODERN, HANDSHAKE)]
        far.upstream.set_log_level("debug")
        await anyio.sleep(1)
        assert far.toys.levels == ["debug"], "the modern era asks with each call"
        far.upstream.lifecycle.adjust(SupervisorRules(idle_stop=60.0))
        await anyio.sleep(90)
        assert far.toys.running == []
