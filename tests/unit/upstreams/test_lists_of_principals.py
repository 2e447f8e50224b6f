"""Lists of a principal's own connection: whoever waits for them is answered with them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import anyio
import pytest

from mcp_hub.clock import SystemClock
from mcp_hub.notices import Notices
from mcp_hub.types import Era, Kind, Snapshot, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.supervision.principals import PerPrincipal
from mcp_hub.upstreams.supervision.server import Lifecycle, OwnedUpstream, SupervisorRules
from tests.unit.upstreams.function_calls import request
from tests.unit.wire.raw_lines import group

pytestmark = pytest.mark.anyio

LISTS = Snapshot("own", Era.MODERN, {Kind.TOOL: (b'{"name":"x"}',)})


class Connection:
    """That of a principal, which starts until it has lists."""

    def __init__(self) -> None:
        self.lists: Snapshot | None = None
        self.lifecycle = Lifecycle(anyio.sleep_forever)

    def snapshot(self) -> Snapshot | None:
        return self.lists

    def status(self) -> UpstreamStatus:
        return UpstreamStatus("own", UpstreamState.STARTING if self.lists is None else UpstreamState.READY)

    def apart(self, call: object) -> None:
        return None


class NoAccounts:
    """Nobody needs one."""

    def __init__(self) -> None:
        self.ended: list[object] = []
        self.begun: list[object] = []

    async def followed(self, server: str, principal: str) -> None:
        return None

    @asynccontextmanager
    async def watched(self, server: str, principal: str) -> AsyncIterator[None]:
        yield


async def test_lists_that_arrived_are_a_change_for_whoever_looked_just_before() -> None:
    connection, changes = Connection(), Notices()
    upstream = PerPrincipal(
        "own", lambda *_: cast("OwnedUpstream", connection), lambda *_: None, cast("Any", NoAccounts()),
        SupervisorRules(), limit=1, clock=SystemClock(), changes=changes,
    )  # fmt: skip
    async with group() as tasks:
        tasks.start_soon(upstream.lifecycle.run)
        await changes.wait(0)
        before = upstream.apart(request("x"))
        assert before is not None and before.arrival is not None
        waits = anyio.Event()

        async def wait(arrival: Any = before.arrival) -> None:
            await arrival()
            waits.set()

        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        assert not waits.is_set()
        changes.bump()  # of another server; its lists come at the same moment, and nobody has told of them
        seen, connection.lists = changes.version, LISTS
        await waits.wait()
        assert changes.version > seen, "lists that were made at that version lack these"
        after = upstream.apart(request("x"))
        assert after is not None and after.lists is not None and after.lists.lists == LISTS.lists
        tasks.cancel_scope.cancel()
