"""What every command runs on."""

import sys
from collections.abc import Iterator

import pytest

from mcp_hub.cli import setup


@pytest.fixture(autouse=True)
def interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_a_busy_loop_gives_way_to_the_stores_thread_soon() -> None:
    async def main() -> float:
        return sys.getswitchinterval()

    assert setup.run(main) <= 0.001
