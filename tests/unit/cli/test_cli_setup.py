"""What every command runs on."""

import subprocess
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


@pytest.mark.processes
def test_the_hub_starts_without_rich() -> None:
    look = (
        "import sys, mcp_hub.cli, mcp_hub.app.build; print([name for name in sys.modules if name.startswith('rich')])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr
