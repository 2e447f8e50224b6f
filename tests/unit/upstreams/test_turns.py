"""Turns at an interactive server: sessions do not overlap, in order of arrival, nobody waits for ever."""

import anyio
import pytest

from mcp_hub.errors import Busy
from mcp_hub.upstreams.supervision.turns import Turns
from tests.unit.wire.raw_lines import group, within

pytestmark = pytest.mark.anyio


def on(wait: float = 5, echo: float = 5) -> Turns:
    return Turns("git", wait, echo, is_on=True)


async def test_off_everybody_overlaps_and_is_counted() -> None:
    turns = Turns("git")
    assert turns.enter_now("a") and turns.enter_now("b")
    turns.switch_on()
    assert not turns.enter_now("a"), "b is still there"
    turns.leave("b")
    assert turns.enter_now("a")


async def test_calls_of_one_session_overlap() -> None:
    turns = on()
    assert turns.enter_now("a") and turns.enter_now("a")
    turns.leave("a")
    assert not turns.enter_now("b")
    turns.leave("a")
    assert turns.enter_now("b")


async def test_sessions_come_in_order_and_the_present_one_does_not_jump_the_queue() -> None:
    turns, order = on(), []
    turns.enter_now("a")

    async def call(name: str, session: str, done: anyio.Event) -> None:
        await turns.enter(session)
        order.append(name)
        await done.wait()
        turns.leave(session)

    done = {name: anyio.Event() for name in ("b1", "b2", "a2", "c1")}
    async with anyio.create_task_group() as tasks:
        for name in done:
            tasks.start_soon(call, name, name[0], done[name])
            await anyio.wait_all_tasks_blocked()
        assert order == []
        turns.leave("a")
        for leaves, expected in (("b1", ["b1", "b2"]), ("b2", ["b1", "b2"]), ("a2", ["b1", "b2", "a2"])):
            await anyio.wait_all_tasks_blocked()
            assert order == expected
            done[leaves].set()
        done["c1"].set()
    assert order[-1] == "c1" and turns.enter_now("d")


async def test_one_with_very_many_calls_keeps_nobody_else_waiting_for_all_of_them() -> None:
    turns, order = on(), []
    turns.enter_now("x")

    async def call(session: str, principal: str) -> None:
        await turns.enter(session, principal)
        order.append(session)
        turns.leave(session)

    async with anyio.create_task_group() as tasks:
        others = [("b0", "bob"), ("c0", "carol"), ("b1", "bob")]
        for session, principal in [*((f"a{n}", "alice") for n in range(50)), *others]:
            tasks.start_soon(call, session, principal)
            await anyio.wait_all_tasks_blocked()
        turns.leave("x")
    assert order[:6] == ["a0", "b0", "c0", "a1", "b1", "a2"]
    assert order[6:] == [f"a{n}" for n in range(3, 50)] and turns.is_empty


async def test_as_many_as_may_wait_of_one_principal_leave_room_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.supervision.turns._MOST", 1)
    turns = on()
    turns.enter_now("x")
    async with group() as tasks:
        for principal in ("alice", "bob"):
            tasks.start_soon(turns.enter, principal, principal)
            await anyio.wait_all_tasks_blocked()
        with pytest.raises(Busy, match="too many calls wait"):
            await turns.enter("a", "alice")
    turns.leave("x")
    assert turns.is_empty


async def test_a_turn_that_does_not_come_is_busy_and_says_what_to_set() -> None:
    turns = on(wait=0.01)
    turns.enter_now("a")
    with pytest.raises(Busy, match=r'server "git" is busy.*`scope: session`'):
        await turns.enter("b")
    turns.leave("a")
    assert turns.enter_now("c"), "who gave up left nothing behind"


async def test_a_call_that_is_cancelled_as_its_turn_comes_gives_it_back() -> None:
    turns = on()
    turns.enter_now("a")

    async def call() -> None:
        await turns.enter("b")
        turns.leave("b")

    async with group() as tasks:
        tasks.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        turns.leave("a")
    assert turns.enter_now("c")


