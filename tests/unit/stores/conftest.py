"""One store of each kind, for the tests of what they all promise."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from mcp_hub.stores.base import EventStore, StoreLimits
from tests.redis_server import NO_SERVER, RedisServer, binary
from tests.unit.stores.away import FailsafePair, new_store
from tests.unit.stores.broken_files import HandClock
from tests.unit.stores.event_stores import SMALL, opened
from tests.unit.stores.redis_stores import EVERY_KIND, SERVERS, Pair, new_redis

_KINDS = [
    pytest.param(kind, marks=pytest.mark.processes) if kind.partition(",")[0] in SERVERS else kind
    for kind in EVERY_KIND
]


@pytest.fixture(params=_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def store(kind: str, tmp_path: Path) -> AsyncIterator[EventStore]:
    async with opened(EVERY_KIND[kind](tmp_path, SMALL)) as store:
        yield store


@pytest.fixture
async def large(kind: str, tmp_path: Path) -> AsyncIterator[EventStore]:
    async with opened(EVERY_KIND[kind](tmp_path, StoreLimits())) as store:
        yield store


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    """Two replicas on one server."""
    async with opened(one := new_redis(tmp_path)), opened(two := new_redis(tmp_path)):
        yield one, two


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    if binary() is None:
        pytest.skip(NO_SERVER)
    server = RedisServer(tmp_path)
    server.start()
    try:
        yield server
    finally:
        server.kill()


@pytest.fixture
async def mortal_pair(server: RedisServer) -> AsyncIterator[FailsafePair]:
    """Two replicas on a server of their own, which can go away."""
    async with opened(one := new_store(server)), opened(two := new_store(server)):
        yield one, two
