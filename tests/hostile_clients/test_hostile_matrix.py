"""Every row of the table at every door: what a bad client is told, and that a good one beside it notices nothing."""

from collections.abc import AsyncIterator

import pytest

from tests.hostile_clients.cases import CASES, EXPECTED, RUNNING, WAITING, Site, flooded, site, told
from tests.hostile_clients.doors import DOORS

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with site(tmp_path_factory.mktemp("hostile")) as running:
        yield running
        assert running.stdio is not None and running.stdio.noise == []
        assert await running.stdio.close() == 0


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("case", CASES)
async def test_bad_client_is_told_so_and_nobody_else_notices(hubs: Site, case: str, door: str) -> None:
    assert await told(hubs, case, door) == EXPECTED[case][door]


async def test_five_thousand_calls_at_once_are_all_answered(hubs: Site) -> None:
    assert hubs.stdio is not None
    said = await flooded(hubs.stdio, 5000)
    assert said.keys() <= {"result", "1004"} and said["result"] >= RUNNING + WAITING


def test_every_row_says_what_each_door_answers() -> None:
    assert EXPECTED.keys() == CASES.keys()
    assert all(row.keys() == set(DOORS) for row in EXPECTED.values())
