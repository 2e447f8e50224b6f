"""What a client left behind is found and ended."""

import sys
from pathlib import Path

import pytest

from tests.clients.rig import left_running
from tests.upstreams.child import Child

pytestmark = pytest.mark.anyio


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs /proc")
async def test_processes_of_a_rig_that_do_not_end_are_named_and_killed(tmp_path: Path) -> None:
    program = "import sys, time; print('up', file=sys.stderr); time.sleep(1000)"
    endless = [sys.executable, "-c", program, str(tmp_path / "servers.yaml")]
    async with Child(endless) as child:
        await child.wait_stderr("up")  # it has a command line of its own now
        (left,) = await left_running(tmp_path, grace=0.1)
        assert left.endswith("servers.yaml")
        assert await child.wait() != 0
    assert await left_running(tmp_path, grace=0.1) == []
