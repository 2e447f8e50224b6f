"""A client of a background hub that vanishes amid many calls: which of them continue, and what stays of them."""

import weakref

import pytest

from mcp_hub.calls.runner import CallRecord
from mcp_hub.fronts.mcp.bonds import AttachedBond, ClientBond
from mcp_hub.hub import HubPort
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.fronts.task_hub import TaskHub, text

RUNNING, WAITING = 3, 7


def attached(port: HubPort) -> ClientBond:
    """The bond of a client of a background hub."""
    return AttachedBond(port, {}, lambda id_, stream: b"")


def records(hub: TaskHub) -> "list[weakref.ref[CallRecord]]":
    return [weakref.ref(record) for record in hub.registry.under_way]


@virtual
async def test_calls_that_wait_for_their_turn_are_cancelled_when_their_client_vanishes() -> None:
    hub = TaskHub("pipe", bond=attached, running=RUNNING)

    async def vanishes(hub: TaskHub) -> None:
        for _ in range(RUNNING + WAITING):
            await hub.call("slow")
        assert len(hub.registry) == RUNNING + WAITING
        hub.close()

    await hub.serve(vanishes)
    assert len(hub.registry) == RUNNING, "those that were sent continue"
    for running in hub.server.calls:
        await running.ends()
    assert len(hub.server.calls) == RUNNING and len(hub.registry) == 0
    assert not any(running.is_cancelled for running in hub.server.calls)


@pytest.mark.parametrize("bond", [attached, lambda port: ClientBond()])
@pytest.mark.parametrize("lasts", [False, True])
@pytest.mark.usefixtures("without_collector")
@virtual
async def test_results_of_a_vanished_client_do_not_stay_in_memory(bond: object, lasts: bool) -> None:
    """Neither those of calls that were quick until then, nor those of calls that the client followed."""
    hub = TaskHub("pipe", bond=bond, running=RUNNING)  # type: ignore[arg-type]
    kept: list[weakref.ref[CallRecord]] = []

    async def vanishes(hub: TaskHub) -> None:
        for _ in range(RUNNING + WAITING):
            await hub.call("slow")
        await sleep(2 if lasts else 0)
        kept.extend(records(hub))
        hub.close()

    await hub.serve(vanishes)
    for running in hub.server.calls:
        if not running.outcome.done():
            await running.ends(text("x" * 100_000))
    hub.server.calls.clear()
    del running
    await sleep(10)
    assert len(kept) == RUNNING + WAITING
    assert [record for record in kept if record() is not None] == []


@virtual
async def test_a_waiting_call_of_a_vanished_client_gets_its_turn_if_its_tool_says_so() -> None:
    hub = TaskHub("pipe", bond=attached, running=1)

    async def vanishes(hub: TaskHub) -> None:
        for tool in ("slow", "kept", "slow"):
            await hub.call(tool)
        hub.close()

    await hub.serve(vanishes)
    await hub.running.ends()
    await hub.running.ends()
    assert len(hub.server.calls) == 2 and len(hub.registry) == 0