async def test_after_a_call_was_given_up_others_wait_until_it_cannot_be_heard_of_any_more() -> None:
    turns = Turns("git", 5, echo=0.05)
    turns.enter_now("a")
    start = anyio.current_time()
    turns.leave("a", abandoned=True)
    turns.switch_on()  # it asks on behalf of that call, and is known to ask from here on
    assert not turns.enter_now("b")
    assert turns.enter_now("a"), "its own session may go on"
    turns.leave("a")
    await turns.enter("b")
    assert anyio.current_time() - start >= 0.05


async def test_a_call_that_waits_when_another_is_abandoned_waits_for_its_echo_only() -> None:
    turns = on(wait=20, echo=0.05)
    turns.enter_now("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turns.enter, "b")
        await anyio.wait_all_tasks_blocked()
        turns.leave("a", abandoned=True)
        await within(turns.enter("b"))


async def test_off_only_a_session_that_wants_to_be_alone_does_not_overlap() -> None:
    turns = Turns("git")
    assert turns.enter_now("a", alone=True) and turns.enter_now("a", alone=True)
    assert not turns.enter_now("b") and not turns.enter_now("c", alone=True)
    turns.leave("a")
    assert not turns.enter_now("b"), "a is still there"
    turns.leave("a")
    assert turns.enter_now("b") and turns.enter_now("c"), "neither wants to be alone"
    assert not turns.enter_now("a", alone=True)
    turns.leave("b")
    assert turns.enter_now("c", alone=True) and not turns.enter_now("b")


async def test_others_do_not_overtake_a_session_that_waits_to_be_alone() -> None:
    turns, order = Turns("git"), []

    async def call(session: str, *, alone: bool = False) -> None:
        await turns.enter(session, session, alone=alone)
        order.append(session)

    turns.enter_now("a")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call("b", alone=True))
        await anyio.wait_all_tasks_blocked()
        for session in "acd":
            tasks.start_soon(call, session)
        await anyio.wait_all_tasks_blocked()
        assert order == []
        turns.leave("a")
        await anyio.wait_all_tasks_blocked()
        assert order == ["b"]
        turns.leave("b")
        await anyio.wait_all_tasks_blocked()
        assert order == ["b", "a", "c", "d"], "these overlap"


async def test_a_session_that_wants_to_be_alone_waits_for_what_a_call_that_was_given_up_may_still_say() -> None:
    turns = Turns("git", echo=5)
    assert turns.enter_now("a")
    turns.leave("a", abandoned=True)
    assert not turns.enter_now("b", alone=True)
    assert turns.enter_now("b"), "one that hears nothing need not wait"


async def test_the_error_of_one_that_has_waited_too_long_names_the_setting() -> None:
    turns = Turns("git", wait=0)
    turns.enter_now("a", alone=True)
    with pytest.raises(Busy, match="`logs: turns`"):
        await turns.enter("b")


async def test_all_that_wait_are_let_in_where_no_call_is_taken_any_more() -> None:
    turns = on()
    turns.enter_now("a")
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            for session in ("b", "c"):
                tasks.start_soon(turns.enter, session)
            await anyio.wait_all_tasks_blocked()
            turns.release()
    for session in ("b", "c"):
        turns.leave(session)
    assert not turns.is_empty
    turns.leave("a")
    assert turns.is_empty


async def test_a_wait_that_lasts_is_reported_once() -> None:
    turns, came = Turns("git", is_on=True), anyio.Event()
    turns.enter_now("a")
    said: list[bool] = []

    async def call() -> None:
        said.append(await turns.enter("b", waits=came.set, quiet=0))

    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await came.wait()
            turns.leave("a")
    assert said == [True]
    assert not await turns.enter("b", waits=came.set), "nothing to wait for"
