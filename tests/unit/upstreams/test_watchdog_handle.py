"""A hub whose watchdog process keeps ending: it gives up for a while, says so once, and takes that back."""

import os
import signal
import sys

import anyio
import pytest
import structlog

from mcp_hub.upstreams.process.watchdog_process import WatchdogHandle
from tests.unit.stores.broken_files import HandClock

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform == "win32", reason="there is no watchdog process"),
]


async def test_guard_that_runs_after_all_ends_the_alarm() -> None:
    clock = HandClock()
    handle = WatchdogHandle("mine", (), clock)
    with structlog.testing.capture_logs() as logs, anyio.fail_after(20):
        for _ in range(5):
            handle.ensure()
            assert handle.process is not None and not handle.has_given_up
            os.kill(handle.process.pid, signal.SIGKILL)
            await handle.wait()
        handle.ensure()
        assert handle.process is None and handle.has_given_up
        handle.ensure()
        clock.seconds += 60
        handle.ensure()
        assert handle.has_given_up, "it may end at once as the others did"
        handle.ensure()
        assert handle.process is not None and not handle.has_given_up
        await handle.stop()
    said = [line["event"] for line in logs]
    assert said == [*["guard_ended"] * 5, "guard_given_up", "guard_recovered"]
