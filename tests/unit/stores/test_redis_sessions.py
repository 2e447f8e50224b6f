"""Handshake sessions that several replicas have in memory: what one does to a session, the others are told."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import pytest
from msgspec.structs import replace

from mcp_hub.stores.base import SessionRow
from mcp_hub.stores.redis.store import RedisStore
from tests.unit.stores.event_stores import opened
from tests.unit.stores.redis_stores import new_redis

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ROW: Final = SessionRow("se_1", "local", b"{}", 9e9)


class Heard:
    """What a store tells of the sessions that its replica knows."""

    def __init__(self, store: RedisStore, *known: str) -> None:
        self.sessions: list[tuple[str, SessionRow | None]] = []
        self._bell = anyio.Event()
        for id_ in known:
            store.sessions.live.join(id_, partial(self._changed, id_))

    def _changed(self, id_: str, row: SessionRow | None) -> None:
        self.sessions.append((id_, row))
        self._bell.set()

    async def next(self) -> tuple[str, SessionRow | None]:
        while not self.sessions:
            self._bell = anyio.Event()
            await self._bell.wait()
        return self.sessions.pop(0)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    async with opened(one := new_redis(tmp_path)), opened(two := new_redis(tmp_path)):
        yield one, two


async def test_others_are_told_of_changes_and_the_end_of_sessions_that_they_know(
    pair: tuple[RedisStore, RedisStore],
) -> None:
    one, two = pair
    own, other = Heard(one, "se_1", "se_2"), Heard(two, "se_1")
    for id_ in ("se_1", "se_2"):
        await one.sessions.put(replace(ROW, id=id_))
        changed = replace(ROW, id=id_, body=b"[]")
        assert await one.sessions.put(changed, replace(ROW, id=id_)) == changed
    assert await other.next() == ("se_1", replace(ROW, body=b"[]"))
    await one.sessions.drop("se_1")
    assert await other.next() == ("se_1", None)
    assert (own.sessions, other.sessions) == ([], [])


async def test_a_session_that_was_changed_elsewhere_or_ended_is_not_overwritten(
    pair: tuple[RedisStore, RedisStore],
) -> None:
    one, two = pair
    await one.sessions.put(ROW)
    newer, mine = replace(ROW, body=b"[1]"), replace(ROW, body=b"[2]")
    assert await two.sessions.put(newer, ROW) == newer
    assert await one.sessions.put(mine, ROW) == newer == await one.sessions.find("se_1")
    assert await one.sessions.put(mine, newer) == mine == await two.sessions.find("se_1")
    await two.sessions.drop("se_1")
    assert await one.sessions.put(newer, mine) is None is await one.sessions.find("se_1")
    assert await one.sessions.put(newer) is None


async def test_replicas_tell_each_other_of_changed_lists_once(pair: tuple[RedisStore, RedisStore]) -> None:
    one, two = (store.sessions.lists for store in pair)
    at_one, at_two = (anyio.create_memory_object_stream[str](9) for _ in pair)
    with one.following("git", at_one[0].send_nowait), two.following("git", at_two[0].send_nowait):
        one.changed("ci", "of a server that nobody follows")
        one.changed("git", "1")
        assert await at_two[1].receive() == "1"
        two.changed("git", "1")
        two.changed("git", "2")
        assert await at_one[1].receive() == "2"
        assert at_two[1].statistics().current_buffer_used == 0
    for stream in (*at_one, *at_two):
        stream.close()


async def test_a_replica_that_was_cut_off_hears_of_all_that_was_changed_meanwhile(
    pair: tuple[RedisStore, RedisStore],
) -> None:
    one, two = pair
    ids = [f"se_{number}" for number in range(1500)]
    other = Heard(two, *ids)
    await two._doorbell.stop()
    for id_ in ids:
        await one.sessions.put(replace(ROW, id=id_))
        await one.sessions.drop(id_)
    two._doorbell.start()
    assert [await other.next() for _ in ids] == [(id_, None) for id_ in ids]
