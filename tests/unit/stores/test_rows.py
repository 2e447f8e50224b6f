"""Rows of accounts in files and on a server: which were written since a look."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mcp_hub.clock import wall_time
from mcp_hub.stores.documents import Rows
from mcp_hub.stores.redis.store import RedisStore
from mcp_hub.stores.replicated import _RedisRows
from mcp_hub.upstreams.accounts.rows import RowFiles
from mcp_hub.upstreams.auth.grants import LoginFailed
from tests.redis_server import NO_SERVER, binary
from tests.unit.stores.event_stores import opened
from tests.unit.stores.redis_stores import new_redis

pytestmark = pytest.mark.anyio

NAMES = tuple(digit * 32 for digit in "0123")


@pytest.fixture(params=["files", "many files", "server"])
async def rows(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Rows, Rows]]:
    """The rows, as two hubs see them."""
    if "files" in request.param:
        if request.param == "many files":
            monkeypatch.setattr("mcp_hub.upstreams.accounts.rows._AT_ONCE", 0)
        yield RowFiles(tmp_path), RowFiles(tmp_path)
    elif binary() is None:
        pytest.skip(NO_SERVER)
    else:
        async with opened(first := new_redis(tmp_path)), opened(second := new_redis(tmp_path)):
            yield rows_on(first), rows_on(second)


def rows_on(store: RedisStore) -> Rows:
    return _RedisRows(store.links, wall_time, is_pending=False)


async def put(rows: Rows, name: str, row: bytes) -> None:
    async with rows.locked(name, 5.0), rows.writing(name) as write:
        await write(row)


@pytest.mark.processes
async def test_rows_that_another_hub_wrote_are_found_once(rows: tuple[Rows, Rows]) -> None:
    here, there = rows
    stamp, written = await here.written(NAMES, None)
    assert set(written) == set(NAMES), "nothing is known before the first look"
    for row in (b"one", b"two", b"three"):  # as fast as it can be
        await put(there, NAMES[0], row)
        await put(there, NAMES[3], row)
        stamp, written = await here.written(NAMES[:3], stamp)
        assert (set(written), await here.read(NAMES[0])) == ({NAMES[0]}, row)
        stamp, written = await here.written(NAMES[:3], stamp)
        assert set(written) == set()
    await put(here, NAMES[1], b"own")
    async with there.locked(NAMES[2], 5.0), there.writing(NAMES[2]):
        pass  # not written after all
    assert await there.remove(NAMES[3]) and not await there.remove(NAMES[3])
    stamp, written = await here.written(NAMES[1:], stamp)
    assert NAMES[1] in written and NAMES[2] not in written
    assert set(await there.names()) == set(NAMES[:2])


@pytest.mark.processes
async def test_stamp_that_the_store_does_not_know_finds_all(rows: tuple[Rows, Rows]) -> None:
    assert set((await rows[0].written(NAMES, 1 << 40))[1]) == set(NAMES)
    assert set((await rows[0].written(NAMES, "x"))[1]) == set(NAMES)


@pytest.mark.processes
async def test_refusal_of_a_login_stays_final_while_its_row_is_held(rows: tuple[Rows, Rows]) -> None:
    for held in (rows[0].locked(NAMES[0], 5.0), rows[0].writing(NAMES[0])):
        with pytest.raises(LoginFailed) as failed:
            async with held:
                raise LoginFailed("the issuer refuses it")
        assert failed.value.is_final
