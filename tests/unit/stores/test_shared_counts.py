"""Limits that replicas count together on a server."""

import math
from pathlib import Path

import pytest

from mcp_hub.stores.documents import LimitRule
from mcp_hub.stores.redis.leases import Leases
from mcp_hub.stores.replicated import _RedisCounts
from tests.unit.stores.event_stores import opened
from tests.unit.stores.redis_stores import new_redis

pytestmark = [pytest.mark.anyio, pytest.mark.processes]


async def test_rate_holds_for_all_replicas_together(tmp_path: Path) -> None:
    async with opened(first := new_redis(tmp_path)), opened(second := new_redis(tmp_path)):
        counts = [_RedisCounts(store.links) for store in (first, second)]
        limits = [("", LimitRule("limit", 6, 60.0, 0)), ("t", LimitRule("limit", 4, 60.0, 0))]
        pauses = [await counts[n % 2].take("s", limits, f"c{n}") for n in range(6)]
        assert pauses[:4] == [0, 0, 0, 0]
        assert all(50 < pause <= 60 for pause in pauses[4:])
        assert await counts[0].take("s", limits[:1], "d0") == 0  # what the other limit refused has not been counted
        assert await counts[1].take("s", limits[:1], "d1") == 0
        assert await counts[0].take("s", limits[:1], "d2") > 0
        assert await counts[0].take("other", limits, "d2") == 0


async def test_place_is_free_after_the_call_and_after_its_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(first := new_redis(tmp_path)), opened(second := new_redis(tmp_path)):
        one, other = (_RedisCounts(store.links) for store in (first, second))
        limits = [("", LimitRule("limit", 0, 0.0, 2))]
        assert [await one.take("s", limits, name) for name in ("a", "b", "c")] == [0, 0, math.inf]
        assert await other.take("s", limits, "d") == math.inf
        one.leave("s", limits, "a")
        assert await other.take("s", limits, "d") == 0
        one._running.discard("b")  # its end was not written: the server had failed
        assert await other.take("s", limits, "e") == math.inf
        assert await one.take("s", limits, "e") == 0
        monkeypatch.setattr(Leases, "is_gone", lambda _, name: name == first.log.instance)
        assert await other.take("s", limits, "f") == 0


async def test_wrong_type_at_a_key_is_set_aside(tmp_path: Path) -> None:
    async with opened(store := new_redis(tmp_path)):
        counts, limits = _RedisCounts(store.links), [("", LimitRule("limit", 1, 0.2, 1))]
        for key in counts._keys.counts("s", ""):
            await store.links.writer.ask(("SET", key, "x"))
        assert await counts.take("s", limits, "a") == 0
