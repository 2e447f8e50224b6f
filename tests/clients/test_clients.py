"""The clients that are at hand or a short installation away, against a hub on both fronts: a short `make clients`."""

import pytest

from tests.clients.matrix import Choice, Measured, measure
from tests.clients.table import failures

pytestmark = pytest.mark.anyio

NAMES = ("python-mcp-2-legacy", "python-mcp-2-auto", "python-mcp-2-pinned", "typescript-sdk-1")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def measured() -> Measured:
    return await measure(Choice(NAMES, is_quick=True), print)


@pytest.mark.parametrize("name", NAMES)
async def test_client_and_server_of_different_eras_work_together(measured: Measured, name: str) -> None:
    if name in measured.missing:
        pytest.skip(f"not installed: {measured.missing[name]}")
    results = {row: outcomes for row, outcomes in measured.results.items() if row.client.name == name}
    assert {row.front for row in results} == {"stdio", "http"}
    assert failures(results, measured.shown) == []
