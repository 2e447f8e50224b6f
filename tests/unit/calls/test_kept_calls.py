"""Whoever has to know that what a call has said is stored waits for that, and for no more."""

import pytest

from mcp_hub.errors import StoreError
from tests.unit.calls.durable_hub import DurableHub, delta, status, store_of, written
from tests.unit.calls.shared_store import HubStore
from tests.unit.calls.virtual_time import LoopClock, virtual


@pytest.mark.parametrize("whole", [False, True])
@virtual
async def test_whoever_waits_for_what_was_said_to_be_kept_waits_for_the_store(whole: bool) -> None:
    hub = DurableHub(HubStore(delay=lambda: 0.3))
    call = hub.call()
    before = LoopClock().now()
    for n in range(200):
        call.says(delta(str(n)))
    if whole:
        call.ends()
    await call.record.kept(whole=whole)
    assert '"199"' in str(written(hub, call.id)) and LoopClock().now() - before < 2
    assert status(hub, call.id) == ("completed" if whole else "working")
    await call.record.kept(whole=whole)  # nothing to wait for


@virtual
async def test_nobody_waits_for_a_stream_that_is_lost_or_for_a_call_that_has_none() -> None:
    hub = DurableHub()
    await hub.call().record.kept(whole=False)
    store_of(hub).broken = StoreError("gone")
    call = hub.call()
    call.says(delta("x"))
    await call.record.kept(whole=False)
    assert call.record.stream is not None and call.record.stream.failed is not None
