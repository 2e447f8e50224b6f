"""The SDKs of the handshake era come back by themselves, through a balancer, to a replica that still runs."""

from pathlib import Path

import pytest

from rigs.clients.clients import CLIENTS
from rigs.clients.install import NotInstalled
from rigs.replicas.sdk_clients import WAYS, outcome

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["python-mcp-1", "typescript-sdk-1"])
async def test_client_gets_its_result_after_its_replica_was_killed(name: str, way: str, tmp_path: Path) -> None:
    try:
        told = await outcome(CLIENTS[name], way, tmp_path)
    except NotInstalled as reason:
        pytest.skip(str(reason))
    assert told["ok"], told
