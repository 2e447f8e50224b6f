"""The fronts come without the SDK."""

import subprocess
import sys

import pytest

from tests.upstreams.child import WAIT

pytestmark = pytest.mark.processes

FRONTS = "mcp_hub.cli.commands.serve, mcp_hub.app.http, mcp_hub.fronts.http.streamable, mcp_hub.fronts.legacy_sse"


def test_serving_over_http_takes_no_sdk() -> None:
    """It would be most of the start."""
    script = (
        f"import sys, {FRONTS}, mcp_hub.fronts.rest.api; sys.exit('mcp' in sys.modules or 'mcp_types' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=WAIT).returncode == 0


def test_holding_a_login_takes_no_sdk() -> None:
    """It costs half a second and 60 MB."""
    modules = "app.logins, upstreams.remote.connection, upstreams.auth.access, upstreams.auth.login"
    imports = "import mcp_hub." + modules.replace(", ", ", mcp_hub.")
    script = f"import sys; {imports}; sys.exit('mcp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], timeout=WAIT).returncode == 0
