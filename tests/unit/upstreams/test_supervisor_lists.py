"""The lists of a server at its start and later: on virtual time, so that seconds are exact and cost nothing."""

import math

import anyio

from mcp_hub.types import Kind, UpstreamState
from tests.unit.calls.virtual_time import virtual
from tests.unit.upstreams.toy_servers import Toys, up

READY = UpstreamState.READY


@virtual
async def test_a_server_whose_list_breaks_off_is_ready_with_what_was_read_and_a_later_list_has_to_be_whole() -> None:
    async with up(Toys(cursor="next")) as far:
        first = far.supervisor.snapshot()
        assert first is not None and len(first.lists[Kind.TOOL]) == 1
        assert len(far.status.warnings) == 1 and "stopped after 1 entry" in far.status.warnings[0]
        assert await far.call() == "ok"
        far.toys.tools.append("y")
        far.toys.wire.announces(Kind.TOOL)
        await anyio.sleep(60)
        assert far.supervisor.snapshot() is first and far.state is READY
        far.toys.cursor = None
        far.toys.wire.announces(Kind.TOOL)
        await anyio.sleep(60)
        second = far.supervisor.snapshot()
        assert second is not None and len(second.lists[Kind.TOOL]) == 2 and not far.status.warnings


@virtual
async def test_a_list_that_nobody_needs_at_once_does_not_keep_the_tools_away_and_is_read_when_it_comes() -> None:
    async with up(Toys(slow={"resources/list": 30.0})) as far:
        assert far.now == 10.5 and await far.call() == "ok"
        first = far.supervisor.snapshot()
        assert first is not None and not first.lists[Kind.RESOURCE]
        assert "no answer within 10 s" in "".join(far.status.warnings)
        await anyio.sleep(60)
        second = far.supervisor.snapshot()
        assert second is not None and len(second.lists[Kind.RESOURCE]) == 1 and not far.status.warnings
        far.toys.wire.die()
        await far.until(READY, starts=2)
        third = far.supervisor.snapshot()
        assert third is not None and third.lists == second.lists, "what is late stays as it was"


@virtual
async def test_a_list_that_never_comes_costs_at_most_half_of_the_start() -> None:
    async with up(Toys(slow={"resources/list": math.inf}), start_timeout=4.0) as far:
        assert far.now == 2.5
        await anyio.sleep(1000)
        assert far.state is READY and await far.call() == "ok"
        assert "no answer within 2 s" in "".join(far.status.warnings)
