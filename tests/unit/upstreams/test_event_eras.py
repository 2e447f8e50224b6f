"""Servers with events in one era only: clients have them whichever era the first connection has."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from mcp_hub.types import HANDSHAKE, MODERN, Era, UpstreamState
from mcp_hub.upstreams.lists.list_reader import ListFile
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.server_eras import ClientEra
from tests.unit.calls.virtual_time import virtual
from tests.unit.upstreams.era_toys import EraToys, following

READY = UpstreamState.READY


@pytest.mark.parametrize("first", list(Era))
@virtual
async def test_events_of_one_era_come_from_a_connection_of_it_also_after_a_change_of_era(first: Era) -> None:
    other = HANDSHAKE if first is MODERN else MODERN
    async with following(EraToys(events={first})) as far:
        assert await far.call(first) is first
        assert (far.event_types, await far.poll()) == ([types := f"built in {first.value}"], first)
        await far.call(other)
        seen = set[str]()
        far.tasks.start_soon(far.note_events, seen)
        far.toys.wire.die()
        await far.until(UpstreamState.BACKING_OFF)
        await far.until(READY)
        assert (far.status.era, await far.poll()) == (other, first)
        assert seen == {types}, "no client hears that they are gone"
        assert far.status.second is not None and far.status.second.reason == "for events"
        assert await far.call(first) is other, "calls stay at the first connection"


@virtual
async def test_events_of_the_other_era_are_known_to_the_next_hub_and_after_other_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(write: Callable[..., None], *args: Any, **_: Any) -> None:
        write(*args)  # virtual time would be up before a thread begins

    monkeypatch.setattr(anyio.to_thread, "run_sync", at_once)
    cache, lists = EraCache(None), ListFile(tmp_path, "toy", "0" * 32)
    async with following(toys := EraToys(events={MODERN}), cache, ClientEra(MODERN), lists=lists) as far:
        assert [await far.call(era) for era in (MODERN, HANDSHAKE)] == [MODERN, MODERN]
        far.upstream.lifecycle.restart()
        await anyio.sleep(20)
        known = far.state()
    for state in (known, None):
        async with following(toys, cache, ClientEra(HANDSHAKE), state, lists) as far:
            assert far.event_types == ["built in modern"], "webhooks would end otherwise"
            assert await far.poll() is MODERN and far.status.era is HANDSHAKE


@virtual
async def test_events_that_a_server_has_no_more_are_gone() -> None:
    async with following(toys := EraToys(events={MODERN}), client=ClientEra(MODERN)) as far:
        assert [await far.call(era) for era in (MODERN, HANDSHAKE)] == [MODERN, MODERN]
        toys.events.clear()
        far.upstream.lifecycle.restart()
        await anyio.sleep(20)
        assert far.event_types == [] and far.status.era is HANDSHAKE
        assert await far.poll() is HANDSHAKE, "which says that it has none"
