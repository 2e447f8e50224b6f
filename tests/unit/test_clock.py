import subprocess
import sys
import time

import pytest

from mcp_hub.clock import SystemClock, process_start

AGE = """
import time
from mcp_hub.clock import process_start
print(time.process_time(), time.monotonic() - process_start())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows it")
@pytest.mark.processes
def test_a_process_knows_how_long_it_has_run() -> None:
    began = time.monotonic()
    said = subprocess.run([sys.executable, "-c", AGE], capture_output=True, check=True, timeout=240).stdout
    busy, age = map(float, said.split())
    assert busy <= age <= time.monotonic() - began + 0.02, "the system counts in hundredths"


def test_a_process_has_started_before_now() -> None:
    assert process_start() <= SystemClock.now()
