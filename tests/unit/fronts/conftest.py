"""A hub behind its REST front."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.fronts.rest_peer import RestPeer, rest_hub


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[RestPeer]:
    async with rest_hub(tmp_path) as peer:
        yield peer
