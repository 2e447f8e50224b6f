"""A file that was out of use comes back though nobody has anything to write: who watches the hub waits for that."""

from pathlib import Path

import pytest

from mcp_hub.stores.recovery.recovery import FIRST
from tests.unit.stores.broken_files import HandClock, empty_disk, fill_disk
from tests.unit.stores.event_stores import append, create, new_failsafe, new_row, opened

pytestmark = pytest.mark.anyio


async def test_an_idle_hub_tries_its_store_again_when_it_is_time(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        row = await create(store, new_row(store), 3)
        await fill_disk(store)
        await append(store, row, 4, size=100_000)
        assert not store.log.is_durable
        clock.seconds += FIRST
        await store.leases.orphans()
        assert not store.log.is_durable, "the disk is still full"
        await empty_disk(store)
        await store.leases.orphans()
        assert not store.log.is_durable, "not before it is time"
        clock.seconds += 2 * FIRST
        await store.leases.orphans()
        assert store.log.is_durable
        assert await store.sessions.find("") is None, "nothing is left of the trial"
