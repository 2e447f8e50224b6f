"""The SDK's header checks come without the SDK."""

import subprocess
import sys

from mcp.shared import inbound as ordinary

from mcp_hub.fronts.header_ladder import inbound
from tests.upstreams.child import WAIT

FRONTS = "mcp_hub.cli.serve, mcp_hub.cli.http_limits, mcp_hub.fronts.streamable_http, mcp_hub.fronts.legacy_sse"


def test_serving_over_http_takes_no_sdk() -> None:
    """It would be most of the start."""
    script = f"import sys, {FRONTS}, mcp_hub.fronts.rest; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=WAIT).returncode == 0


def test_the_checks_are_those_of_the_installed_sdk() -> None:
    assert inbound.__file__ == ordinary.__file__
    assert inbound is not ordinary
