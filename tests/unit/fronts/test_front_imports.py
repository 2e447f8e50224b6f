"""The fronts come without the SDK."""

import subprocess
import sys

from tests.upstreams.child import WAIT

FRONTS = "mcp_hub.cli.serve, mcp_hub.cli.http_limits, mcp_hub.fronts.streamable_http, mcp_hub.fronts.legacy_sse"


def test_serving_over_http_takes_no_sdk() -> None:
    """It would be most of the start."""
    script = f"import sys, {FRONTS}, mcp_hub.fronts.rest; sys.exit('mcp' in sys.modules or 'mcp_types' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=WAIT).returncode == 0
